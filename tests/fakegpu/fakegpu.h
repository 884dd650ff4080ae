/* fakegpu - what the files of the fake plugin share. */
#ifndef TESTS_FAKEGPU_FAKEGPU_H
#define TESTS_FAKEGPU_FAKEGPU_H

#include "coll/device.h"

enum { FAKE_LIBRARY = 22809 };

int fake_number(const char *name, int otherwise); /* from the environment */

extern const struct coll_device_ops fake_coll_ops;

#endif
