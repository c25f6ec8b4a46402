/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP/2 connection: an nghttp2 session between a socket and its streams.
 *
 * Order of calls: new; request (client) or `request` callbacks (server); per stream respond, send, finish; the end is
 * `closed` for each stream, then `gone`, or br_h2_close. Threads: the loop's. Bounds: see http2.h and http2_internal.h.
 *
 * Destruction never happens under nghttp2 or under a callback: `depth` counts them, and the last one out does it. What is
 * queued outside of I/O callbacks is sent by a uv_prepare handle, once for all calls of a turn.
 */
#include "net/http2_internal.h"

#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCRATCH_AFTER_BODY_BYTES (16u << 10) /* read behind a body received in place: the next frames' headers */
#define TRAILERS_MOST 8

/* ---- life and death */

static void on_prepare(uv_prepare_t *h);

static void mark_dirty(br_h2 *c) {
  c->dirty = true;
  if (c->depth == 0 && !c->dying) uv_prepare_start(&c->prepare, on_prepare); /* no effect when it is started */
}

static void free_stream(br_h2_stream *s) {
  br_h2 *c = s->conn;
  if (c->rx == s) c->rx = NULL;
  if (s->next) s->next->prev = s->prev;
  if (s->prev)
    s->prev->next = s->next;
  else
    c->streams = s->next;
  for (h2_msg *m = s->first, *next; m; m = next) {
    next = m->next;
    h2_msg_unref(m);
  }
  for (size_t i = 0; i < s->n_trailers; i++) {
    free((char *)s->trailers[i].name);
    free((char *)s->trailers[i].value);
  }
  free(s->trailers);
  free(s);
}

static void handle_closed(uv_handle_t *h) {
  br_h2 *c = h->data;
  if (--c->open_handles == 0) free(c);
}

static void destroy(br_h2 *c) {
  c->depth++; /* callbacks below must not come back in here */
  while (c->streams) {
    br_h2_stream *s = c->streams;
    void *user = s->user;
    bool tell = !s->detached && !c->silent;
    nghttp2_session_set_stream_user_data(c->ng, s->id, NULL);
    free_stream(s);
    if (tell) c->h.closed(user, &c->why);
  }
  if (!c->silent) c->h.gone(c->h.arg, &c->why);
  h2_out_clear(c);
  nghttp2_session_del(c->ng);
  br_timer_stop(c->bound);
  uv_poll_stop(&c->poll);
  close(c->fd);
  uv_close((uv_handle_t *)&c->poll, handle_closed);
  uv_close((uv_handle_t *)&c->prepare, handle_closed);
}

static void leave(br_h2 *c) {
  if (--c->depth > 0) return;
  if (c->dying)
    destroy(c);
  else if (c->dirty) /* by a callback that pump did not see */
    uv_prepare_start(&c->prepare, on_prepare);
}

/* The connection ends, with c->why filled. */
static void die(br_h2 *c) {
  if (c->dying) return;
  c->dying = true;
  if (c->depth == 0) destroy(c);
}

static void lost(br_h2 *c, int errno_value, const char *what) {
  if (c->dying) return;
  br_fail(&c->why, BR_NETWORK, BR_BLAME_FETCH, "connection with %s: %s%s%s", c->peer, what, *c->note ? ": " : "",
          c->note);
  c->why.sys_errno = errno_value;
  c->why.retryable = true;
  die(c);
}

void br_h2_close(br_h2 *c) {
  c->silent = true;
  die(c);
}

const char *br_h2_peer(const br_h2 *c) { return c->peer; }

bool br_h2_ending(const br_h2 *c) { return c->dying; }

static void too_late(void *arg) {
  br_h2 *c = arg;
  if (!c->dying) {
    br_fail(&c->why, BR_TIMEOUT, BR_BLAME_FETCH, "connection with %s: %s within %u ms", c->peer,
            c->is_ready ? "the last frames could not be sent" : "the peer did not speak HTTP/2", c->options.ready_ms);
    c->why.retryable = true;
  }
  die(c);
}

/* ---- towards the peer */

static int submit_trailers(br_h2_stream *s) {
  nghttp2_nv nv[TRAILERS_MOST];
  for (size_t i = 0; i < s->n_trailers; i++)
    nv[i] = (nghttp2_nv){(uint8_t *)s->trailers[i].name, (uint8_t *)s->trailers[i].value, strlen(s->trailers[i].name),
                         strlen(s->trailers[i].value), 0};
  return nghttp2_submit_trailer(s->conn->ng, s->id, nv, s->n_trailers);
}

