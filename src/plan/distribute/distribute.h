/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to plan/distribute. The walk goes bottom-up; each node's result is a br_drel: a relation inside one or more
 * stages under construction. Several branches are the parts of a UNION ALL whose rows have not moved yet: work that needs
 * one row at a time (or that is finished later, like a partial aggregate) is put on every branch, an exchange closes them
 * all, and nothing has to copy rows just to bring them together.
 *
 * A br_drel is used once: who takes it owns its stages. What is read twice (a CTE, the side of a DELIM_JOIN) is closed as a
 * br_shared and read as often as needed.
 */
#ifndef BRANT_PLAN_DISTRIBUTE_H
#define BRANT_PLAN_DISTRIBUTE_H

#include "base/map.h"
#include "plan/access.h"
#include "plan/stage/stage.h"

typedef enum br_rule {
  BR_RULE_NONE, /* constants and broadcast inputs: every task of a stage has all the rows */
  BR_RULE_SPLITS,
  BR_RULE_PARTITIONS, /* task i reads partition i of its hash or range inputs */
  BR_RULE_FORWARD,
  BR_RULE_ONE
} br_rule;

/* A stage under construction. Inputs and scans have numbers that are unique in the query until the stage is closed. */
typedef struct br_open {
  br_rule rule;
  br_stage_input *inputs;
  size_t n_inputs, cap_inputs;
  br_stage_scan *scans;
  size_t n_scans, cap_scans;
  int split_scan;
  br_stage_step *steps; /* in the order of their making: a step reads earlier ones only */
  size_t n_steps, cap_steps;
  bool indeterminate;
  bool chance;          /* by what this stage itself does, not only by what it reads */
  bool heavy;           /* its text may make many rows of few */
  uint32_t batch_rows;  /* into_batches() */
  uint64_t enough_rows; /* as in br_stage: its rows only go to a limit */
  uint32_t enough_of;
  const char *row_columns; /* as in br_stage: of the partial step that is its last one */
  const char *rows_sql;    /* the text that this holds for; in any other one the step is not the last */
  /* All rows come from one HASH input: the values of its hash key k are column key_at[k] of that producer's output (-1: not
   * stored). What happens in this stage can only take values away. */
  uint32_t key_producer;
  int64_t *key_at;
  size_t n_key_at;    /* 0: not so */
  uint32_t key_bytes; /* of those that are stored, in a row; 0: some have no fixed size */
  const char *
      sides_of; /* the text that `side` of the inputs holds for: any other one that was not said to keep them has none */
  const char *reason; /* why one task */
  const char *label;
  const char *why;
} br_open;

typedef struct br_branch {
  br_open *open;
  const char *sql;
  int64_t plain_read; /* the text is nothing but a FORWARD read of this stage; -1: it is more */
  const bool *layout; /* of a plain read: which columns that stage stores */
  uint32_t source;    /* of a plain read: what is read, and by whom (nodes' ids + 1); 0: not asked for by name */
  uint32_t reader;
} br_branch;

/* One key of a hash clustering: the output columns that hold its value, and the type it was hashed as. */
#define BR_KEY_COLUMNS 4
typedef struct br_dkey {
  uint32_t columns[BR_KEY_COLUMNS];
  uint32_t n;
  const char *hashed_as;
} br_dkey;

/* One key of a range clustering. */
typedef struct br_drange {
  uint32_t column;
  bool down, nulls_first;
} br_drange;

typedef struct br_drel {
  br_branch *branches;
  size_t n_branches;
  size_t n_columns;
  const br_bind *binds;
  json_t *const *types;
  const bool *needed;             /* [n_columns] columns that something above reads, at least one; NULL: all */
  br_dkey *keys;                  /* rows that agree in all of them are in one task */
  size_t n_keys;                  /* 0: no hash clustering */
  const br_sorted_column *sorted; /* not NULL: keys is one key, and tasks are ranges of its values; of one branch */
  bool aligned;      /* the task's number is hash(keys) % partitions: it can meet another such relation in one stage */
  bool ordered;      /* rows are in the order of an ORDER BY, task after task */
  br_drange *ranges; /* rows of task i don't come behind those of task i + 1 by these */
  size_t n_ranges;
  bool peers_together; /* rows that agree in all of the ranges' keys are in one task */
  double rows, bytes;
} br_drel;

