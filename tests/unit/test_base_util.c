/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * Sizes in and out, clocks, the log's lines and levels, files and folders. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- sizes */

static void sizes_that_are_right(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } cases[] = {{"0", 0},
               {"1000", 1000},
               {"512MB", 512000000},
               {"512 MiB", 512u << 20},
               {"1GiB", 1u << 30},
               {"1gb", 1000000000},
               {"1.5g", 3u << 29},
               {"64k", 65536},
               {"64KB", 64000},
               {"7b", 7},
               {"2m", 2u << 20},
               {"0.5KiB", 512},
               {"3TiB", 3ull << 40},
               {"1tb", 1000000000000ull},
               {" 5", 5}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_error err = {0};
    uint64_t v = 77;
    assert_int_equal(br_parse_bytes(cases[i].text, &v, &err), BR_OK);
    assert_int_equal(v, cases[i].bytes);
  }
}

static void sizes_that_are_wrong(void **state) {
  (void)state;
  static const char *const cases[] = {"",    " ",   "MB",   "-1",    "-1MB",          "1 M B", "1XB",   "12 34",
                                      "nan", "inf", "1e99", "1e400", "99999999999TB", "1MB ",  "0.5.5", "one"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_error err = {0};
    uint64_t v = 77;
    assert_int_equal(br_parse_bytes(cases[i], &v, &err), BR_INVALID);
    assert_int_equal(err.blame, BR_BLAME_USER);
    assert_int_equal(v, 77);                       /* untouched */
    assert_non_null(strstr(err.message, "512MB")); /* how to write it */
  }
}

