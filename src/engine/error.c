/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB's error types as our codes and blames; the text is carried on, and looked at only where the C API has no type.
 * Order: any. Threads: any. Bounds: messages are cut at BR_ERROR_MESSAGE_BYTES.
 */
#include "engine/internal.h"
#include <string.h>
#include <strings.h>

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

duckdb_error_type br_duckdb_type_of(const char *message) {
  static const struct {
    const char *name;
    duckdb_error_type type;
  } names[] = {{"Parser", DUCKDB_ERROR_PARSER},
               {"Syntax", DUCKDB_ERROR_SYNTAX},
               {"Binder", DUCKDB_ERROR_BINDER},
               {"Catalog", DUCKDB_ERROR_CATALOG},
               {"Settings", DUCKDB_ERROR_SETTINGS},
               {"Planner", DUCKDB_ERROR_PLANNER},
               {"Unknown Type", DUCKDB_ERROR_UNKNOWN_TYPE},
               {"Dependency", DUCKDB_ERROR_DEPENDENCY},
               {"Parameter Not Resolved", DUCKDB_ERROR_PARAMETER_NOT_RESOLVED},
               {"Parameter Not Allowed", DUCKDB_ERROR_PARAMETER_NOT_ALLOWED},
               {"Not implemented", DUCKDB_ERROR_NOT_IMPLEMENTED},
               {"Missing Extension", DUCKDB_ERROR_MISSING_EXTENSION},
               {"Extension Autoloading", DUCKDB_ERROR_AUTOLOAD},
               {"Permission", DUCKDB_ERROR_PERMISSION},
               {"Out of Memory", DUCKDB_ERROR_OUT_OF_MEMORY},
               {"IO", DUCKDB_ERROR_IO},
               {"HTTP", DUCKDB_ERROR_HTTP},
               {"Network", DUCKDB_ERROR_NETWORK},
               {"Connection", DUCKDB_ERROR_CONNECTION},
               {"Serialization", DUCKDB_ERROR_SERIALIZATION},
               {"INTERRUPT", DUCKDB_ERROR_INTERRUPT},
               {"FATAL", DUCKDB_ERROR_FATAL},
               {"INTERNAL", DUCKDB_ERROR_INTERNAL},
               {"NullPointer", DUCKDB_ERROR_NULL_POINTER},
               {"Scheduler", DUCKDB_ERROR_SCHEDULER},
               {"Optimizer", DUCKDB_ERROR_OPTIMIZER},
               {"Stat", DUCKDB_ERROR_STAT}};
  for (size_t i = 0; message && i < sizeof names / sizeof *names; i++) {
    size_t n = strlen(names[i].name);
    if (strncasecmp(message, names[i].name, n) == 0 && strncmp(message + n, " Error: ", 8) == 0) return names[i].type;
  }
  return DUCKDB_ERROR_EXECUTOR;
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
