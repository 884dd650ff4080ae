/* options_impl - what the files of driver/options.h share.
 *
 * Threads: the main one, before any other is started. */
#ifndef DRIVER_OPTIONS_IMPL_H
#define DRIVER_OPTIONS_IMPL_H

#include "driver/options.h"

/* The options of a driver or a standby were read: ask the launcher's environment for what was not
 * given, set what follows from others, and check them together.  Fails with ERR_ARG, or with what
 * the file of --hosts has. */
int options_check(struct options *o, struct err *err);

/* A driver is asked one thing at a time.  Fails with ERR_ARG. */
int options_check_questions(const struct options *o, struct err *err);

/* Checks that a question (options_ask), or --replay, is whole.  Fails with ERR_ARG. */
int options_check_ask(const struct options *o, struct err *err);

/* 1: the text is longer than `end`, and ends in it. */
int options_ends_in(const char *text, const char *end);

#endif
