/* SPDX-License-Identifier: Apache-2.0
 * Outputs of this worker for any Flight client (docs/flight.md): ListFlights, and GetFlightInfo of a path q<hex>/s<stage>
 * [/t<task>][/p<partition>]. Only what the coordinator has opened to readers by an output table is there; the ticket of an
 * answer is bound to the newest version of that table, and holds no secret: the connection's bearer token has shown it.
 * Loop thread. Bounds: BR_NODE_MAX_LISTED outputs a list, PATH_BYTES a path. */
#include "worker/node.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 96u
#define ALL UINT32_MAX

typedef struct flight {
  uint64_t query;
  uint32_t stage, task, partition; /* ALL: every task, every partition */
} flight;

/* "t12" with letter 't' at *p: the number, *p behind it and its '/'. */
static bool part(const char **p, char letter, int base, uint64_t max, uint64_t *out) {
  static const char digits[] = "0123456789abcdef";
  const char *q = *p;
  if (*q++ != letter || !*q) return false;
  uint64_t v = 0;
  for (const char *d; *q && *q != '/'; q++) {
    if (!(d = memchr(digits, *q, (size_t)base)) || v > (max - (uint64_t)(d - digits)) / (uint64_t)base) return false;
    v = v * (uint64_t)base + (uint64_t)(d - digits);
  }
  if (q[-1] == letter) return false; /* no digit */
  *p = *q ? q + 1 : q;
  *out = v;
  return true;
}

static br_status parse(const char *path, flight *f, br_error *err) {
  const char *p = path;
  uint64_t stage, task = ALL, partition = ALL;
  bool good = part(&p, 'q', 16, UINT64_MAX, &f->query) && part(&p, 's', 10, ALL - 1, &stage);
  if (good && *p == 't') good = part(&p, 't', 10, ALL - 1, &task);
  if (good && *p == 'p') good = part(&p, 'p', 10, ALL - 1, &partition);
  if (!good || *p)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "\"%s\" is no path of an output: it is q<hex>/s<stage>, then /t<task>, /p<partition> or both", path);
  f->stage = (uint32_t)stage, f->task = (uint32_t)task, f->partition = (uint32_t)partition;
  return BR_OK;
}

static br_status find_table(const br_node *n, const flight *f, Brant__Pb__PartitionRef *ref, br_error *err) {
  const br_stage_table *table;
  ref->query = f->query, ref->stage = f->stage;
  (void)br_tables_get(n->tables, f->query, f->stage, ALL, &ref->table_version);
  table = br_tables_get(n->tables, f->query, f->stage, ref->table_version, &ref->table_version);
  if (!table)
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER,
                   "stage %" PRIu32 " of query %" PRIx64
                   " has no output here to read: it is not done yet, or its rows were read, or its query has ended",
                   f->stage, f->query);
  uint32_t maps = br_stage_table_maps(table), partitions = br_stage_table_partitions(table);
  if ((f->task != ALL && f->task >= maps) || (f->partition != ALL && f->partition >= partitions))
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER,
                   "stage %" PRIu32 " of query %" PRIx64 " has %" PRIu32 " tasks and %" PRIu32 " partitions", f->stage,
                   f->query, maps, partitions);
  ref->map_first = f->task == ALL ? 0 : f->task;
  ref->map_last = f->task == ALL ? maps : f->task + 1;
  ref->first = f->partition == ALL ? 0 : f->partition;
  ref->last = f->partition == ALL ? partitions : f->partition + 1;
  return BR_OK;
}

static void make_ticket(const br_node *n, Brant__Pb__PartitionRef *ref, br_buf *out) {
  Brant__Pb__Ticket t = BRANT__PB__TICKET__INIT;
  t.ref = ref;
  t.worker = n->worker;
  t.incarnation = n->incarnation;
  t.ordered = true;
  br_pb_pack(&t.base, out);
}

static void encode(const br_node *n, const br_serve_set *set, Brant__Pb__PartitionRef *ref, const br_buf *descriptor,
                   br_buf *info) {
  br_buf ticket = {0};
  const void *schema;
  size_t schema_bytes;
  int64_t rows = 0, bytes = 0;
  for (size_t i = 0; i < set->n; i++) {
    const br_chunk *chunks;
    size_t count = br_mapfile_find(set->files[i], ref->first, ref->last, &chunks);
    for (size_t k = 0; k < count; k++) rows += (int64_t)chunks[k].rows, bytes += (int64_t)chunks[k].body_bytes;
  }
  br_mapfile_schema(set->files[0], &schema, &schema_bytes);
  make_ticket(n, ref, &ticket);
  br_flight_info_encode(info, schema, schema_bytes, descriptor->data, descriptor->len, ticket.data, ticket.len, rows,
                        bytes);
  br_buf_free(&ticket);
}

static br_status describe(br_node *n, const flight *f, const br_buf *descriptor, br_buf *info, br_error *err) {
  Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
  br_serve_set set;
  BR_TRY(find_table(n, f, &ref, err));
  BR_TRY(br_serve_collect(n, &ref, true, &set, err));
  br_status status = BR_OK;
  if (set.n == 0)
    status = br_fail(err, BR_NOT_FOUND, BR_BLAME_USER,
                     "no output of stage %" PRIu32 " of query %" PRIx64 " that was asked for is on worker %" PRIu32,
                     f->stage, f->query, n->worker);
  else
    encode(n, &set, &ref, descriptor, info);
  br_serve_set_free(&set);
  return status;
}

br_status br_flights_list(void *arg, void (*emit)(void *ctx, const void *info, size_t n), void *ctx, br_error *err) {
  br_node *n = arg;
  const char *key;
  uint32_t listed = 0;
  void *v;
  for (size_t it = 0; br_smap_next(n->outputs, &it, &key, &v);) {
    const br_attempt_id *id = v;
    const flight f = {.query = id->query, .stage = id->stage, .task = id->task, .partition = ALL};
    char path[PATH_BYTES];
    br_buf descriptor = {0}, info = {0};
    br_error not_open;
    snprintf(path, sizeof path, "q%" PRIx64 "/s%" PRIu32 "/t%" PRIu32, f.query, f.stage, f.task);
    br_flight_path_encode(&descriptor, path);
    bool open = describe(n, &f, &descriptor, &info, &not_open) == BR_OK;
    bool room = !open || listed++ < BR_NODE_MAX_LISTED;
    if (open && room) emit(ctx, info.data, info.len);
    br_buf_free(&descriptor);
    br_buf_free(&info);
    if (!room)
      return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "worker %" PRIu32 " has more than %u outputs to read: ask for one stage by its path", n->worker,
                     BR_NODE_MAX_LISTED);
  }
  return BR_OK;
}

br_status br_flights_info(void *arg, const void *descriptor, size_t n, br_buf *info, br_error *err) {
  char path[PATH_BYTES];
  flight f;
  BR_TRY(br_flight_path_parse(descriptor, n, path, sizeof path, err));
  BR_TRY(parse(path, &f, err));
  br_buf d = {0};
  br_buf_add(&d, descriptor, n);
  br_status status = describe(arg, &f, &d, info, err);
  br_buf_free(&d);
  return status;
}
