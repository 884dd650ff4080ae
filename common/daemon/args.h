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
#include "config/option.h"

enum { ARG_MAX_LIST = 64 };

struct arg_list {
    const char *item[ARG_MAX_LIST];
    size_t n;
};

/* An option: a row as that of a job's key, and what a command line alone has.  These types of rows
 * are read:
 *   OPT_INT, OPT_CHOICE      as in a job file
 *   OPT_BOOL                 1 when given; it takes no value
 *   OPT_STRING               const char *, of argv: any bytes, but not none
 *   OPT_STRING, OPT_MANY     struct arg_list: all values given */
struct arg {
    /* Its key is the name, without dashes; a summary is the help's beginning.  If it has a default,
     * that is set first, and the help ends with it. */
    struct option row;
    const char *value;  /* the value's name in the help: "FILE"; NULL: takes none */
    unsigned of;        /* the uses of the program that take it, a bit each; 0: all */
    int is_rare;        /* 1: the summary of a use leaves it out */
    const char *remedy; /* ends the refusal of a value; NULL: the value wanted says enough */
};

struct arg_group { /* options that are shown together */
    const char *title;
    const struct arg *args;
    size_t n;
    void *into; /* the struct to fill, which holds defaults that no row has */
};

struct arg_given { /* an option of the command line */
    const struct arg *arg;
    const char *value; /* of argv; NULL: it takes none */
    int is_operand;    /* 1: the value stood without its option */
};

/* The command line as it was read.  args_parse fills `given`, which args_fini frees. */
struct args {
    const char *const *operands; /* names of options: a bare word is the value of the first one that
                                    has none so far, or takes many; NULL at the end */
    struct arg_given *given;     /* [n_given], in the order of the command line */
    int n_given;
};

/* Fill the groups' structs from argv, and tell in *out (unless it is NULL) what was given.  A word
 * that is neither an option nor an operand is refused. */
int args_parse(const struct arg_group *groups, size_t n_groups, int argc, char **argv,
               struct args *out, struct err *err);
void args_fini(struct args *a);
int args_has(const struct args *a, const char *name); /* 1: the option was given */

/* 1: these uses, or one of them, take the option; 0 stands for all uses. */
int args_take(const struct arg *a, unsigned uses);

/* The word of `words` (NULL at the end) that `word` most resembles, or NULL if none is near. */
const char *args_closest(const char *const *words, const char *word);

/* The options of these uses, or (0) all of them, a paragraph each, 80 columns. */
void args_help(const struct arg_group *groups, size_t n_groups, unsigned uses, FILE *f);

/* The same of those that are used daily, the first sentence about each.  Returns the number of
 * options that it leaves out. */
int args_summary(const struct arg_group *groups, size_t n_groups, unsigned uses, FILE *f);

#endif