/* Closed stages with FORWARD output, and what reading them gives. */
typedef struct br_shared {
  bool is_inline; /* not closed: `rel` goes to its only reader, or is a constant that is printed at each */
  br_drel rel;
  uint32_t *producers;
  const bool **layouts; /* which columns each producer stores */
  bool *one;
  size_t n_producers;
  uint32_t source; /* 1 + the id of the node that defines it; 0: none */
} br_shared;

/* A reader of something shared wants it hashed by these keys. When another wants the same, one exchange serves both. A weak wish
 * is one that would move less by itself (partial results), and only joins in. */
typedef struct br_wish {
  uint32_t source, reader, partitions;
  const char *keys;
  bool weak;
} br_wish;

typedef struct br_dist {
  br_arena *arena; /* of the result */
  const br_plan *plan;
  const br_distribute_options *o;
  br_emit *emit;
  br_stages *out;
  size_t cap_stages;
  uint32_t next_number;
  br_open *scanning; /* where the scan that is being printed belongs */
  bool scanning_whole;
  bool **needs;    /* [node id][column], needs.c */
  br_map *shared;  /* node id -> br_shared */
  br_wish *wishes; /* of this walk, and of the walk before it */
  size_t n_wishes, cap_wishes;
  const br_wish *known_wishes;
  size_t n_known_wishes;
  const br_node *region; /* one-task region that is being printed, with ids below region_end */
  uint32_t region_end;
  br_map *given;             /* node id -> text that stands for this subtree of the region */
  br_status callback_status; /* a failure inside an emitter's callback, which can't return one */
  br_error callback_error;
} br_dist;

/* ---- build.c: stages under construction */
void *br_grown(br_dist *d, void *items, size_t *cap, size_t count, size_t item_bytes);
br_open *br_open_new(br_dist *d, br_rule rule);
uint32_t br_open_input(br_dist *d, br_open *o, uint32_t producer, br_exchange_kind kind, bool ordered); /* its number */
void br_open_scan(br_dist *d, br_open *o, br_stage_scan s, bool split);
void br_open_step(br_dist *d, br_open *o, br_stage_step s);
void br_open_label(br_dist *d, br_open *o, const char *fmt, ...) BR_PRINTF(3, 4);
void br_open_why(br_dist *d, br_open *o, const char *fmt, ...) BR_PRINTF(3, 4);
/* Rows of a and b meet in one stage. Their rules must fit: none with any, one with one, partitions with partitions. */
br_open *br_open_merge(br_dist *d, const br_open *a, const br_open *b);
/* The text becomes another one of which parts of a side's rows give parts of the result, still. */
void br_keep_sides(br_open *o, const char *before, const char *after);
/* The text that r has now ends in a partial step with marks (stage/groups.c), two at most. */
void br_may_leave_out(br_drel *r, const char *row_columns);
void br_one_task(br_drel *r, const char *reason); /* a NONE relation becomes a one-task one */
bool br_is_one(const br_drel *r);                 /* one branch, rule ONE or NONE */
bool br_is_constant(const br_drel *r);            /* one branch, rule NONE */
br_drel br_drel_new(br_dist *d, br_open *open, const char *sql, const br_node *columns_of);
br_rel br_branch_rel(const br_drel *r, size_t branch);
double br_value_bytes(const json_t *type); /* a guess */
void br_set_rows(br_drel *r, double rows);

/* The SQL type that a column travels as (enums as VARCHAR), and whether its reader casts it back. */
BR_MUST_USE br_status br_travel_type(br_dist *d, const json_t *type, const char **out, br_error *err);
bool br_cast_back(const json_t *type);
/* How often the text reads input(number) / holds a token. */
size_t br_count_input(const char *sql, uint32_t number);
size_t br_count_text(const char *sql, const char *token);

/* A relation's text as an item of FROM: in parentheses, indented when it is long. */
const char *br_block(br_dist *d, const char *sql);
const char *br_without_alias(br_dist *d, const char *sql);

typedef struct br_closing {
  br_exchange_kind output;
  uint32_t partitions;
  const char *tail; /* one more column, over alias t (partition number, sort key); NULL: none */
  const char *keys; /* for people */
  const char *why;
} br_closing;
BR_MUST_USE br_status br_close(br_dist *d, const br_drel *r, size_t branch, const br_closing *c, uint32_t *id,
                               br_error *err);

