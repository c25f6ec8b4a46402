/* SPDX-License-Identifier: Apache-2.0
 * A connection to a process of a user's function (function.h). Sending never waits: what doesn't fit into the socket leaves with the next
 * call. Receiving waits for the oldest batch's answer, on the socket and on an eventfd by which others stop it. The worker watches over the
 * time that a process takes for a batch, and over its memory: it ends the process, and the socket ends here.
 * Order: open, then send and receive by turns, close. Threads: one at a time, but br_function_stop. Bounds: BR_UDF_IN_FLIGHT batches under
 * way; frames as frames.h says; the wait for a result ends with the process, with its timeout (the worker's), or by stop. */
#include "executor/function.h"

#include "arrow/ipc.h"
#include "base/mem.h"
#include "base/util.h"
#include "executor/function_link.h"
#include "udf/frames.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 5, READ_BYTES = 64 << 10, MAX_FDS = 8, FREE_RETRIES = 16 };

/* One frame on its way out. */
typedef struct out_frame {
  struct out_frame *next;
  br_buf bytes;
  size_t sent;
  int fd; /* attached to its first byte; -1: none */
} out_frame;

typedef struct under_way {
  br_batch *arguments;
  uint64_t first_row, number;
  uint32_t tries;
} under_way;

struct br_function {
  br_function_options o;
  br_executor *x;
  atomic_bool stopped;
  int wake;
  uint64_t request;
  int fd;
  out_frame *out, **out_end;
  br_buf in;           /* read, from the start of a frame */
  int in_fds[MAX_FDS]; /* came beside it, in the order of the frames that have one */
  int n_fds;
  size_t taken; /* of in: the frame that was looked at last */
  under_way batches[BR_UDF_IN_FLIGHT];
  uint32_t n;
  uint64_t next_number, retries;
  uint32_t open_tries, free_tries;
};

/* A whole frame; borrows from f->in. */
typedef struct frame {
  uint8_t kind;
  const char *payload;
  size_t bytes;
} frame;

static const char *name_of(const br_function *f) { return f->o.call->name; }

/* The connection ended badly: a process may be replaced. */
typedef enum outcome { WENT_WELL, ENDED, BROKEN } outcome;

/* ---- bytes out */

static void drop_out(br_function *f) {
  while (f->out) {
    out_frame *o = f->out;
    f->out = o->next;
    if (o->fd >= 0) close(o->fd);
    br_buf_free(&o->bytes);
    free(o);
  }
  f->out_end = &f->out;
}

/* Takes over bytes (without the head) and fd. */
static void queue_frame(br_function *f, uint8_t kind, const br_buf *payload, int fd) {
  out_frame *o = br_calloc(1, sizeof *o);
  uint32_t length = (uint32_t)payload->len + 1;
  unsigned char head[HEAD_BYTES] = {(unsigned char)length, (unsigned char)(length >> 8), (unsigned char)(length >> 16),
                                    (unsigned char)(length >> 24), kind};
  br_buf_add(&o->bytes, head, sizeof head);
  br_buf_add(&o->bytes, payload->data, payload->len);
  o->fd = fd;
  *f->out_end = o;
  f->out_end = &o->next;
}

static ssize_t send_some(int fd, const out_frame *o) {
  struct iovec piece = {.iov_base = o->bytes.data + o->sent, .iov_len = o->bytes.len - o->sent};
  struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
  union {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {0};
  if (o->fd >= 0 && !o->sent) {
    m.msg_control = control.room;
    m.msg_controllen = sizeof control.room;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &o->fd, sizeof(int));
  }
  return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static outcome flush(br_function *f) {
  while (f->out) {
    out_frame *o = f->out;
    ssize_t n = send_some(f->fd, o);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? WENT_WELL : ENDED;
    o->sent += (size_t)n;
    if (o->sent < o->bytes.len) continue;
    f->out = o->next;
    if (!f->out) f->out_end = &f->out;
    if (o->fd >= 0) close(o->fd);
    br_buf_free(&o->bytes);
    free(o);
  }
  return WENT_WELL;
}

/* ---- bytes in */

static outcome read_some(br_function *f, bool *got) {
  union {
    char room[CMSG_SPACE(4 * sizeof(int))];
    struct cmsghdr align;
  } control;
  br_buf_reserve(&f->in, READ_BYTES);
  struct iovec piece = {.iov_base = f->in.data + f->in.len, .iov_len = READ_BYTES};
  struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control};
  ssize_t n = recvmsg(f->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  *got = n > 0;
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? WENT_WELL : ENDED;
  if (n == 0) return ENDED;
  f->in.len += (size_t)n;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      if (f->n_fds == MAX_FDS)
        close(fd);
      else
        f->in_fds[f->n_fds++] = fd;
    }
  }
  return WENT_WELL;
}

