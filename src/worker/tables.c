/* SPDX-License-Identifier: Apache-2.0
 * Output tables (which attempt of each task of a stage is where) and peers, as the coordinator sends them.
 * A reader is bound to one version of a table: what it's told to fetch and what a worker serves must be the same set. So every
 * version stays readable until the stage is dropped, kept as changes: one record a map and version in which it differs.
 * Versions of a stage arrive in growing order. Loop thread. Bounds: BR_NODE_MAX_TABLE_MAPS maps a stage. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct change {
  uint32_t version, before; /* before: index of this map's change before this one, NONE */
  br_table_entry entry;     /* worker 0: no output */
} change;

struct br_stage_table {
  uint64_t query;
  uint32_t stage, partitions, maps;
  uint32_t *latest; /* [maps]: index of the newest change, NONE */
  change *changes;
  size_t n_changes, changes_capacity;
  uint32_t *versions; /* known ones, growing */
  size_t n_versions, versions_capacity;
  char *shared_dir; /* its outputs are files below this directory; NULL: they are in workers' stores */
};

struct br_tables {
  br_smap *stages;
  br_map *peers;
};

static void stage_key(uint64_t query, uint32_t stage, char out[64]) {
  snprintf(out, 64, "q%" PRIx64 ".s%" PRIu32, query, stage);
}

static void stage_free(br_stage_table *s) {
  free(s->latest);
  free(s->changes);
  free(s->versions);
  free(s->shared_dir);
  free(s);
}

static void peer_free(br_peer *p) {
  if (!p) return;
  free(p->uri);
  free(p->unix_path);
  free(p);
}

br_tables *br_tables_new(void) {
  br_tables *t = br_calloc(1, sizeof *t);
  t->stages = br_smap_new();
  t->peers = br_map_new();
  return t;
}

void br_tables_free(br_tables *t) {
  if (!t) return;
  const char *key;
  uint64_t id;
  void *v;
  for (size_t it = 0; br_smap_next(t->stages, &it, &key, &v);) stage_free(v);
  for (size_t it = 0; br_map_next(t->peers, &it, &id, &v);) peer_free(v);
  br_smap_free(t->stages);
  br_map_free(t->peers);
  free(t);
}

static br_stage_table *want_stage(br_tables *t, uint64_t query, uint32_t stage) {
  char key[64];
  stage_key(query, stage, key);
  br_stage_table *s = br_smap_get(t->stages, key);
  if (s) return s;
  s = br_calloc(1, sizeof *s);
  s->query = query, s->stage = stage;
  br_smap_put(t->stages, key, s);
  return s;
}

static void add_change(br_stage_table *s, uint32_t version, uint32_t map, br_table_entry entry) {
  uint32_t at = s->latest[map];
  br_table_entry now = at == NONE ? (br_table_entry){0} : s->changes[at].entry;
  if (now.worker == entry.worker && now.incarnation == entry.incarnation && now.attempt == entry.attempt &&
      now.growing == entry.growing)
    return;
  br_grow((void **)&s->changes, &s->changes_capacity, s->n_changes, sizeof *s->changes);
  s->changes[s->n_changes] = (change){.version = version, .before = at, .entry = entry};
  s->latest[map] = (uint32_t)s->n_changes++;
}

void br_tables_put(br_tables *t, const Brant__Pb__OutputTable *table) {
  if (table->maps > BR_NODE_MAX_TABLE_MAPS) {
    br_log(BR_LOG_ERROR, "stage %u has %u tasks: more than %u", table->stage, table->maps, BR_NODE_MAX_TABLE_MAPS);
    return;
  }
  br_stage_table *s = want_stage(t, table->query, table->stage);
  if (s->n_versions && table->version <= s->versions[s->n_versions - 1]) return; /* sent again: the same */
  if (table->maps > s->maps) {
    s->latest = br_realloc(s->latest, table->maps * sizeof *s->latest);
    for (uint32_t m = s->maps; m < table->maps; m++) s->latest[m] = NONE;
    s->maps = table->maps;
  }
  s->partitions = table->partitions;
  if (table->shared_dir[0] && !s->shared_dir) s->shared_dir = br_strdup(table->shared_dir);
  br_table_entry *now = br_calloc(s->maps + 1u, sizeof *now);
  for (size_t i = 0; i < table->n_entries; i++) {
    const Brant__Pb__OutputEntry *e = table->entries[i];
    if (e->map < s->maps) now[e->map] = (br_table_entry){e->attempt, e->worker, e->incarnation, e->bytes, e->growing};
  }
  for (uint32_t m = 0; m < s->maps; m++) add_change(s, table->version, m, now[m]);
  free(now);
  br_grow((void **)&s->versions, &s->versions_capacity, s->n_versions, sizeof *s->versions);
  s->versions[s->n_versions++] = table->version;
}

