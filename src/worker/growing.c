/* SPDX-License-Identifier: Apache-2.0
 * Outputs of this worker that are being written and may be read already, by attempt: expected when the attempt comes to this worker,
 * fed by what its executor publishes, gone when it commits (the store has it then; readers under way hold what they need).
 * One that failed stays as its error until its stage is dropped, so that whoever asks later learns that it is lost.
 * Loop thread. Bounds: an entry a publishing attempt that runs or has failed; 40 bytes a chunk of those that run. */
#include "worker/node.h"

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct br_grow {
  br_attempt_id id;
  br_growing *output;
};

static struct br_grow *find(const br_node *n, const br_attempt_id *id) {
  char key[64];
  br_attempt_format(id, key);
  return n->growing ? br_smap_get(n->growing, key) : NULL;
}

static void drop(br_node *n, struct br_grow *e) {
  char key[64];
  br_attempt_format(&e->id, key);
  br_smap_remove(n->growing, key);
  br_growing_unref(e->output);
  free(e);
}

static uint32_t partitions_of(const br_wtask *t) {
  return t->task->output && t->task->output->partitions ? t->task->output->partitions : 1;
}

void br_grow_expect(br_node *n, const br_wtask *t) {
  char key[64];
  if (find(n, &t->id)) return;
  if (!n->growing) n->growing = br_smap_new();
  br_attempt_format(&t->id, key);
  struct br_grow *e = br_malloc(sizeof *e);
  *e = (struct br_grow){.id = t->id, .output = br_growing_new(&t->id, partitions_of(t))};
  br_smap_put(n->growing, key, e);
}

static void set_lost(const br_node *n, const br_attempt_id *id, br_error *err) {
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = *id, .worker = n->worker, .incarnation = n->incarnation};
  err->worker = n->worker;
}

br_status br_grow_get(br_node *n, const br_attempt_id *id, br_growing **out, br_error *err) {
  struct br_grow *e = find(n, id);
  if (!e) {
    const br_wtask *t = br_tasks_find(n, id);
    if (t) br_grow_expect(n, t); /* it publishes nothing: all of it comes with the commit */
    e = find(n, id);
  }
  if (e) {
    *out = br_growing_ref(e->output);
    return BR_OK;
  }
  char text[64];
  br_attempt_format(id, text);
  br_fail(err, BR_FETCH, BR_BLAME_FETCH,
          "attempt %s, whose output is to be read while it is written, is not on worker %u", text, n->worker);
  set_lost(n, id, err);
  err->retryable = true; /* its start and this request come by different ways */
  return err->code;
}

br_status br_grow_published(br_node *n, const br_wtask *t, const Brant__Pb__Published *p, int *fds, int n_fds,
                            br_error *err) {
  size_t count = p->chunks.len / sizeof(br_chunk);
  if (n_fds > 1 || p->chunks.len % sizeof(br_chunk) != 0)
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "an executor published something that is no list of chunks");
  br_grow_expect(n, t);
  br_chunk *chunks = br_calloc(count + 1, sizeof *chunks); /* aligned */
  if (count) memcpy(chunks, p->chunks.data, p->chunks.len);
  br_publication told = {.generation = p->generation,
                         .in_memory = p->in_memory,
                         .fd = n_fds ? fds[0] : -1,
                         .first_chunk = p->first_chunk,
                         .chunks = chunks,
                         .n = count,
                         .schema = p->schema.data,
                         .schema_bytes = p->schema.len};
  if (n_fds) fds[0] = -1; /* taken in any case */
  br_status status = br_growing_add(find(n, &t->id)->output, &told, err);
  free(chunks);
  return status;
}

br_status br_grow_committed(br_node *n, const br_attempt_id *id, br_error *err) {
  struct br_grow *e = find(n, id);
  if (!e) return BR_OK;
  br_status status = BR_OK;
  br_mapfile *file = br_store_get(n->store, id->query, id->stage, id->task, id->attempt);
  if (file) status = br_growing_commit(e->output, file, err);
  br_mapfile_unref(file);
  if (file && status == BR_OK)
    drop(n, e);
  else /* a newer attempt was first: this one's output is not kept */
    br_grow_failed(n, id, NULL);
  return status;
}

void br_grow_failed(br_node *n, const br_attempt_id *id, const br_error *why) {
  struct br_grow *e = find(n, id);
  br_error err;
  char text[64];
  if (!e) return;
  br_attempt_format(id, text);
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH,
          "the output of attempt %s, which was read while it was written, is lost: %.400s", text,
          why ? why->message : "it was dropped");
  set_lost(n, id, &err);
  br_growing_fail(e->output, &err);
}

void br_grow_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all) {
  const char *key;
  void *v;
  for (size_t it = 0; n->growing && br_smap_next(n->growing, &it, &key, &v);) {
    struct br_grow *e = v;
    if (e->id.query != query || (stage_or_all && e->id.stage != *stage_or_all)) continue;
    br_grow_failed(n, &e->id, NULL);
    drop(n, e);
  }
}

void br_grow_free(br_node *n) {
  const char *key;
  void *v;
  if (!n->growing) return;
  for (size_t it = 0; br_smap_next(n->growing, &it, &key, &v);) drop(n, v);
  br_smap_free(n->growing);
}
