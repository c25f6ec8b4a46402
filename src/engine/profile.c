/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile of the statement just executed, as JSON: {"metrics": {name: text}, "children": [...]}, DuckDB's own metric names.
 * And what its topmost grouping read and made.
 * Order: after the statement, before the next one. Threads: the session's user. Bounds: nesting of MAX_DEPTH.
 */
#include "engine/internal.h"
#include <string.h>

enum { MAX_DEPTH = 256 };

static void json_string(br_buf *out, const char *s) {
  br_buf_char(out, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      br_buf_char(out, '\\'), br_buf_char(out, (char)c);
    else if (c < 0x20)
      br_buf_printf(out, "\\u%04x", c);
    else
      br_buf_char(out, (char)c);
  }
  br_buf_char(out, '"');
}

static void metrics(duckdb_profiling_info info, br_buf *out) {
  duckdb_value map = duckdb_profiling_info_get_metrics(info);
  idx_t n = map ? duckdb_get_map_size(map) : 0;
  br_buf_char(out, '{');
  for (idx_t i = 0; i < n; i++) {
    duckdb_value key = duckdb_get_map_key(map, i), value = duckdb_get_map_value(map, i);
    char *k = duckdb_get_varchar(key), *v = duckdb_get_varchar(value);
    if (i) br_buf_char(out, ',');
    json_string(out, k ? k : "");
    br_buf_char(out, ':');
    json_string(out, v ? v : "");
    duckdb_free(k);
    duckdb_free(v);
    duckdb_destroy_value(&key);
    duckdb_destroy_value(&value);
  }
  br_buf_char(out, '}');
  if (map) duckdb_destroy_value(&map);
}

static void tree(duckdb_profiling_info info, int depth, br_buf *out) {
  br_buf_str(out, "{\"metrics\":");
  metrics(info, out);
  br_buf_str(out, ",\"children\":[");
  idx_t n = depth < MAX_DEPTH ? duckdb_profiling_info_get_child_count(info) : 0;
  for (idx_t i = 0; i < n; i++) {
    if (i) br_buf_char(out, ',');
    tree(duckdb_profiling_info_get_child(info, i), depth + 1, out);
  }
  br_buf_str(out, "]}");
}

static uint64_t metric(duckdb_profiling_info info, const char *name) {
  duckdb_value v = duckdb_profiling_info_get_value(info, name);
  if (!v) return 0;
  char *text = duckdb_get_varchar(v);
  uint64_t n = text ? strtoull(text, NULL, 10) : 0;
  duckdb_free(text);
  duckdb_destroy_value(&v);
  return n;
}

static bool is_grouping(duckdb_profiling_info info) {
  duckdb_value v = duckdb_profiling_info_get_value(info, "OPERATOR_TYPE");
  if (!v) return false;
  char *name = duckdb_get_varchar(v);
  bool found = name && strstr(name, "GROUP_BY") != NULL;
  duckdb_free(name);
  duckdb_destroy_value(&v);
  return found;
}

void br_profile_groups(br_session *s, br_run_stats *stats) {
  duckdb_profiling_info at = duckdb_get_profiling_info(s->con);
  for (int depth = 0; at && depth < MAX_DEPTH; depth++) {
    bool found = is_grouping(at);
    duckdb_profiling_info below =
        duckdb_profiling_info_get_child_count(at) == 1 ? duckdb_profiling_info_get_child(at, 0) : NULL;
    if (found && below) {
      stats->groups = metric(at, "OPERATOR_CARDINALITY");
      stats->grouped_rows = metric(below, "OPERATOR_CARDINALITY");
    }
    at = found ? NULL : below;
  }
}

char *br_profile_json(br_session *s, br_run_stats *stats) {
  duckdb_profiling_info info = duckdb_get_profiling_info(s->con);
  if (!info) return NULL;
  br_buf out = {0};
  tree(info, 0, &out);
  stats->peak_memory_bytes = metric(info, "SYSTEM_PEAK_BUFFER_MEMORY");
  stats->spill_bytes = metric(info, "SYSTEM_PEAK_TEMP_DIR_SIZE");
  return br_buf_take(&out);
}
