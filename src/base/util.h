/* SPDX-License-Identifier: Apache-2.0
 * Clock, log, size parsing, random ids, files. */
#ifndef BRANT_BASE_UTIL_H
#define BRANT_BASE_UTIL_H

#include "base/status.h"
#include <stddef.h>

#define BRANT_VERSION "0.1.0"

uint64_t br_now_us(void); /* CLOCK_MONOTONIC */
uint64_t br_now_ms(void);
uint64_t br_wall_us(void);    /* CLOCK_REALTIME */
double br_cpu_seconds(void);  /* user + system of this process */
uint64_t br_random_u64(void); /* getrandom(2) */

/* "512MB", "1GiB", "1.5g", "1000": bytes. Decimal for KB/MB/GB, binary for KiB/MiB/GiB and for bare k/m/g. */
BR_MUST_USE br_status br_parse_bytes(const char *text, uint64_t *bytes, br_error *err);
void br_format_bytes(uint64_t bytes, char out[16]); /* "1.5 GiB" */

/* A name for this host that differs between hosts and boots: peers with the same one may share Unix sockets. Free it. */
char *br_host_id(void);

/* Log lines go to standard error: "2026-01-02T03:04:05.678 W worker[7] text". Level from BRANT_LOG=error|warn|info|debug
 * (default warn). Thread-safe: one write(2) a line. */
typedef enum br_log_level { BR_LOG_ERROR, BR_LOG_WARN, BR_LOG_INFO, BR_LOG_DEBUG } br_log_level;
void br_log_set_name(const char *role, uint32_t id); /* "worker", 7 */
void br_log(br_log_level level, const char *fmt, ...) BR_PRINTF(2, 3);
bool br_log_enabled(br_log_level level);

/* Files. */
/* A local path as other processes find it, whatever their working directory; others unchanged. Free it. */
char *br_absolute_path(const char *path);
BR_MUST_USE br_status br_mkdir_p(const char *path, br_error *err);
void br_remove_tree(const char *path); /* best effort; missing is fine; never follows symlinks */
BR_MUST_USE br_status br_write_all(int fd, const void *p, size_t n, br_error *err);
BR_MUST_USE br_status br_pread_all(int fd, void *p, size_t n, uint64_t offset,
                                   br_error *err); /* short file: BR_CORRUPT */

#endif
