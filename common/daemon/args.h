/* args - a daemon's command line: tables of options give parsing, checks and --help.
 *
 * Options are long ones (--name VALUE or --name=VALUE); an unambiguous beginning is enough.  When
 * one is given twice, the last counts.
 *
 * Threads: any; nothing is kept.
 * Errors:  ERR_ARG; ERR_UNSUPPORTED for an option that this build cannot serve.  One line with the
 *          remedy. */
#ifndef DAEMON_ARGS_H
#define DAEMON_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum arg_type {
    ARG_FLAG,   /* int: 1 when given */
    ARG_TEXT,   /* const char *, of argv; must not be empty */
    ARG_INT,    /* int64_t, min..max */
    ARG_CHOICE, /* int: index in `choices` */
    ARG_LIST,   /* struct arg_list: all values given */
};

enum { ARG_MAX_LIST = 64 };

struct arg_list {
    const char *item[ARG_MAX_LIST];
    size_t n;
};

struct arg {
    const char *name;  /* without the dashes */
    const char *value; /* the value's name in the help: "FILE"; NULL: takes none */
    enum arg_type type;
    size_t offset; /* of its field in the group's struct */
    int64_t min, max;
    const char *const *choices; /* NULL at the end */
    const char *help;           /* lines are broken where it is shown */
};

struct arg_group { /* options that are shown together */
    const char *title;
    const struct arg *args;
    size_t n;
    void *into; /* the struct to fill, which holds the defaults */
};

/* Fill the groups' structs from argv.  A word that is no option is refused. */
int args_parse(const struct arg_group *groups, size_t n_groups, int argc, char **argv,
               struct err *err);

/* The options, one paragraph each, 80 columns. */
void args_help(const struct arg_group *groups, size_t n_groups, FILE *f);

#endif
