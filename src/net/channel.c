/* SPDX-License-Identifier: Apache-2.0
 * Framed messages with descriptors over a Unix stream socket.
 * Order: br_channel_new; then frames go out by br_channel_send and come in by handler.message; handler.closed once; then
 * br_channel_free. Threads: everything on the loop thread, but br_channel_send: the queue has a mutex. Other threads send at once, as
 * much as the socket takes (the loop's thread may have to wait for a core), and wake the loop by an async handle for the rest. Bounds: a frame is BR_MESSAGE_MAX_BYTES and BR_CHANNEL_MAX_FDS descriptors; descriptors that came
 * before their header was read whole are at most those of one frame, since we never read past a frame's end. READS_A_WAKE
 * frames are read before other handles of the loop have their turn. */
#include "net/channel.h"

#include "base/mem.h"
#include "proto/proto.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER_BYTES 8
#define READS_A_WAKE 64
#define LAST_READS 4096 /* after a failed send */

typedef struct out_frame {
  struct out_frame *next;
  size_t bytes, sent;
  int n_fds;
  int *fds;
  unsigned char data[];
} out_frame;

struct br_channel {
  br_loop *loop;
  int fd;
  br_channel_handler handler;
  uv_poll_t poll;
  uv_async_t wake;
  int handles;     /* open uv handles: the last one to close frees the channel */
  bool closed;     /* handler.closed was called, or the owner freed it */
  int poll_events; /* what poll waits for now */

  unsigned char header[HEADER_BYTES];
  size_t header_have;
  unsigned char *body;
  size_t body_bytes, body_have;
  int n_fds_wanted, n_fds;
  int fds[BR_CHANNEL_MAX_FDS];

  pthread_mutex_t lock; /* for what follows */
  out_frame *first, **last;
  bool dead;           /* nothing can be sent any more */
  br_error send_error; /* why; code 0: none */
};

static void put_u32(unsigned char *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void close_fds(const int *fds, int n) {
  for (int i = 0; i < n; i++) close(fds[i]);
}

static void frame_free(out_frame *f) {
  close_fds(f->fds, f->n_fds);
  free(f->fds);
  free(f);
}

/* With the lock held. */
static void drop_queue(br_channel *c) {
  while (c->first) {
    out_frame *f = c->first;
    c->first = f->next;
    frame_free(f);
  }
  c->last = &c->first;
}

static void handle_closed(uv_handle_t *h) {
  br_channel *c = h->data;
  if (--c->handles > 0) return;
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* Stop everything and tell the owner, once. */
static void finish(br_channel *c, const br_error *why) {
  if (c->closed) return;
  c->closed = true;
  uv_poll_stop(&c->poll);
  pthread_mutex_lock(&c->lock);
  c->dead = true;
  drop_queue(c);
  pthread_mutex_unlock(&c->lock);
  c->handler.closed(c->handler.arg, why);
}

static void on_poll(uv_poll_t *p, int status, int events);

static void want(br_channel *c, int events) {
  if (c->closed || events == c->poll_events) return;
  c->poll_events = events;
  uv_poll_start(&c->poll, events, on_poll);
}

/* ---- out */

/* One sendmsg of what is left of f; descriptors ride with its first byte. */
static ssize_t send_some(int fd, const out_frame *f) {
  struct iovec iov = {.iov_base = (void *)(f->data + f->sent), .iov_len = f->bytes - f->sent};
  union {
    char bytes[CMSG_SPACE(sizeof(int) * BR_CHANNEL_MAX_FDS)];
    struct cmsghdr align;
  } control;
  struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
  if (f->n_fds && !f->sent) {
    size_t fd_bytes = sizeof(int) * (size_t)f->n_fds;
    memset(&control, 0, sizeof control);
    msg.msg_control = control.bytes;
    msg.msg_controllen = CMSG_SPACE(fd_bytes);
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(fd_bytes);
    memcpy(CMSG_DATA(h), f->fds, fd_bytes);
  }
  ssize_t n;
  do n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  return n;
}

/* With the lock held: send until the socket blocks. A failure empties the queue; on_wake tells the owner. */
static void flush_locked(br_channel *c) {
  while (c->first && !c->dead) {
    out_frame *f = c->first;
    ssize_t n = send_some(c->fd, f);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      br_fail(&c->send_error, BR_NETWORK, BR_BLAME_EXECUTOR, "cannot send to the process at the other end: %s",
              strerror(errno));
      c->send_error.sys_errno = errno;
      c->dead = true;
      drop_queue(c);
      uv_async_send(&c->wake);
      return;
    }
    f->sent += (size_t)n;
    if (f->sent < f->bytes) continue;
    c->first = f->next;
    if (!c->first) c->last = &c->first;
    frame_free(f);
  }
}

static void flush(br_channel *c) {
  pthread_mutex_lock(&c->lock);
  flush_locked(c);
  int events = UV_READABLE | (c->first ? UV_WRITABLE : 0);
  pthread_mutex_unlock(&c->lock);
  want(c, events);
}

static out_frame *frame_new(const void *data, size_t n, const int *fds, int n_fds, br_error *err) {
  out_frame *f = br_calloc(1, sizeof *f + HEADER_BYTES + n);
  f->bytes = HEADER_BYTES + n;
  put_u32(f->data, (uint32_t)n);
  put_u32(f->data + 4, (uint32_t)n_fds);
  if (n) memcpy(f->data + HEADER_BYTES, data, n);
  if (n_fds) f->fds = br_calloc((size_t)n_fds, sizeof *f->fds);
  for (int i = 0; i < n_fds; i++) {
    int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot duplicate a file descriptor to pass it on (see ulimit -n)");
      frame_free(f);
      return NULL;
    }
    f->fds[f->n_fds++] = fd;
  }
  return f;
}