/* ---- exchange.c */
typedef struct br_hash_keys {
  const char **texts;     /* over alias t */
  const char **hashed_as; /* types */
  int64_t *columns;       /* position in the relation, -1: an expression */
  size_t n;
} br_hash_keys;
br_hash_keys br_hash_keys_new(br_dist *d, size_t n);
/* Notes that r, if it is nothing but a read of something shared, is to be hashed by k. True: another reader wants the same, so
 * nothing should be put between the read and the exchange. */
bool br_shares_exchange(br_dist *d, const br_drel *r, const br_hash_keys *k, uint32_t n, bool weak);
/* False: this expression can't be a hash key (volatile, unknown type). */
BR_MUST_USE br_status br_hash_key(br_dist *d, const br_drel *r, const json_t *expr, br_hash_keys *k, bool *ok,
                                  br_error *err);
BR_MUST_USE br_status br_hash_key_column(br_dist *d, const br_drel *r, size_t column, br_hash_keys *k, br_error *err);
BR_MUST_USE br_status br_exchange_hash(br_dist *d, br_drel *r, const br_hash_keys *k, const char *why, br_error *err);
BR_MUST_USE br_status br_exchange_hash_into(br_dist *d, br_drel *r, const br_hash_keys *k, uint32_t n, const char *why,
                                            br_error *err);
/* Rows go where an expression over alias t says: an INTEGER from 0 to n - 1. */
BR_MUST_USE br_status br_exchange_numbered(br_dist *d, br_drel *r, const char *number, uint32_t n, bool ordered,
                                           const char *why, br_error *err);
/* Of the exchange that a PARTITIONS relation reads. */
uint32_t br_partitions_of(const br_dist *d, const br_drel *r);
BR_MUST_USE br_status br_exchange_single(br_dist *d, br_drel *r, const char *reason, bool ordered, br_error *err);
BR_MUST_USE br_status br_exchange_broadcast(br_dist *d, br_drel *r, const char *why, br_error *err);
BR_MUST_USE br_status br_exchange_range(br_dist *d, br_drel *r, const char *sort_key, const char *shown, br_error *err);
/* Everything in one stage: several branches are read FORWARD by a new one. */
BR_MUST_USE br_status br_one_branch(br_dist *d, br_drel *r, br_error *err);
BR_MUST_USE br_status br_share(br_dist *d, br_drel *r, const char *why, br_shared *out, br_error *err);
br_drel br_read_shared(br_dist *d, const br_shared *s, const br_node *columns_of);
/* With the columns and needs of what was shared. */
br_drel br_read_again(br_dist *d, const br_shared *s);
const char *br_read_text(br_dist *d, const br_drel *r, const bool *layout, uint32_t number);
/* Where a column of a closed relation is stored; -1: it isn't. */
int64_t br_stored_at(const br_drel *r, int64_t column);
/* hash type of a column, NULL: not hashable */
BR_MUST_USE br_status br_hash_type(br_dist *d, const json_t *type, const char **out, bool *is_small_int, br_error *err);

/* ---- band.c: ranges of one key, each with its own rows and with copies of those near it */
typedef struct br_band {
  br_shared *kept;   /* [n_sides] the rows whose keys are sampled */
  const char **keys; /* [n_sides] their values, over alias t */
  size_t n_sides;
  json_t *type; /* of the values */
  const char *low,
      *high; /* the first and the last value that a range from b.lv to b.hv needs; NULL: none beyond its own */
} br_band;
typedef enum br_band_rows {
  BR_BAND_OWN,    /* each row to the range that it is in */
  BR_BAND_NEEDED, /* and to those that need it */
  BR_BAND_SPAN    /* to all ranges between two values of the row */
} br_band_rows;
const char *br_band_key(br_dist *d, const char *value); /* as bounds are */
/* Closes the stage of bounds, which is broadcast to those who place rows. */
BR_MUST_USE br_status br_band_bounds(br_dist *d, const br_band *b, uint32_t *bounds, br_error *err);
/* Two columns more behind those of r: the range's number, and whether the row is its own. */
void br_band_number(br_dist *d, br_drel *r, const char *first, const char *last, br_band_rows which, uint32_t bounds);
/* And the rows go there, partition by range. fixed: a task is one range, however small. */
BR_MUST_USE br_status br_band_place(br_dist *d, br_drel *r, const char *first, const char *last, br_band_rows which,
                                    uint32_t bounds, bool fixed, const char *why, br_error *err);

