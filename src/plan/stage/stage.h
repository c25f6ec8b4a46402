/* SPDX-License-Identifier: Apache-2.0
 *
 * A distributed plan: stages, and how rows change place between them. Made by br_distribute from the logical plan, read by
 * the coordinator (tasks), by explain, and by tests. Pure data; owned by its arena.
 */
#ifndef BRANT_PLAN_STAGE_H
#define BRANT_PLAN_STAGE_H

#include "plan/decompile/decompile.h"
#include "plan/steps.h"

typedef enum br_exchange_kind {
  BR_EX_FORWARD,   /* consumer task i reads producer task i's output (stays on its node when it can) */
  BR_EX_HASH,      /* partition = hash(keys, SEED) % n; consumer task i reads partition i of all */
  BR_EX_RANGE,     /* partition by sort key bounds; a key equal to several bounds may go to any of their partitions */
  BR_EX_SINGLE,    /* one partition, one consumer task */
  BR_EX_BROADCAST, /* one partition, every consumer task reads all of it */
  BR_EX_BOUNDS, /* like broadcast, but given to the consumer's range sink, not to its SQL: partitions - 1 BLOBs in order */
  BR_EX_FILTER, /* a HASH output whose keys are all read by every consumer task, to drop rows that find no partner later; a help
                 * that the coordinator takes away (br_stage_without_filter) when the true sizes don't pay for it */
  BR_EX_WAIT, /* a HASH output that is not read: how large it is decides whether this stage goes into the join that reads it
                * (fold.c). The last inputs of a stage, dropped once that is known */
  BR_EX_KEYS, /* a HASH output whose keys are all read by the one task that makes a Bloom filter of them, if it pays */
  BR_EX_BLOOM, /* like broadcast: the one row of such a task, a filter of the keys of a join's other side; a help like FILTER, which is
                * taken away when the filter was not made */
  BR_EX_RESULT /* to the caller */
} br_exchange_kind;

typedef enum br_task_rule {
  BR_TASKS_SPLITS,     /* one a split of its split scan; others may be cut at the same values, or are read whole */
  BR_TASKS_PARTITIONS, /* one a partition of its HASH / RANGE inputs */
  BR_TASKS_FORWARD, /* one a producer task of its FORWARD inputs, all of them in order (UNION ALL: task lists are concatenated) */
  BR_TASKS_ONE
} br_task_rule;

/* Key k of a HASH exchange, as its reader can compute it. */
typedef struct br_split_key {
  const char
      *text; /* over the input's columns, alias t; NULL: what it is made of is not stored, or not as it was hashed */
  const char *hashed_as; /* SQL type; BIGINT also for narrower integers, which the text casts */
} br_split_key;

/* A key of a FILTER input, or of a BROADCAST one that only its own partners are shown with. Rows whose value lies outside the producer's least and greatest one find no partner. */
typedef struct br_filter_key {
  uint32_t column;  /* of the producer's output: one that it tells the range of */
  const char *text; /* what of this stage's rows it is compared with, over alias t: a column */
  const char *type; /* BIGINT for all signed and narrower integers, DATE, TIMESTAMP, TIMESTAMP WITH TIME ZONE */
  const char *
      source; /* the column of the split scan that it is, unchanged: a split without such values gives nothing that counts;
                       * NULL: no such one */
} br_filter_key;

typedef struct br_stage_input {
  uint32_t number;   /* k of input(k): its index in `inputs` */
  uint32_t producer; /* stage id */
  br_exchange_kind kind;
  bool ordered; /* read map by map, in order */
  uint32_t
      side; /* HASH: not 0: what several tasks make of parts of this side's rows (all inputs of that number), each with all rows of
                  * the other inputs' same partition, is together what one makes of all of them */
  const br_split_key *keys; /* HASH: of the exchange, in hash order */
  size_t n_keys;            /* KEYS: how many go into the filter */
  const br_filter_key *
      ranges; /* FILTER: of those keys that have an order which can be told in numbers; BROADCAST: that have a source too */
  size_t n_ranges;
  bool
      beside_others; /* HASH: of two such inputs: a row that finds no partner in the other one has no part in what the stage makes */
  bool null_keys_go;  /* HASH: a row with a NULL among its keys has no part in what the stage makes */
  uint32_t key_bytes; /* FILTER: of the keys in a row; 0: they have no fixed size */
} br_stage_input;

