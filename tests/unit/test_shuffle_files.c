/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * The files backend: outputs appear whole and only at the commit; readers get each row once in any order of threads and never more
 * bytes ahead than allowed; every kind of damage names the output that must be made again; directories belong to one session. */
#include "shuffle_util.h"

#include "base/owner.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utime.h>

#define QUERY 0x4200000001u
#define STAGE 3u
#define MAPS 5u
#define PARTITIONS 8u
#define ROWS_A_MAP 40000u

static br_attempt_id attempt(uint32_t map, uint16_t number) {
  return (br_attempt_id){.query = QUERY, .stage = STAGE, .task = map, .attempt = number};
}

static br_writer_options options(const br_attempt_id *id, br_schema *schema, const char *dir, uint32_t partitions) {
  return (br_writer_options){.id = *id,
                             .schema = schema,
                             .kind = partitions == 1 ? BR_PART_SINGLE : BR_PART_HASH,
                             .partitions = partitions,
                             .codec_disk = BR_CODEC_LZ4,
                             .scatter_buffer_bytes = 4u << 20,
                             .chunk_bytes = 16u << 10,
                             .shared_dir = dir};
}

static br_writer *start_output(const char *dir, uint32_t map, uint16_t number, uint32_t partitions, uint64_t rows) {
  br_schema *schema = rows_schema();
  br_attempt_id id = attempt(map, number);
  br_writer_options o = options(&id, schema, dir, partitions);
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  assert_ok(br_files_backend.writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  uint64_t first = (uint64_t)map * ROWS_A_MAP;
  assert_ok(write_rows(w, state, first, first + rows, partitions, partitions == 1, &err), err);
  assert_ok(br_writer_thread_end(w, state, &err), err);
  br_schema_unref(schema);
  return w;
}

static br_map_output write_file(const char *dir, uint32_t map, uint16_t number, uint32_t partitions, uint64_t rows) {
  br_writer *w = start_output(dir, map, number, partitions, rows);
  br_map_output out = {.fd = -1};
  br_error err = {0};
  assert_ok(br_writer_commit(w, &out, &err), err);
  br_writer_free(w);
  return out;
}

static char *file_of(const char *dir, uint32_t map, uint16_t number) {
  return br_asprintf("%s/s%u/t%u.a%u.map", dir, STAGE, map, number);
}

static bool exists(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

/* A query's directory with MAPS outputs, of rows [0, MAPS * ROWS_A_MAP). */
typedef struct fixture {
  char *parent;
  br_files_dir *owner;
  const char *dir;
  br_schema *schema;
  br_read_file file[MAPS];
} fixture;

static fixture fixture_new(uint32_t partitions) {
  fixture f = {.parent = temp_dir(), .schema = rows_schema()};
  br_error err = {0};
  assert_ok(br_files_dir_new(f.parent, QUERY, &f.owner, &err), err);
  f.dir = br_files_dir_path(f.owner);
  for (uint32_t m = 0; m < MAPS; m++) {
    br_map_output o = write_file(f.dir, m, (uint16_t)(m % 2 + 1), partitions, ROWS_A_MAP);
    br_map_output_free(&o);
    f.file[m] = (br_read_file){.map = m, .worker = 10 + m, .incarnation = 20 + m, .attempt = (uint16_t)(m % 2 + 1)};
  }
  return f;
}

static void fixture_free(fixture *f) {
  br_files_dir_remove(f->owner);
  br_schema_unref(f->schema);
  temp_dir_free(f->parent);
}

static br_reader_options reader_options(const fixture *f, uint32_t first, uint32_t last) {
  return (br_reader_options){.schema = f->schema,
                             .query = QUERY,
                             .stage = STAGE,
                             .table_version = 1,
                             .first = first,
                             .last = last,
                             .map_last = MAPS,
                             .shared_dir = f->dir,
                             .file = f->file,
                             .n_file = MAPS};
}

/* ---- writing */

static void an_output_appears_at_its_commit(void **state) {
  (void)state;
  char *parent = temp_dir();
  br_files_dir *d = NULL;
  br_error err = {0};
  assert_ok(br_files_dir_new(parent, QUERY, &d, &err), err);
  const char *dir = br_files_dir_path(d);
  char *path = file_of(dir, 0, 1), *part = br_asprintf("%s.part", path);
  br_writer *w = start_output(dir, 0, 1, PARTITIONS, ROWS_A_MAP);
  assert_true(exists(part));
  assert_false(exists(path));
  br_map_output out = {.fd = -1};
  assert_ok(br_writer_commit(w, &out, &err), err);
  assert_false(exists(part));
  assert_true(exists(path));
  assert_string_equal(out.path, path);
  assert_int_equal(out.fd, -1);
  assert_false(out.in_memory);
  assert_int_equal(out.rows, ROWS_A_MAP);
  assert_int_equal(out.spilled_bytes, 0);
  assert_int_equal(out.reserved_bytes, 0);
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, out.file_bytes);
  br_writer_free(w);
  assert_true(exists(path)); /* committed: it stays */
  br_map_output_free(&out);
  free(path);
  free(part);
  br_files_dir_remove(d);
  temp_dir_free(parent);
}

static void an_output_without_commit_leaves_nothing(void **state) {
  (void)state;
  char *parent = temp_dir();
  br_files_dir *d = NULL;
  br_error err = {0};
  assert_ok(br_files_dir_new(parent, QUERY, &d, &err), err);
  br_writer *w = start_output(br_files_dir_path(d), 0, 1, PARTITIONS, ROWS_A_MAP);
  br_writer_free(w);
  char *stage = br_asprintf("%s/s%u", br_files_dir_path(d), STAGE);
  assert_int_equal(rmdir(stage), 0); /* empty */
  free(stage);
  br_files_dir_remove(d);
  temp_dir_free(parent);
}

static void a_missing_directory_is_not_made(void **state) {
  (void)state;
  char *parent = temp_dir(), *dir = br_asprintf("%s/brant-0-q0", parent);
  br_schema *schema = rows_schema();
  br_attempt_id id = attempt(0, 1);
  br_writer_options o = options(&id, schema, dir, 1);
  br_writer *w = NULL;
  br_error err = {0};
  assert_int_equal(br_files_backend.writer_open(&o, &w, &err), BR_IO);
  assert_non_null(strstr(err.message, dir));
  assert_non_null(strstr(err.message, "mounted"));
  assert_false(exists(dir));
  br_schema_unref(schema);
  free(dir);
  temp_dir_free(parent);
}

/* ---- reading */

typedef struct reading {
  br_reader *r;
  seen_rows *seen;
  uint32_t first, last;
  br_error err;
} reading;

static void *read_all(void *arg) {
  reading *x = arg;
  br_batch *b = NULL;
  while (br_reader_next(x->r, &b, &x->err) == BR_OK && b != NULL) {
    const char *wrong = see_batch(x->seen, b, x->first, x->last - x->first == 1 ? PARTITIONS : 0);
    br_batch_unref(b);
    if (wrong != NULL) {
      br_fail(&x->err, BR_INTERNAL, BR_BLAME_NONE, "%s", wrong);
      break;
    }
  }
  return NULL;
}

/* All partitions, in ranges of `step`, with `threads` threads a reader. */
static void read_ranges(const fixture *f, uint32_t step, int threads, uint64_t buffer_bytes) {
  seen_rows seen = seen_new(0, MAPS * ROWS_A_MAP);
  uint64_t rows = 0;
  for (uint32_t p = 0; p < PARTITIONS; p += step) {
    br_reader_options o = reader_options(f, p, p + step);
    o.buffer_bytes = buffer_bytes;
    br_reader *r = NULL;
    br_error err = {0};
    assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
    pthread_t t[8];
    reading x[8];
    for (int i = 0; i < threads; i++) {
      x[i] = (reading){.r = r, .seen = &seen, .first = p, .last = p + step};
      pthread_create(&t[i], NULL, read_all, &x[i]);
    }
    for (int i = 0; i < threads; i++) {
      pthread_join(t[i], NULL);
      if (x[i].err.code != BR_OK) fail_msg("%s", x[i].err.message);
    }
    rows += br_reader_stats_now(r).rows;
    assert_int_equal(br_reader_stats_now(r).remote_bytes, 0);
    br_reader_free(r);
  }
  assert_int_equal(rows, MAPS * ROWS_A_MAP);
  assert_all_once(&seen);
  seen_free(&seen);
}

static void every_row_comes_once(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  read_ranges(&f, 1, 1, 0);
  read_ranges(&f, 1, 4, 0);
  read_ranges(&f, 2, 4, 64u << 10); /* less than one extent: one at a time */
  read_ranges(&f, PARTITIONS, 8, 1u << 20);
  fixture_free(&f);
}

static void ordered_reading_keeps_the_order(void **state) {
  (void)state;
  fixture f = fixture_new(1);
  br_reader_options o = reader_options(&f, 0, 1);
  o.ordered = true;
  o.buffer_bytes = 256u << 10;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
  br_batch *b = NULL;
  int64_t expected = 0;
  for (;;) {
    assert_ok(br_reader_next(r, &b, &err), err);
    if (b == NULL) break;
    const struct ArrowArray *a = br_batch_arrow(b);
    const int64_t *id = a->children[0]->buffers[1];
    for (int64_t i = 0; i < a->length; i++) assert_int_equal(id[i], expected++);
    br_batch_unref(b);
  }
  assert_int_equal(expected, MAPS * ROWS_A_MAP);
  br_reader_free(r);
  fixture_free(&f);
}

static void a_map_range_reads_those_alone(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  br_reader_options o = reader_options(&f, 0, PARTITIONS);
  o.map_first = 1;
  o.map_last = 3;
  o.file = f.file + 1;
  o.n_file = 2;
  seen_rows seen = seen_new(ROWS_A_MAP, 3 * ROWS_A_MAP);
  reading x = {.seen = &seen, .last = PARTITIONS};
  br_error err = {0};
  assert_ok(br_files_backend.reader_open(&o, &x.r, &err), err);
  read_all(&x);
  assert_int_equal(x.err.code, BR_OK);
  assert_all_once(&seen);
  br_reader_free(x.r);
  seen_free(&seen);
  fixture_free(&f);
}

static void nothing_to_read_is_the_end(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  br_map_output empty = write_file(f.dir, 0, 7, PARTITIONS, 0);
  br_map_output_free(&empty);
  f.file[0].attempt = 7;
  for (int n = 0; n < 2; n++) {
    br_reader_options o = reader_options(&f, 0, PARTITIONS);
    o.n_file = o.map_last = (uint32_t)n; /* none at all; one without rows */
    br_reader *r = NULL;
    br_batch *b = NULL;
    br_error err = {0};
    assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
    assert_ok(br_reader_next(r, &b, &err), err);
    assert_null(b);
    br_reader_free(r);
  }
  fixture_free(&f);
}

static void too_few_files_are_refused(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  br_reader_options o = reader_options(&f, 0, PARTITIONS);
  br_reader *r = NULL;
  br_error err = {0};
  o.n_file = MAPS - 1;
  assert_int_equal(br_files_backend.reader_open(&o, &r, &err), BR_INTERNAL);
  o.n_file = MAPS;
  f.file[1].map = MAPS;
  assert_int_equal(br_files_backend.reader_open(&o, &r, &err), BR_INTERNAL);
  fixture_free(&f);
}

static void cancel_ends_reading(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  br_reader_options o = reader_options(&f, 0, PARTITIONS);
  br_reader *r = NULL;
  br_batch *b = NULL;
  br_error err = {0};
  assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
  assert_ok(br_reader_next(r, &b, &err), err);
  assert_non_null(b);
  br_reader_cancel(r);
  br_batch *more = NULL;
  assert_int_equal(br_reader_next(r, &more, &err), BR_CANCELLED);
  br_reader_free(r); /* with extents that nobody took */
  assert_int_equal(br_batch_rows(b) > 0, true);
  br_batch_unref(b); /* outlives its reader */
  fixture_free(&f);
}

/* ---- damage: always BR_FETCH with the output that is to be made again */

static void assert_lost(const fixture *f, uint32_t map, const char *text) {
  for (int ordered = 0; ordered < 2; ordered++) {
    br_reader_options o = reader_options(f, 0, PARTITIONS);
    o.ordered = ordered != 0;
    br_reader *r = NULL;
    br_batch *b = NULL;
    br_error err = {0}, again = {0};
    assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
    br_status status;
    while ((status = br_reader_next(r, &b, &err)) == BR_OK && b != NULL) br_batch_unref(b);
    if (status == BR_OK) fail_msg("damage was read: %s", text);
    assert_int_equal(err.code, BR_FETCH);
    assert_int_equal(err.blame, BR_BLAME_FETCH);
    assert_true(err.has_lost);
    assert_int_equal(err.lost.made_by.query, QUERY);
    assert_int_equal(err.lost.made_by.stage, STAGE);
    assert_int_equal(err.lost.made_by.task, map);
    assert_int_equal(err.lost.made_by.attempt, f->file[map].attempt);
    assert_int_equal(err.lost.worker, 10 + map);
    assert_int_equal(err.lost.incarnation, 20 + map);
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" is not in: %s", text, err.message);
    assert_int_equal(br_reader_next(r, &b, &again), BR_FETCH); /* it stays failed */
    br_reader_free(r);
  }
}