/* ---- clustering.c */
/* The column of r that the expression is (BOUND_REF, BOUND_COLUMN_REF), also through integer casts; -1: none. */
int64_t br_expr_column(const json_t *expr, const br_drel *r);
/* map[i] = the old column that new column i shows, -1: none. Keys that lose all columns end the clustering. */
void br_map_clustering(br_dist *d, br_drel *r, const int64_t *map, size_t n);
void br_no_clustering(br_drel *r);
void br_set_clustering(br_dist *d, br_drel *r, const br_hash_keys *k, bool aligned);
/* Are all clustering keys among these columns (each hashed as its own type)? Who is told so relies on it. */
bool br_clustered_within(const br_drel *r, const br_hash_keys *k);
void br_rely_on_order(br_open *o); /* its scans are cut by the column that they lie in the order of */
bool br_key_has(const br_dkey *key, int64_t column, const char *hashed_as);
/* One branch, and the task's number is the hash of its rows' keys: another such relation can meet it. */
bool br_is_placed(const br_drel *r);
/* The two columns are equal in every row that is left, neither is NULL. */
BR_MUST_USE br_status br_equal_columns(br_dist *d, br_drel *r, int64_t a, int64_t b, br_error *err);
void br_no_ranges(br_drel *r);
const char *br_clustering_text(br_dist *d, const br_drel *r);

/* ---- filter.c: `other` reads a hash exchange by the same keys as r will: what went through it may drop rows of r, which are those of
 * the node `side`, in the stages that make them. own: the keys of r. */
void br_add_filter(br_dist *d, br_drel *r, const br_node *side, const br_hash_keys *own, const br_drel *other);
/* `moved` was broadcast for the join n, and rows of `stays` that find no partner in it don't show: splits of the scan of `stays` may be
 * left out by the range of its keys. */
BR_MUST_USE br_status br_range_broadcast(br_dist *d, const br_node *n, const br_drel *moved, const br_drel *stays,
                                         bool right, br_error *err);

/* ---- merge.c: stages that do the same become one; a stage whose rows only pass through to one other becomes part of it */
bool br_find_twin(br_dist *d, const br_stage *s, uint32_t *id);
/* The same rows from the same sources, that come out the same each time? */
bool br_same_work(br_dist *d, const br_drel *l, const br_drel *r);
const char *br_final_text(br_dist *d, const br_open *o, const char *sql); /* build.c: inputs numbered from 0 */
void br_fuse_stages(br_dist *d);

/* ---- little.c: rows that come from small files alone stay where they are read */
bool br_is_little(const br_dist *d, const br_drel *r);
void br_each_reads(br_dist *d, br_drel *r); /* every task has all of them */
void br_one_reads(br_dist *d, br_drel *r);  /* one task */

/* ---- needs.c: fills d->needs */
void br_find_needs(br_dist *d);

/* ---- scan.c: a filter right above a scan of CSV or JSON files, for the names of their folders */
BR_MUST_USE br_status br_filter_texts(br_dist *d, const br_node *filter, br_drel *child, br_error *err);

/* ---- costly.c: functions that take longer than reading */
/* Few rows in one task are spread, in their order, if they are at least so many. */
BR_MUST_USE br_status br_spread_few(br_dist *d, br_drel *r, double least, br_error *err);
/* The same, if an expression of the node calls a built-in function of that kind. */
BR_MUST_USE br_status br_spread_for_calls(br_dist *d, const br_node *n, br_drel *child, br_error *err);

/* ---- chance.c: what differs from run to run */
bool br_volatile(const json_t *expr); /* calls random(), uuid(), … anywhere inside */
bool br_chance_aggregate(const json_t *aggregate);
bool br_chance_window(const json_t *window);
bool br_is_float(const json_t *type);

/* ---- emit helpers, distribute.c */
BR_MUST_USE br_status br_walk(br_dist *d, const br_node *n, br_drel *out, br_error *err);
/* node over every branch of r, which becomes the result (rows, columns, clustering none of its business). */
BR_MUST_USE br_status br_emit_over(br_dist *d, const br_node *n, br_drel *r, br_error *err);
/* node over two one-branch relations of one stage `open`. */
BR_MUST_USE br_status br_emit_two(br_dist *d, const br_node *n, const br_drel *l, const br_drel *r, br_open *open,
                                  br_drel *out, br_error *err);
