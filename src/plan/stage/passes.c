/* SPDX-License-Identifier: Apache-2.0
 *
 * A task in passes: its SQL k times, each over the rows of its hash inputs whose keys fall into part i of k. Finer hash
 * partitions are as right as the task's own, as long as equal keys of all inputs stay together: so the parts are cut by
 * those keys that every hash input can compute from what is stored, in the same type. A join in place (fold.c) is cut by the same keys: of
 * the rows that its text makes, once a pass, and of the sides that it reads whole.
 *
 * Order of calls: br_stage_splittable, then br_stage_pass_sql for each pass. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

static bool word_char(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t br_stage_piece(const char *sql, const char *at, int64_t *input) {
  *input = -1;
  if (*at == '\'' || *at == '"') {
    const char *s = at + 1;
    while (*s) {
      if (*s++ != *at) continue;
      if (*s != *at) break;
      s++;
    }
    return (size_t)(s - at);
  }
  if (strncmp(at, "input(", 6) || (at > sql && word_char(at[-1]))) return 1;
  char *end;
  unsigned long n = strtoul(at + 6, &end, 10);
  if (end == at + 6 || *end != ')') return 1;
  *input = (int64_t)n;
  return (size_t)(end + 1 - at);
}

/* Do passes take a part of its rows? All HASH inputs; of a join in place the sides that were, and are read whole now. */
static bool in_parts(const br_stage *s, const br_stage_input *in) {
  return s->pass_keys ? in->kind == BR_EX_BROADCAST && in->n_keys > 0 : in->kind == BR_EX_HASH;
}

/* Is key k stored by every input that is read in parts, as the same type? */
static bool common_key(const br_stage *s, size_t k) {
  const br_split_key *first = s->pass_keys && k < s->n_pass_keys ? &s->pass_keys[k] : NULL;
  if (s->pass_keys && (!first || !first->text)) return false;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_input *in = &s->inputs[i];
    if (!in_parts(s, in)) continue;
    if (k >= in->n_keys || !in->keys[k].text) return false;
    if (first && strcmp(first->hashed_as, in->keys[k].hashed_as) != 0) return false;
    first = &in->keys[k];
  }
  return first != NULL;
}

bool br_stage_splittable(const br_stage *s) {
  size_t n_keys = 0;
  bool any = false;
  if (s->pass_keys) return true; /* it was before it became one */
  if (s->rule != BR_TASKS_PARTITIONS || s->ordered_output || s->n_steps || br_stage_numbers_rows(s)) return false;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_input *in = &s->inputs[i];
    if (in->kind == BR_EX_BROADCAST || in->kind == BR_EX_BOUNDS || br_exchange_helps(in->kind)) continue;
    if (in->kind != BR_EX_HASH || in->ordered) return false;
    if (any && in->n_keys != n_keys) return false;
    n_keys = in->n_keys;
    any = true;
  }
  for (size_t k = 0; any && k < n_keys; k++)
    if (common_key(s, k)) return true;
  return false;
}

/* A condition on alias t. */
static void add_part(const br_stage *s, const br_split_key *keys, size_t n, uint32_t passes, uint32_t pass, br_buf *b) {
  br_buf_str(b, "WHERE hash(");
  for (size_t k = 0; k < n; k++)
    if (common_key(s, k)) br_buf_printf(b, "%s, ", keys[k].text);
  br_buf_printf(b, "%s) %% %u = %u", BR_HASH_SEED_SPLIT, passes, pass);
}

char *br_stage_pass_sql(br_arena *arena, const br_stage *s, const char *sql, uint32_t passes, uint32_t pass) {
  br_buf b = {0};
  for (const char *at = sql; *at;) {
    int64_t number;
    size_t n = br_stage_piece(sql, at, &number);
    const br_stage_input *in = number >= 0 && (size_t)number < s->n_inputs ? &s->inputs[number] : NULL;
    if (in && in_parts(s, in)) {
      br_buf_printf(&b, "(SELECT t.* FROM input(%u) t ", in->number);
      add_part(s, in->keys, in->n_keys, passes, pass, &b);
      br_buf_char(&b, ')');
    } else if (s->pass_keys && !strncmp(at, BR_PASS_HERE, strlen(BR_PASS_HERE))) {
      add_part(s, s->pass_keys, s->n_pass_keys, passes, pass, &b);
      n = strlen(BR_PASS_HERE);
    } else {
      br_buf_add(&b, at, n);
    }
    at += n;
  }
  char *text = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}