static void flip(const char *path, int64_t offset) { /* from the end if negative */
  unsigned char c;
  struct stat st;
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0 && fstat(fd, &st) == 0);
  if (offset < 0) offset += st.st_size;
  assert_int_equal(pread(fd, &c, 1, offset), 1);
  c ^= 0x10;
  assert_int_equal(pwrite(fd, &c, 1, offset), 1);
  close(fd);
}

static void damage_names_the_output(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  char *path = file_of(f.dir, 2, 1), *kept = br_asprintf("%s.kept", path), *other = file_of(f.dir, 4, 1);
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  flip(path, 3000); /* in a chunk */
  assert_lost(&f, 2, "checksum");
  flip(path, 3000);
  read_ranges(&f, 1, 1, 0); /* as it was */
  flip(path, -200);         /* the index */
  assert_lost(&f, 2, "checksum of the index");
  flip(path, -200);
  flip(path, -20); /* the trailer */
  assert_lost(&f, 2, "checksum of the trailer");
  flip(path, -20);
  assert_int_equal(rename(path, kept), 0);
  assert_lost(&f, 2, "No such file");
  assert_int_equal(link(other, path), 0); /* another output under its name */
  assert_lost(&f, 2, "another one");
  unlink(path);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_lost(&f, 2, "damaged");
  rmdir(path);
  assert_int_equal(link(kept, path), 0);
  assert_int_equal(truncate(path, st.st_size - 64), 0);
  assert_lost(&f, 2, "damaged");
  assert_int_equal(truncate(path, 0), 0);
  assert_lost(&f, 2, "damaged");
  free(path);
  free(kept);
  free(other);
  fixture_free(&f);
}