/* Own text over every branch: fmt has one %s, the branch's text. Columns stay. */
void br_wrap_text(br_dist *d, br_drel *r, const char *before, const char *after);
/* The whole subtree in one task. */
BR_MUST_USE br_status br_region(br_dist *d, const br_node *n, const char *reason, br_drel *out, br_error *err);
uint32_t br_subtree_end(const br_node *n); /* n and what is below have ids from its own up to this one */
/* A row-wise node over its child, whose rows are in `out`. */
BR_MUST_USE br_status br_stays_over(br_dist *d, const br_node *n, const char *label, br_drel *out, br_error *err);
void br_label_all(br_dist *d, br_drel *r, const char *label);
void br_mark_chance(br_drel *r, bool chance); /* the stages' outputs are indeterminate */
void br_mark_heavy(br_drel *r);
/* The emitter's callbacks (br_emit_options); arg is the br_dist. */
const char *br_scan_callback(void *arg, const br_node *get, uint32_t number);
const char *br_reference_callback(void *arg, const br_node *ref);
const char *br_subtree_callback(void *arg, const br_node *n);
/* The columns of r and room for `more`, whose types the caller sets: nobody binds them, all are needed. */
void br_more_columns(br_dist *d, const br_drel *r, size_t more, json_t ***types, br_bind **binds, bool **needed);
json_t *br_own_type(br_dist *d, json_t *type); /* the arena drops it */

/* Is the subtree of a recursive CTE computed before its rounds? */
bool br_recursive_part(const br_node *cte, const br_node *n);

