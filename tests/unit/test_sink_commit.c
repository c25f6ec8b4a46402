/* SPDX-License-Identifier: Apache-2.0
 * links: br_sink
 * A commit of files: all or nothing, whatever step its process dies at, and however often. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "sink/internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct box {
  char dir[64], target[96];
} box;

static void fill(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fputs(text, f) < 0, 0);
  fclose(f);
}

static void put(const box *b, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", b->target, name);
  for (char *p = path + strlen(b->target) + 1; (p = strchr(p, '/')) != NULL; p++) {
    *p = 0;
    assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
    *p = '/';
  }
  fill(path, text);
}

static int setup(void **state) {
  box *b = br_calloc(1, sizeof *b);
  snprintf(b->dir, sizeof b->dir, "/tmp/brant-sink-XXXXXX");
  assert_non_null(mkdtemp(b->dir));
  snprintf(b->target, sizeof b->target, "%s/out", b->dir);
  *state = b;
  return 0;
}

static int teardown(void **state) {
  box *b = *state;
  br_remove_tree(b->dir);
  free(b);
  return 0;
}

/* Every file below dir as "path=content\n", sorted; staging directories too. */
static void walk(const char *dir, const char *prefix, br_buf *out) {
  struct dirent **names;
  int n = scandir(dir, &names, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    char path[1024], below[512], text[64] = "";
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
    snprintf(below, sizeof below, "%s%s", prefix, names[i]->d_name);
    bool dots = strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0;
    if (!dots && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
      strcat(below, "/");
      br_buf_printf(out, "%s\n", below);
      walk(path, below, out);
    } else if (!dots) {
      FILE *f = fopen(path, "r");
      assert_non_null(f);
      size_t got = fread(text, 1, sizeof text - 1, f);
      text[got] = 0;
      fclose(f);
      br_buf_printf(out, "%s=%s\n", below, text);
    }
    free(names[i]);
  }
  if (n >= 0) free(names);
}

static void assert_tree(const box *b, const char *want) {
  br_buf out = {0};
  walk(b->target, "", &out);
  assert_string_equal(br_buf_cstr(&out), want);
  br_buf_free(&out);
}

#define NEW_TREE                 \
  "a b%\n.parquet=one\n"         \
  "p=1/\np=1/part.parquet=two\n" \
  "p=2/\np=2/q=%20/\np=2/q=%20/part.parquet=three\n"
#define OLD_TREE "old.parquet=old\np=1/\np=1/old.parquet=old too\n"

static br_sink *open_and_stage(const box *b, br_sink_mode mode, const char *id) {
  br_sink *s = NULL;
  br_error err;
  assert_int_equal(br_sink_open(b->target, mode, id, &s, &err), BR_OK);
  box staging = {0};
  snprintf(staging.target, sizeof staging.target, "%s", br_sink_staging(s));
  put(&staging, "t1/f-0.brant", "one");
  put(&staging, "t1/p=1/f-0.brant", "two");
  put(&staging, "t2/p=2/q=%20/f-0.brant", "three");
  put(&staging, "t3/f-0.brant", "a loser's");
  br_sink_add(s, "t1/f-0.brant", "a b%\n.parquet", 3);
  br_sink_add(s, "t1/p=1/f-0.brant", "p=1/part.parquet", 3);
  br_sink_add(s, "t2/p=2/q=%20/f-0.brant", "p=2/q=%20/part.parquet", 5);
  return s;
}

static void commit_makes_all_of_it(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = open_and_stage(b, BR_SINK_NEW, "1");
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_tree(b, NEW_TREE);
}

static void without_a_commit_nothing_stays(void **state) {
  box *b = *state;
  struct stat st;
  br_sink_free(open_and_stage(b, BR_SINK_NEW, "1"));
  assert_int_equal(stat(b->target, &st), -1); /* it was made for this */
  assert_int_equal(mkdir(b->target, 0777), 0);
  br_sink_free(open_and_stage(b, BR_SINK_NEW, "1"));
  assert_tree(b, "");
}

