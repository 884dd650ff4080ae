/* manual - papers that are made from the tables behind --help and --help-job: man pages, the
 * completion of three shells, and a JSON schema of the job file.
 *
 * dptrain-manual runs while dptrain is built, and never on a user's machine.
 *
 * Threads: one. */
#ifndef DEPLOY_MANUAL_MANUAL_H
#define DEPLOY_MANUAL_MANUAL_H

#include <stdio.h>

#include "config/table.h"
#include "daemon/args.h"

enum { MANUAL_GROUPS = 3, MANUAL_VERBS = 32 };

/* One use of a program: the first word of its command line. */
struct manual_verb {
    const char *name, *usage, *line, *text;
    unsigned uses; /* for args_take */
};

struct manual_program {
    const char *name, *line;               /* what it is, for the page's first line */
    const char *usage;                     /* behind the name */
    const char *text;                      /* what it does, with examples; lines */
    struct manual_verb verb[MANUAL_VERBS]; /* [n_verbs] */
    int n_verbs;                           /* 0: it has none */
    struct arg_group group[MANUAL_GROUPS]; /* [n_groups], all its options */
    size_t n_groups;
    void (*put_statuses)(FILE *f);
};

/* The programs.  Each fills a struct from the daemon's own tables. */
void manual_driver(struct manual_program *p);
void manual_follower(struct manual_program *p);

/* dpdriver(1), dpfollower(1) and dptrain.yaml(5), in man's macros. */
void manual_page(const struct manual_program *p, FILE *f);
void manual_job(const struct option_list *keys, FILE *f);

/* Completion of both programs.  f: a file for bash, zsh's function, fish's file. */
void manual_bash(const struct manual_program *p, int n, const struct option_list *keys, FILE *f);
void manual_zsh(const struct manual_program *p, int n, const struct option_list *keys, FILE *f);
void manual_fish(const struct manual_program *p, int n, const struct option_list *keys, FILE *f);

/* The schema of a job file, of JSON Schema 2020-12. */
void manual_schema(const struct option_list *keys, FILE *f);

/* The first sentence of a help, without its full stop.  The caller frees it. */
char *manual_sentence(const char *help);

/* The values that an option may have, as words; NULL at the end, or NULL if they are not a list. */
const char *const *manual_words(const struct option *o);

#endif
