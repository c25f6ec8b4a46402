/* SPDX-License-Identifier: Apache-2.0
 *
 * One distributed query: its stages, the tasks they become, and what was measured while they ran.
 *
 * Made by planner.c on the caller's thread; from br_driver_submit on, the loop thread writes it under `lock` and others read
 * under `lock`. Reference-counted: the caller's handle, the driver while it runs, and the result stream each hold one.
 */
#ifndef BRANT_COORDINATOR_QUERY_H
#define BRANT_COORDINATOR_QUERY_H

#include <pthread.h>

#include "plan/stage/stage.h"
#include "proto/proto.h"
#include "schedule/schedule.h"
#include "source/source.h"

typedef enum br_query_state { BR_QUERY_NEW, BR_QUERY_RUNNING, BR_QUERY_DONE, BR_QUERY_FAILED } br_query_state;

/* Why a task's next attempt runs. */
typedef enum br_again {
  BR_AGAIN_NOT, /* it is the first */
  BR_AGAIN_FAILED,
  BR_AGAIN_CANCELLED, /* what it read was lost, or nobody needed it for a while */
  BR_AGAIN_EXECUTOR_LOST,
  BR_AGAIN_WORKER_LOST,
  BR_AGAIN_OUTPUT_LOST, /* it had committed */
  BR_AGAIN_KINDS
} br_again;

/* What the attempts of a task told. Kept once a task: the largest part of a query's memory. */
typedef struct br_task_run {
  bool done;
  bool of_rows; /* without the stage's partial step */
  uint8_t why;  /* br_again of the next attempt, as far as it is known */
  uint64_t rows_out, bytes_out, wall_us;
} br_task_run;

/* What a step of a stage did, in all its tasks. */
typedef struct br_step_run {
  uint64_t rows, bytes, batches, wait_us, retries;
  uint64_t peak_bytes; /* in the queues of one task */
} br_step_run;

struct br_dataset;
/* A scan of a dataset: task i reads its parts [cuts[i], cuts[i + 1]), every task all of them without cuts. */
typedef struct br_dataset_scan {
  struct br_dataset *dataset; /* a reference; NULL: this scan reads something else */
  uint32_t *cuts;
} br_dataset_scan;
#define BR_DATASET_INPUT 1000000u /* + the scan's place in its stage: the k of input(k) that reads a dataset */

/* What one task of a stage reads of its HASH and RANGE inputs, once the stage was planned again with true sizes. */
typedef struct br_slice {
  uint32_t first, last;         /* partitions */
  uint32_t side;                /* this side's map outputs are divided among several tasks; 0: none is */
  uint32_t map_first, map_last; /* of that side's inputs, one after the other */
} br_slice;

/* The range of an output column, of all attempts that told one. */
typedef struct br_key_range {
  bool any, unknown; /* any false: there is no value that is not NULL */
  int64_t least, greatest;
} br_key_range;

/* What footers say of a stage's splits, for each key of its filters that is a column of the split scan (filters.c has their order). */
typedef struct br_split_facts {
  uint64_t rows;
  br_range *keys;
} br_split_facts;

typedef struct br_stage_run {
  const br_stage *plan;
  uint32_t n_tasks;
  char **split_sql; /* [n_tasks] for BR_TASKS_SPLITS: source text of each task's split */
  char **whole_sql; /* [plan->n_scans]: source text of scans that are read whole, NULL for others */
  char **
      *cut_sql; /* [n_cut][n_tasks]: of scans that are cut with the split one; NULL for others. In the stages' arena */
  size_t n_cut; /* the plan's scans may be more: behind these all are read whole */
  uint64_t split_rows;            /* of all splits */
  const br_snapshot *split_files; /* what they were cut from, and may be cut from anew; NULL: as they are */
  const char *split_options;      /* further arguments of the scan, or NULL */
  br_split_facts *split_facts;    /* [n_tasks]; NULL: nothing is known */
  br_range *split_ranges;         /* all that their `keys` point to */
  br_dataset_scan *datasets;      /* [plan->n_scans] */
  br_task_run *tasks;             /* [n_tasks] */
  uint64_t *partition_rows;       /* [partitions] exact rows of the output */
  uint64_t *partition_bytes;      /* [partitions] as stored, within a tenth */
  br_key_range *ranges;           /* [plan->n_ranged] */
  br_slice *slices;               /* [n_tasks]; NULL: task i reads partition i */
  uint32_t bloom_blocks;          /* of the filter that it makes */
  char *adapted;                  /* for people: what was changed before it started; NULL: nothing */
  br_step_run *steps;             /* [plan->n_steps]; NULL: nothing was measured yet */
  bool joins_in_place;    /* it took another stage in (adapt_join.c): fewer rows reach its filters than it reads */
  uint32_t started, done; /* started: attempts */
  uint32_t retries, seconds, cancelled, outputs_lost,
      made_again;                /* attempts, and outputs that died while needed or not */
  uint64_t grouped_rows, groups; /* of tasks with the stage's partial step: what that read and made */
  uint32_t tasks_of_rows;        /* tasks without it */
  uint32_t not_needed;           /* attempts that had nothing to read: a limit was full */
  uint64_t rows_in, bytes_in, rows_out, bytes_out, remote_bytes, cpu_us, spill_bytes, wall_us, peak_memory_bytes;
  uint64_t first_start_us, last_done_us; /* monotonic; 0: not yet */
} br_stage_run;

