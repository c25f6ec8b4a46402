/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_bench [ROWS [CODEC|all [P...]]]: what the shuffle's hot path costs, without DuckDB and without I/O.
 *   Rows of about 74 bytes (4 int64, 2 decimal64, 2 dates, 3 strings) in blocks of 2,048 go to P partitions; a partition is
 *   encoded when it holds 1 MiB,
 *   or its part of SCATTER_BUFFER_BYTES. Prints GB of rows per second and CPU seconds per GB for scatter, encode and decode.
 *   Build it with: ninja scatter_bench. Default: 30,000,000 rows, P = 1 8 64 512.
 */
#include "arrow/columns.h"
#include "arrow/ipc_check.h"
#include "arrow/gather.h"
#include "base/mem.h"
#include "base/util.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ROWS 2048
#define GATHER_FROM_PARTITIONS 256 /* rows of several blocks are scattered at once, as in shuffle/writer.c */
#define BLOCKS 16                  /* distinct blocks, used in turns: about 2 MiB, as if just made by an engine */
#define CHUNK_BYTES (1u << 20)
#define SCATTER_BUFFER_BYTES (192u << 20) /* of all partitions: many of them are encoded earlier */
#define KEEP_MESSAGES 64                  /* encoded messages kept to time decoding */
#define COLUMNS 11

static const char *const formats[COLUMNS] = {"l", "l", "l", "l", "d:15,2,64", "d:15,2,64", "tdD", "tdD", "u", "u", "u"};
static br_error err;

static void must(br_status s) {
  if (s == BR_OK) return;
  fprintf(stderr, "scatter_bench: %s\n", err.message);
  exit(1);
}

typedef struct string {
  uint32_t length;
  char inlined[12];
} string;

typedef struct source {
  br_vec vecs[BLOCKS][COLUMNS];
  uint32_t *random; /* [BLOCKS * BLOCK_ROWS] */
  double row_bytes;
} source;

static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void make_string(br_arena *a, int column, string *s) {
  static const char *const words[] = {"carefully", "final", "deposits", "sleep",  "furiously",
                                      "quick",     "the",   "pending",  "ironic", "x"};
  char text[64] = "";
  if (column == 8) snprintf(text, sizeof text, "%c", "ANR"[next() % 3]);
  if (column == 9) snprintf(text, sizeof text, "%s", words[next() % 10]);
  if (column == 10) snprintf(text, sizeof text, "%s %s", words[next() % 10], words[next() % 10]);
  s->length = (uint32_t)strlen(text);
  if (s->length <= 12) {
    memcpy(s->inlined, text, s->length);
    return;
  }
  char *p = br_arena_strdup(a, text);
  memcpy(s->inlined, p, 4);
  memcpy(s->inlined + 4, &p, sizeof p);
}

static void make_source(br_arena *a, source *s) {
  uint64_t text = 0;
  for (int b = 0; b < BLOCKS; b++) {
    for (int k = 0; k < COLUMNS; k++) {
      br_vec *v = &s->vecs[b][k];
      *v = (br_vec){.kind = k < 8 ? BR_VEC_FIXED : BR_VEC_STRING, .width = k < 6 ? 8 : 4};
      size_t width = k < 8 ? v->width : sizeof(string);
      char *p = br_arena_alloc(a, BLOCK_ROWS * width);
      v->data = p;
      for (int i = 0; i < BLOCK_ROWS; i++) {
        uint64_t x = k < 4 ? next() % 6000000 : k < 6 ? next() % 10000000 : 8000 + next() % 2500;
        if (k < 8) memcpy(p + width * (size_t)i, &x, width);
        if (k >= 8) make_string(a, k, (string *)p + i), text += ((string *)p)[i].length;
      }
    }
  }
  s->random = br_arena_alloc(a, BLOCKS * BLOCK_ROWS * sizeof *s->random);
  for (int i = 0; i < BLOCKS * BLOCK_ROWS; i++) s->random[i] = (uint32_t)next();
  s->row_bytes = 6 * 8 + 2 * 4 + (double)text / (BLOCKS * BLOCK_ROWS);
}