static void drop_frame(br_function *f) {
  if (!f->taken) return;
  memmove(f->in.data, f->in.data + f->taken, f->in.len - f->taken);
  f->in.len -= f->taken;
  f->taken = 0;
}

/* BROKEN: these bytes are no frame. *whole: there is one. */
static outcome take_frame(br_function *f, frame *out, bool *whole) {
  *whole = false;
  if (f->in.len < HEAD_BYTES) return WENT_WELL;
  const unsigned char *p = (const unsigned char *)f->in.data;
  uint32_t length = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
  if (length < 1 || length > BR_UDF_FRAME_MAX_BYTES) return BROKEN;
  if (f->in.len < 4 + (size_t)length) return WENT_WELL;
  *out = (frame){.kind = p[4], .payload = f->in.data + HEAD_BYTES, .bytes = length - 1};
  f->taken = 4 + length;
  *whole = true;
  return WENT_WELL;
}

/* The next frame of the process; waits until its connection ends, bound_ms (0: none) is over, or somebody stops it. */
static outcome next_frame(br_function *f, uint64_t bound_ms, frame *out) {
  uint64_t until = bound_ms ? br_now_ms() + bound_ms : 0;
  drop_frame(f);
  for (;;) {
    bool whole, got = false;
    outcome r = take_frame(f, out, &whole);
    if (r != WENT_WELL || whole) return r;
    if (atomic_load(&f->stopped)) return ENDED;
    if ((r = flush(f)) != WENT_WELL && f->out) { /* it may have answered before it went */
      drop_out(f);
    }
    if ((r = read_some(f, &got)) != WENT_WELL) return r;
    if (got) continue;
    uint64_t now = br_now_ms();
    if (until && now >= until) return ENDED;
    struct pollfd p[2] = {{.fd = f->fd, .events = (short)(POLLIN | (f->out ? POLLOUT : 0))},
                          {.fd = f->wake, .events = POLLIN}};
    int wait = until ? (int)(until - now > 1000000 ? 1000000 : until - now) : -1;
    if (poll(p, 2, wait) < 0 && errno != EINTR) return ENDED;
  }
}

/* ---- what a batch looks like */

static int memfd_of(const br_buf *b, br_error *err) {
  int fd = memfd_create("brant-udf", MFD_CLOEXEC);
  if (fd < 0) {
    br_fail_errno(err, errno, BR_BLAME_TASK, "cannot make shared memory for a function's arguments");
    return -1;
  }
  if (br_write_all(fd, b->data, b->len, err) == BR_OK) return fd;
  close(fd);
  return -1;
}

static br_status encode_stream(br_batch *b, br_buf *out, br_error *err) {
  br_buf head = {0}, body = {0};
  br_status status;
  BR_TRY_GOTO(br_ipc_encode_schema(br_batch_schema(b), &head, err));
  BR_TRY_GOTO(br_ipc_frame(&head, NULL, out, err));
  br_buf_clear(&head);
  BR_TRY_GOTO(br_ipc_encode_array(b, BR_CODEC_NONE, &head, &body, err));
  BR_TRY_GOTO(br_ipc_frame(&head, &body, out, err));
  br_buf_add(out, br_ipc_end_mark, sizeof br_ipc_end_mark);
done:
  br_buf_free(&head);
  br_buf_free(&body);
  return status;
}

