/* equation - the equation of an einsum, spelt out: without spaces, with letters in the place of
 * "...", and with its result.
 *
 * Threads: pure. */
#ifndef IMPORT_EQUATION_H
#define IMPORT_EQUATION_H

enum { EQUATION_ROOM = 96, EQUATION_MOST = 8 };

/* n_dims: of each of the n operands, 1 to EQUATION_MOST.  "...ij,jk" of 4 and 2 dimensions becomes
 * "yzij,jk->yzik".  Letters are a to z and A to Z.  Returns -1 if the equation fits no such
 * operands, or is too long. */
int equation_spell(const char *given, const int *n_dims, int n, char to[EQUATION_ROOM]);

#endif