void br_channel_send(br_channel *c, const void *data, size_t n, const int *fds, int n_fds) {
  BR_ASSERT(n <= BR_MESSAGE_MAX_BYTES && n_fds >= 0 && n_fds <= BR_CHANNEL_MAX_FDS);
  br_error err = {0};
  out_frame *f = frame_new(data, n, fds, n_fds, &err);
  bool on_loop = br_loop_on_thread(c->loop);
  pthread_mutex_lock(&c->lock);
  if (c->dead || !f) {
    if (f) frame_free(f);
    if (!c->dead) c->send_error = err;
    c->dead = true;
    drop_queue(c);
    uv_async_send(&c->wake);
    pthread_mutex_unlock(&c->lock);
    return;
  }
  *c->last = f;
  c->last = &f->next;
  if (!on_loop) flush_locked(c);
  bool more = c->first != NULL;
  if (!on_loop && more) uv_async_send(&c->wake); /* the socket is full: the loop waits for room */
  pthread_mutex_unlock(&c->lock);
  if (on_loop) flush(c);
}

/* ---- in */

static void fail_read(br_channel *c, const char *what) {
  br_error why = {0};
  br_fail(&why, BR_CORRUPT, BR_BLAME_EXECUTOR, "the process at the other end broke the protocol: %s", what);
  finish(c, &why);
}

static void finish_eof(br_channel *c, int sys_errno) {
  br_error why = {0};
  if (sys_errno) {
    br_fail(&why, BR_NETWORK, BR_BLAME_EXECUTOR, "the process at the other end is gone: %s", strerror(sys_errno));
    why.sys_errno = sys_errno;
  } else if (c->header_have) {
    br_fail(&why, BR_NETWORK, BR_BLAME_EXECUTOR, "the process at the other end ended inside of a message");
  }
  finish(c, &why);
}

/* Descriptors of one recvmsg; false: more than a frame may have, or the kernel had to drop some. */
static bool take_fds(br_channel *c, struct msghdr *msg) {
  bool ok = !(msg->msg_flags & MSG_CTRUNC);
  for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
      if (c->n_fds < BR_CHANNEL_MAX_FDS) {
        c->fds[c->n_fds++] = fd;
      } else {
        close(fd);
        ok = false;
      }
    }
  }
  return ok;
}

/* >0: bytes read; 0: nothing now or the channel has ended. */
static size_t receive(br_channel *c, void *p, size_t n) {
  struct iovec iov = {.iov_base = p, .iov_len = n};
  union {
    char bytes[CMSG_SPACE(sizeof(int) * BR_CHANNEL_MAX_FDS)];
    struct cmsghdr align;
  } control;
  struct msghdr msg = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t got;
  do got = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (got <= 0) {
    finish_eof(c, got < 0 ? errno : 0);
    return 0;
  }
  if (!take_fds(c, &msg)) {
    fail_read(c,
              "it passed more file descriptors than a message may have, or this process has no free ones (ulimit -n)");
    return 0;
  }
  return (size_t)got;
}