static br_status queue_batch(br_function *f, under_way *u, br_error *err) {
  br_buf stream = {0}, payload = {0};
  int fd = -1;
  br_status status;
  BR_TRY_GOTO(encode_stream(u->arguments, &stream, err));
  if (stream.len > BR_UDF_BATCH_MAX_BYTES) {
    status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "one batch for %s() takes %zu bytes, more than %" PRIu64 ": give it a smaller batch_size",
                     name_of(f), stream.len, (uint64_t)BR_UDF_BATCH_MAX_BYTES);
    goto done;
  }
  u->number = f->next_number++;
  br_udf_head head = {.batch = u->number, .first_row = u->first_row, .rows = (uint64_t)br_batch_rows(u->arguments)};
  if (stream.len > BR_UDF_INLINE_BYTES) {
    head.fd_bytes = stream.len;
    if ((fd = memfd_of(&stream, err)) < 0) {
      status = err->code;
      goto done;
    }
  }
  br_buf_add(&payload, &head, sizeof head);
  if (fd < 0) br_buf_add(&payload, stream.data, stream.len);
  queue_frame(f, BR_UDF_BATCH, &payload, fd);
done:
  br_buf_free(&stream);
  br_buf_free(&payload);
  return status;
}

/* ---- results */

typedef struct mapping {
  void *at;
  size_t bytes;
} mapping;

static void unmap(void *p) {
  mapping *m = p;
  munmap(m->at, m->bytes);
  free(m);
}

/* The messages of one IPC stream: a schema, one batch. Takes over body's owner. */
static br_status decode_stream(br_function *f, const char *data, size_t n, br_ipc_body whole, br_batch **out,
                               br_error *err) {
  br_schema *schema = NULL;
  br_buf why = {0};
  br_status status = BR_OK;
  size_t at = 0;
  *out = NULL;
  while (!*out) {
    uint32_t mark, bytes;
    if (n - at < 8) break;
    memcpy(&mark, data + at, 4);
    memcpy(&bytes, data + at + 4, 4);
    if (mark != 0xFFFFFFFFu || bytes > n - at - 8 || !bytes) break;
    bool is_schema;
    int64_t rows;
    uint64_t body_bytes;
    const char *head = data + at + 8;
    BR_TRY_GOTO(br_ipc_peek(head, bytes, &is_schema, &rows, &body_bytes, err));
    at += 8 + (size_t)bytes;
    if (is_schema) {
      br_schema_unref(schema);
      schema = NULL;
      BR_TRY_GOTO(br_ipc_decode_schema(head, bytes, &schema, err));
      if (!br_schema_same_types(f->o.result, schema, &why)) {
        status = br_fail(err, BR_EXECUTION, BR_BLAME_USER, "%s() gave another type than %s: %s", name_of(f),
                         f->o.call->type, br_buf_cstr(&why));
        goto done;
      }
      continue;
    }
    if (!schema || body_bytes > n - at) break;
    br_ipc_body body = whole;
    body.data = data + at, body.bytes = body_bytes;
    whole.release = NULL;
    BR_TRY_GOTO(br_ipc_decode_batch(f->o.result, head, bytes, body, out, err));
  }
  if (!*out) status = br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "%s() answered with what is no Arrow stream", name_of(f));
done:
  if (whole.release) whole.release(whole.owner);
  br_schema_unref(schema);
  br_buf_free(&why);
  return status;
}

static br_status decode_inline(br_function *f, const char *data, size_t n, br_batch **out, br_error *err) {
  void *copy = NULL;
  if (posix_memalign(&copy, 64, n ? n : 1))
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for the result of %s()", name_of(f));
  memcpy(copy, data, n);
  return decode_stream(f, copy, n, (br_ipc_body){.release = free, .owner = copy}, out, err);
}

static br_status decode_mapped(br_function *f, int fd, uint64_t n, br_batch **out, br_error *err) {
  off_t size = lseek(fd, 0, SEEK_END);
  if (n > BR_UDF_BATCH_MAX_BYTES || size < 0 || (uint64_t)size < n)
    return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "%s() answered with less memory than it says", name_of(f));
  /* What could shrink under a mapping would end this process: it is sealed, or copied. */
  int seals = fcntl(fd, F_GET_SEALS);
  bool safe = seals >= 0 && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_WRITE);
  if (!safe) safe = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0;
  if (!safe) {
    void *copy = NULL;
    if (posix_memalign(&copy, 64, n ? n : 1))
      return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for the result of %s()", name_of(f));
    br_status status = br_pread_all(fd, copy, n, 0, err);
    if (status == BR_OK) return decode_stream(f, copy, n, (br_ipc_body){.release = free, .owner = copy}, out, err);
    free(copy);
    return status;
  }
  void *at = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot map the result of %s()", name_of(f));
  mapping *m = br_malloc(sizeof *m);
  *m = (mapping){at, n};
  return decode_stream(f, at, n, (br_ipc_body){.release = unmap, .owner = m}, out, err);
}

