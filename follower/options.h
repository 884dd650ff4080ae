/* options - dpfollower's command line.
 *
 * Values that the command line leaves out may come from a launcher's environment
 * (daemon/launch.h).
 *
 * Threads: main's. */
#ifndef FOLLOWER_OPTIONS_H
#define FOLLOWER_OPTIONS_H

#include <stdio.h>

#include "daemon/args.h"
#include "daemon/daemon.h"
#include "daemon/launch.h"

enum { FOLLOWER_GROUPS = 2 };

struct options {
    const char *root;         /* NULL: not given */
    char host[ADDR_MAX_HOST]; /* the host in `root`, or the one that a launcher names */
    int port, n_ports;        /* the driver is at one of so many ports from `port` on */
    char launch[LAUNCH_JOB];  /* the launcher's name of the job that is looked for, or "" */
    char root_text[ADDR_MAX_HOST + 8]; /* the same as HOST:PORT */
    const char *rank_text;             /* "any", or a number; NULL: not given */
    int rank;                          /* -1: any; with --ranks: the rank of the first process */
    int rank_is_task; /* 1: with --ranks, `rank` is the number of a launcher's task on a machine */
    const char *root_hidden_by; /* the variable that keeps the host of task 0 unknown; or NULL */
    const char *data;           /* NULL: the job's */
    int once;
    int relay;      /* 1: the agent connects in its children's place (net/gateway.h) */
    int lane;       /* a child's, to that agent, which tries all secrets; 0: none */
    int64_t wait_s; /* -1: not given, or without effect because --once is not given */
    struct daemon_options common;
    char advertise[ADDR_TEXT];          /* --iface's address, or "" */
    char from_environment[LAUNCH_TEXT]; /* what a launcher's variables gave, for the log, or "" */
};

/* Fails with ERR_ARG, ERR_UNSUPPORTED; the message is one line with the remedy. */
int follower_options_parse(int argc, char **argv, struct options *out, struct err *err);

void follower_options_help(FILE *f);

/* Its parts: what dpfollower does, with examples, and the exit statuses; and all options, to be
 * told of, whose `into` is NULL. */
extern const char follower_options_text[], follower_options_statuses[];
void follower_options_groups(struct arg_group g[FOLLOWER_GROUPS]);

/* Check that this follower may talk to a driver at the numeric address `number`: at no link-local
 * address, and without a secret only on this machine or with --insecure.  Fails with ERR_ARG. */
int options_check_peer(const struct options *o, const char *number, struct err *err);

#endif