static void pull(br_h2_stream *s) {
  s->pulling = true;
  do {
    s->again = false;
    if (!s->detached && !s->conn->silent && !s->finished) s->conn->h.pull(s->user);
  } while (s->again && !s->first);
  s->pulling = false;
}

static ssize_t read_stream(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t most, uint32_t *flags,
                           nghttp2_data_source *source, void *arg) {
  (void)ng, (void)id, (void)buf, (void)arg;
  br_h2_stream *s = source->ptr;
  if (!s->first) pull(s);
  if (s->first) {
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)h2_out_frame_bytes(s, most);
  }
  if (!s->finished || s->detached) {
    s->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (s->has_trailers) {
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (submit_trailers(s)) return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

static ssize_t on_send(nghttp2_session *ng, const uint8_t *p, size_t n, int flags, void *arg) {
  (void)ng, (void)flags;
  br_h2 *c = arg;
  if (n > H2_ARENA_BYTES / 2) n = H2_ARENA_BYTES / 2;
  int r = h2_out_room(c, n, 1);
  if (r < 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (r == 0) return NGHTTP2_ERR_WOULDBLOCK;
  h2_out_copy(c, p, n);
  return (ssize_t)n;
}

static int on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t n,
                        nghttp2_data_source *source, void *arg) {
  (void)ng, (void)frame;
  br_h2 *c = arg;
  int r = h2_out_room(c, H2_FRAME_ARENA_BYTES, H2_FRAME_PIECES + 1);
  if (r < 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (r == 0) return NGHTTP2_ERR_WOULDBLOCK;
  h2_out_copy(c, head, H2_FRAME_HEADER_BYTES);
  h2_out_frame(c, source->ptr, n);
  return 0;
}

static ssize_t on_read_length(nghttp2_session *ng, uint8_t type, int32_t id, int32_t connection_window,
                              int32_t stream_window, uint32_t max_frame, void *arg) {
  (void)ng, (void)type, (void)id, (void)arg;
  int64_t n = connection_window < stream_window ? connection_window : stream_window;
  if (n > max_frame) n = max_frame;
  return (ssize_t)(n > H2_DATA_FRAME_BYTES ? H2_DATA_FRAME_BYTES : n);
}

static void watch(br_h2 *c, uv_poll_cb cb) {
  bool reads = nghttp2_session_want_read(c->ng);
  int events = (reads ? UV_READABLE : 0) | (c->out.blocked ? UV_WRITABLE : 0);
  if (!reads && !c->lingering) { /* only last frames are left: a peer that doesn't read them is not waited for */
    c->lingering = true;
    br_timer_stop(c->bound);
    c->bound = br_timer_start(c->loop, c->options.ready_ms, 0, too_late, c);
  }
  if (events == c->events) return;
  c->events = events;
  if (events)
    BR_ASSERT(uv_poll_start(&c->poll, events, cb) == 0);
  else
    uv_poll_stop(&c->poll);
}

static void on_poll(uv_poll_t *h, int status, int events);

/* Send until nothing was queued or the socket blocks. A full queue ends nghttp2_session_send early, hence the loop. */
static void pump(br_h2 *c) {
  c->dirty = false;
  c->out.turn_bytes = 0;
  int e = h2_out_flush(c);
  bool queued = true;
  while (!e && queued && !c->out.blocked && !c->dying) {
    int r = nghttp2_session_send(c->ng);
    if (r && r != NGHTTP2_ERR_CALLBACK_FAILURE) {
      lost(c, 0, nghttp2_strerror(r));
      return;
    }
    queued = c->out.count > 0;
    e = h2_out_flush(c);
    if (r && !e) e = EPIPE;
  }
  if (c->dying) return;
  if (e) {
    lost(c, e, strerror(e));
    return;
  }
  if (!nghttp2_session_want_read(c->ng) && !nghttp2_session_want_write(c->ng) && !c->out.count)
    lost(c, 0, *c->note ? "protocol error" : "closed");
  else
    watch(c, on_poll);
}

static void on_prepare(uv_prepare_t *h) {
  br_h2 *c = h->data;
  uv_prepare_stop(h);
  if (c->dying) return;
  c->depth++;
  pump(c);
  leave(c);
}

/* ---- from the peer */

static br_h2_stream *stream_of(nghttp2_session *ng, int32_t id) {
  return id > 0 ? nghttp2_session_get_stream_user_data(ng, id) : NULL;
}

static bool heard(const br_h2_stream *s) { return s && !s->detached && !s->conn->silent; }

static br_h2_stream *add_stream(br_h2 *c, int32_t id) {
  br_h2_stream *s = br_calloc(1, sizeof *s);
  s->conn = c;
  s->id = id;
  s->next = c->streams;
  if (s->next) s->next->prev = s;
  c->streams = s;
  return s;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *f, void *arg) {
  br_h2 *c = arg;
  c->header_bytes = 0;
  if (!c->options.server || f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  br_h2_stream *s = add_stream(c, f->hd.stream_id);
  nghttp2_session_set_stream_user_data(ng, s->id, s);
  if (c->silent)
    s->detached = true;
  else
    c->h.request(c->h.arg, s);
  return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *f, const uint8_t *name, size_t name_bytes,
                     const uint8_t *value, size_t value_bytes, uint8_t flags, void *arg) {
  (void)flags;
  br_h2 *c = arg;
  c->header_bytes += name_bytes + value_bytes + 32; /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
  if (c->header_bytes > BR_H2_HEADER_BLOCK_BYTES) {
    snprintf(c->note, sizeof c->note, "a header block of more than %u bytes", BR_H2_HEADER_BLOCK_BYTES);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  br_h2_stream *s = stream_of(ng, f->hd.stream_id);
  if (heard(s)) c->h.header(s->user, (const char *)name, name_bytes, (const char *)value, value_bytes);
  return 0;
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *arg) {
  br_h2 *c = arg;
  bool plain = hd->type == NGHTTP2_DATA && !(hd->flags & NGHTTP2_FLAG_PADDED);
  c->rx = plain ? stream_of(ng, hd->stream_id) : NULL;
  c->rx_left = plain ? hd->length : 0;
  return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *f, void *arg) {
  br_h2 *c = arg;
  if (f->hd.type == NGHTTP2_SETTINGS && !(f->hd.flags & NGHTTP2_FLAG_ACK) && !c->is_ready) {
    c->is_ready = true;
    if (!c->lingering) {
      br_timer_stop(c->bound);
      c->bound = NULL;
    }
    if (!c->silent) c->h.ready(c->h.arg);
  }
  br_h2_stream *s = stream_of(ng, f->hd.stream_id);
  if (f->hd.type == NGHTTP2_HEADERS && heard(s)) c->h.headers_done(s->user);
  bool ends = (f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA) && f->hd.flags & NGHTTP2_FLAG_END_STREAM;
  if (ends && heard(s)) c->h.peer_ended(s->user);
  return 0;
}

static int on_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *arg) {
  (void)flags;
  br_h2 *c = arg;
  c->rx_left -= n < c->rx_left ? n : c->rx_left;
  nghttp2_session_consume_connection(ng, n);
  br_h2_stream *s = stream_of(ng, id);
  if (!s) return 0;
  s->unconsumed_bytes += n;
  if (heard(s)) c->h.data(s->user, p, n);
  return 0;
}

static void stream_error(const br_h2 *c, uint32_t code, br_error *err) {
  bool refused = code == NGHTTP2_REFUSED_STREAM, cancelled = code == NGHTTP2_CANCEL;
  br_fail(err, cancelled ? BR_CANCELLED : BR_NETWORK, BR_BLAME_FETCH, "%s reset a stream: %s%s%s", c->peer,
          nghttp2_http2_strerror(code), *c->note ? ": " : "", c->note);
  err->retryable = refused;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *arg) {
  br_h2 *c = arg;
  br_h2_stream *s = stream_of(ng, id);
  if (!s) return 0;
  nghttp2_session_set_stream_user_data(ng, id, NULL);
  void *user = s->user;
  bool tell = heard(s);
  free_stream(s);
  if (!tell) return 0;
  br_error why = {0};
  if (code != NGHTTP2_NO_ERROR) stream_error(c, code, &why);
  c->h.closed(user, &why);
  return 0;
}

static int on_error(nghttp2_session *ng, int code, const char *text, size_t n, void *arg) {
  (void)ng, (void)code;
  br_h2 *c = arg;
  snprintf(c->note, sizeof c->note, "%.*s", (int)n, text);
  return 0;
}

static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *f, int code, void *arg) {
  (void)ng;
  br_h2 *c = arg;
  snprintf(c->note, sizeof c->note, "invalid frame of type %d: %s", f->hd.type, nghttp2_strerror(code));
  return 0;
}

static int session_new(br_h2 *c) {
  nghttp2_session_callbacks *cb = NULL;
  nghttp2_option *opt = NULL;
  int r = nghttp2_session_callbacks_new(&cb);
  if (!r) r = nghttp2_option_new(&opt);
  if (r) goto done;
  nghttp2_session_callbacks_set_send_callback(cb, on_send);
  nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
  nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_read_length);
  nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
  nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
  nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_chunk);
  nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
  nghttp2_session_callbacks_set_error_callback2(cb, on_error);
  nghttp2_option_set_no_auto_window_update(opt, 1);
  nghttp2_option_set_no_closed_streams(opt, 1);
  r = c->options.server ? nghttp2_session_server_new2(&c->ng, cb, c, opt)
                        : nghttp2_session_client_new2(&c->ng, cb, c, opt);
done:
  nghttp2_option_del(opt);
  nghttp2_session_callbacks_del(cb);
  return r;
}

static int submit_settings(br_h2 *c) {
  nghttp2_settings_entry e[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, c->options.window_bytes},
                                {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, c->options.max_frame_bytes},
                                {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, c->options.server ? BR_H2_MAX_STREAMS : 0},
                                {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BR_H2_HEADER_BLOCK_BYTES},
                                {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
  int r = nghttp2_submit_settings(c->ng, 0, e, c->options.server ? 4 : 5);
  return r ? r : nghttp2_session_set_local_window_size(c->ng, 0, 0, BR_H2_CONNECTION_WINDOW_BYTES);
}

/* One read: into the body that is being received, when there is one, and a little behind it. False: stop reading. */
static bool read_once(br_h2 *c, size_t *got) {
  uint8_t *scratch = br_loop_scratch(c->loop), *at = NULL;
  size_t room = 0;
  if (c->rx_left && heard(c->rx)) at = c->h.target(c->rx->user, &room);
  if (room > c->rx_left) room = c->rx_left;
  if (!at) room = 0;
  struct iovec v[2] = {{at, room}, {scratch, room ? SCRATCH_AFTER_BODY_BYTES : BR_LOOP_SCRATCH_BYTES}};
  ssize_t n = room ? readv(c->fd, v, 2) : read(c->fd, scratch, BR_LOOP_SCRATCH_BYTES);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n <= 0) {
    lost(c, n < 0 ? errno : 0, n < 0 ? strerror(errno) : "closed by the peer");
    return false;
  }
  *got = (size_t)n;
  size_t in_body = *got < room ? *got : room;
  ssize_t r = in_body ? nghttp2_session_mem_recv(c->ng, at, in_body) : 0;
  if (r >= 0 && *got > in_body) r = nghttp2_session_mem_recv(c->ng, scratch, *got - in_body);
  if (r < 0) {
    lost(c, 0, nghttp2_strerror((int)r));
    return false;
  }
  return !c->dying;
}

/* libuv says EBADF for whatever poll calls an error: the socket knows which it was. */
static int socket_error(const br_h2 *c, int otherwise) {
  int e = 0;
  socklen_t n = sizeof e;
  return getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &n) == 0 && e != 0 ? e : otherwise;
}

