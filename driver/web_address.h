/* web_address - the value of --http, "[ADDR:]PORT": its form, and whether others than this machine
 * could look at a job that has no secret.
 *
 * Threads: any.
 * Errors:  ERR_ARG, with the remedy. */
#ifndef DRIVER_WEB_ADDRESS_H
#define DRIVER_WEB_ADDRESS_H

#include "driver/options.h"

/* ADDR is 127.0.0.1 by default; port 0 is a free one. */
int web_address(const char *text, char host[ADDR_MAX_HOST], int *port, struct err *err);

int web_check(const struct options *o, struct err *err); /* of o->http, which is there */

#endif
