/* SPDX-License-Identifier: Apache-2.0
 * Who owns a directory that must be removed when its owner is dead: a small text, `pid <n> start <n> boot <id> host <name>`, in a
 * file that the owner keeps locked. Any thread. */
#ifndef BRANT_BASE_OWNER_H
#define BRANT_BASE_OWNER_H

#include "base/status.h"
#include <sys/types.h>

#define BR_OWNER_BYTES 384u

/* This process. */
void br_owner_text(char out[BR_OWNER_BYTES]);

/* Write `path`, through a file beside it, so that nobody sees an owner file that isn't whole and locked. *fd keeps the lock. A file
 * system without locks is fine: then pid and time decide. */
BR_MUST_USE br_status br_owner_write(const char *path, int *fd, br_error *err);

typedef enum br_owner_state {
  BR_OWNER_LIVES,
  BR_OWNER_DEAD,  /* a process of this boot of this machine that is gone, and nobody has the lock */
  BR_OWNER_UNSURE /* it may live on another machine, or in a container beside this one */
} br_owner_state;
/* DEAD, UNSURE: *fd holds the lock if it can be had, else -1; close it when done. *mtime_s: when it was last touched (0: no file). */
br_owner_state br_owner_look(const char *path, int *fd, int64_t *mtime_s);

#endif
