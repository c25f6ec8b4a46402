/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: parse the format strings of an Arrow schema into br_layout.
 * Order of calls: br_layout_parse once (in br_schema_new), any number of reads, br_layout_free.
 * Threads: immutable after the parse.
 * Bounds: BR_SCHEMA_MAX_DEPTH levels, BR_SCHEMA_MAX_NODES fields.
 */
#include "arrow/layout.h"
#include "base/mem.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *br_lay_name(const br_lay_node *n) {
  return n->schema != NULL && n->schema->name != NULL ? n->schema->name : "";
}

static void refuse(br_layout *l, const struct ArrowSchema *s, const char *why) {
  if (l->unsupported != NULL) return;
  l->unsupported =
      br_asprintf("column '%.200s' has Arrow format '%.100s': %s", s->name != NULL ? s->name : "", s->format, why);
}

/* A decimal integer in [0, INT32_MAX] that ends at `end`; advances *p. */
static bool parse_int(const char **p, char end, uint32_t *out) {
  if (**p < '0' || **p > '9') return false;
  errno = 0;
  char *stop;
  unsigned long v = strtoul(*p, &stop, 10);
  if (errno != 0 || v > INT32_MAX || *stop != end) return false;
  *out = (uint32_t)v;
  *p = end == '\0' ? stop : stop + 1;
  return true;
}

/* "d:precision,scale[,bits]"; the scale may be negative. */
static bool parse_decimal(const char *f, uint32_t *width) {
  uint32_t precision, bits = 128;
  const char *p = f + 2;
  if (!parse_int(&p, ',', &precision)) return false;
  if (*p == '-') p++;
  const char *comma = strchr(p, ',');
  uint32_t scale;
  if (!parse_int(&p, comma != NULL ? ',' : '\0', &scale)) return false;
  if (comma != NULL && !parse_int(&p, '\0', &bits)) return false;
  *width = bits / 8;
  return bits == 32 || bits == 64 || bits == 128 || bits == 256;
}

/* "+us:0,1,2" or "+ud:..." with one id in 0..127 a child, no id twice. */
static bool parse_type_ids(const struct ArrowSchema *s, br_lay_node *n) {
  uint8_t seen[128] = {0};
  int8_t *ids = br_malloc(n->n_children + 1);
  n->type_ids = ids;
  const char *p = s->format + 4;
  for (uint32_t i = 0; i < n->n_children; i++) {
    uint32_t id;
    if (!parse_int(&p, i + 1 < n->n_children ? ',' : '\0', &id) || id > 127 || seen[id]) return false;
    seen[id] = 1;
    ids[i] = (int8_t)id;
  }
  return *p == '\0';
}

static uint32_t simple_width(const char *f) {
  static const struct {
    const char *format;
    uint32_t width;
  } table[] = {{"c", 1},   {"C", 1},   {"s", 2},   {"S", 2},   {"i", 4},   {"I", 4},   {"l", 8},   {"L", 8},
               {"e", 2},   {"f", 4},   {"g", 8},   {"tdD", 4}, {"tdm", 8}, {"tts", 4}, {"ttm", 4}, {"ttu", 8},
               {"ttn", 8}, {"tDs", 8}, {"tDm", 8}, {"tDu", 8}, {"tDn", 8}, {"tiM", 4}, {"tiD", 8}, {"tin", 16}};
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (strcmp(f, table[i].format) == 0) return table[i].width;
  bool timestamp = f[0] == 't' && f[1] == 's' && f[2] != '\0' && strchr("smun", f[2]) != NULL && f[3] == ':';
  return timestamp ? 8 : 0;
}

static bool parse_leaf(const char *f, br_lay_node *n) {
  n->n_buffers = 2;
  n->kind = BR_LAY_FIXED;
  n->width = simple_width(f);
  if (n->width != 0) return true;
  if (f[0] == 'd' && f[1] == ':') return parse_decimal(f, &n->width);
  if (f[0] == 'w' && f[1] == ':') {
    const char *p = f + 2;
    return parse_int(&p, '\0', &n->width);
  }
  if (f[0] == '\0' || f[1] != '\0') return false;
  switch (f[0]) {
    case 'n':
      n->kind = BR_LAY_NULL;
      n->n_buffers = 0;
      return true;
    case 'b': n->kind = BR_LAY_BOOL; return true;
    case 'u':
    case 'z':
    case 'U':
    case 'Z':
      n->kind = BR_LAY_BYTES;
      n->utf8 = f[0] == 'u' || f[0] == 'U';
      n->wide = f[0] == 'U' || f[0] == 'Z';
      n->n_buffers = 3;
      return true;
    default: return false;
  }
}