/* False: nothing more to read now, or the channel has ended. */
static bool read_header(br_channel *c) {
  size_t n = receive(c, c->header + c->header_have, HEADER_BYTES - c->header_have);
  if (!n) return false;
  c->header_have += n;
  if (c->header_have < HEADER_BYTES) return true;
  uint32_t bytes = get_u32(c->header), fds = get_u32(c->header + 4);
  if (bytes > BR_MESSAGE_MAX_BYTES || fds > BR_CHANNEL_MAX_FDS) {
    fail_read(c, "a message header with sizes out of bounds");
    return false;
  }
  if ((int)fds != c->n_fds) {
    fail_read(c, "a message came with another number of file descriptors than its header says");
    return false;
  }
  c->n_fds_wanted = (int)fds;
  c->body_bytes = bytes;
  c->body_have = 0;
  c->body = bytes ? malloc(bytes) : NULL;
  if (bytes && !c->body) {
    fail_read(c, "no memory for a message");
    return false;
  }
  return true;
}

static void deliver(br_channel *c) {
  unsigned char *body = c->body;
  size_t bytes = c->body_bytes;
  int fds[BR_CHANNEL_MAX_FDS], n_fds = c->n_fds;
  memcpy(fds, c->fds, sizeof(int) * (size_t)n_fds);
  c->body = NULL;
  c->n_fds = 0;
  c->header_have = 0;
  c->handler.message(c->handler.arg, body ? body : (unsigned char *)"", bytes, fds, n_fds);
  free(body);
}

static bool read_step(br_channel *c) {
  if (c->header_have < HEADER_BYTES) {
    if (!read_header(c)) return false;
    if (c->header_have < HEADER_BYTES || c->body_bytes) return true;
  } else {
    size_t n = receive(c, c->body + c->body_have, c->body_bytes - c->body_have);
    if (!n) return false;
    if (c->n_fds != c->n_fds_wanted) {
      fail_read(c, "file descriptors in the middle of a message");
      return false;
    }
    c->body_have += n;
    if (c->body_have < c->body_bytes) return true;
  }
  deliver(c);
  return true;
}

static void on_poll(uv_poll_t *p, int status, int events) {
  br_channel *c = p->data;
  if (c->closed) return;
  if (status < 0) {
    finish_eof(c, -status);
    return;
  }
  if (events & UV_WRITABLE) flush(c);
  if (!(events & (UV_READABLE | UV_DISCONNECT))) return;
  for (int i = 0; i < READS_A_WAKE && !c->closed && read_step(c); i++) continue;
}

static void on_wake(uv_async_t *a) {
  br_channel *c = a->data;
  if (c->closed) return;
  flush(c);
  pthread_mutex_lock(&c->lock);
  bool dead = c->dead;
  br_error why = c->send_error;
  pthread_mutex_unlock(&c->lock);
  if (!dead) return;
  /* What the other side said before it went is still worth hearing. */
  for (int i = 0; i < LAST_READS && !c->closed && read_step(c); i++) continue;
  finish(c, &why);
}

/* ---- life */

br_status br_channel_new(br_loop *l, int fd, br_channel_handler h, br_channel **out, br_error *err) {
  br_channel *c = br_calloc(1, sizeof *c);
  c->loop = l;
  c->fd = fd;
  c->handler = h;
  c->last = &c->first;
  int r = uv_poll_init(br_loop_uv(l), &c->poll, fd);
  if (r < 0) {
    free(c);
    close(fd);
    return br_fail(err, BR_NETWORK, BR_BLAME_WORKER, "cannot watch the socket of a child process: %s", uv_strerror(r));
  }
  c->poll.data = c;
  c->handles = 1;
  pthread_mutex_init(&c->lock, NULL);
  r = uv_async_init(br_loop_uv(l), &c->wake, on_wake);
  if (r < 0) {
    c->closed = true;
    close(fd);
    uv_close((uv_handle_t *)&c->poll, handle_closed);
    return br_fail(err, BR_NETWORK, BR_BLAME_WORKER, "cannot set up the channel to a child process: %s",
                   uv_strerror(r));
  }
  c->wake.data = c;
  c->handles = 2;
  want(c, UV_READABLE);
  *out = c;
  return BR_OK;
}

void br_channel_free(br_channel *c) {
  if (!c) return;
  c->closed = true;
  uv_poll_stop(&c->poll);
  pthread_mutex_lock(&c->lock);
  c->dead = true;
  drop_queue(c);
  pthread_mutex_unlock(&c->lock);
  close_fds(c->fds, c->n_fds);
  c->n_fds = 0;
  free(c->body);
  c->body = NULL;
  uv_close((uv_handle_t *)&c->poll, handle_closed);
  uv_close((uv_handle_t *)&c->wake, handle_closed);
  close(c->fd);
}