static void a_query_that_ended_blames_no_output(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  char *dir = br_strdup(f.dir);
  br_reader_options o = reader_options(&f, 0, PARTITIONS);
  o.shared_dir = dir;
  br_files_dir_remove(f.owner);
  f.owner = NULL;
  br_reader *r = NULL;
  br_batch *b = NULL;
  br_error err = {0};
  assert_ok(br_files_backend.reader_open(&o, &r, &err), err);
  assert_int_equal(br_reader_next(r, &b, &err), BR_IO);
  assert_false(err.has_lost);
  br_reader_free(r);
  free(dir);
  fixture_free(&f);
}

/* ---- directories */

static size_t entries(const char *dir) {
  size_t n = 0;
  DIR *d = opendir(dir);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

static void sessions_never_share_a_directory(void **state) {
  (void)state;
  char *parent = temp_dir();
  br_files_dir *d[20] = {0};
  br_error err = {0};
  for (int i = 0; i < 20; i++) {
    assert_ok(br_files_dir_new(parent, QUERY, &d[i], &err), err); /* all with the same query id */
    br_map_output o = write_file(br_files_dir_path(d[i]), 0, 1, 1, 100);
    br_map_output_free(&o);
    for (int k = 0; k < i; k++) assert_string_not_equal(br_files_dir_path(d[i]), br_files_dir_path(d[k]));
  }
  assert_int_equal(entries(parent), 20);
  size_t removed = 9;
  assert_ok(br_files_dirs_check(parent, &removed, &err), err); /* they live */
  assert_int_equal(removed, 0);
  for (int i = 0; i < 20; i++) br_files_dir_remove(d[i]);
  assert_int_equal(entries(parent), 0);
  temp_dir_free(parent);
}

static void parts_are_dropped_alone(void **state) {
  (void)state;
  fixture f = fixture_new(PARTITIONS);
  char *first = file_of(f.dir, 0, 1), *second = file_of(f.dir, 1, 2), *owner = br_asprintf("%s/owner", f.dir);
  br_attempt_id id = attempt(0, 1);
  br_files_abandon(f.dir, &id);
  assert_false(exists(first));
  assert_true(exists(second));
  br_files_dir_drop_stage(f.dir, STAGE);
  assert_false(exists(second));
  assert_true(exists(owner));
  assert_int_equal(entries(f.dir), 1);
  br_files_dir_drop_stage(f.dir, STAGE); /* again: nothing */
  free(first);
  free(second);
  free(owner);
  fixture_free(&f);
}

/* A process that makes a directory and dies without removing it. */
static void leave_one(const char *parent) {
  pid_t pid = fork();
  if (pid == 0) {
    br_files_dir *d = NULL;
    br_error err = {0};
    _exit(br_files_dir_new(parent, QUERY, &d, &err) == BR_OK ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void make_owner(const char *dir, const char *text, bool old) {
  char *path = br_asprintf("%s/owner", dir);
  br_error err = {0};
  assert_ok(br_mkdir_p(dir, &err), err);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_ok(br_write_all(fd, text, strlen(text), &err), err);
  close(fd);
  struct utimbuf long_ago = {.actime = 1000, .modtime = 1000};
  if (old) assert_int_equal(utime(path, &long_ago), 0);
  free(path);
}

static void what_the_dead_left_is_removed(void **state) {
  (void)state;
  char *parent = temp_dir();
  br_error err = {0};
  br_files_dir *mine = NULL;
  size_t removed = 0;
  assert_ok(br_files_dir_new(parent, QUERY, &mine, &err), err);
  leave_one(parent);
  char *elsewhere = br_asprintf("%s/brant-00000000000000aa-q0000000000000001", parent);
  char *stale = br_asprintf("%s/brant-00000000000000bb-q0000000000000001", parent);
  char *users = br_asprintf("%s/brant-of-a-user", parent);
  make_owner(elsewhere, "pid 1 start 2 boot another host far\n", false);
  make_owner(stale, "pid 1 start 2 boot another host far\n", true);
  make_owner(users, "pid 1 start 2 boot another host far\n", true);
  assert_int_equal(entries(parent), 5);
  assert_ok(br_files_dirs_check(parent, &removed, &err), err);
  assert_int_equal(removed, 2); /* the dead process's, and the one that nobody touched for long */
  assert_true(exists(elsewhere));
  assert_true(exists(users));
  assert_false(exists(stale));
  assert_true(exists(br_files_dir_path(mine)));
  int fd = br_files_dir_owner_fd(mine);
  assert_true(fd >= 0);
  close(fd);
  br_files_dir_remove(mine);
  free(elsewhere);
  free(stale);
  free(users);
  temp_dir_free(parent);
}

static void what_cannot_be_written_is_refused(void **state) {
  (void)state;
  char *parent = temp_dir(), *missing = br_asprintf("%s/missing", parent), *file = br_asprintf("%s/file", parent);
  close(open(file, O_WRONLY | O_CREAT, 0600));
  const char *const bad[] = {missing, file, "/proc"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    br_error err = {0};
    br_files_dir *d = NULL;
    size_t removed = 0;
    assert_int_not_equal(br_files_dirs_check(bad[i], &removed, &err), BR_OK);
    assert_int_equal(err.blame, BR_BLAME_USER);
    assert_non_null(strstr(err.message, "shuffle_dir"));
    assert_non_null(strstr(err.message, bad[i]));
    assert_int_not_equal(br_files_dir_new(bad[i], QUERY, &d, &err), BR_OK);
    assert_int_equal(err.blame, BR_BLAME_USER);
  }
  free(missing);
  free(file);
  temp_dir_free(parent);
}

static void the_table_says_what_it_is(void **state) {
  (void)state;
  assert_string_equal(br_files_backend.name, "files");
  assert_true(br_files_backend.outlives_worker);
  assert_false(br_files_backend.read_while_written);
  assert_false(br_flight_backend.outlives_worker);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_output_appears_at_its_commit),
      cmocka_unit_test(an_output_without_commit_leaves_nothing),
      cmocka_unit_test(a_missing_directory_is_not_made),
      cmocka_unit_test(every_row_comes_once),
      cmocka_unit_test(ordered_reading_keeps_the_order),
      cmocka_unit_test(a_map_range_reads_those_alone),
      cmocka_unit_test(nothing_to_read_is_the_end),
      cmocka_unit_test(too_few_files_are_refused),
      cmocka_unit_test(cancel_ends_reading),
      cmocka_unit_test(damage_names_the_output),
      cmocka_unit_test(a_query_that_ended_blames_no_output),
      cmocka_unit_test(sessions_never_share_a_directory),
      cmocka_unit_test(parts_are_dropped_alone),
      cmocka_unit_test(what_the_dead_left_is_removed),
      cmocka_unit_test(what_cannot_be_written_is_refused),
      cmocka_unit_test(the_table_says_what_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
