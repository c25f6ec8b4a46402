/* SPDX-License-Identifier: Apache-2.0
 *
 * brant: a distributed DataFrame and SQL engine. This is the one public header of libbrant.so.
 *
 *   brant_session *s;  brant_query *q;  brant_error err;  struct ArrowArrayStream stream;
 *   brant_options o = BRANT_OPTIONS_INIT;  o.workers = 3;
 *   if (brant_open(&o, &s, &err) == 0 && brant_submit(s, "select 42 as answer", &q, &err) == 0 &&
 *       brant_query_stream(q, &stream, &err) == 0) { ... stream.get_next(&stream, &array) ... stream.release(&stream); }
 *   brant_query_free(q);  brant_close(s);
 *
 * Every function that can fail returns 0 or a code of enum brant_code and fills *err (never NULL). Ownership is said at each
 * function. A session may be used from one thread at a time, except the functions that say "any thread".
 */
#ifndef BRANT_H
#define BRANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BRANT_API __attribute__((visibility("default")))
#else
#define BRANT_API
#endif

/* The Arrow C data interface (https://arrow.apache.org/docs/format/CDataInterface.html). */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};
struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif

enum brant_code {
  BRANT_OK = 0,
  BRANT_INVALID,
  BRANT_NOT_FOUND,
  BRANT_IO,
  BRANT_NO_SPACE,
  BRANT_PERMISSION,
  BRANT_OUT_OF_MEMORY,
  BRANT_UNSUPPORTED,
  BRANT_CORRUPT,
  BRANT_NETWORK,
  BRANT_TIMEOUT,
  BRANT_CANCELLED,
  BRANT_FETCH,
  BRANT_LOST,
  BRANT_VERSION_MISMATCH,
  BRANT_EXECUTION,
  BRANT_INTERNAL
};
/* Whose fault it was. */
enum brant_blame {
  BRANT_BLAME_NONE = 0,
  BRANT_BLAME_USER,
  BRANT_BLAME_TASK,
  BRANT_BLAME_FETCH,
  BRANT_BLAME_EXECUTOR,
  BRANT_BLAME_WORKER,
  BRANT_BLAME_INTERNAL
};

typedef struct brant_error {
  int code;           /* enum brant_code */
  int blame;          /* enum brant_blame */
  int sys_errno;      /* 0: none */
  uint32_t worker;    /* 0: none */
  char message[2048]; /* what, where, what to do */
} brant_error;

/* STAGED: a stage starts when its inputs are complete. EAGER: it reads while they are being written. AUTO: STAGED where true sizes
 * change what is run, else by size (docs/settings.md, adaptive and eager_bytes). The answer is the same. */
enum brant_mode { BRANT_MODE_AUTO = 0, BRANT_MODE_STAGED = 1, BRANT_MODE_EAGER = 2 };
enum brant_distribute { BRANT_DISTRIBUTE_AUTO = 0, BRANT_DISTRIBUTE_ALWAYS = 1, BRANT_DISTRIBUTE_NEVER = 2 };

#define BRANT_MEMORY_LEAST_BYTES (128u << 20)
typedef struct brant_options {
  size_t size;      /* sizeof(brant_options): later versions add fields at the end */
  uint32_t workers; /* local worker processes; 0: 1 */
  uint32_t threads; /* per worker; 0: cores / workers, at least 1 */
  /* per worker, at least BRANT_MEMORY_LEAST_BYTES; 0: 70 % of what the machine or cgroup has, divided by workers */
  uint64_t memory_bytes;
  const char *temp_dir;    /* spilling and shuffle files; NULL: $TMPDIR or /tmp */
  int mode;                /* enum brant_mode */
  int distribute;          /* enum brant_distribute */
  const char *listen_host; /* where workers join; NULL: 127.0.0.1 */
  int listen_port;         /* 0: any */
  uint32_t wait_workers;   /* a query waits for this many workers; 0: `workers` + `external_workers` */
  /* others start these: brant worker --join listen_host:listen_port; `workers` 0 then means none */
  uint32_t external_workers;
  const char *secret; /* of the cluster; NULL: $BRANT_SECRET, else a random one */
  /* most tasks of one query at once, and executor processes of the local workers all together (rounded up to a whole number each); 0:
   * one a worker, and as many tasks as there are slots */
  uint32_t executors;
} brant_options;
#define BRANT_OPTIONS_INIT \
  { sizeof(brant_options), 0, 0, 0, NULL, 0, 0, NULL, 0, 0, 0, NULL, 0 }

