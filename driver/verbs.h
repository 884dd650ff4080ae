/* verbs - what dpdriver can do: train, evaluate, answer for a running driver and so on.
 *
 * A verb is the first word of the command line, or an option that means the same ("status" and
 * "--status").  Without either, dpdriver trains.  Each option has the verbs that take it in its row
 * (struct arg, `of`).
 *
 * Life:    verb_find -> args_parse -> verb_check.
 * Threads: any; constant tables.
 * Errors:  ERR_ARG, with the remedy. */
#ifndef DRIVER_VERBS_H
#define DRIVER_VERBS_H

#include <stdio.h>

#include "daemon/args.h"

/* In the order in which they are listed.  Of two that options ask for, the later one counts. */
enum verb {
    VERB_TRAIN,
    VERB_FIND_LR,
    VERB_EVALUATE,
    VERB_PREDICT,
    VERB_EXPORT,
    VERB_MERGE,
    VERB_SAMPLE,
    VERB_STANDBY,
    VERB_DRAIN,
    VERB_STATUS,
    VERB_TRACE,
    VERB_SET_LIVE,
    VERB_CHECKPOINT_NOW,
    VERB_PAUSE,
    VERB_GO,
    VERB_REPORT,
    VERB_COMPARE,
    VERB_REPLAY,
    VERB_VERIFY,
    VERB_SECRET,
    VERB_INIT,
    VERB_KEYS,
    VERB_HELP,
    VERB_COUNT
};

/* For struct arg, `of`.  Rows that both daemons have name what a verb does (daemon/daemon.h). */
#define OF(VERB) (1u << VERB_##VERB)
#define OF_MAIN  (1u << VERB_COUNT) /* the option stands in the summary of all verbs, too */
#define OF_JOBS  (OF(TRAIN) | OF(FIND_LR) | OF(EVALUATE) | OF(PREDICT))
#define OF_AGAIN (OF(REPLAY) | OF(VERIFY)) /* options for the ranks that they start */
#define OF_LIVE                            /* that change a job while it trains */ \
    (OF(SET_LIVE) | OF(CHECKPOINT_NOW) | OF(PAUSE) | OF(GO))
#define OF_WEIGHTS /* those of a checkpoint */ \
    (OF(EVALUATE) | OF(PREDICT) | OF(EXPORT) | OF(MERGE) | OF(SAMPLE))

/* The thing that the command line asks for. */
struct wish {
    enum verb verb;
    int is_word;       /* 1: by the verb's word, 0: by its option, or by neither */
    enum verb subject; /* VERB_HELP: the verb that is explained; VERB_HELP itself: all */
};

int verb_is(const char *word); /* 1: it is the name of a verb */

/* Read the first word of argv, if it is no option, and take it off: *argv then begins with the word
 * before the options.  "VERB help" is read as "help VERB". */
int verb_find(int *argc, char ***argv, struct wish *out, struct err *err);

/* The options whose values may stand without their names behind this verb; NULL at the end. */
const char *const *verb_operands(enum verb v);

/* Once the options are known: the verb of an option such as --status, unless a word gave one. */
void verb_of_options(const struct args *given, struct wish *w);

/* Check that the verb takes all options that were given, and has the value it needs. */
int verb_check(const struct wish *w, const struct args *given, struct err *err);

/* One screen about all verbs, and the options of a verb, a sentence each. */
void verbs_summary(const struct arg_group *groups, size_t n_groups, FILE *f);
void verb_summary(enum verb v, const struct arg_group *groups, size_t n_groups, FILE *f);

/* A verb as its pages tell of it: "trace", "SECONDS [RUN]", "record a timeline of a running job",
 * lines with examples, and the uses that its options have in `of`.  Static storage. */
struct verb_page {
    const char *name, *usage, *line, *text;
    unsigned uses;
};

struct verb_page verb_page(enum verb v);

/* The exit statuses and signals of all verbs, for a terminal. */
void verbs_statuses(FILE *f);

/* All about a verb, and about all of them. */
void verb_help(enum verb v, const struct arg_group *groups, size_t n_groups, FILE *f);
void verbs_help(const struct arg_group *groups, size_t n_groups, FILE *f);

#endif
