/* fakegpu - declarations that the files of the simulated GPU's plugin share: its collectives, and
 * numbers from the environment. */
#ifndef TESTS_FAKEGPU_FAKEGPU_H
#define TESTS_FAKEGPU_FAKEGPU_H

#include "coll/device.h"

enum { FAKE_LIBRARY = 22809 };

int fake_number(const char *name, int otherwise); /* the number in environment variable `name` */

extern const struct coll_device_ops fake_coll_ops;

#endif
