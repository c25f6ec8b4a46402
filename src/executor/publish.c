/* SPDX-License-Identifier: Apache-2.0
 * What can be read of an output that is being written, told to the worker (TaskOutput.publish). Chunks in memory or on disk are read by
 * the worker through the descriptor that goes along with the first ones. Threads: the task's, DuckDB's, the main one (which sends now
 * and then what would wait for the next chunk); one at a time, see shuffle.h. Bound: BR_OUTPUT_PUBLISH_CHUNKS a message. */
#include "executor/executor.h"

void br_epublish(void *task, const br_publication *p) {
  br_etask *t = task;
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  Brant__Pb__Published m = BRANT__PB__PUBLISHED__INIT;
  m.id = &id;
  m.generation = p->generation;
  m.in_memory = p->in_memory;
  m.first_chunk = p->first_chunk;
  m.chunks = (ProtobufCBinaryData){.len = p->n * sizeof *p->chunks, .data = (uint8_t *)p->chunks};
  m.schema = (ProtobufCBinaryData){.len = p->schema_bytes, .data = (uint8_t *)p->schema};
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_PUBLISHED;
  e.published = &m;
  br_executor_send(t->x, &e, &p->fd, p->fd >= 0 ? 1 : 0);
}