static br_schema *make_schema(void) {
  struct ArrowSchema root;
  br_schema *out;
  ArrowSchemaInit(&root);
  BR_ASSERT(ArrowSchemaSetTypeStruct(&root, COLUMNS) == 0);
  for (int k = 0; k < COLUMNS; k++) {
    BR_ASSERT(ArrowSchemaSetFormat(root.children[k], formats[k]) == 0);
    BR_ASSERT(ArrowSchemaSetName(root.children[k], "c") == 0);
  }
  must(br_schema_new(&root, &out, &err));
  return out;
}

typedef struct kept {
  br_buf head[KEEP_MESSAGES], body[KEEP_MESSAGES];
  int n;
} kept;

typedef struct times {
  double scatter, encode;
  uint64_t out_bytes, messages, peak_reserved;
} times;

static void flush(br_colset *c, br_codec codec, kept *k, times *t, br_buf *head, br_buf *body) {
  double from = br_cpu_seconds();
  bool keep = k->n < KEEP_MESSAGES;
  br_buf *h = keep ? &k->head[k->n] : head, *b = keep ? &k->body[k->n] : body;
  br_buf_clear(h);
  br_buf_clear(b);
  must(br_colset_encode(c, codec, h, b, false, &err));
  k->n += keep;
  t->out_bytes += h->len + b->len;
  t->messages++;
  t->encode += br_cpu_seconds() - from;
}

static times run(const source *s, br_schema *schema, uint64_t rows, uint32_t n_parts, br_codec codec, kept *k) {
  times t = {0};
  br_colset **parts = br_calloc(n_parts, sizeof *parts);
  uint32_t part_of[BR_GATHER_ROWS];
  br_gather *gather = n_parts >= GATHER_FROM_PARTITIONS ? br_gather_new(s->vecs[0], COLUMNS, 8u << 20) : NULL;
  br_buf head = {0}, body = {0};
  uint64_t chunk = SCATTER_BUFFER_BYTES / n_parts < CHUNK_BYTES ? SCATTER_BUFFER_BYTES / n_parts : CHUNK_BYTES;
  for (uint32_t p = 0; p < n_parts; p++) must(br_colset_new(schema, &parts[p], &err));
  double from = br_cpu_seconds();
  for (uint64_t done = 0; done < rows; done += BLOCK_ROWS) {
    uint64_t block = done / BLOCK_ROWS;
    const uint32_t *random = s->random + block % BLOCKS * BLOCK_ROWS;
    uint32_t turn = (uint32_t)(block / BLOCKS) * 2654435761u, *part = part_of + (gather ? br_gather_rows(gather) : 0);
    for (int i = 0; i < BLOCK_ROWS; i++) part[i] = (uint32_t)((uint64_t)(random[i] ^ turn) * n_parts >> 32);
    const br_vec *columns = s->vecs[block % BLOCKS];
    uint32_t n = BLOCK_ROWS;
    if (gather != NULL) { /* as the shuffle's writer does it */
      must(br_gather_add(gather, columns, n) ? BR_OK : BR_INTERNAL);
      if (done + n < rows && br_gather_rows(gather) < BR_GATHER_ROWS) continue;
      columns = br_gather_columns(gather);
      n = br_gather_rows(gather);
    }
    must(br_colset_scatter(parts, n_parts, columns, part_of, n, &err));
    if (gather != NULL) br_gather_clear(gather);
    for (uint32_t p = 0; p < n_parts; p++)
      if (br_colset_bytes(parts[p]) >= chunk) flush(parts[p], codec, k, &t, &head, &body);
  }
  for (uint32_t p = 0; p < n_parts; p++) t.peak_reserved += br_colset_reserved(parts[p]);
  for (uint32_t p = 0; p < n_parts; p++) flush(parts[p], codec, k, &t, &head, &body);
  t.scatter = br_cpu_seconds() - from - t.encode;
  for (uint32_t p = 0; p < n_parts; p++) br_colset_free(parts[p]);
  free(parts);
  br_gather_free(gather);
  br_buf_free(&head);
  br_buf_free(&body);
  return t;
}

