/* options - dpdriver's command line: reading it and checking it.
 *
 * Threads: main's. */
#ifndef DRIVER_OPTIONS_H
#define DRIVER_OPTIONS_H

#include <stdio.h>

#include "backend/device.h"
#include "daemon/args.h"
#include "daemon/daemon.h"
#include "daemon/launch.h"
#include "daemon/places.h"
#include "driver/hosts.h"
#include "driver/verbs.h"
#include "inject/inject.h"

enum { OPTIONS_TOLD = 4, OPTIONS_TOLD_TEXT = 512, OPTIONS_GROUPS = 3 };

struct options {
    const char *program; /* argv[0] */
    struct wish wish;
    struct args args;      /* what the command line gave, from which commands are made to go on */
    char n_ranks_text[24]; /* options_give_ranks' */
    int64_t n_ranks;       /* 0: not given, which only --check and --evaluate allow */
    int n_ranks_from_environment;
    int n_tasks;     /* with --ranks and no --nranks: a launcher's tasks, one for each machine */
    const char *job; /* NULL: the built-in demo, or with --resume the run's own */
    struct arg_list sets;
    struct arg_list injects;
    struct injection_list inject; /* the faults that `injects` describe */
    const char *host;
    const char *http;              /* NULL: not given */
    const char *make_secret;       /* NULL: not given */
    const char *drain;             /* NULL: not given */
    double trace_s;                /* 0: not given */
    int checkpoint_now, pause, go; /* requests to a running driver */
    const char *set_live;          /* KEY=VALUE; NULL: not given */
    struct arg_list reports;       /* the runs to report on */
    struct arg_list compared;      /* the runs to compare */
    const char *replay;            /* the run; NULL: not given */
    const char *dump;              /* with replay: a file for gradients; NULL: not given */
    const char *verify;            /* numbers of ranks, or a run; NULL: not given */
    const char *sign, *key;        /* files of the key that signs, or checks; NULL: not given */
    int64_t step;                  /* of --replay and --verify; 0: not given */
    struct arg_list inits;         /* the folders to make a job file for */
    const char *out;               /* with reports or inits: the file; NULL: not given */
    const char *like;              /* with --help-job: the keys about this word; NULL: all */
    int64_t n_relays;              /* 0: not given */
    int64_t port;
    int n_ports;             /* the driver takes the first of so many from `port` on that is free */
    char launch[LAUNCH_JOB]; /* the launcher's name of the job, or "" */
    int is_closed; /* 1: `host` is this machine alone, and only because there is no secret */
    const char *spans_hosts; /* a launcher's variable: the ranks are on several machines; or NULL */
    char told[OPTIONS_TOLD][OPTIONS_TOLD_TEXT]; /* warnings about the options */
    int n_told;
    const char *port_file, *run_dir; /* NULL: not given */
    int local, resume, check, help_job, status, watch, standby;
    int find_lr;            /* 1: a learning-rate range test of the job, and nothing else */
    int evaluate;           /* 1: validate a checkpoint, and train nothing */
    const char *checkpoint; /* NULL: not given, which means latest */
    int averaged;           /* 1: the averaged weights are meant, not the trained ones */
    const char *predict;    /* evaluate, and write the logits there; NULL: not given */
    const char *export;     /* write the network there; NULL: not given */
    const char *merge;      /* write the merged weights there; NULL: not given */
    const char *sample;     /* the text to go on with; NULL: not given */
    int64_t n_tokens, top_k, sample_seed;
    double temperature, top_p;
    const char *tokenizer; /* NULL: not given */
    const char *root;      /* with --standby: where the driver is, HOST:PORT */
    char root_host[ADDR_MAX_HOST];
    int root_port;
    int64_t wait_s;          /* -1: not given */
    int64_t n_threads_asked; /* --threads as given; 0: it was not */
    struct daemon_options common;
    char advertise[ADDR_TEXT];          /* --iface's address, or "" */
    struct devices devices;             /* as far as --device asks for them */
    char device[DEVICE_TEXT];           /* this rank's: "cpu", "cuda:I" */
    const char *hosts_file;             /* NULL: not given */
    struct hosts hosts;                 /* of that file */
    struct places places;               /* with --ranks; this rank's is the first */
    char from_environment[LAUNCH_TEXT]; /* what a launcher's variables gave, for the log, or "" */
};

/* Fails with ERR_ARG or ERR_UNSUPPORTED; the message is one line with the remedy. */
int options_parse(int argc, char **argv, struct options *out, struct err *err);

/* Free what options_parse and options_settle made. */
void options_fini(struct options *o);

/* Once the devices are known: divide this machine among its ranks (o->places), and settle --nranks,
 * which --ranks gives if nothing else does.  Fails with ERR_ARG, ERR_UNSUPPORTED. */
int options_settle(struct options *o, struct err *err);

/* Have --nranks in o->args, also if it was not given, and no option of a standby: for a number of
 * ranks that the environment or another driver said. */
void options_give_ranks(struct options *o, int64_t n_ranks);

/* Append a warning that the run tells as an event once it begins; longer ones are cut. */
void options_tell(struct options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 1: a running driver is asked something (driver/ask.h). */
int options_ask(const struct options *o);

/* 1: --export asks for a state dict, FILE.safetensors, and not for the network. */
int options_export_weights(const struct options *o);

void options_help(const struct options *o, FILE *f);

/* All options, to be told of; the groups' `into` is NULL. */
void options_groups(struct arg_group g[OPTIONS_GROUPS]);

#endif
