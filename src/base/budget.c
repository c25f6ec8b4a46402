/* SPDX-License-Identifier: Apache-2.0
 * Memory budgets, and what the machine (or its cgroup) gives. Thread-safe. */
#include "base/budget.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

void br_budget_init(br_budget *b, const char *name, uint64_t limit_bytes) {
  b->name = name;
  b->limit_bytes = limit_bytes;
  atomic_init(&b->used_bytes, 0);
  atomic_init(&b->peak_bytes, 0);
}

static void note_peak(br_budget *b, uint64_t used) {
  uint64_t peak = atomic_load_explicit(&b->peak_bytes, memory_order_relaxed);
  while (used > peak && !atomic_compare_exchange_weak(&b->peak_bytes, &peak, used)) {
  }
}

bool br_budget_try(br_budget *b, uint64_t bytes) {
  uint64_t used = atomic_load(&b->used_bytes);
  do {
    if (bytes > b->limit_bytes || used > b->limit_bytes - bytes) return false;
  } while (!atomic_compare_exchange_weak(&b->used_bytes, &used, used + bytes));
  note_peak(b, used + bytes);
  return true;
}

void br_budget_force(br_budget *b, uint64_t bytes) { note_peak(b, atomic_fetch_add(&b->used_bytes, bytes) + bytes); }

void br_budget_release(br_budget *b, uint64_t bytes) {
  uint64_t before = atomic_fetch_sub(&b->used_bytes, bytes);
  BR_ASSERT(before >= bytes);
}

/* One number from a file; UINT64_MAX for "max" or when it can't be read. */
static uint64_t read_number(const char *path) {
  char text[64];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return UINT64_MAX;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return UINT64_MAX;
  text[n] = 0;
  char *end = NULL;
  unsigned long long v = strtoull(text, &end, 10);
  return end == text ? UINT64_MAX : v;
}

/* The limit of this process's cgroup and of every cgroup above it: controller "" is v2, "memory" v1. */
static uint64_t cgroup_limit(const char *mount, const char *path, const char *file) {
  char dir[1024], full[1200];
  uint64_t least = UINT64_MAX;
  snprintf(dir, sizeof dir, "%s", path);
  for (;;) {
    snprintf(full, sizeof full, "%s%s/%s", mount, dir, file);
    uint64_t v = read_number(full);
    if (v < least) least = v;
    char *slash = strrchr(dir, '/');
    if (slash == NULL) break;
    *slash = 0;
  }
  return least;
}

uint64_t br_memory_available_bytes(void) {
  uint64_t least = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  FILE *f = fopen("/proc/self/cgroup", "re");
  if (f == NULL) return least;
  char line[1200];
  while (fgets(line, sizeof line, f) != NULL) {
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) continue;
    *path++ = 0;
    controllers++;
    if (strcmp(path, "/") == 0) path = (char *)"";
    uint64_t v = UINT64_MAX;
    if (*controllers == 0)
      v = cgroup_limit("/sys/fs/cgroup", path, "memory.max");
    else if (strcmp(controllers, "memory") == 0)
      v = cgroup_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
    if (v < least) least = v;
  }
  fclose(f);
  return least;
}

static ssize_t read_proc(int pid, const char *name, char *text, size_t n) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t got = read(fd, text, n - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  return got;
}

uint64_t br_process_pss_bytes(int pid) {
  char text[2048];
  if (read_proc(pid, "smaps_rollup", text, sizeof text) <= 0) return 0;
  const char *at = strstr(text, "\nPss:");
  return at ? strtoull(at + 5, NULL, 10) * 1024 : 0;
}

uint64_t br_process_anon_bytes(int pid) {
  char text[256], *end;
  if (read_proc(pid, "statm", text, sizeof text) <= 0) return 0;
  strtoull(text, &end, 10); /* address space */
  uint64_t resident = strtoull(end, &end, 10), shared = strtoull(end, &end, 10);
  return resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
