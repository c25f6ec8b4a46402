/* SPDX-License-Identifier: Apache-2.0
 *
 * An output that is being written, as the worker knows it from what the executor publishes: new → add, any number → commit or
 * fail. Those who serve it hold a reference and are called after each change (br_growing_watch).
 *
 * Chunks are numbered in the order in which they were told first, and keep their numbers, so a reader's place is one number. When the
 * output moves to disk it begins a new generation: its file has the chunks of the memory sorted by (partition, offset), then others.
 * So the old list, sorted the same way, says which chunk is which, and places are exchanged once all of them are there; until then
 * the memory serves on. At the commit the whole list is compared with the index of the file that comes in.
 *
 * Threads: the loop's; br_growth_file also pool threads. Bounds: 40 bytes a chunk (twice that while it moves to disk), one or two
 * descriptors, the error of one that failed.
 */
#include "shuffle/growing.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chunk_list {
  br_chunk *items;
  size_t n, capacity;
} chunk_list;

typedef struct generation {
  uint32_t number;
  br_growth_file *file; /* NULL: none */
  chunk_list chunks;
} generation;

struct br_growing {
  uint32_t refs, partitions;
  br_attempt_id id;
  br_growing_state state;
  generation now, next; /* next: told in part */
  br_buf schema;
  br_error *failure;
  br_growing_watch *first, *last;
  uint64_t round;
};

/* ---- files */
static br_growth_file *file_new(const br_growing *g, int fd, br_mapfile *committed) {
  br_growth_file *f = br_malloc(sizeof *f);
  *f = (br_growth_file){.refs = 1, .id = g->id, .fd = fd, .committed = committed};
  return f;
}

br_growth_file *br_growth_file_ref(br_growth_file *f) {
  atomic_fetch_add(&f->refs, 1);
  return f;
}

void br_growth_file_unref(br_growth_file *f) {
  if (f == NULL || atomic_fetch_sub(&f->refs, 1) != 1) return;
  if (f->fd >= 0) close(f->fd);
  br_mapfile_unref(f->committed);
  free(f);
}

bool br_growth_view(br_growth_file *f, const br_chunk *c, const void **head, br_ipc_body *body) {
  if (f->committed == NULL || !br_mapfile_in_memory(f->committed)) return false;
  br_mapfile_view(f->committed, c, head, body);
  return true;
}

br_status br_growth_read(br_growth_file *f, const br_chunk *c, const void **head, br_ipc_body *body, br_error *err) {
  if (f->committed != NULL) return br_mapfile_chunk(f->committed, c, head, body, err);
  return br_chunk_read(f->fd, &f->id, c, head, body, err);
}

/* ---- life */
static void generation_free(generation *n) {
  br_growth_file_unref(n->file);
  free(n->chunks.items);
  *n = (generation){0};
}

br_growing *br_growing_new(const br_attempt_id *id, uint32_t partitions) {
  br_growing *g = br_calloc(1, sizeof *g);
  *g = (br_growing){.refs = 1, .partitions = partitions, .id = *id};
  return g;
}

br_growing *br_growing_ref(br_growing *g) {
  g->refs++;
  return g;
}

void br_growing_unref(br_growing *g) {
  if (g == NULL || --g->refs > 0) return;
  generation_free(&g->now);
  generation_free(&g->next);
  br_buf_free(&g->schema);
  free(g->failure);
  free(g);
}

/* ---- those who watch */
static void append_watch(br_growing *g, br_growing_watch *w) {
  w->round = g->round;
  w->before = g->last;
  w->after = NULL;
  if (g->last != NULL)
    g->last->after = w;
  else
    g->first = w;
  g->last = w;
}

static void take_out(br_growing *g, br_growing_watch *w) {
  if (w->before != NULL)
    w->before->after = w->after;
  else
    g->first = w->after;
  if (w->after != NULL)
    w->after->before = w->before;
  else
    g->last = w->before;
  w->before = w->after = NULL;
}