static void on_poll(uv_poll_t *h, int status, int events) {
  br_h2 *c = h->data;
  if (c->dying) return;
  c->depth++;
  if (status < 0) {
    int e = socket_error(c, -status);
    lost(c, e, strerror(e));
  }
  size_t turn = 0, got = 1;
  while (events & UV_READABLE && turn < H2_TURN_BYTES && got && !c->dying) {
    got = 0;
    if (!read_once(c, &got)) break;
    turn += got;
  }
  if (!c->dying) pump(c);
  leave(c);
}

br_status br_h2_new(br_loop *l, int fd, const br_h2_options *o, const br_h2_handler *h, br_h2 **out, br_error *err) {
  br_h2 *c = br_calloc(1, sizeof *c);
  c->loop = l, c->fd = fd, c->options = *o, c->h = *h;
  snprintf(c->peer, sizeof c->peer, "%s", o->peer);
  c->options.peer = c->peer;
  int r = uv_poll_init(br_loop_uv(l), &c->poll, fd);
  if (r) {
    br_fail_errno(err, -r, BR_BLAME_WORKER, "cannot watch the connection with %s", c->peer);
    goto failed;
  }
  uv_prepare_init(br_loop_uv(l), &c->prepare);
  c->poll.data = c->prepare.data = c;
  c->open_handles = 2;
  r = session_new(c);
  if (!r) r = submit_settings(c);
  if (r) {
    br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot start HTTP/2 with %s: %s", c->peer, nghttp2_strerror(r));
    c->fd = fd;
    br_h2_close(c);
    return err->code;
  }
  c->bound = br_timer_start(l, c->options.ready_ms, 0, too_late, c);
  watch(c, on_poll);
  mark_dirty(c);
  *out = c;
  return BR_OK;
failed:
  close(fd);
  free(c);
  return err->code;
}

