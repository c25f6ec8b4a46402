/* SPDX-License-Identifier: Apache-2.0
 * The progress line: a thread that asks brant_query_stats every REDRAW_MS and redraws one line of standard error. The line
 * appears after FIRST_MS, is cut to the terminal's width, and is wiped at the end, or before the first row comes to the same
 * terminal. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"

#define FIRST_MS 400
#define REDRAW_MS 100
#define BAR_CELLS 20

struct cli_progress {
  brant_query *query;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool stop, drawn;
};

static int columns(void) {
  struct winsize w;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

/* "950", "12.3k", "4.5M": at most 6 characters below a million million. */
static void format_rows(uint64_t n, char out[16]) {
  static const char *const units[] = {"", "k", "M", "G", "T"};
  double v = (double)n;
  size_t u = 0;
  for (; v >= 1000 && u < 4; u++) v /= 1000;
  snprintf(out, 16, u ? "%.1f%s" : "%.0f%s", v, units[u]);
}

static void draw(cli_progress *p) {
  brant_stats st = {.size = sizeof st};
  brant_query_stats(p->query, &st);
  char bar[BAR_CELLS * 3 + 1] = "", shuffled[16], rows[16], line[512];
  double part = st.tasks ? (double)st.tasks_done / st.tasks : 0;
  for (int i = 0; i < BAR_CELLS; i++) strcat(bar, i < (int)(part * BAR_CELLS) ? "█" : "░");
  br_format_bytes(st.bytes_shuffled, shuffled);
  format_rows(st.rows_shuffled, rows);
  int n = snprintf(line, sizeof line, "%5.1fs stages %u/%u tasks %u/%u (%u run) %s rows %s %s", st.seconds,
                   st.stages_done, st.stages, st.tasks_done, st.tasks, st.tasks_running, rows, shuffled, st.text);
  int room = columns() - BAR_CELLS - 3;
  if (n > room && room > 0) {
    while (room > 0 && ((unsigned char)line[room] & 0xc0) == 0x80) room--; /* not inside a character */
    line[room] = 0;
  }
  fprintf(stderr, "\r\033[K%s %s", bar, line);
  fflush(stderr);
  p->drawn = true;
}

/* With the lock held. */
static void wipe(cli_progress *p) {
  if (p->drawn) fputs("\r\033[K", stderr);
  fflush(stderr);
  p->drawn = false;
}

static void *run(void *arg) {
  cli_progress *p = arg;
  uint64_t next = br_now_ms() + FIRST_MS;
  pthread_mutex_lock(&p->lock);
  while (!p->stop) {
    struct timespec t = {.tv_sec = (time_t)(next / 1000), .tv_nsec = (long)(next % 1000) * 1000000L};
    pthread_cond_timedwait(&p->changed, &p->lock, &t);
    if (p->stop || br_now_ms() < next) continue;
    draw(p);
    next = br_now_ms() + REDRAW_MS;
  }
  wipe(p);
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

cli_progress *cli_progress_start(brant_query *q, bool wanted) {
  if (!wanted) return NULL;
  cli_progress *p = br_calloc(1, sizeof *p);
  p->query = q;
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&p->changed, &attr);
  pthread_condattr_destroy(&attr);
  if (pthread_create(&p->thread, NULL, run, p) == 0) return p;
  free(p);
  return NULL;
}

void cli_progress_hide(cli_progress *p) {
  if (p == NULL || isatty(STDOUT_FILENO) == 0) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  wipe(p);
  pthread_mutex_unlock(&p->lock);
}

void cli_progress_stop(cli_progress *p) {
  if (p == NULL) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_signal(&p->changed);
  pthread_mutex_unlock(&p->lock);
  pthread_join(p->thread, NULL);
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
  free(p);
}