/* ---- errors */

static br_status user_error(br_function *f, const frame *fr, br_error *err) {
  br_udf_error_head h;
  char id[64];
  br_attempt_format(&f->o.task->id, id);
  if (fr->bytes < sizeof h)
    return br_fail(err, BR_CORRUPT, BR_BLAME_USER, "%s() failed without saying why", name_of(f));
  memcpy(&h, fr->payload, sizeof h);
  uint64_t texts = (uint64_t)h.type_bytes + h.message_bytes + h.traceback_bytes;
  if (texts > fr->bytes - sizeof h)
    return br_fail(err, BR_CORRUPT, BR_BLAME_USER, "%s() failed without saying why", name_of(f));
  const char *type = fr->payload + sizeof h, *message = type + h.type_bytes, *trace = message + h.message_bytes;
  br_buf where = {0};
  if (h.kind == BR_UDF_ERROR_LOAD)
    br_buf_printf(&where, "%s() can't be loaded on worker %u", name_of(f), f->x->worker);
  else if (h.rows)
    br_buf_printf(&where, "%s() failed in rows %" PRIu64 " to %" PRIu64 " of task %s", name_of(f), h.first_row,
                  h.first_row + h.rows - 1, id);
  else
    br_buf_printf(&where, "%s() failed in task %s", name_of(f), id);
  /* the end of a traceback says most */
  size_t room = BR_ERROR_MESSAGE_BYTES - 64, said = h.message_bytes < 700 ? h.message_bytes : 700;
  size_t used = where.len + h.type_bytes + said + 8, left = room > used ? room - used : 0;
  size_t skip = h.traceback_bytes > left ? h.traceback_bytes - left : 0;
  while (skip && skip < h.traceback_bytes && trace[skip - 1] != '\n') skip++;
  f->o.task->function_failed = true;
  br_fail(err, BR_EXECUTION, BR_BLAME_USER, "%s: %.*s: %.*s%s%.*s", br_buf_cstr(&where),
          (int)(h.type_bytes < 200 ? h.type_bytes : 200), type, (int)said, message, h.traceback_bytes ? "\n" : "",
          (int)(h.traceback_bytes - skip), trace + skip);
  br_buf_free(&where);
  return err->code;
}

/* ---- connections */

static void disconnect(br_function *f) {
  drop_out(f);
  if (f->fd >= 0) close(f->fd);
  while (f->n_fds) close(f->in_fds[--f->n_fds]);
  f->fd = -1;
  br_buf_clear(&f->in);
  f->taken = 0;
  f->next_number = 0;
}

static void add_json_text(br_buf *b, const char *s) {
  br_buf_char(b, '"');
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      br_buf_printf(b, "\\%c", *s);
    else if ((unsigned char)*s < 0x20)
      br_buf_printf(b, "\\u%04x", *s);
    else
      br_buf_char(b, *s);
  }
  br_buf_char(b, '"');
}

static br_status add_schema(br_buf *b, const br_schema *s, br_error *err) {
  br_buf head = {0}, stream = {0};
  br_status status = br_ipc_encode_schema(s, &head, err);
  if (status == BR_OK) status = br_ipc_frame(&head, NULL, &stream, err);
  if (status == BR_OK) br_buf_add(&stream, br_ipc_end_mark, sizeof br_ipc_end_mark);
  for (size_t i = 0; status == BR_OK && i < stream.len; i++) br_buf_printf(b, "%02x", (unsigned char)stream.data[i]);
  br_buf_free(&head);
  br_buf_free(&stream);
  return status;
}

