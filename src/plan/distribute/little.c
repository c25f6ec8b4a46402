/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes from small files alone does not change place: a task that needs all of its rows reads the files itself. That costs a task
 * about a millisecond; a stage costs tasks of its own, and time in which its readers wait. So a join's small side is read by each task
 * of the other one, and an aggregate over such rows is computed where they are read, in one task.
 *
 * Only where every read gives the same rows (nothing indeterminate), where it is small work (files of at most inline_bytes, as far as
 * their columns are read; no product of sides, no functions that make many rows of one) and no round trip (local files).
 *
 * Order of calls: br_is_little before an exchange, then instead of it br_each_reads or br_one_reads. Threads: none. Bounds:
 * little_rows_most.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const double little_rows_most = 200000; /* in the files, or given: a join's reader hashes them in every task */

static bool is_local(const br_scan *s) {
  for (size_t i = 0; i < s->n_files; i++)
    if (strstr(s->files[i], "://")) return false;
  return true;
}

static bool reads_little(const br_dist *d, const br_open *o) {
  double bytes = 0, rows = 0;
  for (size_t i = 0; i < o->n_scans; i++) {
    const br_stage_scan *s = &o->scans[i];
    if (s->scan.kind != BR_SCAN_PARQUET || s->bytes < 0 || s->source_rows < 0 || !is_local(&s->scan)) return false;
    bytes += s->bytes;
    rows += s->source_rows;
  }
  return o->n_scans > 0 && d->o->inline_bytes > 0 && bytes <= d->o->inline_bytes && rows <= little_rows_most;
}

bool br_is_little(const br_dist *d, const br_drel *r) {
  const br_open *o = r->branches[0].open;
  if (r->n_branches != 1 || r->ordered || (o->rule != BR_RULE_SPLITS && o->rule != BR_RULE_ONE)) return false;
  return !o->n_inputs && !o->n_steps && !o->heavy && !o->indeterminate && !o->batch_rows &&
         r->rows <= little_rows_most && reads_little(d, o);
}

static void read_whole(br_dist *d, br_drel *r, br_rule rule, const char *why) {
  br_open *o = r->branches[0].open;
  o->rule = rule;
  o->split_scan = -1;
  o->reason = rule == BR_RULE_ONE ? BR_WHY_LITTLE : NULL;
  br_open_why(d, o, "%s", why);
  for (size_t i = 0; i < o->n_scans; i++) o->scans[i].sorted = NULL, o->scans[i].cut = false;
  br_no_clustering(r);
}

void br_each_reads(br_dist *d, br_drel *r) { read_whole(d, r, BR_RULE_NONE, "small files, read by each task"); }

void br_one_reads(br_dist *d, br_drel *r) {
  if (r->branches[0].open->rule == BR_RULE_SPLITS) read_whole(d, r, BR_RULE_ONE, "small files");
}
