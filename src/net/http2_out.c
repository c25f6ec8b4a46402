/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue between an HTTP/2 session and its socket: iovecs that pin the messages they point into.
 *
 * Order of calls: room, then copy or frame; flush. Threads: the loop's. Bounds: H2_QUEUE_ENTRIES, H2_QUEUE_BYTES and
 * H2_ARENA_BYTES a connection, H2_TURN_BYTES a turn of the loop. A TLS transport would replace `transmit` here and the
 * readv of http2.c.
 */
#include "net/http2_internal.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

h2_msg *h2_msg_new(const void *head, size_t head_bytes, const void *body, size_t body_bytes, void (*release)(void *),
                   void *owner) {
  size_t copied = release ? 0 : body_bytes;
  h2_msg *m = br_malloc(sizeof *m + head_bytes + copied);
  *m = (h2_msg){.refs = 1, .release = release, .owner = owner, .head_bytes = head_bytes, .body_bytes = body_bytes};
  if (head_bytes) memcpy(m->head, head, head_bytes);
  if (copied) memcpy(m->head + head_bytes, body, copied);
  m->body = release ? body : m->head + head_bytes;
  return m;
}

void h2_msg_unref(h2_msg *m) {
  if (--m->refs) return;
  if (m->release) m->release(m->owner);
  free(m);
}

static ssize_t transmit(br_h2 *c) {
  h2_out *o = &c->out;
  struct iovec v[64];
  int n = 0;
  for (uint32_t i = 0; i < o->count && n < 64; i++) v[n++] = o->entries[(o->first + i) % H2_QUEUE_ENTRIES].iov;
  struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
  return sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void drained(h2_out *o, size_t n) {
  o->bytes -= n;
  o->turn_bytes += n;
  while (n) {
    h2_entry *e = &o->entries[o->first];
    size_t t = n < e->iov.iov_len ? n : e->iov.iov_len;
    e->iov.iov_base = (uint8_t *)e->iov.iov_base + t;
    e->iov.iov_len -= t;
    n -= t;
    if (e->iov.iov_len) return;
    h2_msg *msg = e->msg;
    o->first = (o->first + 1) % H2_QUEUE_ENTRIES;
    o->count--;
    if (msg) h2_msg_unref(msg);
  }
}

int h2_out_flush(br_h2 *c) {
  h2_out *o = &c->out;
  while (o->count) {
    ssize_t w = transmit(c);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
      o->blocked = true;
      return 0;
    }
    if (w < 0) return errno;
    drained(o, (size_t)w);
  }
  o->first = 0;
  o->arena_used = 0;
  o->blocked = o->turn_bytes >= H2_TURN_BYTES; /* the poll reports a writable socket at once, after the others' turns */
  return 0;
}

static bool has_room(const h2_out *o, size_t arena_bytes, uint32_t entries) {
  return o->bytes < H2_QUEUE_BYTES && o->arena_used + arena_bytes <= H2_ARENA_BYTES &&
         o->count + entries <= H2_QUEUE_ENTRIES;
}

int h2_out_room(br_h2 *c, size_t arena_bytes, uint32_t entries) {
  h2_out *o = &c->out;
  if (o->turn_bytes >= H2_TURN_BYTES) {
    o->blocked = true;
    return 0;
  }
  if (has_room(o, arena_bytes, entries)) return 1;
  int e = h2_out_flush(c);
  if (e) return -1;
  return has_room(o, arena_bytes, entries);
}

static void push(h2_out *o, const void *p, size_t n, h2_msg *msg) {
  o->bytes += n;
  if (!msg && o->count) { /* bytes of the arena that follow each other share an entry */
    h2_entry *e = &o->entries[(o->first + o->count - 1) % H2_QUEUE_ENTRIES];
    if (!e->msg && (const uint8_t *)e->iov.iov_base + e->iov.iov_len == p) {
      e->iov.iov_len += n;
      return;
    }
  }
  BR_ASSERT(o->count < H2_QUEUE_ENTRIES);
  if (msg) msg->refs++;
  o->entries[(o->first + o->count++) % H2_QUEUE_ENTRIES] = (h2_entry){.iov = {(void *)p, n}, .msg = msg};
}

void h2_out_copy(br_h2 *c, const void *p, size_t n) {
  h2_out *o = &c->out;
  BR_ASSERT(o->arena_used + n <= H2_ARENA_BYTES);
  uint8_t *d = o->arena + o->arena_used;
  memcpy(d, p, n);
  o->arena_used += n;
  push(o, d, n, NULL);
}

size_t h2_out_frame_bytes(const br_h2_stream *s, size_t most) {
  size_t n = 0, skip = s->offset;
  int pieces = 0;
  for (const h2_msg *m = s->first; m && n < most && pieces + 2 <= H2_FRAME_PIECES; m = m->next, pieces += 2) {
    n += m->head_bytes + m->body_bytes - skip;
    skip = 0;
  }
  return n < most ? n : most;
}

static void push_piece(br_h2 *c, h2_msg *m, const uint8_t *p, size_t n) {
  if (n == 0) return;
  if (n <= H2_COPY_BYTES)
    h2_out_copy(c, p, n);
  else
    push(&c->out, p, n, m);
}

void h2_out_frame(br_h2 *c, br_h2_stream *s, size_t n) {
  s->queued_bytes -= n;
  while (n) {
    h2_msg *m = s->first;
    size_t total = m->head_bytes + m->body_bytes, at = s->offset;
    size_t end = total - at < n ? total : at + n;
    size_t head_end = end < m->head_bytes ? end : m->head_bytes;
    if (at < head_end) push_piece(c, m, m->head + at, head_end - at);
    size_t body_at = at > m->head_bytes ? at : m->head_bytes;
    if (body_at < end) push_piece(c, m, m->body + (body_at - m->head_bytes), end - body_at);
    n -= end - at;
    s->offset = end;
    if (end < total) return;
    s->first = m->next;
    if (!s->first) s->last = NULL;
    s->offset = 0;
    h2_msg_unref(m);
  }
}

void h2_out_clear(br_h2 *c) {
  h2_out *o = &c->out;
  for (; o->count; o->count--) {
    h2_msg *msg = o->entries[o->first].msg;
    o->first = (o->first + 1) % H2_QUEUE_ENTRIES;
    if (msg) h2_msg_unref(msg);
  }
  o->bytes = 0;
}