static void decode(br_schema *schema, kept *k, double row_bytes, const char *codec) {
  uint64_t rows = 0;
  double from = br_cpu_seconds(), seconds = 0;
  while (seconds < 1) {
    for (int i = 0; i < k->n; i++) {
      br_batch *b;
      must(br_ipc_decode_batch(schema, k->head[i].data, k->head[i].len,
                               (br_ipc_body){k->body[i].data, k->body[i].len, NULL, NULL}, &b, &err));
      rows += (uint64_t)br_batch_rows(b);
      br_batch_unref(b);
    }
    seconds = br_cpu_seconds() - from;
  }
  double gb = (double)rows * row_bytes / 1e9;
  printf("decode %-5s %7.2f GB/s  %.3f CPU s/GB\n", codec, gb / seconds, seconds / gb);
}

static void check_cost(void) {
  enum { N = 1 << 20, ROUNDS = 100 };
  int32_t *offsets = br_malloc((N + 1) * sizeof *offsets);
  uint8_t *text = br_malloc(10 * N);
  for (int i = 0; i <= N; i++) offsets[i] = 10 * i;
  memset(text, 'a', 10 * N);
  double from = br_cpu_seconds();
  bool good = true;
  for (int i = 0; i < ROUNDS; i++) good &= br_check_offsets32(offsets, N, 10 * N);
  double middle = br_cpu_seconds();
  for (int i = 0; i < ROUNDS; i++) good &= br_check_utf8_32(text, offsets, N, NULL);
  double end = br_cpu_seconds();
  for (int i = 0; i + 2 < 10 * N; i += 10) memcpy(text + i, "\xe2\x82\xac", 3);
  for (int i = 0; i < ROUNDS / 10; i++) good &= br_check_utf8_32(text, offsets, N, NULL);
  double slow = br_cpu_seconds();
  BR_ASSERT(good);
  printf("checks: offsets %.1f GB/s, ASCII text %.1f GB/s, other UTF-8 %.2f GB/s\n",
         4e-9 * N * ROUNDS / (middle - from), 10e-9 * N * ROUNDS / (end - middle), 1e-9 * N * ROUNDS / (slow - end));
  free(offsets);
  free(text);
}

int main(int argc, char **argv) {
  uint64_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 30000000;
  static const char *const usual[] = {"1", "8", "64", "512"};
  const char *only = argc > 2 && strcmp(argv[2], "all") != 0 ? argv[2] : NULL;
  const char *const *parts = argc > 3 ? (const char *const *)argv + 3 : usual;
  int n = argc > 3 ? argc - 3 : 4;
  br_arena *a = br_arena_new();
  source *s = br_calloc(1, sizeof *s);
  make_source(a, s);
  br_schema *schema = make_schema();
  double gb = (double)rows * s->row_bytes / 1e9;
  printf("%llu rows of %.1f bytes: %.2f GB\n", (unsigned long long)rows, s->row_bytes, gb);
  for (br_codec codec = BR_CODEC_NONE; codec <= BR_CODEC_ZSTD; codec++) {
    if (only != NULL && strcmp(only, br_codec_name(codec)) != 0) continue;
    kept *k = br_calloc(1, sizeof *k);
    for (int i = 0; i < n; i++) {
      uint32_t p = (uint32_t)strtoul(parts[i], NULL, 10);
      if (codec == BR_CODEC_ZSTD && i > 0 && only == NULL) continue; /* the same as lz4 but for the codec */
      times t = run(s, schema, rows, p, codec, k);
      printf(
          "P=%-4u %-5s scatter %5.2f GB/s %.3f CPU s/GB   encode %5.2f GB/s %.3f CPU s/GB   ratio %.2f, %llu messages, "
          "%llu MiB reserved\n",
          p, br_codec_name(codec), gb / t.scatter, t.scatter / gb, gb / t.encode, t.encode / gb,
          gb * 1e9 / (double)t.out_bytes, (unsigned long long)t.messages, (unsigned long long)(t.peak_reserved >> 20));
      fflush(stdout);
    }
    decode(schema, k, s->row_bytes, br_codec_name(codec));
    for (int i = 0; i < k->n; i++) br_buf_free(&k->head[i]), br_buf_free(&k->body[i]);
    free(k);
  }
  check_cost();
  br_schema_unref(schema);
  br_arena_free(a);
  free(s);
  return 0;
}
