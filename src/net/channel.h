/* SPDX-License-Identifier: Apache-2.0
 * Framed messages with file descriptors over a connected Unix stream socket (worker <-> executor). A frame: u32 length
 * (little endian, <= BR_MESSAGE_MAX_BYTES), u32 number of descriptors (<= BR_CHANNEL_MAX_FDS), the bytes; descriptors ride
 * with the header. Loop thread only, except br_channel_send, which any thread may call. */
#ifndef BRANT_NET_CHANNEL_H
#define BRANT_NET_CHANNEL_H

#include "net/loop.h"

#define BR_CHANNEL_MAX_FDS 200

typedef struct br_channel br_channel;
typedef struct br_channel_handler {
  /* The receiver owns fds (all close-on-exec). data is valid for the call only. */
  void (*message)(void *arg, const void *data, size_t n, int *fds, int n_fds);
  void (*closed)(void *arg,
                 const br_error *why); /* once; why->code 0 on a clean end; afterwards only br_channel_free is legal */
  void *arg;
} br_channel_handler;
BR_MUST_USE br_status br_channel_new(br_loop *l, int fd, br_channel_handler h, br_channel **out,
                                     br_error *err); /* owns fd, also on failure */
/* Queue one frame. fds are duplicated: the caller keeps its own. Unbounded queue of small control messages: the sender
 * bounds what it has under way. */
void br_channel_send(br_channel *c, const void *data, size_t n, const int *fds, int n_fds);
void br_channel_free(br_channel *c);

#endif
