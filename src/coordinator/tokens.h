/* SPDX-License-Identifier: Apache-2.0
 * Words of a statement, for those who look for a place in a text: statements.c, copy_text.c, stored_text.c, parameters.c. Threads: any. */
#ifndef BRANT_COORDINATOR_TOKENS_H
#define BRANT_COORDINATOR_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

/* The next token at *p: *start and its length; *p moves behind it. False: the end. */
bool br_token_next(const char **p, const char **start, size_t *n);
/* The statement without what follows it: semicolons, blanks, comments. Free it. NULL: another statement follows. */
char *br_token_statement(const char *sql);
bool br_token_is(const char *start, size_t n, const char *word); /* without regard to case */
bool br_token_take(const char **p, const char *word);            /* the next one, if it is this word */
/* The next one, if it may be a name: without its quotes, free it. */
bool br_token_name(const char **p, char **out);
/* Behind the bracket that closes the one at p[-1]; *inside_end: before it. NULL: there is none. */
const char *br_token_close(const char *p, const char **inside_end);
int br_token_depth(const char *start, size_t n); /* 1: a bracket opens, -1: one closes */
char *br_token_small(char *word);                /* its letters, in place */
/* A quoted text or name without its quotes. Free it. */
char *br_token_unquote(const char *start, size_t n);

#endif
