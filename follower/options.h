/* options - dpfollower's command line.
 *
 * A launcher's environment gives what the command line leaves out (daemon/launch.h). */
#ifndef FOLLOWER_OPTIONS_H
#define FOLLOWER_OPTIONS_H

#include <stdio.h>

#include "daemon/args.h"
#include "daemon/daemon.h"
#include "daemon/launch.h"

struct options {
    const char *root;         /* NULL: not given */
    char host[ADDR_MAX_HOST]; /* of root, or of what a launcher says */
    int port;
    char root_text[ADDR_MAX_HOST + 8]; /* the same as HOST:PORT */
    const char *rank_text;             /* "any", or a number; NULL: not given */
    int rank;                          /* -1: any; with --ranks: of the first process */
    int rank_is_task; /* with --ranks: `rank` is the number of a launcher's task, one a machine */
    const char *data; /* NULL: the job's */
    int once;
    int64_t wait_s; /* -1: not given, or of no use (without --once) */
    struct daemon_options common;
    char advertise[ADDR_TEXT];          /* --iface's address, or "" */
    char from_environment[LAUNCH_TEXT]; /* what a launcher's variables gave, for the log, or "" */
};

/* ERR_ARG, ERR_UNSUPPORTED: one line with the remedy. */
int options_parse(int argc, char **argv, struct options *out, struct err *err);

void options_help(FILE *f);

/* 0: this follower may talk to a driver at address `number` without --insecure; else ERR_ARG. */
int options_check_peer(const struct options *o, const char *number, struct err *err);

#endif