static br_status queue_open(br_function *f, br_error *err) {
  const Brant__Pb__StepCall *call = f->o.call;
  br_buf b = {0};
  char id[64];
  br_attempt_format(&f->o.task->id, id);
  br_buf_printf(&b, "{\"version\":%u,\"function\":%" PRIu64 ",\"name\":", BR_UDF_VERSION, call->function);
  add_json_text(&b, call->name);
  br_buf_printf(&b, ",\"attempt\":\"%s\",\"arguments\":[", id);
  for (size_t i = 0; i < call->n_arguments; i++) {
    br_buf_str(&b, i ? "," : "");
    add_json_text(&b, f->o.argument_types[i]);
  }
  br_buf_str(&b, "],\"result\":");
  add_json_text(&b, call->type);
  br_buf_str(&b, ",\"result_schema\":\"");
  br_status status = add_schema(&b, f->o.result, err);
  br_buf_str(&b, "\"}");
  if (status == BR_OK) queue_frame(f, BR_UDF_OPEN, &b, -1);
  br_buf_free(&b);
  return status;
}

static br_status cancelled(br_error *err) {
  return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
}

/* The connection is of no use any more. *again: the process may be replaced and the batches sent again. */
static br_status ended(br_function *f, outcome how, bool *again, br_error *err) {
  bool stopped = atomic_load(&f->stopped);
  *again = false;
  if (stopped) {
    br_executor_udf_close(f->x, f->request, BRANT__PB__UDF_END__UDF_END_CANCELLED);
    disconnect(f);
    return cancelled(err);
  }
  br_executor_udf_ended(f->x, f->request,
                        how == BROKEN ? BRANT__PB__UDF_END__UDF_END_BROKEN : BRANT__PB__UDF_END__UDF_END_DIED,
                        &f->stopped, err);
  disconnect(f);
  if (atomic_load(&f->stopped)) return cancelled(err);
  f->retries++;
  f->o.task->function_failed = true;
  uint32_t tries = f->n ? f->batches[0].tries : f->open_tries;
  if (err->retryable) /* it was busy with somebody else's batch */
    *again = f->free_tries++ < FREE_RETRIES;
  else
    *again = tries < f->o.call->max_retries;
  if (f->n && !err->retryable)
    f->batches[0].tries++;
  else if (!err->retryable)
    f->open_tries++;
  return err->code;
}

static br_status open_once(br_function *f, bool *again, br_error *err) {
  frame fr;
  *again = false;
  BR_TRY(br_executor_udf_open(f->o.task, f->o.call->function, &f->stopped, &f->request, &f->fd, err));
  BR_TRY(queue_open(f, err));
  outcome r = next_frame(f, BR_FUNCTION_OPEN_MS, &fr);
  if (r == WENT_WELL && fr.kind == BR_UDF_OPENED) return BR_OK;
  if (r == WENT_WELL && fr.kind == BR_UDF_ERROR) {
    br_status status = user_error(f, &fr, err);
    br_executor_udf_close(f->x, f->request, BRANT__PB__UDF_END__UDF_END_DONE);
    disconnect(f);
    return status;
  }
  return ended(f, r == WENT_WELL ? BROKEN : r, again, err);
}

/* Connected, with all batches that have no result sent again. */
static br_status connect_again(br_function *f, br_error *err) {
  bool again;
  do {
    br_status status = open_once(f, &again, err);
    if (status == BR_OK) break;
    if (!again) return status;
  } while (true);
  for (uint32_t i = 0; i < f->n; i++) BR_TRY(queue_batch(f, &f->batches[i], err));
  return BR_OK;
}

static void where_it_was(br_function *f, br_error *err) {
  char id[64];
  const under_way *u = &f->batches[0];
  br_attempt_format(&f->o.task->id, id);
  if (err->code == BR_CANCELLED) return;
  err->blame = err->blame == BR_BLAME_WORKER ? BR_BLAME_WORKER : BR_BLAME_USER;
  err->retryable = false;
  if (f->n)
    br_error_context(err, "%s() in rows %" PRIu64 " to %" PRIu64 " of task %s", name_of(f), u->first_row,
                     u->first_row + (uint64_t)br_batch_rows(u->arguments) - 1, id);
  else
    br_error_context(err, "%s() in task %s", name_of(f), id);
}

/* ---- the interface */

br_status br_function_new(const br_function_options *o, br_function **out, br_error *err) {
  int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot make an eventfd for a function");
  br_function *f = br_calloc(1, sizeof *f);
  f->o = *o;
  f->x = o->task->x;
  f->fd = -1;
  f->wake = wake;
  f->out_end = &f->out;
  *out = f;
  return BR_OK;
}

