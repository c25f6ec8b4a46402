/* SPDX-License-Identifier: Apache-2.0
 * What the files of the WARC reader share. */
#ifndef BRANT_FUNCTIONS_WARC_INSIDE_H
#define BRANT_FUNCTIONS_WARC_INSIDE_H

#include "functions/warc.h"
#include <zlib.h>

/* The first start at or behind `from`: in a gzip file a member whose content begins with WARC/; otherwise an empty line and
 * WARC/ after it. sure: of a gzip member, that it and those behind it are whole (br_warc_cuts must not cut inside of what only
 * looks like a member). *out is the file's size if there is none. */
BR_MUST_USE br_status br_warc_find(const br_warc_source *s, bool gzip, uint64_t from, bool sure, uint64_t *out,
                                   br_error *err);

#endif