static void sizes_for_people(void **state) {
  (void)state;
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {{0, "0 B"},
               {1, "1 B"},
               {1023, "1023 B"},
               {1024, "1.0 KiB"},
               {1536, "1.5 KiB"},
               {100 * 1024, "100 KiB"},
               {1024 * 1024, "1.0 MiB"},
               {3ull << 29, "1.5 GiB"},
               {5ull << 40, "5.0 TiB"},
               {UINT64_MAX, "16.0 EiB"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char out[16];
    br_format_bytes(cases[i].bytes, out);
    assert_string_equal(out, cases[i].text);
  }
  for (int bit = 0; bit < 64; bit++) /* never longer than its array, and read back near what it was */
    for (int d = -1; d <= 1; d++) {
      char out[16];
      br_error err = {0};
      uint64_t in = (1ull << bit) + (uint64_t)(int64_t)d, back = 0;
      br_format_bytes(in, out);
      assert_true(strlen(out) < sizeof out);
      if (in > 1ull << 49 || br_parse_bytes(out, &back, &err) != BR_OK) continue; /* PiB and EiB are for reading only */
      double off = (double)back - (double)in;
      assert_true(off <= 0.06 * (double)in + 1 && off >= -0.06 * (double)in - 1);
    }
}

/* ---- clocks, chance */

static void clocks_and_chance(void **state) {
  (void)state;
  uint64_t us = br_now_us(), ms = br_now_ms();
  assert_true(ms >= us / 1000 && ms - us / 1000 < 60000);
  assert_true(br_now_us() >= us);
  assert_true(br_wall_us() > 1600000000000000ull); /* after 2020 */
  double before = br_cpu_seconds();
  volatile uint64_t sink = 0;
  for (uint64_t start = br_now_us(); br_cpu_seconds() - before < 0.01 && br_now_us() - start < 10000000;) sink++;
  assert_true(br_cpu_seconds() - before >= 0.01);
  uint64_t all_or = 0, all_and = UINT64_MAX;
  for (int i = 0; i < 200; i++) {
    uint64_t r = br_random_u64();
    all_or |= r;
    all_and &= r;
  }
  assert_int_equal(all_or, UINT64_MAX); /* every bit was seen as 1 and as 0 */
  assert_int_equal(all_and, 0);
}

/* ---- log: the level is read once a process, so each case is a child */

static void log_of_child(const char *level, char *out, size_t n) {
  int fds[2];
  assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (level)
      setenv("BRANT_LOG", level, 1);
    else
      unsetenv("BRANT_LOG");
    dup2(fds[1], STDERR_FILENO);
    br_log_set_name("worker", 7);
    br_log(BR_LOG_ERROR, "an %s", "error");
    br_log(BR_LOG_WARN, "a warning");
    br_log(BR_LOG_INFO, "some news");
    br_log_set_name("brant", 0);
    br_log(BR_LOG_DEBUG, "%06000d", 1); /* longer than a line may be */
    _exit(br_log_enabled(BR_LOG_ERROR) ? 0 : 1);
  }
  close(fds[1]);
  size_t len = 0;
  for (ssize_t r; len + 1 < n && (r = read(fds[0], out + len, n - 1 - len)) > 0;) len += (size_t)r;
  out[len] = 0;
  close(fds[0]);
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static size_t count_lines(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += *s == '\n';
  return n;
}

static void log_levels(void **state) {
  (void)state;
  char text[16384];
  log_of_child("error", text, sizeof text);
  assert_int_equal(count_lines(text), 1);
  /* 2026-01-02T03:04:05.678 E worker[7] an error */
  assert_int_equal(strlen(text), strlen("2026-01-02T03:04:05.678 E worker[7] an error\n"));
  assert_int_equal(text[10], 'T');
  assert_int_equal(text[19], '.');
  assert_string_equal(text + 23, " E worker[7] an error\n");
  log_of_child(NULL, text, sizeof text);
  assert_int_equal(count_lines(text), 2);
  assert_non_null(strstr(text, " W worker[7] a warning\n"));
  log_of_child("nonsense", text, sizeof text); /* the default */
  assert_int_equal(count_lines(text), 2);
  log_of_child("INFO", text, sizeof text);
  assert_int_equal(count_lines(text), 3);
  log_of_child("debug", text, sizeof text);
  assert_int_equal(count_lines(text), 4);
  const char *last = strstr(text, " D brant 000");
  assert_non_null(last);
  assert_in_range(strlen(last), 4000, 4096); /* cut, and still a line */
  assert_int_equal(last[strlen(last) - 1], '\n');
}

/* ---- files */

static int make_dir(void **state) {
  char *dir = br_strdup("/tmp/brant-util-XXXXXX");
  *state = dir;
  return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state) {
  br_remove_tree(*state);
  int there = access(*state, F_OK) == 0;
  free(*state);
  return there;
}

static char *under(const char *dir, const char *name) { return br_asprintf("%s/%s", dir, name); }

static void touch(const char *dir, const char *name) {
  char *p = under(dir, name);
  int fd = open(p, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  close(fd);
  free(p);
}

static bool there(const char *dir, const char *name) {
  struct stat st;
  char *p = under(dir, name);
  bool yes = lstat(p, &st) == 0;
  free(p);
  return yes;
}

static void folders_are_made(void **state) {
  br_error err = {0};
  char *deep = under(*state, "a/b//c/");
  assert_int_equal(br_mkdir_p(deep, &err), BR_OK);
  assert_int_equal(br_mkdir_p(deep, &err), BR_OK); /* again is fine */
  struct stat st;
  assert_int_equal(stat(deep, &st), 0);
  assert_true(S_ISDIR(st.st_mode));
  assert_int_equal(st.st_mode & 077, 0); /* for this user alone */
  touch(*state, "file");
  char *through = under(*state, "file/x"), *file = under(*state, "file");
  assert_int_not_equal(br_mkdir_p(through, &err), BR_OK);
  assert_non_null(strstr(err.message, "/file"));
  assert_int_equal(br_mkdir_p(file, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "is not a directory"));
  assert_int_not_equal(br_mkdir_p("", &err), BR_OK);
  assert_int_equal(br_mkdir_p("/", &err), BR_OK);
  free(deep);
  free(through);
  free(file);
}

static void trees_go_and_links_stay_unfollowed(void **state) {
  br_error err = {0};
  const char *dir = *state;
  char *deep = under(dir, "tree/x/y/z"), *keep = under(dir, "keep"), *link = under(dir, "tree/x/link"),
       *dangling = under(dir, "tree/dangling"), *tree = under(dir, "tree"), *alias = under(dir, "alias");
  assert_int_equal(br_mkdir_p(deep, &err), BR_OK);
  assert_int_equal(br_mkdir_p(keep, &err), BR_OK);
  touch(dir, "keep/precious");
  touch(dir, "tree/f");
  touch(dir, "tree/x/y/.hidden");
  assert_int_equal(symlink(keep, link), 0);
  assert_int_equal(symlink("/nowhere/at/all", dangling), 0);
  assert_int_equal(symlink(keep, alias), 0);
  br_remove_tree(alias); /* a link as the root: the link goes */
  assert_false(there(dir, "alias"));
  br_remove_tree(tree);
  assert_false(there(dir, "tree"));
  assert_true(there(dir, "keep/precious"));
  br_remove_tree(tree); /* missing is fine */
  touch(dir, "single");
  char *single = under(dir, "single");
  br_remove_tree(single);
  assert_false(there(dir, "single"));
  free(deep);
  free(keep);
  free(link);
  free(dangling);
  free(tree);
  free(alias);
  free(single);
}

static void bytes_of_files(void **state) {
  br_error err = {0};
  char *path = under(*state, "bytes"), back[10];
  int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(br_write_all(fd, "0123456789", 10, &err), BR_OK);
  assert_int_equal(br_write_all(fd, NULL, 0, &err), BR_OK);
  assert_int_equal(br_pread_all(fd, back, 4, 3, &err), BR_OK);
  assert_memory_equal(back, "3456", 4);
  assert_int_equal(br_pread_all(fd, back, 10, 3, &err), BR_CORRUPT);
  assert_non_null(strstr(err.message, "3 bytes early"));
  close(fd);
  assert_int_equal(br_pread_all(-1, back, 1, 0, &err), BR_IO);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  assert_int_equal(br_write_all(fd, "x", 1, &err), BR_IO); /* opened for reading */
  close(fd);
  fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    assert_int_equal(br_write_all(fd, "x", 1, &err), BR_NO_SPACE);
    close(fd);
  }
  free(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_that_are_right),
      cmocka_unit_test(sizes_that_are_wrong),
      cmocka_unit_test(sizes_for_people),
      cmocka_unit_test(clocks_and_chance),
      cmocka_unit_test(log_levels),
      cmocka_unit_test_setup_teardown(folders_are_made, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(trees_go_and_links_stay_unfollowed, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(bytes_of_files, make_dir, remove_dir),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