static void modes_of_existing_targets(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = NULL;
  assert_int_equal(mkdir(b->target, 0777), 0);
  put(b, "old.parquet", "old");
  put(b, "p=1/old.parquet", "old too");
  assert_int_equal(br_sink_open(b->target, BR_SINK_NEW, "1", &s, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "not empty"));
  assert_tree(b, OLD_TREE);
  s = open_and_stage(b, BR_SINK_OVERWRITE, "2");
  br_sink_free(s);
  assert_tree(b, OLD_TREE); /* never before the commit */
  s = open_and_stage(b, BR_SINK_APPEND, "3");
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_tree(b,
              "a b%\n.parquet=one\nold.parquet=old\np=1/\np=1/old.parquet=old too\np=1/part.parquet=two\n"
              "p=2/\np=2/q=%20/\np=2/q=%20/part.parquet=three\n");
  s = open_and_stage(b, BR_SINK_OVERWRITE, "4");
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_tree(b, NEW_TREE);
}

static void somebody_was_faster(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = open_and_stage(b, BR_SINK_NEW, "1"), *t = open_and_stage(b, BR_SINK_NEW, "2");
  assert_int_equal(br_sink_commit(t, &err), BR_OK);
  br_sink_free(t);
  assert_int_equal(br_sink_commit(s, &err), BR_INVALID);
  br_sink_free(s);
  assert_tree(b, NEW_TREE);
}

typedef struct other_commit {
  br_sink *sink;
  pthread_t thread;
  br_status status;
  atomic_bool settled; /* it waits for the first one, or has ended */
} other_commit;

static void *commit_beside(void *arg) {
  other_commit *o = arg;
  br_error err;
  o->status = br_sink_commit(o->sink, &err);
  atomic_store(&o->settled, true);
  return NULL;
}

static bool settle(void *arg, const char *step) {
  other_commit *o = arg;
  if (strcmp(step, BR_SINK_WAITS) == 0) atomic_store(&o->settled, true);
  return true;
}

/* This one has looked, and nothing has appeared: the other one is let in, and goes all the way if it can. */
static bool let_in(void *arg, const char *step) {
  other_commit *o = arg;
  if (strcmp(step, "write the journal") != 0) return true;
  if (pthread_create(&o->thread, NULL, commit_beside, o) != 0) return false;
  while (!atomic_load(&o->settled)) usleep(1000);
  return true;
}

/* Both find the directory empty at the start; one of them writes. */
static void two_commit_at_once(void **state) {
  box *b = *state;
  br_error err;
  const br_sink_mode modes[] = {BR_SINK_NEW, BR_SINK_OVERWRITE};
  for (size_t i = 0; i < 2; i++) {
    br_sink *s = open_and_stage(b, modes[i], "1");
    other_commit o = {.sink = open_and_stage(b, modes[i], "2")};
    atomic_init(&o.settled, false);
    br_sink_set_step(o.sink, settle, &o);
    br_sink_add(s, "t3/f-0.brant", "only of the first.parquet", 9);
    br_sink_set_step(s, let_in, &o);
    assert_int_equal(br_sink_commit(s, &err), BR_OK);
    assert_int_equal(pthread_join(o.thread, NULL), 0);
    assert_int_equal(o.status, i == 0 ? BR_INVALID : BR_OK);
    br_sink_free(s);
    br_sink_free(o.sink);
    /* OVERWRITE: what the first had written is old for the second */
    br_buf want = {0};
    br_buf_str(&want, "a b%\n.parquet=one\n");
    if (i == 0) br_buf_str(&want, "only of the first.parquet=a loser's\n");
    br_buf_str(&want, NEW_TREE + strlen("a b%\n.parquet=one\n"));
    assert_tree(b, br_buf_cstr(&want));
    br_buf_free(&want);
  }
}