/* Fill n from s; false: not a format of ours, or the wrong number of children for it. */
static bool parse_node(const struct ArrowSchema *s, br_lay_node *n) {
  const char *f = s->format;
  if (f[0] != '+') return parse_leaf(f, n) && n->n_children == 0;
  n->n_buffers = 1;
  if (strcmp(f, "+s") == 0) {
    n->kind = BR_LAY_STRUCT;
    return true;
  }
  if (strcmp(f, "+l") == 0 || strcmp(f, "+L") == 0 || strcmp(f, "+m") == 0) {
    n->kind = BR_LAY_LIST;
    n->wide = f[1] == 'L';
    n->map = f[1] == 'm';
    n->n_buffers = 2;
    if (n->n_children != 1) return false;
    return !n->map || (strcmp(s->children[0]->format, "+s") == 0 && s->children[0]->n_children == 2);
  }
  if (strncmp(f, "+w:", 3) == 0) {
    const char *p = f + 3;
    n->kind = BR_LAY_ARRAY;
    return parse_int(&p, '\0', &n->width) && n->n_children == 1;
  }
  if (strncmp(f, "+us:", 4) == 0 || strncmp(f, "+ud:", 4) == 0) {
    n->kind = f[2] == 's' ? BR_LAY_SPARSE : BR_LAY_DENSE;
    n->n_buffers = f[2] == 's' ? 1 : 2;
    return n->n_children <= 128 && parse_type_ids(s, n);
  }
  return false;
}

static br_status count_nodes(const struct ArrowSchema *s, int depth, size_t *count, br_error *err) {
  if (s == NULL || s->format == NULL || s->n_children < 0 || (s->n_children > 0 && s->children == NULL))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "not an Arrow schema: a field has no format or no children array");
  if (depth > BR_SCHEMA_MAX_DEPTH)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "schema is nested deeper than %d levels", BR_SCHEMA_MAX_DEPTH);
  if (++*count > BR_SCHEMA_MAX_NODES)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "schema has more than %d fields", BR_SCHEMA_MAX_NODES);
  for (int64_t i = 0; i < s->n_children; i++) BR_TRY(count_nodes(s->children[i], depth + 1, count, err));
  return BR_OK;
}

static bool is_uuid(const struct ArrowSchema *s) {
  if (s->metadata == NULL) return false;
  struct ArrowStringView v = {NULL, 0};
  if (ArrowMetadataGetValue(s->metadata, ArrowCharView("ARROW:extension:name"), &v) != NANOARROW_OK) return false;
  return v.data != NULL && v.size_bytes == 10 && memcmp(v.data, "arrow.uuid", 10) == 0;
}

static void fill(br_layout *l, const struct ArrowSchema *s) {
  br_lay_node *n = &l->nodes[l->n_nodes++];
  n->schema = s;
  n->n_children = (uint32_t)s->n_children;
  if (s->dictionary != NULL)
    refuse(l, s, "dictionary encoding (an enum) isn't supported here: cast the column to VARCHAR");
  else if (!parse_node(s, n))
    refuse(l, s, "this version doesn't know that type: cast the column");
  n->uuid = n->kind == BR_LAY_FIXED && n->width == 16 && is_uuid(s);
  n->first_buffer = (uint32_t)l->n_buffers;
  if (n != l->nodes) l->n_buffers += n->n_buffers;
  for (int64_t i = 0; i < s->n_children; i++) fill(l, s->children[i]);
  n->next = (uint32_t)l->n_nodes;
}

br_status br_layout_parse(const struct ArrowSchema *schema, br_layout *out, br_error *err) {
  *out = (br_layout){0};
  size_t count = 0;
  BR_TRY(count_nodes(schema, 0, &count, err));
  if (strcmp(schema->format, "+s") != 0)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "the Arrow schema of a table is a struct ('+s'), not '%.100s'",
                   schema->format);
  out->nodes = br_calloc(count, sizeof *out->nodes);
  fill(out, schema);
  BR_ASSERT(out->n_nodes == count);
  return BR_OK;
}

void br_layout_free(br_layout *l) {
  for (size_t i = 0; i < l->n_nodes; i++) free((void *)l->nodes[i].type_ids);
  free(l->nodes);
  free(l->unsupported);
  *l = (br_layout){0};
}

br_status br_layout_check(const br_layout *l, br_error *err) {
  if (l->unsupported == NULL) return BR_OK;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "%s", l->unsupported);
}
