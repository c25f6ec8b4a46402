/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and the one error struct of the engine.
 *
 * A function that can fail returns br_status (0 is success) and takes a `br_error *err` as its last parameter. On failure
 * it fills *err once, where the failure was seen, and every caller passes it on whole: through threads, through processes
 * (proto/ carries every field), never as a text that is parsed again. Successful calls leave *err alone. err is never NULL.
 */
#ifndef BRANT_BASE_STATUS_H
#define BRANT_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#define BR_MUST_USE __attribute__((warn_unused_result))
#define BR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* What went wrong. The numbers cross the wire: only ever add at the end. */
typedef enum br_code {
  BR_OK = 0,
  BR_INVALID,       /* bad input: syntax, unknown column, wrong option      */
  BR_NOT_FOUND,     /* no such file, table, query                           */
  BR_IO,            /* read or write failed (sys_errno says how)            */
  BR_NO_SPACE,      /* disk or quota full                                   */
  BR_PERMISSION,    /* file system or token said no                         */
  BR_OUT_OF_MEMORY, /* a named budget was exhausted                         */
  BR_UNSUPPORTED,   /* right input that this version can't do               */
  BR_CORRUPT,       /* checksum, magic or structure of data is wrong        */
  BR_NETWORK,       /* connection refused, reset, protocol broken           */
  BR_TIMEOUT,       /* a bounded wait ran out                               */
  BR_CANCELLED,     /* somebody asked for it to stop                        */
  BR_FETCH,         /* a partition could not be read from its worker        */
  BR_LOST,          /* a worker or executor died                            */
  BR_VERSION,       /* the other side is of another version                 */
  BR_EXECUTION,     /* a run-time error of the user's SQL (cast, error())   */
  BR_INTERNAL       /* a bug of ours: says where                            */
} br_code;

/* Whose fault, which decides who retries (see schedule/README.md). */
typedef enum br_blame {
  BR_BLAME_NONE = 0,
  BR_BLAME_USER,
  BR_BLAME_TASK,
  BR_BLAME_FETCH,
  BR_BLAME_EXECUTOR,
  BR_BLAME_WORKER,
  BR_BLAME_INTERNAL
} br_blame;

typedef int br_status; /* a br_code; 0 is success */

/* One try at one task of one stage of one query. */
typedef struct br_attempt_id {
  uint64_t query;
  uint32_t stage, task;
  uint16_t attempt;
} br_attempt_id;

/* Where one attempt's output lives. */
typedef struct br_map_output_id {
  br_attempt_id made_by;
  uint32_t worker, incarnation;
} br_map_output_id;

#define BR_ERROR_MESSAGE_BYTES 2048

typedef struct br_error {
  br_code code;
  br_blame blame;
  bool retryable;   /* the same attempt may pass if tried again        */
  bool has_attempt; /* attempt is set                                  */
  bool has_lost;    /* lost is set: this map output can't be read      */
  br_attempt_id attempt;
  br_map_output_id lost;
  uint32_t worker; /* 0: none                                         */
  int sys_errno;   /* 0: none                                         */
  int duckdb_type; /* duckdb_error_type, 0: none                      */
  int line;        /* where in our source                             */
  char file[64];
  char message[BR_ERROR_MESSAGE_BYTES]; /* one clear message: what, where, what to do; always NUL-terminated */
} br_error;

/* Fill *err and return code: `return br_fail(err, BR_IO, BR_BLAME_TASK, "cannot write %s: %s", path, strerror(errno));` */
#define br_fail(err, code, blame, ...) br_fail_at((err), (code), (blame), __FILE__, __LINE__, __VA_ARGS__)
/* The same, with errno: appends ": <strerror>", sets sys_errno, and picks BR_NO_SPACE / BR_PERMISSION / BR_NOT_FOUND /
 * BR_OUT_OF_MEMORY for ENOSPC, EDQUOT / EACCES, EPERM, EROFS / ENOENT / ENOMEM, else BR_IO. */
#define br_fail_errno(err, errno_value, blame, ...) \
  br_fail_errno_at((err), (errno_value), (blame), __FILE__, __LINE__, __VA_ARGS__)

br_status br_fail_at(br_error *err, br_code code, br_blame blame, const char *file, int line, const char *fmt, ...)
    BR_PRINTF(6, 7);
br_status br_fail_errno_at(br_error *err, int errno_value, br_blame blame, const char *file, int line, const char *fmt,
                           ...) BR_PRINTF(6, 7);
/* Put "context: " before the message of a failure on its way up; returns err->code. */
br_status br_error_context(br_error *err, const char *fmt, ...) BR_PRINTF(2, 3);
void br_error_clear(br_error *err);
const char *br_code_name(br_code code); /* "INVALID", never NULL */
const char *br_blame_name(br_blame blame);

/* Run a fallible call and pass its failure on. */
#define BR_TRY(expr)                      \
  do {                                    \
    br_status br_try_ = (expr);           \
    if (br_try_ != BR_OK) return br_try_; \
  } while (0)
/* The same inside a function with one cleanup label: sets `status` and jumps to `done`. */
#define BR_TRY_GOTO(expr)           \
  do {                              \
    status = (expr);                \
    if (status != BR_OK) goto done; \
  } while (0)

/* An assertion that stays on in release builds: says where, then aborts. */
#define BR_ASSERT(cond) ((cond) ? (void)0 : br_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void br_assert_failed(const char *cond, const char *file, int line);

#endif
