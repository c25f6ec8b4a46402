/* SPDX-License-Identifier: Apache-2.0
 *
 * Downloads by libcurl's multi interface: one call has up to max_connections transfers in flight, all calls of the process
 * together BR_DOWNLOAD_PROCESS_CONNECTIONS. A transfer that may be tried again waits aside until its time has come.
 * Order: one call. Threads: a call is one thread's, what they share is the count of connections. Bounds: see download.h.
 */
#include "functions/download.h"

#include "base/mem.h"
#include "base/util.h"
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 10000, MOST_REDIRECTS = 10 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t in_use; /* connections of the process; with the lock */
static void start_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

typedef struct call call;
typedef struct transfer {
  call *call;
  br_download *item;
  CURL *easy; /* in flight; NULL: waiting */
  uint32_t tries;
  uint64_t not_before_ms;
  bool done, too_long;
} transfer;
struct call {
  const br_download_options *o;
  CURLM *multi;
  transfer *transfers;
  size_t n, left;   /* left: not done */
  size_t first;     /* all before it are done */
  uint32_t running; /* each holds one of the process's connections */
  uint64_t bytes;
};

/* ---- the process's connections */

static bool connection_take(void) {
  pthread_mutex_lock(&lock);
  bool free_one = in_use < BR_DOWNLOAD_PROCESS_CONNECTIONS;
  in_use += free_one;
  pthread_mutex_unlock(&lock);
  return free_one;
}

static void connection_give(void) {
  pthread_mutex_lock(&lock);
  in_use--;
  pthread_mutex_unlock(&lock);
}

/* ---- one transfer */

static size_t on_bytes(char *p, size_t size, size_t count, void *arg) {
  transfer *t = arg;
  size_t n = size * count;
  if (n > t->call->o->max_bytes || t->item->body.len > t->call->o->max_bytes - n) {
    t->too_long = true;
    return 0; /* ends the transfer */
  }
  t->call->bytes += n;
  if (t->call->bytes > BR_DOWNLOAD_CALL_BYTES) return 0;
  br_buf_add(&t->item->body, p, n);
  return n;
}

static void forget_body(transfer *t) {
  t->call->bytes -= t->item->body.len;
  br_buf_free(&t->item->body);
}

static bool is_web(const char *url) { return !strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8); }

static void set_protocols(CURL *easy) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void transfer_end(transfer *t) {
  if (!t->easy) return;
  curl_multi_remove_handle(t->call->multi, t->easy);
  curl_easy_cleanup(t->easy);
  t->easy = NULL;
  t->call->running--;
  connection_give();
}

/* With one of the process's connections taken, which it now holds. */
static br_status transfer_start(transfer *t, br_error *err) {
  t->easy = curl_easy_init();
  if (!t->easy) {
    connection_give();
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "url_download: no memory for a transfer");
  }
  t->call->running++;
  t->tries++;
  t->too_long = false;
  curl_easy_setopt(t->easy, CURLOPT_URL, t->item->url);
  curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
  curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_bytes);
  curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
  curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)t->call->o->timeout_ms);
  curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(t->easy, CURLOPT_MAXREDIRS, (long)MOST_REDIRECTS);
  curl_easy_setopt(t->easy, CURLOPT_USERAGENT, "brant/" BRANT_VERSION);
  set_protocols(t->easy);
  if (curl_multi_add_handle(t->call->multi, t->easy) == CURLM_OK) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "url_download: libcurl does not take a transfer");
}

static void finish(transfer *t) {
  t->done = true;
  t->call->left--;
}

static bool worth_retrying(CURLcode rc, long status) {
  switch (rc) {
    case CURLE_OK: return status == 429 || status >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

static void transfer_over(transfer *t, CURLcode rc) {
  long status = 0;
  curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
  transfer_end(t);
  if (rc == CURLE_OK && status >= 200 && status < 300) {
    t->item->error[0] = 0;
    finish(t);
    return;
  }
  forget_body(t);
  if (t->too_long)
    snprintf(t->item->error, sizeof t->item->error, "more than %llu bytes (max_bytes)",
             (unsigned long long)t->call->o->max_bytes);
  else if (rc == CURLE_OK)
    snprintf(t->item->error, sizeof t->item->error, "HTTP status %ld", status);
  else
    snprintf(t->item->error, sizeof t->item->error, "%s", curl_easy_strerror(rc));
  if (t->too_long || !worth_retrying(rc, status) || t->tries > t->call->o->retries) {
    finish(t);
    return;
  }
  uint64_t wait = (uint64_t)FIRST_WAIT_MS << (t->tries - 1 < 7 ? t->tries - 1 : 7);
  t->not_before_ms = br_now_ms() + (wait < LONGEST_WAIT_MS ? wait : LONGEST_WAIT_MS);
}

/* ---- all of them */

/* Starts what may start now. Never waits for other calls' connections but by coming back. */
static br_status start_some(call *c, br_error *err) {
  uint64_t now = br_now_ms();
  while (c->first < c->n && c->transfers[c->first].done) c->first++;
  for (size_t i = c->first; i < c->n && c->running < c->o->max_connections; i++) {
    transfer *t = &c->transfers[i];
    if (t->done || t->easy || t->not_before_ms > now) continue;
    if (!connection_take()) return BR_OK;
    BR_TRY(transfer_start(t, err));
  }
  return BR_OK;
}

static br_status step(call *c, br_error *err) {
  int running, messages;
  CURLMsg *m;
  if (c->o->cancelled && c->o->cancelled(c->o->arg))
    return br_fail(err, BR_CANCELLED, BR_BLAME_USER, "cancelled while downloading");
  BR_TRY(start_some(c, err));
  if (curl_multi_perform(c->multi, &running) != CURLM_OK)
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "url_download: libcurl failed");
  if (c->bytes > BR_DOWNLOAD_CALL_BYTES)
    return br_fail(
        err, BR_OUT_OF_MEMORY, BR_BLAME_USER,
        "url_download: the bodies of one chunk of rows are longer than 2 GiB together: use a lower max_bytes");
  bool any = false;
  while ((m = curl_multi_info_read(c->multi, &messages)) != NULL) {
    char *t = NULL;
    if (m->msg != CURLMSG_DONE) continue;
    CURLcode rc = m->data.result;
    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
    transfer_over((transfer *)(void *)t, rc);
    any = true;
  }
  if (c->left && !any) curl_multi_poll(c->multi, NULL, 0, BR_DOWNLOAD_CANCEL_MS, NULL);
  return BR_OK;
}

static void call_init(call *c, br_download *items) {
  for (size_t i = 0; i < c->n; i++) {
    transfer *t = &c->transfers[i];
    *t = (transfer){.call = c, .item = &items[i]};
    items[i].error[0] = 0;
    t->done = !items[i].url || !is_web(items[i].url);
    if (t->done && items[i].url)
      snprintf(items[i].error, sizeof items[i].error, "only http:// and https:// are downloaded");
    c->left += !t->done;
  }
}

br_status br_download_all(const br_download_options *o, br_download *items, size_t n, br_error *err) {
  call c = {.o = o, .n = n};
  br_status status = BR_OK;
  pthread_once(&once, start_curl);
  c.transfers = br_calloc(n + 1, sizeof *c.transfers);
  call_init(&c, items);
  c.multi = curl_multi_init();
  if (!c.multi) status = br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "url_download: no memory for libcurl");
  while (status == BR_OK && c.left) status = step(&c, err);
  for (size_t i = 0; i < n; i++) transfer_end(&c.transfers[i]);
  if (c.multi) curl_multi_cleanup(c.multi);
  free(c.transfers);
  return status;
}