/* Of a scan of CSV or JSON: what only the rows that count pass, if it reads nothing but columns with names: folders may rule files out. */
typedef struct br_folder_test {
  const char *condition;    /* of t.c<number of a column> */
  const char *const *names; /* of the scan's columns, as the reader calls them; NULL: it doesn't read this one */
  size_t n_names;
} br_folder_test;

typedef struct br_stage_scan {
  uint32_t number;   /* the token's number */
  const char *token; /* text in sql that a task replaces by its split's source */
  br_scan scan;
  double rows;           /* estimate after pushed filters */
  uint32_t node;         /* id of the plan's node + 1 */
  bool one_part;         /* it is known to be one split */
  br_folder_test *tests; /* TEXT */
  size_t n_tests;
  double source_rows, bytes;      /* of all files, as stored; bytes of the columns that are read; negative: unknown */
  const br_sorted_column *sorted; /* a column by which it may be cut; NULL: none */
  bool
      cut; /* it is: rows that agree in that column are in one task, of all scans of the stage that are cut. The split scan says where */
} br_stage_scan;

/* Users' functions, called between two SQL texts: what the step's SQL gives goes to processes, which append columns, and
 * input(number) is all of it. */
typedef struct br_step_call {
  uint64_t function;
  const char *name;
  const uint32_t *arguments; /* columns of the step's SQL */
  size_t n_arguments;
} br_step_call;

typedef struct br_stage_step {
  uint32_t number;    /* k of the input(k) that it feeds: behind those of the stage's inputs */
  const char *sql;    /* like the stage's own; reads inputs, scans, earlier steps */
  const char **types; /* SQL types of its n_columns columns, then of the calls' results */
  size_t n_columns;
  br_step_call *calls;
  size_t n_calls;
  bool ordered;
  double rows;
} br_stage_step;

typedef struct br_stage {
  uint32_t id;        /* index in the plan; producers have smaller ids */
  const char *sql;    /* a SELECT; scan tokens inside; input(k) for inputs. After the n_columns stored columns, HASH
                                 * outputs have the partition number (INTEGER), RANGE outputs the sort key (BLOB) */
  const char **types; /* SQL types of the stored output columns; enums are stored as VARCHAR, also in results */
  size_t n_columns;
  const uint32_t *ranged; /* columns whose least and greatest value readers want to know (filter keys) */
  size_t n_ranged;
  br_stage_input *inputs;
  size_t n_inputs;
  br_stage_scan *scans;
  size_t n_scans; /* the split one, those that are cut with it, and others that every task reads whole */
  int split_scan; /* index into scans, -1: none */
  br_stage_step *
      steps; /* run before sql, all at once, each a stream into the next; every text of them may hold scan tokens and inputs */
  size_t n_steps;
  br_task_rule rule;
  br_exchange_kind output; /* the kind that its consumers read it by */
  uint32_t partitions;     /* of the output */
  bool fixed_partitions;   /* their number was asked for: a reader has as many tasks */
  uint32_t batch_rows;     /* of its batches, into_batches(); 0: as they come */
  const char *keys;        /* for people: "c0, c1" or "c0 DESC NULLS LAST"; NULL: none */
  bool ordered_output;
  bool indeterminate;
  bool chance; /* indeterminate by its own text, whatever it reads */
  bool
      makes_bloom; /* its one input is KEYS, its one row a Bloom filter of BR_BLOOM_BLOCKS; has a task only if that pays */
  uint64_t
      enough_rows; /* 0: all of its rows are wanted. Else so many of any of its tasks, and of the other stages with the same
                         * enough_of, are all that is wanted: a task that starts when they are there may give none. Only where a
                         * task gives as many rows when it runs again */
  uint32_t enough_of;
  /* Not NULL: rows are joined where they are made (fold.c), and these are their keys, over alias t at BR_PASS_HERE. BROADCAST inputs
   * with `keys` are the join's other sides. */
  const br_split_key *pass_keys;
  size_t n_pass_keys;
  /* Not NULL: it groups its rows before they move, and may as well not (groups.c): the list of columns that a row alone gives. */
  const char *row_columns;
  double rows, bytes;          /* estimates of the output; negative: unknown */
  const char *why;             /* why this exchange was chosen, or elided ones ("kept clustering hash(c0)") */
  const char *one_task_reason; /* not NULL: this stage runs as one task because … */
  const char *label;           /* short: "scan lineitem, filter, partial aggregate" */
} br_stage;

