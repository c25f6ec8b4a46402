/* SPDX-License-Identifier: Apache-2.0
 * What reader.c (the threads that call next) and reader_remote.c (the loop thread) share. */
#ifndef BRANT_SHUFFLE_READER_INTERNAL_H
#define BRANT_SHUFFLE_READER_INTERNAL_H

#include "shuffle/mapfile.h"
#include "shuffle/wire.h"

#include "flight/flight.h"
#include <pthread.h>
#include <stdatomic.h>

/* One batch that arrived, not decoded. */
typedef struct message message;
struct message {
  message *next;
  uint32_t map, partition;
  void *body; /* of the flight client */
  size_t body_bytes, head_bytes;
  unsigned char head[];
};

typedef struct remote_source {
  br_reader *r;
  char *uri;
  uint32_t worker, incarnation, outputs;

  /* loop thread */
  br_flight_client *client;
  br_flight_stream *stream;
  br_timer *retry_timer;
  uint32_t tries;
  bool started, closed, connecting; /* closed: done, failed or halted; connecting: inside br_flight_get */
  bool schema_seen, end_seen;
  uint64_t chunks, rows, active_ms; /* active_ms: when something came or was given back */
  br_wire_end end;
  br_mapfile *
      *opened; /* outputs in the worker's memory, mapped here; the reader's local sources once the stream is complete */
  uint32_t *opened_maps;
  size_t n_opened, opened_capacity, opened_maps_capacity;
  bool no_memory; /* it could not be mapped: all of it is fetched */

  /* under r->lock */
  message *first, *last;
  uint64_t queued_bytes, credit_bytes; /* credit: taken by a caller, not given back to the peer yet */
  bool credit_posted, delivered, done;
  uint32_t last_map; /* of the newest message */
} remote_source;

typedef struct local_source {
  br_mapfile *file;
  uint32_t map;
  const remote_source *from; /* whose memory it is; NULL: this node's */
  const br_chunk *chunks;
  size_t n, at; /* at: under r->lock */
} local_source;

struct br_reader {
  _Atomic uint32_t refs; /* the user, the loop side, each post under way */
  br_loop *loop;
  br_schema *schema;
  uint64_t query;
  uint32_t stage, table_version, first, last, map_first, map_last;
  bool ordered, map_peers;
  char *secret;
  uint32_t retry, retry_ms, silent_ms, window_bytes, max_streams;
  /* Sorted by map. Under lock once it's open: unordered, mapped outputs of remote sources come behind, and it may move. */
  local_source *local;
  size_t n_local, local_capacity;
  remote_source *remote;
  size_t n_remote;
  struct br_files *files; /* the sources are files of a shared directory (files_reader.c), else NULL */

  /* loop thread */
  br_timer *watch;
  uint32_t streams;
  bool halted;

  pthread_mutex_t lock;
  pthread_cond_t wake;
  size_t local_at, remote_at, remote_done; /* remote_at: where the next look for a message begins */
  bool cancelled;
  br_error failure;
  _Atomic uint64_t stat_rows, stat_bytes, stat_remote_bytes, stat_wait_us;
};

void br_reader_unref(br_reader *r);
/* The first failure wins; wakes everybody and halts the loop side. Any thread, without the lock. */
void br_reader_fail(br_reader *r, const br_error *err);
/* Make *err out of `cause`: BR_FETCH, naming the worker. */
void br_reader_fetch_error(const remote_source *s, const br_error *cause, br_error *err);
void br_message_free(message *m);
/* Is it an output that this reader can read? */
BR_MUST_USE br_status br_reader_check_file(const br_reader *r, br_mapfile *f, br_error *err);
void br_remote_forget_opened(remote_source *s);

/* loop thread; arg: the reader, with a reference that they drop */
void br_remote_start(void *reader);
void br_remote_halt(void *reader);
void br_remote_credit(void *source); /* the reference is on its reader */
typedef struct gone_peer {
  br_reader *r;
  uint32_t worker;
} gone_peer;
void br_remote_peer_gone(void *gone_peer); /* frees it */

#endif