void br_growing_add_watch(br_growing *g, br_growing_watch *w) { append_watch(g, w); }
void br_growing_remove_watch(br_growing *g, br_growing_watch *w) { take_out(g, w); }

/* Each call may take any watch out, also that of somebody else: so always the first that was not called in this round. */
static void notify(br_growing *g) {
  br_growing_ref(g);
  uint64_t round = ++g->round;
  for (br_growing_watch *w; (w = g->first) != NULL && w->round < round;) {
    take_out(g, w);
    append_watch(g, w);
    w->changed(w->arg);
  }
  br_growing_unref(g);
}

/* ---- growth */
static br_status wrong(const br_growing *g, const char *what, br_error *err) {
  return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR,
                 "what an executor says of the output of task %" PRIu32 " of stage %" PRIu32
                 ", which it is writing, does not fit: %s",
                 g->id.task, g->id.stage, what);
}

static br_status check_chunks(const br_growing *g, const br_chunk *chunks, size_t n, br_error *err) {
  for (size_t i = 0; i < n; i++) {
    const br_chunk *c = &chunks[i];
    if (c->partition >= g->partitions || c->head_bytes == 0 || c->head_bytes > BR_MAPFILE_MAX_HEAD_BYTES ||
        c->body_bytes % BR_MAPFILE_ALIGN_BYTES != 0 || c->body_bytes > INT64_MAX / 4 ||
        c->offset < BR_MAPFILE_HEADER_BYTES || c->offset % BR_MAPFILE_ALIGN_BYTES != 0 || c->offset > INT64_MAX / 4 ||
        c->rows > INT64_MAX)
      return wrong(g, "a chunk", err);
  }
  return BR_OK;
}

static void append_chunks(chunk_list *l, const br_chunk *chunks, size_t n) {
  for (size_t i = 0; i < n; i++) {
    br_grow((void **)&l->items, &l->capacity, l->n, sizeof *l->items);
    l->items[l->n++] = chunks[i];
  }
}

static int by_place(const void *x, const void *y) {
  const br_chunk *const *a = x, *const *b = y;
  if ((*a)->partition != (*b)->partition) return (*a)->partition < (*b)->partition ? -1 : 1;
  return (*a)->offset < (*b)->offset ? -1 : (*a)->offset > (*b)->offset;
}

static bool same_but_place(const br_chunk *a, const br_chunk *b) {
  return a->partition == b->partition && a->head_bytes == b->head_bytes && a->body_bytes == b->body_bytes &&
         a->rows == b->rows && a->checksum == b->checksum;
}

/* Pointers to the chunks, sorted; free it. */
static br_chunk **sorted(const chunk_list *l) {
  br_chunk **order = br_calloc(l->n + 1, sizeof *order);
  for (size_t i = 0; i < l->n; i++) order[i] = &l->items[i];
  qsort(order, l->n, sizeof *order, by_place);
  return order;
}

/* The next generation names all chunks of this one: exchange their places. */
static br_status move_on(br_growing *g, br_error *err) {
  br_status status = BR_OK;
  br_chunk **order = sorted(&g->now.chunks);
  for (size_t i = 0; i < g->now.chunks.n && status == BR_OK; i++)
    if (!same_but_place(order[i], &g->next.chunks.items[i])) status = wrong(g, "another chunk at the same place", err);
  if (status == BR_OK) {
    size_t before = g->now.chunks.n;
    for (size_t i = 0; i < before; i++) order[i]->offset = g->next.chunks.items[i].offset;
    append_chunks(&g->now.chunks, g->next.chunks.items + before, g->next.chunks.n - before);
    br_growth_file_unref(g->now.file);
    g->now.file = g->next.file;
    g->now.number = g->next.number;
    g->next.file = NULL;
    generation_free(&g->next);
  }
  free(order);
  return status;
}

