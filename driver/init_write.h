/* init_write - the job file that dpdriver --init writes, and the questions that it asks.
 *
 * Both follow from the rows of the job's options: a key's help is its comment, and its question.
 *
 * Threads: main's. */
#ifndef DRIVER_INIT_WRITE_H
#define DRIVER_INIT_WRITE_H

#include "base/buf.h"
#include "driver/init_find.h"

struct job;

/* Append the settings as YAML.  `job` is what they make, whose options' help becomes comments; NULL
 * leaves comments out. */
void init_write(const struct init_job *j, const struct job *job, struct buf *out);

/* Ask on the terminal for the settings of the data at `path`: five questions at most.  Fails with
 * ERR_ARG if the answers end, or stay wrong. */
int init_ask(const char *path, struct init_job *j, struct err *err);

#endif