const br_stage_table *br_tables_get(const br_tables *t, uint64_t query, uint32_t stage, uint32_t version,
                                    uint32_t *newest) {
  char key[64];
  stage_key(query, stage, key);
  const br_stage_table *s = br_smap_get(t->stages, key);
  *newest = s && s->n_versions ? s->versions[s->n_versions - 1] : 0;
  if (!s) return NULL;
  size_t low = 0, high = s->n_versions;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (s->versions[middle] < version)
      low = middle + 1;
    else
      high = middle;
  }
  return low < s->n_versions && s->versions[low] == version ? s : NULL;
}

uint32_t br_stage_table_partitions(const br_stage_table *s) { return s->partitions; }
uint32_t br_stage_table_maps(const br_stage_table *s) { return s->maps; }

bool br_stage_table_entry(const br_stage_table *s, uint32_t version, uint32_t map, br_table_entry *out) {
  if (map >= s->maps) return false;
  uint32_t at = s->latest[map];
  while (at != NONE && s->changes[at].version > version) at = s->changes[at].before;
  if (at == NONE || !s->changes[at].entry.worker) return false;
  *out = s->changes[at].entry;
  return true;
}

void br_tables_drop(br_tables *t, uint64_t query, const uint32_t *stage_or_all) {
  const char *key;
  void *v;
  for (size_t it = 0; br_smap_next(t->stages, &it, &key, &v);) {
    br_stage_table *s = v;
    if (s->query != query || (stage_or_all && s->stage != *stage_or_all)) continue;
    char copy[64];
    stage_key(s->query, s->stage, copy);
    br_smap_remove(t->stages, copy);
    stage_free(s);
  }
}

void br_tables_peer(br_tables *t, const Brant__Pb__Peer *p, const char *own_host_id) {
  br_peer *peer = br_calloc(1, sizeof *peer);
  bool near = p->host_id[0] && strcmp(p->host_id, own_host_id) == 0;
  *peer = (br_peer){.worker = p->worker,
                    .incarnation = p->incarnation,
                    .uri = br_strdup(p->uri),
                    .unix_path = br_strdup(near ? p->unix_path : "")};
  peer_free(br_map_put(t->peers, p->worker, peer));
}

void br_tables_peer_gone(br_tables *t, uint32_t worker) { peer_free(br_map_remove(t->peers, worker)); }

/* ---- from a partition reference to where its rows are */

br_status br_tables_find(const br_tables *t, const Brant__Pb__PartitionRef *ref, const br_stage_table **out,
                         br_error *err) {
  uint32_t newest;
  *out = br_tables_get(t, ref->query, ref->stage, ref->table_version, &newest);
  if (!*out) {
    br_fail(err, BR_FETCH, BR_BLAME_FETCH,
            "the output table of stage %u of query %" PRIx64
            ", version %u, is not on this worker (the newest here is %u)%s",
            ref->stage, ref->query, ref->table_version, newest,
            newest ? "" : ": the stage is not done yet, or its rows were read, or its query has ended");
    err->retryable = ref->table_version > newest; /* it may be on its way */
    return err->code;
  }
  if (ref->first > ref->last || ref->last > (*out)->partitions || ref->map_first > ref->map_last ||
      ref->map_last > (*out)->maps) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL,
                   "partitions [%u, %u) of maps [%u, %u) of stage %u, which has %u partitions and %u maps", ref->first,
                   ref->last, ref->map_first, ref->map_last, ref->stage, (*out)->partitions, (*out)->maps);
  }
  return BR_OK;
}

static Brant__Pb__LocalOutput *local_new(const Brant__Pb__PartitionRef *ref, uint32_t map, const br_table_entry *e) {
  Brant__Pb__LocalOutput *l = br_calloc(1, sizeof *l);
  brant__pb__local_output__init(l);
  l->id = br_calloc(1, sizeof *l->id);
  br_attempt_id id = {.query = ref->query, .stage = ref->stage, .task = map, .attempt = (uint16_t)e->attempt};
  br_attempt_to_pb(&id, l->id);
  return l;
}

static Brant__Pb__RemoteSource *remote_new(const br_table_entry *e, const char *uri, const char *unix_path) {
  Brant__Pb__RemoteSource *s = br_calloc(1, sizeof *s);
  brant__pb__remote_source__init(s);
  s->worker = e->worker, s->incarnation = e->incarnation;
  s->uri = br_strdup(uri), s->unix_path = br_strdup(unix_path);
  s->outputs = 1, s->bytes = e->bytes;
  return s;
}

