/* samples - one message of each kind, with every field set.  Tests send them around and damage
 * them; the fuzzer's seeds are made of them. */
#ifndef TESTS_WIRE_SAMPLES_H
#define TESTS_WIRE_SAMPLES_H

#include "wire/msg.h"

int sample_count(void);

/* Make sample number i in *m, which borrows from a.  Returns 0 if there is none of that number. */
int sample_make(struct arena *a, int i, Wire__Control *m);

#endif
