/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB's error types as our codes and blames; the text is carried on, never looked at.
 * Order: any. Threads: any. Bounds: messages are cut at BR_ERROR_MESSAGE_BYTES.
 */
#include "engine/internal.h"

typedef struct mapped {
  br_code code;
  br_blame blame;
  bool retryable;
} mapped;

static mapped map_type(duckdb_error_type type) {
  switch (type) {
    case DUCKDB_ERROR_PARSER:
    case DUCKDB_ERROR_SYNTAX:
    case DUCKDB_ERROR_BINDER:
    case DUCKDB_ERROR_CATALOG:
    case DUCKDB_ERROR_SETTINGS:
    case DUCKDB_ERROR_PLANNER:
    case DUCKDB_ERROR_UNKNOWN_TYPE:
    case DUCKDB_ERROR_DEPENDENCY:
    case DUCKDB_ERROR_PARAMETER_NOT_RESOLVED:
    case DUCKDB_ERROR_PARAMETER_NOT_ALLOWED: return (mapped){BR_INVALID, BR_BLAME_USER, false};
    case DUCKDB_ERROR_NOT_IMPLEMENTED:
    case DUCKDB_ERROR_MISSING_EXTENSION:
    case DUCKDB_ERROR_AUTOLOAD: return (mapped){BR_UNSUPPORTED, BR_BLAME_USER, false};
    case DUCKDB_ERROR_PERMISSION: return (mapped){BR_PERMISSION, BR_BLAME_USER, false};
    case DUCKDB_ERROR_OUT_OF_MEMORY: return (mapped){BR_OUT_OF_MEMORY, BR_BLAME_TASK, true};
    case DUCKDB_ERROR_IO:
    case DUCKDB_ERROR_HTTP:
    case DUCKDB_ERROR_NETWORK:
    case DUCKDB_ERROR_CONNECTION: return (mapped){BR_IO, BR_BLAME_TASK, true};
    case DUCKDB_ERROR_SERIALIZATION: return (mapped){BR_CORRUPT, BR_BLAME_TASK, false};
    case DUCKDB_ERROR_INTERRUPT: return (mapped){BR_CANCELLED, BR_BLAME_NONE, false};
    case DUCKDB_ERROR_FATAL:
    case DUCKDB_ERROR_INTERNAL:
    case DUCKDB_ERROR_NULL_POINTER:
    case DUCKDB_ERROR_SCHEDULER:
    case DUCKDB_ERROR_OPTIMIZER:
    case DUCKDB_ERROR_STAT: return (mapped){BR_INTERNAL, BR_BLAME_EXECUTOR, true};
    default: return (mapped){BR_EXECUTION, BR_BLAME_USER, false};
  }
}

br_status br_duckdb_fail(br_error *err, duckdb_error_type type, const char *message) {
  mapped m = map_type(type);
  br_status status =
      br_fail(err, m.code, m.blame, "%s", message && *message ? message : "DuckDB failed without a message");
  err->retryable = m.retryable;
  err->duckdb_type = (int)type;
  return status;
}

br_status br_interrupted_fail(br_error *err) {
  br_status status =
      br_fail(err, BR_INTERNAL, BR_BLAME_TASK, "DuckDB interrupted the statement without a reason: try it again");
  err->retryable = true;
  err->duckdb_type = (int)DUCKDB_ERROR_INTERRUPT;
  return status;
}

br_status br_duckdb_check(duckdb_error_data e, const char *what, br_error *err) {
  if (!e) return BR_OK;
  br_status status = BR_OK;
  if (duckdb_error_data_has_error(e)) {
    br_duckdb_fail(err, duckdb_error_data_error_type(e), duckdb_error_data_message(e));
    status = br_error_context(err, "%s", what);
  }
  duckdb_destroy_error_data(&e);
  return status;
}
