/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: compress and decompress single buffers of Arrow IPC bodies.
 * Order of calls: any.
 * Threads: any; each thread keeps its own contexts (about 1 MiB once zstd was used), freed when it ends.
 * Bounds: none of its own: callers bound the sizes (ipc_decode.c).
 */
#include "arrow/codec.h"
#include "base/mem.h"
#include <lz4frame.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define ZSTD_LEVEL 1 /* the shuffle is bound by CPU: level 3 costs twice the time for about 5 % fewer bytes */

typedef struct contexts {
  LZ4F_dctx *lz4_d;
  ZSTD_CCtx *zstd_c;
  ZSTD_DCtx *zstd_d;
} contexts;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void contexts_free(void *p) {
  contexts *c = p;
  LZ4F_freeDecompressionContext(c->lz4_d);
  ZSTD_freeCCtx(c->zstd_c);
  ZSTD_freeDCtx(c->zstd_d);
  free(c);
}

static void make_key(void) { BR_ASSERT(pthread_key_create(&key, contexts_free) == 0); }

static contexts *mine(void) {
  pthread_once(&once, make_key);
  contexts *c = pthread_getspecific(key);
  if (c == NULL) {
    c = br_calloc(1, sizeof *c);
    BR_ASSERT(pthread_setspecific(key, c) == 0);
  }
  return c;
}

const char *br_codec_name(br_codec c) {
  switch (c) {
    case BR_CODEC_NONE: return "none";
    case BR_CODEC_LZ4: return "lz4";
    case BR_CODEC_ZSTD: return "zstd";
  }
  return "unknown";
}

br_status br_codec_parse(const char *name, br_codec *out, br_error *err) {
  for (br_codec c = BR_CODEC_NONE; c <= BR_CODEC_ZSTD; c++) {
    if (strcmp(name, br_codec_name(c)) != 0) continue;
    *out = c;
    return BR_OK;
  }
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "unknown compression '%.100s': use none, lz4 or zstd", name);
}

/* The smallest block size that holds the whole buffer: one block means no history copies when reading. */
static LZ4F_preferences_t lz4_preferences(size_t bytes) {
  LZ4F_preferences_t p;
  memset(&p, 0, sizeof p);
  p.frameInfo.contentSize = bytes;
  p.frameInfo.blockMode = LZ4F_blockIndependent;
  p.frameInfo.blockSizeID = bytes <= (64u << 10)    ? LZ4F_max64KB
                            : bytes <= (256u << 10) ? LZ4F_max256KB
                            : bytes <= (1u << 20)   ? LZ4F_max1MB
                                                    : LZ4F_max4MB;
  return p;
}

size_t br_codec_bound(br_codec codec, size_t bytes) {
  if (codec == BR_CODEC_ZSTD) return ZSTD_compressBound(bytes);
  LZ4F_preferences_t p = lz4_preferences(bytes);
  return LZ4F_compressFrameBound(bytes, &p);
}

static br_status failed(const char *what, const char *why, br_error *err) {
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "%s failed: %s", what, why);
}

br_status br_codec_compress(br_codec codec, const void *src, size_t bytes, void *dst, size_t room, size_t *written,
                            br_error *err) {
  if (codec == BR_CODEC_LZ4) { /* its context is on the stack */
    LZ4F_preferences_t p = lz4_preferences(bytes);
    *written = LZ4F_compressFrame(dst, room, src, bytes, &p);
    return LZ4F_isError(*written) ? failed("lz4 compression", LZ4F_getErrorName(*written), err) : BR_OK;
  }
  contexts *c = mine();
  if (c->zstd_c == NULL) c->zstd_c = ZSTD_createCCtx();
  if (c->zstd_c == NULL) return failed("zstd compression", "out of memory", err);
  *written = ZSTD_compressCCtx(c->zstd_c, dst, room, src, bytes, ZSTD_LEVEL);
  return ZSTD_isError(*written) ? failed("zstd compression", ZSTD_getErrorName(*written), err) : BR_OK;
}

static br_status corrupt(const char *codec, const char *why, br_error *err) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "Arrow message: a buffer's %s data is broken: %s", codec, why);
}

static br_status lz4_decompress(contexts *c, const char *src, size_t bytes, char *dst, size_t dst_bytes,
                                br_error *err) {
  if (c->lz4_d == NULL && LZ4F_isError(LZ4F_createDecompressionContext(&c->lz4_d, LZ4F_VERSION)))
    return failed("lz4 decompression", "out of memory", err);
  LZ4F_resetDecompressionContext(c->lz4_d);
  LZ4F_decompressOptions_t stable;
  memset(&stable, 0, sizeof stable);
  stable.stableDst = 1;
  size_t in = 0, out = 0, hint = 1;
  while (hint != 0) {
    size_t n_in = bytes - in, n_out = dst_bytes - out;
    hint = LZ4F_decompress(c->lz4_d, dst + out, &n_out, src + in, &n_in, &stable);
    if (LZ4F_isError(hint)) return corrupt("lz4", LZ4F_getErrorName(hint), err);
    if (n_in == 0 && n_out == 0 && hint != 0) return corrupt("lz4", "it ends early or holds more than it says", err);
    in += n_in;
    out += n_out;
  }
  if (out != dst_bytes) return corrupt("lz4", "it holds less than it says", err);
  return BR_OK;
}

br_status br_codec_decompress(br_codec codec, const void *src, size_t bytes, void *dst, size_t dst_bytes,
                              br_error *err) {
  contexts *c = mine();
  if (codec == BR_CODEC_LZ4) return lz4_decompress(c, src, bytes, dst, dst_bytes, err);
  if (c->zstd_d == NULL) c->zstd_d = ZSTD_createDCtx();
  if (c->zstd_d == NULL) return failed("zstd decompression", "out of memory", err);
  size_t n = ZSTD_decompressDCtx(c->zstd_d, dst, dst_bytes, src, bytes);
  if (ZSTD_isError(n)) return corrupt("zstd", ZSTD_getErrorName(n), err);
  if (n != dst_bytes) return corrupt("zstd", "it holds less than it says", err);
  return BR_OK;
}

bool br_codec_plausible(br_codec codec, const void *src, size_t bytes, uint64_t claimed) {
  if (codec == BR_CODEC_LZ4) return claimed / 256 <= bytes; /* a match byte gives at most 255 bytes */
  unsigned long long size = ZSTD_getFrameContentSize(src, bytes);
  if (size == ZSTD_CONTENTSIZE_ERROR) return false;
  if (size != ZSTD_CONTENTSIZE_UNKNOWN) return size == claimed;
  return claimed >> 17 <= bytes; /* the largest block is 128 KiB and takes at least 4 bytes */
}
