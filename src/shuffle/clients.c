/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections of each loop: get → calls → put; a timer closes what nobody used for BR_CLIENT_IDLE_MS.
 *
 * A connection is shared, since a stream that nobody consumes stalls alone (net/http2.h). The flight client connects anew by
 * itself when its connection broke, so a broken one can stay here.
 * Threads: a pool is used on its loop's thread only; the list of pools has a lock, since processes may run several loops.
 * Bounds: one connection a (uri, secret, window size): of window sizes readers use five.
 */
#include "shuffle/clients.h"

#include "base/mem.h"
#include "base/util.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct pooled pooled;
struct pooled {
  pooled *next;
  char *uri, *secret;
  uint32_t window_bytes, users;
  uint64_t idle_since_ms;
  br_flight_client *client;
};

typedef struct pool pool;
struct pool {
  pool *next;
  br_loop *loop;
  pooled *first;
  br_timer *timer;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pool *pools;

static pool *find_pool(br_loop *l, bool make) {
  pthread_mutex_lock(&pools_lock);
  pool *p = pools;
  while (p != NULL && p->loop != l) p = p->next;
  if (p == NULL && make) {
    p = br_calloc(1, sizeof *p);
    *p = (pool){.next = pools, .loop = l};
    pools = p;
  }
  pthread_mutex_unlock(&pools_lock);
  return p;
}

static bool same_secret(const char *a, const char *b) {
  return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void pooled_free(pooled *c) {
  br_flight_client_free(c->client);
  free(c->uri);
  free(c->secret);
  free(c);
}

static void close_idle(void *arg) {
  pool *p = arg;
  uint64_t now = br_now_ms();
  for (pooled **at = &p->first; *at != NULL;) {
    pooled *c = *at;
    if (c->users == 0 && now - c->idle_since_ms >= BR_CLIENT_IDLE_MS) {
      *at = c->next;
      pooled_free(c);
    } else {
      at = &c->next;
    }
  }
  if (p->first == NULL) {
    br_timer_stop(p->timer);
    p->timer = NULL;
  }
}

br_status br_client_get(br_loop *l, const char *uri, const char *secret, uint32_t window_bytes, br_flight_client **out,
                        br_error *err) {
  pool *p = find_pool(l, true);
  pooled *c = p->first;
  while (c != NULL && (c->window_bytes != window_bytes || strcmp(c->uri, uri) != 0 || !same_secret(c->secret, secret)))
    c = c->next;
  if (c == NULL) {
    br_flight_client *client = NULL;
    br_flight_client_options o = {.bearer = secret, .window_bytes = window_bytes};
    BR_TRY(br_flight_client_new(l, uri, &o, &client, err));
    c = br_calloc(1, sizeof *c);
    *c = (pooled){.next = p->first,
                  .uri = br_strdup(uri),
                  .secret = secret != NULL ? br_strdup(secret) : NULL,
                  .window_bytes = window_bytes,
                  .client = client};
    p->first = c;
  }
  if (p->timer == NULL) p->timer = br_timer_start(l, BR_CLIENT_IDLE_MS, BR_CLIENT_IDLE_MS, close_idle, p);
  c->users++;
  *out = c->client;
  return BR_OK;
}

void br_client_put(br_loop *l, br_flight_client *client) {
  pool *p = find_pool(l, false);
  for (pooled *c = p != NULL ? p->first : NULL; c != NULL; c = c->next)
    if (c->client == client) {
      c->users--;
      c->idle_since_ms = br_now_ms();
      return;
    }
}

void br_clients_close(br_loop *l) {
  pthread_mutex_lock(&pools_lock);
  pool **at = &pools, *p;
  while (*at != NULL && (*at)->loop != l) at = &(*at)->next;
  p = *at;
  if (p != NULL) *at = p->next;
  pthread_mutex_unlock(&pools_lock);
  if (p == NULL) return;
  br_timer_stop(p->timer);
  while (p->first != NULL) {
    pooled *c = p->first;
    p->first = c->next;
    pooled_free(c);
  }
  free(p);
}

size_t br_clients_count(br_loop *l) {
  pool *p = find_pool(l, false);
  size_t n = 0;
  for (pooled *c = p != NULL ? p->first : NULL; c != NULL; c = c->next) n++;
  return n;
}