typedef struct br_stages {
  br_arena *arena;
  br_stage *stages;
  size_t n_stages;                /* the last one is the result stage */
  const char *whole_query_reason; /* not NULL: the whole query runs as one task of the original text, because … */
} br_stages;

typedef struct br_distribute_options {
  uint32_t partitions;       /* n of hash and range exchanges */
  double broadcast_bytes;    /* a side estimated below this is broadcast; 0: never */
  double inline_bytes;       /* files of at most this many are read by every task that wants them whole; 0: never */
  double sort_one_task_rows; /* fewer estimated rows: gather and sort in one task; 0: always by ranges */
  bool two_step_aggregate;
  bool sorted_scans;       /* scans may be cut by the values of a column */
  bool run_time_filters;   /* FILTER inputs where a join's other side may be much smaller */
  bool joins_in_place;     /* and WAIT inputs, where there is no filter */
  bool bloom_filters;      /* BLOOM inputs beside FILTER inputs, */
  double bloom_rows;       /* where the other side has this many estimated rows; 0: always */
  uint32_t spread;         /* tasks that few rows of one task are spread over for users' functions; 0, 1: not */
  const br_udf *functions; /* that the plan calls: br_plan_steps has had its turn */
  size_t n_functions;
} br_distribute_options;

/* Cut the plan. Never fails for a right plan: what can't be distributed becomes a one-task stage with its reason, and a
 * plan that can't be written back at all comes out without stages and with whole_query_reason set (the caller runs the
 * original text as one task). */
BR_MUST_USE br_status br_distribute(const br_plan *plan, const br_distribute_options *o, br_stages **out,
                                    br_error *err);
void br_stages_free(br_stages *s);
/* Explain: a tree for people, or JSON. */
void br_stages_print(const br_stages *s, br_buf *out);
json_t *br_stages_json(const br_stages *s);
const char *br_exchange_name(br_exchange_kind k); /* "HASH" */
/* None of the stage's rows come from such an input: it decides which of them are left out, or what becomes of the stage. */
static inline bool br_exchange_helps(br_exchange_kind k) {
  return k == BR_EX_FILTER || k == BR_EX_BLOOM || k == BR_EX_WAIT;
}
const char *br_task_rule_name(br_task_rule r); /* "one a split" */

/* ---- filters.c: in a stage's SQL the text of FILTER or BLOOM input k stands between the first two, k behind the first: it may be cut out
 * whole. At the third a condition on the range of a FILTER's keys may be put in. What stands in quotes is no mark. All in the arena. */
#define BR_FILTER_BEGIN "/* filter %u: */"
#define BR_FILTER_END "/* end of filter */"
#define BR_FILTER_RANGE "/* range of filter %u */"
/* Stands for how many blocks of 32 bytes a Bloom filter gets; one, as it stands. */
#define BR_BLOOM_BLOCKS "1 /* blocks */"
/* The SQL without the text of that input. */
char *br_stage_without_filter(br_arena *arena, const char *sql, uint32_t input);
/* The SQL with the condition there; NULL: with nothing. */
char *br_stage_with_range(br_arena *arena, const char *sql, uint32_t input, const char *condition);
/* The same marks with another number. */
char *br_stage_renumber_filter(br_arena *arena, const char *sql, uint32_t input, uint32_t now);
/* The SQL of a stage that makes a Bloom filter, of this many blocks. */
char *br_stage_with_blocks(br_arena *arena, const char *sql, uint32_t blocks);

/* ---- groups.c: a partial step, which makes one row of each group that a task sees, may be left out: whoever reads the rows groups them
 * again. In the stage's SQL its list of columns and its GROUP BY stand between these marks. */
#define BR_GROUPS_BEGIN "/* groups: */"
#define BR_GROUPS_END "/* end of groups */"
/* The stage's SQL (row_columns is set) with each row as it is. In the arena. */
char *br_stage_of_rows(br_arena *arena, const br_stage *s);
/* A text without such marks, in which a partial step stays. */
char *br_stage_without_groups(br_arena *arena, const char *sql);

/* Partition number as SQL over columns cN: `CAST(hash(c0, c1, <seed>) % 16 AS INTEGER)`. One seed for the engine. */
#define BR_HASH_SEED "7640891576956012809::UBIGINT"

