/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * The error struct: what is filled, how errno is mapped, context, bounds, names, assertions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/status.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail_fills_everything(void **state) {
  (void)state;
  br_error err;
  memset(&err, 0xab, sizeof err);
  assert_int_equal(br_fail(&err, BR_CORRUPT, BR_BLAME_TASK, "chunk %d of %s", 7, "f"), BR_CORRUPT);
  assert_int_equal(err.code, BR_CORRUPT);
  assert_int_equal(err.blame, BR_BLAME_TASK);
  assert_string_equal(err.message, "chunk 7 of f");
  assert_string_equal(err.file, "test_base_status.c"); /* the name without its folder */
  assert_in_range(err.line, 20, 40);
  assert_false(err.retryable);
  assert_false(err.has_attempt);
  assert_false(err.has_lost);
  assert_int_equal(err.worker, 0);
  assert_int_equal(err.sys_errno, 0);
  assert_int_equal(err.duckdb_type, 0);
  br_error_clear(&err);
  assert_int_equal(err.code, BR_OK);
  assert_string_equal(err.message, "");
}

static void errno_is_mapped(void **state) {
  (void)state;
  static const struct {
    int value;
    br_code code;
  } cases[] = {{ENOSPC, BR_NO_SPACE},  {EDQUOT, BR_NO_SPACE},  {EACCES, BR_PERMISSION},    {EPERM, BR_PERMISSION},
               {EROFS, BR_PERMISSION}, {ENOENT, BR_NOT_FOUND}, {ENOMEM, BR_OUT_OF_MEMORY}, {EIO, BR_IO},
               {EINVAL, BR_IO},        {99999, BR_IO}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_error err;
    assert_int_equal(br_fail_errno(&err, cases[i].value, BR_BLAME_WORKER, "cannot write %s", "x"), cases[i].code);
    assert_int_equal(err.code, cases[i].code);
    assert_int_equal(err.sys_errno, cases[i].value);
    assert_int_equal(strncmp(err.message, "cannot write x: ", 16), 0);
    assert_true(strlen(err.message) > 16); /* what strerror says, whatever the language */
  }
}

static void context_goes_before(void **state) {
  (void)state;
  br_error err;
  br_fail(&err, BR_IO, BR_BLAME_TASK, "short read");
  err.has_lost = true;
  assert_int_equal(br_error_context(&err, "task %d", 3), BR_IO);
  assert_int_equal(br_error_context(&err, "query 1"), BR_IO);
  assert_string_equal(err.message, "query 1: task 3: short read");
  assert_true(err.has_lost); /* the rest is left alone */
  assert_int_equal(err.blame, BR_BLAME_TASK);
}

static void messages_are_cut_at_their_bound(void **state) {
  (void)state;
  char big[3 * BR_ERROR_MESSAGE_BYTES];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = 0;
  br_error err;
  br_fail(&err, BR_IO, BR_BLAME_TASK, "%s", big);
  assert_int_equal(strlen(err.message), BR_ERROR_MESSAGE_BYTES - 1);
  br_fail_errno(&err, ENOSPC, BR_BLAME_TASK, "%s", big);
  assert_int_equal(strlen(err.message), BR_ERROR_MESSAGE_BYTES - 1);
  br_fail(&err, BR_IO, BR_BLAME_TASK, "%s", big);
  br_error_context(&err, "where");
  assert_int_equal(strlen(err.message), BR_ERROR_MESSAGE_BYTES - 1);
  assert_int_equal(strncmp(err.message, "where: xxx", 10), 0);
  br_error_context(&err, "%s", big); /* the context alone fills it */
  assert_int_equal(strlen(err.message), BR_ERROR_MESSAGE_BYTES - 1);
  assert_int_equal(err.message[0], 'x');
}