typedef struct br_result_part {
  bool ready, read;
  br_map_output_id id;
  uint32_t version;
} br_result_part;

/* A user's function that the query calls. */
typedef struct br_query_function {
  uint64_t id;
  uint32_t batch_rows, concurrency, max_retries;
  uint64_t timeout_ms;
  double gpus;
} br_query_function;

typedef struct br_query {
  uint64_t id;
  _Atomic int refs;
  br_stages *stages; /* NULL: whole query as one task */
  br_stage_run *runs;
  size_t n_runs;
  char **names, **types;
  size_t n_columns; /* of the result, as DuckDB gives them */
  char **prelude;
  size_t n_prelude; /* statements of the session that tasks need */
  char **prelude_views;
  size_t n_prelude_views; /* also those that only a whole-query task needs */
  Brant__Pb__Setting *settings;
  size_t n_settings;
  br_snapshot **snapshots;
  size_t n_snapshots, cap_snapshots; /* files read, pinned */
  const char *codec;
  bool adaptive;              /* stages are planned again with true sizes before they start */
  uint64_t task_target_bytes; /* of a task that reads an exchange; 0: each partition is a task */
  uint64_t broadcast_bytes;   /* most bytes of a join's side that is read whole by every task */
  uint64_t filter_bytes;      /* most bytes of keys that a FILTER input may have */
  uint64_t bloom_bytes;       /* most bytes of a Bloom filter */
  uint64_t bloom_keys;        /* fewer keys get none; 0: all get one, whether it pays or not */
  uint64_t deadline_ms;       /* from its start; 0: none */
  struct br_timer *deadline;  /* loop thread */
  struct br_driver *deadline_driver;
  Brant__Pb__Sink *sink; /* of the last stage, in the stages' arena; NULL: its rows go to the caller */
  br_query_function *functions;
  size_t n_functions;
  uint32_t slots, threads; /* of the cluster when it was planned */
  bool profile;
  bool kept;  /* brant_query_persist: the result's outputs stay where they are, for other queries. Under lock */
  bool eager; /* readers run while producers write */
  uint32_t max_running;  /* attempts at once; 0: no bound */
  uint32_t least_passes; /* tests: every task that can runs in at least this many passes */
  char *shared_dir;      /* files backend: directory of this query's outputs; NULL: they are in the workers' stores */
  struct br_files_dir *files; /* shared_dirs.c: the directory, as long as it is there */
  struct br_timer *shared_timer;
  struct br_loop *shared_loop;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  br_query_state state;
  br_error error;
  void (*worker_gone)(void *arg, uint32_t worker); /* whoever reads results wants to know; NULL: nobody. Under lock */
  void *gone_arg;
  br_result_part *results;
  size_t n_results; /* [tasks of the last stage] */
  uint32_t stages_done, table_versions;
  uint64_t start_us, end_us, retries, executors_lost, workers_lost;
  uint64_t peak_pss_bytes;
  uint64_t spilled_bytes, spilled_before_bytes; /* moved to disk by workers' stores: while it ran, before it */
} br_query;

br_query *br_query_new(uint64_t id);
br_query *br_query_ref(br_query *q);
void br_query_unref(br_query *q);
/* Number of tasks of each stage from the rules; split_sql of SPLITS stages must be there. */
BR_MUST_USE br_status br_query_count_tasks(br_query *q, br_error *err);

/* ---- sorted.c. Columns by whose values the rows of a scan's files lie in order become known to the plan. */
void br_sorted_columns(br_node *get, const br_snapshot *files, br_arena *arena);
/* The tasks of a stage whose split scan is cut: at the values where its splits begin. files: [plan->n_scans] of all that are cut. */
void br_cut_splits(br_query *q, br_stage_run *r, const br_snapshot *const *files, const br_split *splits, size_t n);

/* ---- adapt.c: with the query's lock, on the loop thread, from the scheduler's question to its answer */
bool br_query_adapts(const br_query *q, uint32_t stage);
/* Do its inputs' sizes decide so much that it is worth waiting for them where its inputs could be followed? */
bool br_query_adapts_much(const br_query *q, uint32_t stage);
/* All that the stage reads is committed and it has not started: its tasks, and those of what depends on it, by true sizes. */
void br_query_adapt(br_query *q, uint32_t stage);
/* adapt_join.c: the stage becomes a part of the join that reads it, if the other side is small. */
bool br_query_join_in_place(br_query *q, uint32_t stage);
/* Will it, as far as is known by now? */
bool br_query_may_join_in_place(const br_query *q, uint32_t stage);
/* The run of a stage that was folded into another one gives its scans to that one's, which was this before. */
void br_query_take_scans(br_stage_run *r, const br_stage *was, br_stage_run *p);
/* adapt_chain.c: stages with few rows become fewer. */
bool br_query_may_sort_at_once(const br_query *q, uint32_t stage);
bool br_query_sort_at_once(br_query *q,
                           uint32_t stage); /* it takes the sample of a sort whose rows are there, and few */
