/* SPDX-License-Identifier: Apache-2.0
 * Non-blocking sockets, TCP and Unix: addresses, listeners, connecting with a bound. Loop thread only. */
#ifndef BRANT_NET_SOCKET_H
#define BRANT_NET_SOCKET_H

#include "net/loop.h"

#define BR_ADDRESS_BYTES 272

typedef struct br_address {
  bool is_unix;
  int port;
  char host[256];              /* TCP: name or number; Unix: empty */
  char path[108];              /* Unix: what fits a sun_path; TCP: empty */
  char text[BR_ADDRESS_BYTES]; /* for messages: "host:port", "unix:/path" */
} br_address;
/* "tcp://host:port", "tcp://[::1]:port" or "unix:/path". */
BR_MUST_USE br_status br_address_parse(const char *uri, br_address *out, br_error *err);

/* Sockets that listen, non-blocking and close-on-exec. port 0: any free one; *bound_port tells which. A port in use is
 * one clear error. A stale Unix socket (nobody answers) is replaced. */
BR_MUST_USE br_status br_listen_tcp(const char *host, int port, int *fd, int *bound_port, br_error *err);
BR_MUST_USE br_status br_listen_unix(const char *path, int *fd, br_error *err);

/* Hands out accepted sockets. Survives EMFILE and the like: it pauses for BR_ACCEPT_PAUSE_MS, the kernel's backlog waits. */
#define BR_ACCEPT_PAUSE_MS 50
typedef struct br_listener br_listener;
BR_MUST_USE br_status br_listener_new(br_loop *l, int fd, void (*accepted)(void *arg, int fd, const char *peer),
                                      void *arg, br_listener **out, br_error *err); /* owns fd, also on failure */
void br_listener_free(br_listener *s);

/* Connects without blocking the loop (names are resolved on a pool thread), trying each address of the name. done is
 * called once, never from inside br_connect: fd >= 0 is the caller's, or -1 and err. */
typedef struct br_connect br_connect;
br_connect *br_connect_start(br_loop *l, const br_address *a, uint32_t bound_ms,
                             void (*done)(void *arg, int fd, const br_error *err), void *arg);
void br_connect_cancel(br_connect *c); /* before done only; done isn't called afterwards */

/* TCP: no delay, keep-alive probes so that a vanished peer is noticed within a minute. Unix: nothing. */
void br_socket_options(int fd, bool is_unix);

#endif