typedef struct brant_session brant_session;
typedef struct brant_query brant_query;

BRANT_API const char *brant_version(void);

/* Open a session. Nothing is started before the first query that needs workers. *out: brant_close it. options may be NULL. */
BRANT_API int brant_open(const brant_options *options, brant_session **out, brant_error *err);
/* Cancels what runs, ends the local workers, removes their files; no event comes afterwards. Queries and streams that are still
 * held end with BRANT_CANCELLED and must be freed as always. NULL is fine. */
BRANT_API void brant_close(brant_session *session);
/* Let workers join from now on, not from the first query that needs them; *port: where it listens, at listen_host. For those that start the
 * workers and didn't choose the port (listen_port 0). */
BRANT_API int brant_listen(brant_session *session, int *port, brant_error *err);
/* A brant setting ("partitions", "broadcast_bytes", ...; docs/settings.md) or, under any other name, a DuckDB setting. */
BRANT_API int brant_set(brant_session *session, const char *name, const char *value, brant_error *err);

/* Split a script at its semicolons: *statements is one block of *count NUL-terminated texts; free with brant_free. */
BRANT_API int brant_split(const char *script, char ***statements, size_t *count, brant_error *err);
BRANT_API void brant_free(void *p);

/* Start one statement. A SELECT runs in the background at once, and so does COPY … TO, whose result lists the files (it is done when
 * that was read to its end), INSERT INTO 'directory/' and CREATE TABLE 'directory/' AS, which give a count; others (INSERT INTO a table,
 * CREATE, ATTACH, SET, ...) are done on return and have an empty result or a count. EXPLAIN [ANALYZE]
 * gives the stages, a row a line; EXPLAIN (DUCKDB) gives DuckDB's own plan. *out: brant_query_free it. */
BRANT_API int brant_submit(brant_session *session, const char *sql, brant_query **out, brant_error *err);
/* A value for a parameter of a statement: $1, $2 … and ? in their order, $name by its name. */
typedef struct brant_param {
  const char *name; /* without the $, "2" for $2; NULL: the next by number */
  /* SQL type of value, such as BIGINT, DATE, VARCHAR[]: value is a text that this type is made of, whatever is in it. NULL: value is an
   * SQL expression without columns, such as 42, DATE '2024-01-01', [1, 2] */
  const char *type;
  const char *value; /* NULL: NULL */
} brant_param;
/* The statement with values in the place of its parameters, to be submitted or explained any number of times: *text, brant_free it. Each
 * parameter must have a value and each value a parameter; the columns of its result keep the names that DuckDB gives them. */
BRANT_API int brant_bind(brant_session *session, const char *sql, const brant_param *params, size_t n_params,
                         char **text, brant_error *err);
/* brant_bind, then brant_submit. */
BRANT_API int brant_submit_params(brant_session *session, const char *sql, const brant_param *params, size_t n_params,
                                  brant_query **out, brant_error *err);
/* Ask the brant_submit or brant_explain under way to stop: it returns BRANT_CANCELLED. Any thread. Repeat it until the call has
 * returned: one that comes between two steps of planning may be missed. */
BRANT_API void brant_interrupt(brant_session *session);
/* The result as an Arrow C stream: rows in order, batch by batch, each as soon as it is ready. The stream holds the query:
 * release it in any order with brant_query_free. Can be taken once. get_next blocks; its error text is get_last_error. Types are DuckDB's
 * own in Arrow; an ENUM is a dictionary of all its values, in their order, with indices of 8, 16 or 32 bits. */
BRANT_API int brant_query_stream(brant_query *query, struct ArrowArrayStream *out, brant_error *err);
/* Ask it to stop. Any thread, any time before brant_query_free, more than once; NULL is fine. The stream then ends with
 * BRANT_CANCELLED within a second, wherever it runs. (brant_query_free of a query in this process waits until DuckDB has looked,
 * which some joins over ranges do seldom.) */
BRANT_API void brant_query_cancel(brant_query *query);
/* The first error of the query: returns its code and fills *err; 0 when there is none (yet). Any thread. */
BRANT_API int brant_query_error(brant_query *query, brant_error *err);

/* ---- tables of the session that are neither files nor DuckDB's */

/* The rows of an Arrow C stream become the table `name` of this session, for SQL as `name` or dataset('name'). The stream is read
 * to its end during the call, and released in any case. What does not fit into dataset_bytes of memory goes to temp_dir. Queries in
 * this process read it in place, workers from this process. */