/* ---- one file an operator */
BR_MUST_USE br_status br_dist_recursive(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_scan(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_aggregate(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_join(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_join(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out, br_error *err);
/* join_ranges.c, join_full.c: joins without an equality */
bool br_asof_ranges(const br_node *n);
BR_MUST_USE br_status br_asof_by_ranges(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out,
                                        br_error *err);
typedef struct br_span { /* point between from and to: texts over alias t of their sides */
  const char *point, *from, *to;
  json_t *type;
  bool points_left;
} br_span;
BR_MUST_USE br_status br_find_span(br_dist *d, const br_node *n, const br_drel *l, const br_drel *r, br_span *s,
                                   bool *found, br_error *err);
BR_MUST_USE br_status br_join_spans(br_dist *d, const br_node *n, const br_span *s, br_drel *l, br_drel *r,
                                    br_drel *out, br_error *err);
BR_MUST_USE br_status br_full_join(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_delim_join(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_cte(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_reference(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_setop(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_distinct(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_order(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_top_n(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_limit(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_sample(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_projection(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_filter(br_dist *d, const br_node *n, br_drel *out, br_error *err);
BR_MUST_USE br_status br_dist_window(br_dist *d, const br_node *n, br_drel *out, br_error *err);
/* order.c: "t.c0 ASC NULLS LAST, …"; the rows of r by ranges of the orders' keys, each task's in no order */
BR_MUST_USE br_status br_order_text(br_dist *d, const json_t *orders, const br_drel *r, const char *alias,
                                    const char **out, br_error *err);
BR_MUST_USE br_status br_range_sort(br_dist *d, const json_t *orders, br_drel *r, bool peers_together, br_error *err);
/* Is r by such ranges already? */
bool br_ranged_by(const br_drel *r, const json_t *orders, bool peers_together);
bool br_sorts_in_one_task(const br_dist *d, const br_drel *r);
/* window_steps.c: the windows `which` (positions in the node) without PARTITION BY, in two steps; *done is false: not possible. They
 * become columns behind those of r. needed: of the result. */
BR_MUST_USE br_status br_window_in_steps(br_dist *d, const br_node *n, const size_t *which, size_t count,
                                         const bool *needed, br_drel *r, br_error *err);
bool br_window_step(const json_t *w); /* can this one be? Together with others: */
bool br_window_steps(const br_node *n, const size_t *which, size_t count);
/* window_band.c: the window `w`, without PARTITION BY, moves over a range of its key (or over groups of equal rows, or over many rows,
 * by_number: once they are numbered), and so can be computed by ranges with copies */
typedef enum br_band_kind { BR_BAND_NOT, BR_BAND_BY_KEY, BR_BAND_BY_GROUP, BR_BAND_BY_ROW } br_band_kind;
br_band_kind br_window_band(const json_t *w);
/* Both bounds lie on one side of the row, so the frame may end before it starts: then DuckDB (1.5) takes medians and the like of any rows, once
 * there is a PARTITION BY, which steps add. */
bool br_frame_may_end_first(const json_t *w);
BR_MUST_USE br_status br_window_in_bands(br_dist *d, const br_node *n, const size_t *which, size_t count,
                                         const bool *needed, br_drel *r, br_error *err);
/* own.c: the rows of r in their order, into n partitions of about as many rows each. */
bool br_asks_broadcast(const br_node *n);          /* broadcast((…)), perhaps below filters and projections */
void br_keep_number(br_dist *d, const br_drel *r); /* of the partitions that r reads */
BR_MUST_USE br_status br_into_partitions(br_dist *d, uint32_t n, br_drel *r, const char *why, br_error *err);
BR_MUST_USE br_status br_dist_calls(br_dist *d, const br_node *n, br_drel *out, br_error *err);

/* ---- aggregate_split.c: one aggregate as partial columns and a final expression */
enum { BR_SPLIT_MOST = 5 };
typedef struct br_split_agg {
  const char *partial[BR_SPLIT_MOST];
  const char *rows
      [BR_SPLIT_MOST]; /* what the partial results of one row alone are, over the same alias; NULL: can't be written */
  json_t *types[BR_SPLIT_MOST];
  const char *merge[BR_SPLIT_MOST]; /* aggregate function that makes one value of several; NULL: not column by column */
  size_t n;
  const char *final; /* over columns p<first>..; text with alias t */
} br_split_agg;
/* Can every aggregate of the node be split? (ordered: the child's order matters to first and last) */
bool br_aggregate_splits(const json_t *aggregate, bool ordered);
bool br_aggregates_split(const br_node *n, bool ordered);
/* Every partial column of an aggregate that splits has a `merge`: partial rows can be merged to partial rows. */
bool br_aggregate_merges_by_column(const json_t *aggregate);
BR_MUST_USE br_status br_split_aggregate(br_dist *d, const json_t *aggregate, const br_rel *over, size_t first_column,
                                         br_split_agg *out, br_error *err);

/* ---- aggregate_distinct.c: DISTINCT aggregates of one argument, by way of one row a group and value */
bool br_distinct_reduces(const br_node *n);
BR_MUST_USE br_status br_aggregate_distinct(br_dist *d, const br_node *n, br_drel *r, br_error *err);

/* ---- aggregate_dealt.c: calls without groups that can't be split, each where its arguments go. *done: false: nothing to deal */
BR_MUST_USE br_status br_aggregate_dealt(br_dist *d, const br_node *n, br_drel *out, bool *done, br_error *err);
/* aggregate.c: one part of them */
BR_MUST_USE br_status br_aggregate_part(br_dist *d, const br_node *n, br_drel *out, br_error *err);

/* ---- the reasons, docs/one-task.md */
#define BR_WHY_CONSTANTS "constant rows only"
#define BR_WHY_FINAL_AGGREGATE "final step of an aggregate without GROUP BY"
#define BR_WHY_WHOLE_AGGREGATE "aggregate without GROUP BY that can't be computed in two steps"
#define BR_WHY_GROUPING_SETS \
  "grouping sets without a common column, with an aggregate that can't be computed in two steps"
#define BR_WHY_VOLATILE_KEYS "keys that are different at each evaluation"
#define BR_WHY_TOP_N "merge of the tasks' top rows"
#define BR_WHY_LIMIT "rows are counted across tasks"
#define BR_WHY_LIMIT_EXPRESSION "the limit is computed from all rows"
#define BR_WHY_SMALL_SORT "few rows to sort"
#define BR_WHY_SORT_KEYS "sort keys that can't be cut into ranges"
#define BR_WHY_BOUNDS "bounds of the sort's ranges"
#define BR_WHY_BAND "bounds of ranges with copies"
#define BR_WHY_CARRIED "the rows next to each range"
#define BR_WHY_SAMPLE "a fixed number of sampled rows"
#define BR_WHY_WINDOW "window without a common PARTITION BY"
#define BR_WHY_WINDOW_STEPS "the tasks' shares of a window"
#define BR_WHY_RECURSIVE "recursive CTE"
#define BR_WHY_POSITIONAL "positional join pairs rows by number"
#define BR_WHY_NO_EQUALITY "join without equality whose two sides must both be kept"
#define BR_WHY_TABLE_FUNCTION "table function that can't be split"
#define BR_WHY_IN_OUT_FUNCTION "table function over all rows of a relation"
#define BR_WHY_LITTLE "small files"
#define BR_WHY_BLOOM "one filter of all keys"
#define BR_WHY_SCAN "scan that can't be split"

#endif
