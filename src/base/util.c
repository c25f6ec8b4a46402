/* SPDX-License-Identifier: Apache-2.0
 * Clock, log, sizes, random numbers, files. Stateless but for the log's name and level, which are set once at start. */
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

static uint64_t clock_us(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}
uint64_t br_now_us(void) { return clock_us(CLOCK_MONOTONIC); }
uint64_t br_now_ms(void) { return br_now_us() / 1000; }
uint64_t br_wall_us(void) { return clock_us(CLOCK_REALTIME); }

double br_cpu_seconds(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

uint64_t br_random_u64(void) {
  uint64_t v = 0;
  while (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) {
  }
  return v;
}

static bool unit_of(const char *s, double *factor) {
  static const struct {
    const char *name;
    double factor;
  } units[] = {{"", 1},
               {"b", 1},
               {"k", 1024.0},
               {"kb", 1e3},
               {"kib", 1024.0},
               {"m", 1048576.0},
               {"mb", 1e6},
               {"mib", 1048576.0},
               {"g", 1073741824.0},
               {"gb", 1e9},
               {"gib", 1073741824.0},
               {"t", 1099511627776.0},
               {"tb", 1e12},
               {"tib", 1099511627776.0}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcasecmp(s, units[i].name) == 0) {
      *factor = units[i].factor;
      return true;
    }
  return false;
}

br_status br_parse_bytes(const char *text, uint64_t *bytes, br_error *err) {
  char *end = NULL;
  double factor = 0;
  errno = 0;
  double v = strtod(text, &end);
  while (end != text && *end == ' ') end++;
  if (end == text || errno != 0 || !(v >= 0) || v > 1e18 || !unit_of(end, &factor) || v * factor > 9e18)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "'%s' is not a size: write a number with a unit, such as 512MB or 2GiB", text);
  *bytes = (uint64_t)(v * factor);
  return BR_OK;
}

void br_format_bytes(uint64_t bytes, char out[16]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double v = (double)bytes;
  size_t u = 0;
  while (v >= 1024 && u + 1 < sizeof units / sizeof *units) {
    v /= 1024;
    u++;
  }
  snprintf(out, 16, u == 0 || v >= 99.95 ? "%.0f %s" : "%.1f %s", v, units[u]);
}

/* ---- this host */
char *br_host_id(void) {
  char boot[64] = "", name[256] = "";
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    ssize_t n = read(fd, boot, sizeof boot - 1);
    boot[n > 0 ? n : 0] = 0;
    boot[strcspn(boot, "\n")] = 0;
    close(fd);
  }
  gethostname(name, sizeof name - 1);
  return br_asprintf("%s/%s", name, boot);
}

/* ---- log */
static char log_name[48] = "brant";
static int log_level = -1;

void br_log_set_name(const char *role, uint32_t id) {
  if (id != 0)
    snprintf(log_name, sizeof log_name, "%s[%u]", role, id);
  else
    snprintf(log_name, sizeof log_name, "%s", role);
}

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static void read_level(void) {
  const char *v = getenv("BRANT_LOG");
  static const char *const names[] = {"error", "warn", "info", "debug"};
  log_level = BR_LOG_WARN;
  for (int i = 0; v != NULL && i < 4; i++)
    if (strcasecmp(v, names[i]) == 0) log_level = i;
}

bool br_log_enabled(br_log_level level) {
  pthread_once(&log_once, read_level);
  return (int)level <= log_level;
}

void br_log(br_log_level level, const char *fmt, ...) {
  if (!br_log_enabled(level)) return;
  char line[4096];
  uint64_t us = br_wall_us();
  time_t sec = (time_t)(us / 1000000);
  struct tm tm;
  gmtime_r(&sec, &tm);
  size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
  n += (size_t)snprintf(line + n, sizeof line - n, ".%03u %c %s ", (unsigned)(us / 1000 % 1000), "EWID"[level],
                        log_name);
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
  va_end(ap);
  n = m < 0 ? n : n + (size_t)m;
  if (n > sizeof line - 2) n = sizeof line - 2;
  line[n++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, n);
  (void)ignored;
}

/* ---- files */
br_status br_mkdir_p(const char *path, br_error *err) {
  if (*path == 0) return br_fail(err, BR_INVALID, BR_BLAME_USER, "a directory needs a name");
  char *copy = br_strdup(path);
  br_status status = BR_OK;
  for (char *p = copy + 1;; p++) {
    if (*p != '/' && *p != 0) continue;
    char keep = *p;
    *p = 0;
    if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
      status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make directory %s", copy);
      goto done;
    }
    *p = keep;
    if (keep == 0) break;
  }
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is not a directory", path);
done:
  free(copy);
  return status;
}

static void remove_at(int dir, const char *name, int depth) {
  if (unlinkat(dir, name, 0) == 0 || depth > 64) return;
  int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  DIR *d = fdopendir(fd);
  if (d == NULL) {
    close(fd);
    return;
  }
  for (struct dirent *e; (e = readdir(d)) != NULL;)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) remove_at(dirfd(d), e->d_name, depth + 1);
  closedir(d);
  unlinkat(dir, name, AT_REMOVEDIR);
}

void br_remove_tree(const char *path) { remove_at(AT_FDCWD, path, 0); }

br_status br_write_all(int fd, const void *p, size_t n, br_error *err) {
  const char *at = p;
  while (n > 0) {
    ssize_t w = write(fd, at, n);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) return br_fail_errno(err, w == 0 ? EIO : errno, BR_BLAME_TASK, "write failed");
    at += w;
    n -= (size_t)w;
  }
  return BR_OK;
}

br_status br_pread_all(int fd, void *p, size_t n, uint64_t offset, br_error *err) {
  char *at = p;
  while (n > 0) {
    ssize_t r = pread(fd, at, n, (off_t)offset);
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "read failed");
    if (r == 0) return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "the file ends %zu bytes early", n);
    at += r;
    n -= (size_t)r;
    offset += (uint64_t)r;
  }
  return BR_OK;
}

char *br_absolute_path(const char *path) {
  char *cwd = NULL, *out = NULL;
  if (path[0] != '/' && strstr(path, "://") == NULL && access(path, F_OK) == 0) cwd = getcwd(NULL, 0);
  out = cwd ? br_asprintf("%s/%s", cwd, path) : br_strdup(path);
  free(cwd);
  return out;
}