static br_status add_remote(br_node *n, const Brant__Pb__PartitionRef *ref, uint32_t map, const br_table_entry *e,
                            Brant__Pb__ResolvedInput *r, br_error *err) {
  for (size_t i = 0; i < r->n_remote; i++) {
    if (r->remote[i]->worker != e->worker || r->remote[i]->incarnation != e->incarnation) continue;
    r->remote[i]->outputs++;
    r->remote[i]->bytes += e->bytes;
    return BR_OK;
  }
  br_peer *p = br_map_get(n->tables->peers, e->worker);
  if (!p || p->incarnation != e->incarnation) {
    br_fail(err, BR_FETCH, BR_BLAME_FETCH,
            "worker %u, which held the output of task %u of stage %u, is not there any more", e->worker, map,
            ref->stage);
    err->worker = e->worker;
    return err->code;
  }
  r->remote[r->n_remote++] = remote_new(e, p->uri, p->unix_path);
  return BR_OK;
}

static bool is_own(const br_node *n, const br_table_entry *e) {
  return e->worker == n->worker && e->incarnation == n->incarnation;
}

/* An own output of ref that is being written can't be passed as a descriptor: then all own ones are read from this worker's server,
 * by one source, as another worker's would be. */
static bool reads_own_growing(br_node *n, const br_stage_table *table, const Brant__Pb__PartitionRef *ref) {
  br_table_entry e;
  bool any = false;
  for (uint32_t m = ref->map_first; m < ref->map_last && !any; m++) {
    if (!br_stage_table_entry(table, ref->table_version, m, &e) || !is_own(n, &e) || !e.growing) continue;
    br_mapfile *f = br_store_get(n->store, ref->query, ref->stage, m, (uint16_t)e.attempt);
    any = f == NULL;
    br_mapfile_unref(f);
  }
  return any;
}

static void add_own(br_node *n, const br_table_entry *e, Brant__Pb__ResolvedInput *r) {
  for (size_t i = 0; i < r->n_remote; i++) {
    if (r->remote[i]->worker != n->worker) continue;
    r->remote[i]->outputs++;
    r->remote[i]->bytes += e->bytes;
    return;
  }
  r->remote[r->n_remote++] = remote_new(e, n->uri, n->unix_path ? n->unix_path : "");
}

static Brant__Pb__SharedFile *shared_new(uint32_t map, const br_table_entry *e) {
  Brant__Pb__SharedFile *f = br_calloc(1, sizeof *f);
  brant__pb__shared_file__init(f);
  f->map = map, f->attempt = e->attempt, f->worker = e->worker, f->incarnation = e->incarnation;
  return f;
}

br_status br_tables_resolve(br_node *n, const Brant__Pb__TaskInput *in, Brant__Pb__ResolvedInput *r, br_error *err) {
  const br_stage_table *table;
  const Brant__Pb__PartitionRef *ref = in->ref;
  brant__pb__resolved_input__init(r);
  r->number = in->number;
  if (!ref) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "input(%u) names no partitions", in->number);
  if (ref->map_first == ref->map_last) return BR_OK; /* reads nothing, perhaps of a stage without a table */
  BR_TRY(br_tables_find(n->tables, ref, &table, err));
  r->local = br_calloc(ref->map_last - ref->map_first, sizeof *r->local);
  r->remote = br_calloc(ref->map_last - ref->map_first, sizeof *r->remote);
  if (table->shared_dir) {
    r->shared_dir = br_strdup(table->shared_dir);
    r->file = br_calloc(ref->map_last - ref->map_first, sizeof *r->file);
  }
  bool by_server = !table->shared_dir && reads_own_growing(n, table, ref);
  for (uint32_t m = ref->map_first; m < ref->map_last; m++) {
    br_table_entry e;
    if (!br_stage_table_entry(table, ref->table_version, m, &e)) {
      return br_fail(err, BR_FETCH, BR_BLAME_FETCH, "version %u of stage %u's output table has no output of task %u",
                     ref->table_version, ref->stage, m);
    }
    if (table->shared_dir)
      r->file[r->n_file++] = shared_new(m, &e);
    else if (is_own(n, &e) && by_server)
      add_own(n, &e, r);
    else if (is_own(n, &e))
      r->local[r->n_local++] = local_new(ref, m, &e);
    else
      BR_TRY(add_remote(n, ref, m, &e, r, err));
  }
  return BR_OK;
}

void br_resolved_free(Brant__Pb__ResolvedInput *r) {
  for (size_t i = 0; i < r->n_local; i++) brant__pb__local_output__free_unpacked(r->local[i], NULL);
  for (size_t i = 0; i < r->n_remote; i++) brant__pb__remote_source__free_unpacked(r->remote[i], NULL);
  for (size_t i = 0; i < r->n_file; i++) brant__pb__shared_file__free_unpacked(r->file[i], NULL);
  if (r->file) free(r->shared_dir); /* else it's the message's own empty text */
  free(r->file);
  free(r->local);
  free(r->remote);
  brant__pb__resolved_input__init(r);
}