/* The generation that p is of, begun if it's new. */
static generation *generation_of(br_growing *g, const br_publication *p) {
  if (g->now.file != NULL && p->generation == g->now.number) return &g->now;
  if (g->next.file != NULL && p->generation == g->next.number) return &g->next;
  generation *fresh = g->now.file == NULL ? &g->now : &g->next;
  if (p->fd < 0 || p->first_chunk != 0 || (g->now.file != NULL && p->generation < g->now.number)) return NULL;
  generation_free(fresh);
  fresh->number = p->generation;
  return fresh;
}

br_status br_growing_add(br_growing *g, const br_publication *p, br_error *err) {
  br_status status = BR_OK;
  br_growth_file *file = p->fd >= 0 ? file_new(g, p->fd, NULL) : NULL;
  if (g->state != BR_GROWING) goto done; /* late: it was dropped meanwhile */
  BR_TRY_GOTO(check_chunks(g, p->chunks, p->n, err));
  generation *of = generation_of(g, p);
  if (of == NULL || p->first_chunk != of->chunks.n || (of->file != NULL) == (file != NULL)) {
    status = wrong(g, "chunks that don't follow those before", err);
    goto done;
  }
  if (file != NULL) {
    of->file = file;
    file = NULL;
    if (g->schema.len == 0) br_buf_add(&g->schema, p->schema, p->schema_bytes);
  }
  append_chunks(&of->chunks, p->chunks, p->n);
  if (of == &g->next) {
    if (of->chunks.n < g->now.chunks.n) goto done;
    BR_TRY_GOTO(move_on(g, err));
  }
  notify(g);
done:
  br_growth_file_unref(file);
  return status;
}

/* ---- the end */
static bool is_whole(br_growing *g, br_mapfile *file) {
  const br_chunk *index;
  size_t n = br_mapfile_index(file, &index);
  if (n != g->now.chunks.n || g->next.file != NULL) return false;
  br_chunk **order = sorted(&g->now.chunks);
  bool same = true;
  for (size_t i = 0; i < n && same; i++) same = memcmp(order[i], &index[i], sizeof *index) == 0;
  free(order);
  return same;
}

br_status br_growing_commit(br_growing *g, br_mapfile *file, br_error *err) {
  if (g->state != BR_GROWING) return BR_OK;
  if (g->now.file == NULL) { /* it was not published: here it is, all at once */
    const br_chunk *index;
    size_t n = br_mapfile_index(file, &index);
    append_chunks(&g->now.chunks, index, n);
  } else if (!is_whole(g, file)) {
    return wrong(g, "what it committed is not what it published", err);
  }
  const void *head;
  size_t bytes;
  br_mapfile_schema(file, &head, &bytes);
  if (g->schema.len == 0) br_buf_add(&g->schema, head, bytes);
  br_growth_file_unref(g->now.file);
  g->now.file = file_new(g, -1, br_mapfile_ref(file));
  g->state = BR_GROWN;
  notify(g);
  return BR_OK;
}

void br_growing_fail(br_growing *g, const br_error *why) {
  if (g->state != BR_GROWING) return;
  g->failure = br_malloc(sizeof *g->failure);
  *g->failure = *why;
  g->state = BR_GROWING_FAILED;
  generation_free(&g->now);
  generation_free(&g->next);
  br_buf_free(&g->schema);
  notify(g);
}

/* ---- what there is */
bool br_growing_ended(const br_growing *g) { return g->state != BR_GROWING; }
br_growing_state br_growing_state_of(const br_growing *g) { return g->state; }
uint32_t br_growing_partitions(const br_growing *g) { return g->partitions; }
const br_error *br_growing_error(const br_growing *g) { return g->failure; }
br_growth_file *br_growing_file(const br_growing *g) { return g->now.file; }

size_t br_growing_chunks(const br_growing *g, const br_chunk **chunks) {
  *chunks = g->now.chunks.items;
  return g->now.chunks.n;
}

bool br_growing_schema(const br_growing *g, const void **head, size_t *bytes) {
  *head = g->schema.data;
  *bytes = g->schema.len;
  return g->schema.len > 0;
}