/* ---- numbers.c: what a task's number and the number of tasks decide. In a stage's SQL the two stand as functions:
 * BR_TASK_NUMBER, and BR_INTO_PARTITION n ")", the partition of n that a row of this task goes to, so that the parts follow each
 * other as the rows do. In the arena. */
#define BR_INTO_PARTITION "brant_into_partition("
char *br_stage_task_sql(br_arena *arena, const char *sql, uint32_t task, uint32_t tasks);
/* Does a run of the SQL count its rows? */
bool br_stage_numbers_rows(const br_stage *s);

/* ---- costly.c: where a row costs more than reading it. How many rows are worth a task of their own; 0: reading is what they cost. */
uint64_t br_stage_costly_rows(const br_stage *s);
/* The same of a built-in function. */
uint64_t br_costly_function(const char *name);
/* Are few rows much work: by a function that takes long, or a join without an equality? */
bool br_stage_much_work(const br_stage *s);
/* It, or a stage that has its number of tasks, as it follows these one by one: fewer tasks here are fewer there. */
bool br_stage_leads_to_much_work(const br_stages *s, uint32_t stage);
/* Behind CROSS: a join with one row, which is no more work than reading the others. */
#define BR_JOIN_ONE_ROW "JOIN /* one row */ "

/* ---- passes.c: a task's work in k passes, each over the rows whose keys fall into one of k parts: for what does not fit into
 * memory at once. Another seed: within a partition all rows agree in hash(keys, BR_HASH_SEED) % n. */
#define BR_HASH_SEED_SPLIT "11400714819323198485::UBIGINT"
#define BR_PASS_HERE "/* pass */" /* a condition on the rows of a join in place */
/* Are all inputs, but those that every task reads whole, HASH with a key that can be computed from what is stored? */
bool br_stage_splittable(const br_stage *s);
/* `sql` is the stage's, or one task's of it. In the arena. */
char *br_stage_pass_sql(br_arena *arena, const br_stage *s, const char *sql, uint32_t passes, uint32_t pass);
/* ---- fold.c: a stage within its only reader, as a part of that one's text. In the arena.
 * The reader with `item`, the producer's rows as an item of FROM, in the place of an input. The producer's inputs and scans come first,
 * with their numbers; its tasks are the reader's. Neither has steps. */
br_stage br_stage_fold(br_arena *arena, const br_stage *reader, uint32_t input, const br_stage *producer,
                       const char *item);
/* Do the producer's rows go by hash to one join alone, which may instead have them where they are made, and its other sides whole in
 * each task? Then reader and input say where. */
BR_MUST_USE bool br_stage_may_join_in_place(const br_stages *s, uint32_t producer, uint32_t *reader, uint32_t *input);
/* The reader as such a join. */
br_stage br_stage_join_in_place(br_arena *arena, const br_stages *s, uint32_t producer, uint32_t reader,
                                uint32_t input);

/* May one task do what the stage's tasks do, each for a task of another stage? Then br_stage_gather makes it so; it reads them in order. */
bool br_stage_may_gather(const br_stages *of, uint32_t stage);
void br_stage_gather(br_stage *s);
/* Is the producer read by one input alone, and may one task do what both do, when each of them has one? */
BR_MUST_USE bool br_stage_may_chain(const br_stages *s, uint32_t producer, uint32_t *reader, uint32_t *input);
/* The reader as that task. */
br_stage br_stage_chain(br_arena *arena, const br_stages *s, uint32_t producer, uint32_t reader, uint32_t input);
/* A sort by ranges: who gives the rows, then those who take a sample of their keys, find its bounds, place the rows, sort them. */
typedef struct br_sort_stages {
  uint32_t rows, bounds, place, sort;
} br_sort_stages;
/* Is it the stage that takes the sample, and may one task sort all rows in their stead? */
BR_MUST_USE bool br_stage_may_sort_at_once(const br_stages *s, uint32_t sample, br_sort_stages *out);
/* The sort as that task: it reads the rows where they were made. */
br_stage br_stage_sort_at_once(br_arena *arena, const br_stages *s, const br_sort_stages *of);

/* The length of the piece of a stage's SQL at `at` (inside sql): a quoted text or name, `input(k)` (*input is k, else -1), or one
 * byte. */
size_t br_stage_piece(const char *sql, const char *at, int64_t *input);

#endif