static void a_file_that_is_not_as_it_was_written(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = open_and_stage(b, BR_SINK_NEW, "1");
  br_sink_add(s, "t1/f-7.brant", "x.parquet", 3);
  assert_int_equal(br_sink_commit(s, &err), BR_NOT_FOUND);
  br_sink_free(s);
  s = open_and_stage(b, BR_SINK_NEW, "2");
  br_sink_add(s, "t3/f-0.brant", "x.parquet", 3);
  assert_int_equal(br_sink_commit(s, &err), BR_CORRUPT);
  br_sink_free(s);
  struct stat st;
  assert_int_equal(stat(b->target, &st), -1);
}

/* ---- crashes */

typedef struct clock_of_steps {
  int left;
} clock_of_steps;

static bool tick(void *arg, const char *step) {
  (void)step;
  return ((clock_of_steps *)arg)->left-- > 0;
}

/* The process dies for real; its lock goes with it. */
static bool kill_self(void *arg, const char *step) {
  if (!tick(arg, step)) raise(SIGKILL);
  return true;
}

/* Commit in a child that is killed before step `n`. True: it came to its end. */
static bool commit_and_die(const box *b, br_sink_mode mode, int n) {
  pid_t pid = fork();
  if (pid == 0) {
    clock_of_steps c = {n};
    br_error err;
    br_sink *s = open_and_stage(b, mode, "crash");
    br_sink_set_step(s, kill_self, &c);
    _exit(br_sink_commit(s, &err) == BR_OK ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
  return WIFEXITED(status);
}

static void recover(const box *b, size_t finished, size_t removed) {
  br_sink_recovery r;
  br_error err;
  assert_int_equal(br_sink_recover(b->target, &r, &err), BR_OK);
  assert_int_equal(r.finished, finished);
  assert_int_equal(r.removed, removed);
  assert_int_equal(r.busy, 0);
}

static void killed_at_each_step(void **state) {
  box *b = *state;
  bool ended = false;
  int steps = 0;
  for (int n = 0; !ended; n++, steps++) {
    br_remove_tree(b->target);
    assert_int_equal(mkdir(b->target, 0777), 0);
    put(b, "old.parquet", "old");
    put(b, "p=1/old.parquet", "old too");
    ended = commit_and_die(b, BR_SINK_OVERWRITE, n);
    /* nothing before the journal, which is the first step; all of it afterwards; the last one leaves a staging directory only */
    if (!ended) recover(b, n > 0 && n < 8 ? 1 : 0, n == 0 || n >= 8 ? 1 : 0);
    assert_tree(b, n == 0 ? OLD_TREE : NEW_TREE);
    recover(b, 0, 0);
  }
  assert_int_equal(steps, 10); /* journal, 2 old, 3 new, fsync, done, removal; and the one without a death */
}

/* Whoever finishes it may die as well, at every step, and the next one. */
static void killed_while_recovering(void **state) {
  box *b = *state;
  for (int first = 1; first <= 7; first++) {
    for (int second = 0; second <= 7; second++) {
      br_remove_tree(b->target);
      assert_int_equal(mkdir(b->target, 0777), 0);
      put(b, "old.parquet", "old");
      put(b, "p=1/old.parquet", "old too");
      assert_false(commit_and_die(b, BR_SINK_OVERWRITE, first));
      br_journal j;
      bool found;
      br_error err;
      char *staging = br_asprintf("%s/.brant-crash", b->target);
      assert_int_equal(br_journal_read(staging, &found, &j, &err), BR_OK);
      assert_true(found);
      clock_of_steps c = {second};
      br_apply a = {
          .target = b->target, .staging = staging, .journal = &j, .step = tick, .step_arg = &c, .recovering = true};
      assert_int_equal(br_apply_run(&a, &err), second < 6 ? BR_CANCELLED : BR_OK);
      br_journal_free(&j);
      free(staging);
      recover(b, 1, 0);
      assert_tree(b, NEW_TREE);
    }
  }
}

/* A target that was cleaned up by hand after the crash must not be blocked for ever. */
static void files_that_went_after_the_crash(void **state) {
  box *b = *state;
  char path[200];
  assert_false(commit_and_die(b, BR_SINK_NEW, 3));
  snprintf(path, sizeof path, "%s/a b%%\n.parquet", b->target);
  assert_int_equal(unlink(path), 0);
  recover(b, 1, 0);
  assert_tree(b, "p=1/\np=1/part.parquet=two\np=2/\np=2/q=%20/\np=2/q=%20/part.parquet=three\n");
}

static void the_next_writer_recovers(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = NULL;
  assert_false(commit_and_die(b, BR_SINK_NEW, 2));
  assert_int_equal(br_sink_open(b->target, BR_SINK_NEW, "2", &s, &err), BR_INVALID); /* it is not empty now */
  assert_tree(b, NEW_TREE);
  assert_int_equal(br_sink_open(b->target, BR_SINK_APPEND, "2", &s, &err), BR_OK);
  br_sink_free(s);
  assert_tree(b, NEW_TREE);
}

/* In a directory like /tmp anybody could leave a journal. */
static void journals_of_others_are_left_alone(void **state) {
  box *b = *state;
  br_sink_recovery r;
  br_error err;
  char path[200];
  if (geteuid() != 0) skip();
  assert_false(commit_and_die(b, BR_SINK_NEW, 1));
  snprintf(path, sizeof path, "%s/.brant-crash", b->target);
  assert_int_equal(chown(path, 12345, 12345), 0);
  assert_int_equal(br_sink_recover(b->target, &r, &err), BR_OK);
  assert_int_equal(r.busy, 1);
  assert_int_equal(chown(path, 0, 0), 0);
  recover(b, 1, 0);
  assert_tree(b, NEW_TREE);
}

static void the_living_are_left_alone(void **state) {
  box *b = *state;
  br_sink_recovery r;
  br_error err;
  br_sink *s = open_and_stage(b, BR_SINK_NEW, "1");
  assert_int_equal(br_sink_recover(b->target, &r, &err), BR_OK);
  assert_int_equal(r.busy, 1);
  assert_int_equal(r.finished + r.removed, 0);
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_tree(b, NEW_TREE);
}

/* A rename that can't be done: what was done before it is taken back. */
static void a_commit_that_fails_is_taken_back(void **state) {
  box *b = *state;
  br_error err;
  assert_int_equal(mkdir(b->target, 0777), 0);
  put(b, "p=2", "a file where a directory should come");
  br_sink *s = open_and_stage(b, BR_SINK_APPEND, "1");
  assert_int_not_equal(br_sink_commit(s, &err), BR_OK);
  assert_non_null(strstr(err.message, "p=2"));
  br_sink_free(s);
  assert_tree(b, "p=2=a file where a directory should come\n");
}

static bool no_place_for_the_mark(void *arg, const char *step) {
  char path[512];
  if (strcmp(step, "mark the journal as done") != 0) return true;
  snprintf(path, sizeof path, "%s/" BR_SINK_DONE, br_sink_staging(arg));
  assert_int_equal(mkdir(path, 0777), 0);
  return true;
}

/* The journal stays, so nothing of what it speaks of may go before it. */
static void a_commit_that_cannot_be_marked_as_done(void **state) {
  box *b = *state;
  br_error err;
  char mark[512];
  assert_int_equal(mkdir(b->target, 0777), 0);
  put(b, "old.parquet", "old");
  put(b, "p=1/old.parquet", "old too");
  br_sink *s = open_and_stage(b, BR_SINK_OVERWRITE, "1");
  br_sink_set_step(s, no_place_for_the_mark, s);
  snprintf(mark, sizeof mark, "%s/" BR_SINK_DONE, br_sink_staging(s));
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_int_equal(rmdir(mark), 0);
  recover(b, 1, 0);
  assert_tree(b, NEW_TREE);
}

/* A writer that wakes up after its query has ended. */
static void a_zombie_adds_nothing(void **state) {
  box *b = *state;
  br_error err;
  br_sink *s = open_and_stage(b, BR_SINK_NEW, "1");
  char *dir = br_asprintf("%s/t3", br_sink_staging(s));
  int fd = open(dir, O_RDONLY | O_DIRECTORY);
  char *through = br_asprintf("/proc/self/fd/%d/f-1.brant", fd);
  assert_true(fd >= 0);
  assert_int_equal(br_sink_commit(s, &err), BR_OK);
  br_sink_free(s);
  assert_int_equal(open(through, O_WRONLY | O_CREAT, 0666), -1);
  assert_int_equal(errno, ENOENT);
  close(fd);
  free(dir);
  free(through);
  assert_tree(b, NEW_TREE);
}

/* ---- journals */

static void journals_go_there_and_back(void **state) {
  (void)state;
  br_journal j = {0}, back;
  br_buf text = {0};
  br_error err;
  br_journal_add_old(&j, "a b\n%41");
  br_journal_add_move(&j, "t1/ f", "p=\xc3\xa4/\x7f x", UINT64_MAX);
  br_journal_print(&j, &text);
  assert_int_equal(br_journal_parse(text.data, text.len, &back, &err), BR_OK);
  assert_int_equal(back.n_old, 1);
  assert_string_equal(back.old[0], "a b\n%41");
  assert_int_equal(back.n_moves, 1);
  assert_string_equal(back.moves[0].from, "t1/ f");
  assert_string_equal(back.moves[0].to, "p=\xc3\xa4/\x7f x");
  assert_true(back.moves[0].bytes == UINT64_MAX);
  br_journal_free(&back);
  for (size_t n = 0; n < text.len; n++) /* cut anywhere */
    assert_int_equal(br_journal_parse(text.data, n, &back, &err), BR_CORRUPT);
  for (size_t i = 0; i < text.len; i++) { /* a bit flipped anywhere */
    text.data[i] ^= 4;
    assert_int_equal(br_journal_parse(text.data, text.len, &back, &err), BR_CORRUPT);
    text.data[i] ^= 4;
  }
  br_journal_free(&j);
  br_buf_free(&text);
}

static void journals_stay_inside(void **state) {
  (void)state;
  static const char *const bad[] = {"/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/", ""};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    br_journal j = {0}, back;
    br_buf text = {0};
    br_error err;
    br_journal_add_move(&j, "ok", bad[i], 1);
    br_journal_print(&j, &text);
    assert_int_equal(br_journal_parse(text.data, text.len, &back, &err), BR_CORRUPT);
    br_journal_free(&j);
    br_buf_free(&text);
  }
}

static void a_torn_journal_is_none(void **state) {
  box *b = *state;
  assert_false(commit_and_die(b, BR_SINK_NEW, 1));
  char path[200];
  snprintf(path, sizeof path, "%s/.brant-crash/journal", b->target);
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(truncate(path, st.st_size - 1), 0);
  recover(b, 0, 1);
  assert_tree(b, "");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(commit_makes_all_of_it),    T(without_a_commit_nothing_stays),
      T(modes_of_existing_targets), T(somebody_was_faster),
      T(two_commit_at_once),        T(a_file_that_is_not_as_it_was_written),
      T(killed_at_each_step),       T(a_commit_that_cannot_be_marked_as_done),
      T(killed_while_recovering),   T(files_that_went_after_the_crash),
      T(the_next_writer_recovers),  T(journals_of_others_are_left_alone),
      T(the_living_are_left_alone), T(a_commit_that_fails_is_taken_back),
      T(a_zombie_adds_nothing),     T(journals_go_there_and_back),
      T(journals_stay_inside),      T(a_torn_journal_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