br_status br_function_open(br_function *f, br_error *err) {
  br_status status = connect_again(f, err);
  if (status != BR_OK && f->retries) where_it_was(f, err);
  return status;
}

br_status br_function_send(br_function *f, br_batch *arguments, uint64_t first_row, br_error *err) {
  BR_ASSERT(f->n < BR_UDF_IN_FLIGHT);
  under_way *u = &f->batches[f->n];
  *u = (under_way){.arguments = br_batch_ref(arguments), .first_row = first_row};
  f->n++;
  BR_TRY(queue_batch(f, u, err));
  (void)flush(f); /* that it ended is seen when its answer is read */
  return BR_OK;
}

static br_status take_result(br_function *f, const frame *fr, br_batch **out, outcome *how, br_error *err) {
  br_udf_head h;
  const under_way *u = &f->batches[0];
  int64_t rows = br_batch_rows(u->arguments);
  *how = BROKEN;
  if (fr->kind != BR_UDF_RESULT || fr->bytes < sizeof h)
    return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "no result where one must be");
  memcpy(&h, fr->payload, sizeof h);
  if (h.batch != u->number) return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "the result of another batch");
  if (h.fd_bytes && !f->n_fds) return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "a result without its memory");
  br_status status = h.fd_bytes ? decode_mapped(f, f->in_fds[0], h.fd_bytes, out, err)
                                : decode_inline(f, fr->payload + sizeof h, fr->bytes - sizeof h, out, err);
  if (h.fd_bytes) {
    close(f->in_fds[0]);
    memmove(f->in_fds, f->in_fds + 1, (size_t)--f->n_fds * sizeof *f->in_fds);
  }
  if (status == BR_OK && br_batch_rows(*out) != rows) {
    status = br_fail(err, BR_EXECUTION, BR_BLAME_USER, "%s() gave %lld rows for %lld", name_of(f),
                     (long long)br_batch_rows(*out), (long long)rows);
    br_batch_unref(*out);
    *out = NULL;
  }
  if (status == BR_OK || err->blame == BR_BLAME_USER) *how = WENT_WELL;
  return status;
}

static void pop(br_function *f) {
  br_batch_unref(f->batches[0].arguments);
  memmove(f->batches, f->batches + 1, --f->n * sizeof *f->batches);
}

br_status br_function_receive(br_function *f, br_batch **out, br_error *err) {
  *out = NULL;
  for (;;) {
    frame fr;
    bool again;
    outcome how = next_frame(f, 0, &fr);
    if (how == WENT_WELL && fr.kind == BR_UDF_ERROR) return user_error(f, &fr, err);
    if (how == WENT_WELL) {
      br_status status = take_result(f, &fr, out, &how, err);
      if (status == BR_OK) {
        pop(f);
        return BR_OK;
      }
      if (how == WENT_WELL) {
        f->o.task->function_failed = true;
        where_it_was(f, err);
        return status;
      }
    }
    br_status status = ended(f, how, &again, err);
    if (again) status = connect_again(f, err);
    if (status == BR_OK) continue;
    where_it_was(f, err);
    return status;
  }
}

uint32_t br_function_in_flight(const br_function *f) { return f->n; }
uint64_t br_function_retries(const br_function *f) { return f->retries; }

void br_function_stop(br_function *f) {
  uint64_t one = 1;
  atomic_store(&f->stopped, true);
  ssize_t unused = write(f->wake, &one, sizeof one);
  (void)unused;
  br_executor_wake_waiters(f->x);
}

void br_function_close(br_function *f) {
  if (!f) return;
  if (f->fd >= 0) {
    bool busy = f->n > 0;
    br_buf none = {0};
    if (!busy) queue_frame(f, BR_UDF_CLOSE, &none, -1);
    if (!busy) (void)flush(f);
    br_executor_udf_close(f->x, f->request,
                          busy ? BRANT__PB__UDF_END__UDF_END_CANCELLED : BRANT__PB__UDF_END__UDF_END_DONE);
  }
  disconnect(f);
  while (f->n) pop(f);
  if (f->wake >= 0) close(f->wake);
  br_buf_free(&f->in);
  free(f);
}