BRANT_API int brant_register_arrow(brant_session *session, const char *name, struct ArrowArrayStream *stream,
                                   brant_error *err);
/* Wait for the query, and keep its result where it is as the table `name`: on the workers, if it ran there. What a lost worker had is
 * computed again when it is read. The query can be freed; its result can't be read as a stream any more. */
BRANT_API int brant_query_persist(brant_query *query, const char *name, brant_error *err);
/* Forget such a table. A distributed query that still reads one that the caller gave fails: read its result first. brant_close
 * forgets all. */
BRANT_API int brant_drop_table(brant_session *session, const char *name, brant_error *err);

typedef struct brant_stats {
  size_t size; /* set to sizeof(brant_stats) before the call */
  uint32_t stages, stages_done, tasks, tasks_done, tasks_running;
  uint64_t rows_read, rows_out; /* of sources, of the result */
  uint64_t bytes_shuffled;      /* written by stages for other stages and the result */
  uint64_t bytes_fetched;       /* of those, moved over sockets */
  uint64_t spilled_bytes;
  uint64_t peak_memory_bytes;        /* largest of one worker (PSS over its processes), so far */
  uint64_t coordinator_memory_bytes; /* resident set of this process */
  double seconds, cpu_seconds;       /* wall so far; CPU of its tasks */
  int distributed;                   /* 0: ran in this process */
  uint64_t retries, executors_lost, workers_lost;
  char text[128];         /* one word on what goes on: "stage 3 of 5: join, partial aggregate" */
  uint64_t rows_shuffled; /* written by stages for other stages and the result */
  /* second attempts beside stragglers; committed outputs that were lost; committed tasks that ran again for that */
  uint64_t second_attempts, outputs_lost, tasks_again;
  int eager; /* stages ran while their inputs were written */
} brant_stats;
/* How far it is, or how it was. Any thread. */
BRANT_API void brant_query_stats(brant_query *query, brant_stats *out);
/* Free the query; cancels it first if it still runs and no stream holds it. NULL is fine. */
BRANT_API void brant_query_free(brant_query *query);

/* The stages of a SELECT: a tree for people (json == 0) or JSON; analyze != 0 runs it first and adds what was measured.
 * *text: brant_free it. */
BRANT_API int brant_explain(brant_session *session, const char *sql, int analyze, int json, char **text,
                            brant_error *err);

/* A function of the user's, called in SQL as name(any, arguments): it runs in processes of the interpreter that each worker starts, keeps
 * and watches. Rows go there in batches; those that an expression only needs sometimes (CASE, AND, OR) go there all. */
typedef struct brant_function {
  size_t size;              /* sizeof(brant_function) */
  const char *name;         /* letters, digits, _; no function that SQL has already. A second one replaces the first */
  const char *return_type;  /* SQL type; LIST for generators, with unnest() around the call */
  const void *payload;      /* what the process is given, copied */
  size_t payload_bytes;     /* at most 1 GiB */
  const char *interpreter;  /* NULL: $BRANT_PYTHON of each worker, else its python3 */
  const char *options_json; /* for the process, an object; NULL: {} */
  uint32_t batch_size;      /* rows a call; 0: as fits their time and size */
  uint32_t concurrency;     /* processes on all workers together; 0: one a core of each worker */
  double cpus, gpus;        /* of one process; gpus is set aside and made visible to it */
  uint64_t memory_bytes;    /* one process may take so much; 0: no bound of its own */
  uint32_t max_retries;     /* of a batch whose process died or hung */
  uint64_t timeout_ms;      /* of a batch; 0: none */
  int deterministic;        /* the same arguments give the same result */
} brant_function;
#define BRANT_FUNCTION_INIT \
  { sizeof(brant_function), NULL, NULL, NULL, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0 }
/* All is copied. Queries that call it run on workers, whatever their size. */
BRANT_API int brant_register_function(brant_session *session, const brant_function *function, brant_error *err);
/* Queries that run keep it. BRANT_NOT_FOUND: there is none. */
BRANT_API int brant_drop_function(brant_session *session, const char *name, brant_error *err);

/* One stream of events for everything that happens: queries, stages, tasks, workers. json is one object a line (schema in
 * docs/events.md), valid for the call. Called from the engine's own thread: return soon, call nothing of this header. */
typedef void (*brant_event_fn)(void *arg, const char *json);
BRANT_API int brant_subscribe(brant_session *session, brant_event_fn fn, void *arg, brant_error *err);

#ifdef __cplusplus
}
#endif
#endif