bool br_query_may_gather(const br_query *q, uint32_t stage);
void br_query_gather(br_query *q, uint32_t stage);
void br_query_chain(br_query *q, uint32_t stage); /* from this one on, which has its tasks now */
void br_query_say(br_stage_run *r, const char *fmt, ...) BR_PRINTF(2, 3); /* what was changed, for people */
void br_query_set_tasks(br_query *q, br_stage_run *r, uint32_t n);        /* none of its tasks has started */

/* ---- adapt_groups.c: partial steps that are left out */
void br_groups_count(br_stage_run *r, const Brant__Pb__TaskStats *s); /* a task is done, for the first time */
/* Before an attempt's message is made. True: it is the first of its stage that has none. */
bool br_groups_decide(br_query *q, const br_attempt_id *id);
/* Shall the task count what its grouping reads and makes? Not where all tasks start at once: counting has a price. */
bool br_groups_wanted(const br_query *q, const br_attempt_id *id);

/* ---- adapt.c again: can the stage's rows come out otherwise when they are made again? */
bool br_query_by_chance(const br_query *q, uint32_t stage);

/* ---- filters.c: run-time filters, with the true sizes and ranges of their keys. With the query's lock, but for the first. */
/* Planning: what the footers say of the splits of a Parquet scan. */
void br_filter_facts(br_stage_run *r, const br_snapshot *snap, const br_split *splits, size_t n);
void br_filter_facts_free(br_stage_run *r);
void br_filter_count(br_stage_run *r, const Brant__Pb__TaskStats *s);                    /* an attempt is done */
bool br_filter_pays(const br_query *q, const br_stage_run *r, const br_stage_input *in); /* FILTER: is it read? */
/* Rows that the stage's filters look at, at most. */
uint64_t br_filter_rows(const br_query *q, const br_stage_run *r);
/* Of a key, as its stage told it; NULL: it isn't known. */
const br_key_range *br_filter_range(const br_query *q, const br_stage_input *in, const br_filter_key *key);
/* A text of the stage with what of its filters pays for this task. */
char *br_filter_text(const br_query *q, const br_stage_run *r, uint32_t task, char *sql, br_arena *arena);
/* Splits without any value that a filter's keys have go behind the others: how many are left. */
uint32_t br_filter_splits(const br_query *q, br_stage_run *r);

/* ---- bloom.c: is a Bloom filter of a join's keys made? Decided once, when the keys are there. */
void br_bloom_decide(br_query *q, br_stage_run *r);              /* of the stage that makes it */
bool br_bloom_made(const br_query *q, const br_stage_input *in); /* BLOOM */
/* FILTER: does the stage read a Bloom filter of these keys? */
bool br_bloom_instead(const br_query *q, const br_stage_run *r, const br_stage_input *in);

/* ---- tasks.c: the message for one attempt. Allocated in the arena. table_version(arg, stage) names the output table. */
typedef uint32_t (*br_version_fn)(void *arg, uint32_t stage);
/* All of it is there, as it was measured. */
bool br_stage_is_measured(const br_stage_run *r);
/* As measured, or, while it runs (eager), as estimated. */
uint64_t br_stage_rows(const br_stage_run *r);
Brant__Pb__Task *br_task_message(br_query *q, const br_attempt_id *id, br_version_fn version, void *arg,
                                 br_arena *arena);
/* A limit has all the rows that it wants: this attempt's message says to give none. Asked before the attempt is counted. */
bool br_task_not_needed(const br_query *q, const br_attempt_id *id);
/* The task in this many passes over parts of its keys, if its stage may be split so. */
void br_task_in_passes(const br_query *q, Brant__Pb__Task *t, uint32_t passes, br_arena *arena);
/* ---- shared_dirs.c: the query's directory with the files backend, below dir; NULL: nothing, without it. */
BR_MUST_USE br_status br_shared_open(br_query *q, const char *dir, br_error *err); /* caller's thread, before submit */
/* Loop thread. The work is done in pool threads. */
void br_shared_start(struct br_loop *l, br_query *q);
void br_shared_drop_stage(br_query *q, uint32_t stage);
void br_shared_drop_output(br_query *q, const br_attempt_id *id);
void br_shared_close(br_query *q); /* also of a query that was never submitted: any thread */

/* The SQL of one task, runnable for a person: scan tokens replaced by the split. In the arena. */
char *br_task_sql(const br_query *q, uint32_t stage, uint32_t task, br_arena *arena);

#endif