/* ---- streams */

static void to_nv(const br_h2_header *h, size_t n, nghttp2_nv *nv) {
  for (size_t i = 0; i < n; i++)
    nv[i] = (nghttp2_nv){(uint8_t *)h[i].name, (uint8_t *)h[i].value, strlen(h[i].name), strlen(h[i].value), 0};
}

br_h2_stream *br_h2_request(br_h2 *c, const br_h2_header *headers, size_t n, void *user) {
  if (c->dying || !nghttp2_session_check_request_allowed(c->ng)) return NULL;
  nghttp2_nv nv[16];
  BR_ASSERT(n <= 16);
  to_nv(headers, n, nv);
  br_h2_stream *s = add_stream(c, 0);
  s->user = user;
  nghttp2_data_provider source = {.source.ptr = s, .read_callback = read_stream};
  s->id = nghttp2_submit_request(c->ng, NULL, nv, n, &source, s);
  if (s->id < 0) {
    free_stream(s);
    return NULL;
  }
  mark_dirty(c);
  return s;
}

void br_h2_set_user(br_h2_stream *s, void *user) { s->user = user; }

void br_h2_respond(br_h2_stream *s, const br_h2_header *headers, size_t n, bool end) {
  if (s->responded || s->detached) return;
  s->responded = true;
  nghttp2_nv nv[16];
  BR_ASSERT(n <= 16);
  to_nv(headers, n, nv);
  nghttp2_data_provider source = {.source.ptr = s, .read_callback = read_stream};
  if (nghttp2_submit_response(s->conn->ng, s->id, nv, n, end ? NULL : &source))
    nghttp2_submit_rst_stream(s->conn->ng, 0, s->id, NGHTTP2_INTERNAL_ERROR);
  mark_dirty(s->conn);
}

