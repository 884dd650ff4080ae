/* text_network - foreign networks as text, one line a fact, for tests.
 *
 *     tensor NAME ROLE TYPE TRAINED [D,D]      ROLE p parameter, b buffer, c constant; with
 *                                              " = v v v" its elements (numbers), if any
 *     tied NAME OTHER                          NAME has the elements of OTHER
 *     value NAME TYPE [D,D] [of TENSOR]        of TENSOR: a tensor's value
 *     input NAME VALUE
 *     output NAME VALUE
 *     node TARGET MODULE ARG ... -> VALUE ...  MODULE - for none; VALUE - for None
 *     eval                                     exported in evaluation mode
 *
 * ARG is NAME=KIND...: v values, V list of values, i integers, I list, r number, f flag, t text,
 * d type, n none; lists have commas: stride=I2,2.
 *
 * Threads: any. */
#ifndef TESTS_IMPORT_TEXT_NETWORK_H
#define TESTS_IMPORT_TEXT_NETWORK_H

#include "import/network.h"
#include "ir/graph.h"

struct import_network *text_network(const char *text); /* ends the test if the text is wrong */

/* Lower the text for this batch; the input "x" has the shape of the network, images channels last.
 * NULL: it failed. */
struct graph *text_lower(const char *text, int64_t batch, int training, int *outputs,
                         struct err *err);

#endif
