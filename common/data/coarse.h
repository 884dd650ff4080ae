/* coarse - finds numbers that are stored as doubles, and of which a float keeps too little.
 *
 * A float has 24 bits.  A date in seconds is about 1.7e9, where floats are 128 apart; an account's
 * number above 2^24 becomes that of another account.
 *
 * Threads: any. */
#ifndef DATA_COARSE_H
#define DATA_COARSE_H

#include "data/dataset.h"

/* Look at evenly spaced samples of a data set, and warn of features and targets of which programs
 * see too little.  Fails as reading samples does. */
int coarse_tell(const struct dataset *ds, const struct dataset_request *request, struct err *err);

#endif
