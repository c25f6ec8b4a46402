/* SPDX-License-Identifier: Apache-2.0
 * Words of a statement, for those who look for a place in a text: statements.c, copy_text.c. Threads: any. */
#ifndef BRANT_COORDINATOR_TOKENS_H
#define BRANT_COORDINATOR_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

/* The next token at *p: *start and its length; *p moves behind it. False: the end. */
bool br_token_next(const char **p, const char **start, size_t *n);
bool br_token_is(const char *start, size_t n, const char *word); /* without regard to case */
/* A quoted text or name without its quotes. Free it. */
char *br_token_unquote(const char *start, size_t n);

#endif