static void every_code_has_its_name(void **state) {
  (void)state;
  for (int i = BR_OK; i <= BR_INTERNAL; i++) {
    assert_string_not_equal(br_code_name((br_code)i), "UNKNOWN");
    for (int j = BR_OK; j < i; j++) assert_string_not_equal(br_code_name((br_code)i), br_code_name((br_code)j));
  }
  assert_string_equal(br_code_name(BR_INTERNAL), "INTERNAL");
  assert_string_equal(br_code_name((br_code)(BR_INTERNAL + 1)), "UNKNOWN");
  assert_string_equal(br_code_name((br_code)-1), "UNKNOWN");
  for (int i = BR_BLAME_NONE; i <= BR_BLAME_INTERNAL; i++)
    assert_string_not_equal(br_blame_name((br_blame)i), "UNKNOWN");
  assert_string_equal(br_blame_name(BR_BLAME_INTERNAL), "INTERNAL");
  assert_string_equal(br_blame_name((br_blame)99), "UNKNOWN");
}

static br_status third(int n, br_error *err) {
  return n == 3 ? br_fail(err, BR_TIMEOUT, BR_BLAME_NONE, "third") : BR_OK;
}
static br_status try_to(int n, int *reached, br_error *err) {
  for (int i = 1; i <= n; i++) {
    BR_TRY(third(i, err));
    *reached = i;
  }
  return BR_OK;
}
static br_status goto_to(int n, int *reached, bool *cleaned, br_error *err) {
  br_status status = BR_OK;
  for (int i = 1; i <= n; i++) {
    BR_TRY_GOTO(third(i, err));
    *reached = i;
  }
done:
  *cleaned = true;
  return status;
}

static void try_passes_failures_on(void **state) {
  (void)state;
  br_error err = {0};
  int reached = 0;
  bool cleaned = false;
  assert_int_equal(try_to(2, &reached, &err), BR_OK);
  assert_int_equal(err.code, BR_OK);
  assert_int_equal(try_to(9, &reached, &err), BR_TIMEOUT);
  assert_int_equal(reached, 2);
  assert_string_equal(err.message, "third");
  assert_int_equal(goto_to(9, &reached, &cleaned, &err), BR_TIMEOUT);
  assert_true(cleaned);
}

/* A child, since it ends: by SIGABRT, having said where on standard error. */
static void assertions_end_the_process(void **state) {
  (void)state;
  int fds[2];
  assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGABRT, SIG_DFL); /* cmocka and sanitizers have handlers of their own */
    dup2(fds[1], STDERR_FILENO);
    BR_ASSERT(1 + 1 == 3);
    _exit(0);
  }
  close(fds[1]);
  char text[512] = "";
  ssize_t n = read(fds[0], text, sizeof text - 1);
  close(fds[0]);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGABRT);
  assert_true(n > 0);
  assert_non_null(strstr(text, "assertion failed: 1 + 1 == 3 (test_base_status.c:"));
}

static void messages_are_utf8(void **state) {
  (void)state;
  br_error err;
  static const char *const cases[][2] = {{"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                                         {"\xe2\x82\xac \xf0\x9f\xa6\x86", "\xe2\x82\xac \xf0\x9f\xa6\x86"},
                                         {"a\xff"
                                          "b",
                                          "a?b"},
                                         {"\xc0\xaf", "??"},
                                         {"\xed\xa0\x80", "???"},
                                         {"cut \xe2\x82", "cut ??"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(br_fail(&err, BR_IO, BR_BLAME_TASK, "%s", cases[i][0]), BR_IO);
    assert_string_equal(err.message, cases[i][1]);
  }
  char long_text[BR_ERROR_MESSAGE_BYTES + 2];
  for (size_t i = 0; i < sizeof long_text - 1; i += 2) memcpy(long_text + i, "\xc3\xbc", 2);
  long_text[sizeof long_text - 1] = 0;
  (void)br_fail(&err, BR_IO, BR_BLAME_TASK, "%s", long_text); /* 2,047 bytes: the last character is cut */
  assert_int_equal(err.message[BR_ERROR_MESSAGE_BYTES - 2], '?');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fail_fills_everything),      cmocka_unit_test(errno_is_mapped),
      cmocka_unit_test(context_goes_before),        cmocka_unit_test(messages_are_cut_at_their_bound),
      cmocka_unit_test(every_code_has_its_name),    cmocka_unit_test(try_passes_failures_on),
      cmocka_unit_test(assertions_end_the_process), cmocka_unit_test(messages_are_utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
