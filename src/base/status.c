/* SPDX-License-Identifier: Apache-2.0
 * Fills and names br_error. No state, no locks: any thread. Messages are cut at BR_ERROR_MESSAGE_BYTES. */
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Length of the valid UTF-8 sequence at s, 0 if there is none (also when the text ends in the middle of one). */
static size_t sequence(const unsigned char *s) {
  size_t n = s[0] < 0x80                   ? 1
             : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
             : (s[0] & 0xf0) == 0xe0       ? 3
             : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                           : 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
      (s[0] == 0xf4 && s[1] > 0x8f))
    return 0;
  return n;
}

/* Messages go into JSON and protobuf: a cut character or a byte of a user's data becomes '?'. */
static void make_utf8(char *text) {
  for (unsigned char *s = (unsigned char *)text; *s != 0;) {
    size_t n = sequence(s);
    if (n == 0) *s = '?';
    s += n ? n : 1;
  }
}

static br_status fail(br_error *err, br_code code, br_blame blame, const char *file, int line, const char *fmt,
                      va_list ap) {
  memset(err, 0, sizeof *err);
  err->code = code;
  err->blame = blame;
  err->line = line;
  snprintf(err->file, sizeof err->file, "%s", base_name(file));
  vsnprintf(err->message, sizeof err->message, fmt, ap);
  make_utf8(err->message);
  return (br_status)code;
}

br_status br_fail_at(br_error *err, br_code code, br_blame blame, const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  br_status s = fail(err, code, blame, file, line, fmt, ap);
  va_end(ap);
  return s;
}

static br_code code_of_errno(int e) {
  switch (e) {
    case ENOSPC:
    case EDQUOT: return BR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS: return BR_PERMISSION;
    case ENOENT: return BR_NOT_FOUND;
    case ENOMEM: return BR_OUT_OF_MEMORY;
    default: return BR_IO;
  }
}

br_status br_fail_errno_at(br_error *err, int e, br_blame blame, const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  br_status s = fail(err, code_of_errno(e), blame, file, line, fmt, ap);
  va_end(ap);
  err->sys_errno = e;
  size_t n = strlen(err->message);
  char text[128];
  snprintf(err->message + n, sizeof err->message - n, ": %s", strerror_r(e, text, sizeof text));
  return s;
}

br_status br_error_context(br_error *err, const char *fmt, ...) {
  char joined[BR_ERROR_MESSAGE_BYTES];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(joined, sizeof joined, fmt, ap);
  va_end(ap);
  if (n >= 0 && (size_t)n < sizeof joined) snprintf(joined + n, sizeof joined - (size_t)n, ": %s", err->message);
  memcpy(err->message, joined, sizeof joined);
  make_utf8(err->message);
  return (br_status)err->code;
}

void br_error_clear(br_error *err) { memset(err, 0, sizeof *err); }

const char *br_code_name(br_code code) {
  static const char *const names[] = {
      "OK",      "INVALID", "NOT_FOUND", "IO",    "NO_SPACE", "PERMISSION", "OUT_OF_MEMORY", "UNSUPPORTED", "CORRUPT",
      "NETWORK", "TIMEOUT", "CANCELLED", "FETCH", "LOST",     "VERSION",    "EXECUTION",     "INTERNAL"};
  return (size_t)code < sizeof names / sizeof *names ? names[code] : "UNKNOWN";
}

const char *br_blame_name(br_blame blame) {
  static const char *const names[] = {"NONE", "USER", "TASK", "FETCH", "EXECUTOR", "WORKER", "INTERNAL"};
  return (size_t)blame < sizeof names / sizeof *names ? names[blame] : "UNKNOWN";
}

_Noreturn void br_assert_failed(const char *cond, const char *file, int line) {
  fprintf(stderr, "brant: assertion failed: %s (%s:%d)\n", cond, base_name(file), line);
  abort();
}
