/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one SQL text on local workers and prints the rows of its first column, through the C API alone.
 *
 *   build/example-query "select r_name from 'build/data/tpch-1/region/region.1.parquet' order by 1"
 *
 * The column must be VARCHAR: the example walks the Arrow buffers by hand (offsets, then bytes) to show the layout.
 */
#include <brant.h>
#include <stdio.h>
#include <string.h>

static int failed(const brant_error *err) {
  fprintf(stderr, "error: %s\n", err->message);
  return 1;
}

static void print_strings(const struct ArrowArray *column) {
  const uint8_t *valid = column->buffers[0];
  const int32_t *offsets = column->buffers[1];
  const char *bytes = column->buffers[2];
  for (int64_t i = column->offset; i < column->offset + column->length; i++) {
    if (valid != NULL && (valid[i / 8] >> (i % 8) & 1) == 0)
      puts("NULL");
    else
      printf("%.*s\n", (int)(offsets[i + 1] - offsets[i]), bytes + offsets[i]);
  }
}

/* Reads the stream to its end. */
static int print_rows(struct ArrowArrayStream *stream) {
  struct ArrowSchema schema;
  struct ArrowArray batch;
  int rc = stream->get_schema(stream, &schema);
  if (rc != 0 || schema.n_children < 1 || strcmp(schema.children[0]->format, "u") != 0) {
    fprintf(stderr, "error: the first column must be VARCHAR\n");
    if (rc == 0) schema.release(&schema);
    return 1;
  }
  schema.release(&schema);
  while ((rc = stream->get_next(stream, &batch)) == 0 && batch.release != NULL) {
    print_strings(batch.children[0]);
    batch.release(&batch);
  }
  if (rc != 0) fprintf(stderr, "error: %s\n", stream->get_last_error(stream));
  return rc != 0;
}

int main(int argc, char **argv) {
  brant_options options = BRANT_OPTIONS_INIT;
  brant_session *session = NULL;
  brant_query *query = NULL;
  brant_error err;
  struct ArrowArrayStream stream;
  options.workers = 2;
  options.distribute = BRANT_DISTRIBUTE_ALWAYS;
  if (brant_open(&options, &session, &err) != 0) return failed(&err);
  int rc = brant_submit(session, argc > 1 ? argv[1] : "select 'hello' as greeting", &query, &err);
  if (rc == 0) rc = brant_query_stream(query, &stream, &err);
  if (rc != 0) {
    failed(&err);
  } else {
    rc = print_rows(&stream);
    stream.release(&stream);
  }
  brant_query_free(query);
  brant_close(session);
  return rc != 0;
}
