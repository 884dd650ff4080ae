/* samples - one message of each kind with every field set, for round trips, damage and seeds. */
#ifndef TESTS_WIRE_SAMPLES_H
#define TESTS_WIRE_SAMPLES_H

#include "wire/msg.h"

/* Sample number i in *m, which borrows from a; 0 when there is none of that number. */
int sample_make(struct arena *a, int i, Wire__Control *m);

#endif