static void wake(br_h2_stream *s) {
  if (s->deferred) {
    s->deferred = false;
    nghttp2_session_resume_data(s->conn->ng, s->id);
  }
  mark_dirty(s->conn);
}

void br_h2_send(br_h2_stream *s, const void *head, size_t head_bytes, const void *body, size_t body_bytes,
                void (*release)(void *owner), void *owner) {
  h2_msg *m = h2_msg_new(head, head_bytes, body, body_bytes, release, owner);
  if (s->finished || s->detached || head_bytes + body_bytes == 0) {
    h2_msg_unref(m);
    return;
  }
  if (s->last)
    s->last->next = m;
  else
    s->first = m;
  s->last = m;
  s->queued_bytes += head_bytes + body_bytes;
  if (!s->pulling) wake(s);
}

void br_h2_finish(br_h2_stream *s, const br_h2_header *trailers, size_t n) {
  if (s->finished) return;
  BR_ASSERT(n <= TRAILERS_MOST);
  s->finished = true;
  s->has_trailers = n > 0;
  s->n_trailers = n;
  if (n) s->trailers = br_calloc(n, sizeof *trailers);
  for (size_t i = 0; i < n; i++)
    s->trailers[i] = (br_h2_header){br_strdup(trailers[i].name), br_strdup(trailers[i].value)};
  if (!s->pulling) wake(s);
}

void br_h2_resume(br_h2_stream *s) {
  s->again = true;
  if (!s->pulling) wake(s);
}

void br_h2_reset(br_h2_stream *s, uint32_t error) {
  br_h2 *c = s->conn;
  s->detached = true;
  if (c->rx == s) c->rx = NULL;
  if (c->dying) return;
  nghttp2_submit_rst_stream(c->ng, 0, s->id, error);
  mark_dirty(c);
}

void br_h2_consume(br_h2_stream *s, size_t n) {
  br_h2 *c = s->conn;
  if (n > s->unconsumed_bytes) n = s->unconsumed_bytes;
  s->unconsumed_bytes -= n;
  if (!n || c->dying || s->detached) return;
  /* Not nghttp2_session_consume_stream: it waits for half a window, and a reader that holds the other half would starve. */
  s->credit_bytes += (uint32_t)n;
  if (s->credit_bytes < c->options.window_bytes / H2_CREDIT_SHARE) return;
  nghttp2_submit_window_update(c->ng, 0, s->id, (int32_t)s->credit_bytes);
  s->credit_bytes = 0;
  mark_dirty(c);
}

uint64_t br_h2_queued_bytes(const br_h2_stream *s) { return s->queued_bytes; }
