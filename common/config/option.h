/* option - one key of the job file, and what can be done with any of them.
 *
 * Private to config/.  The rows are in table.c; nothing else lists options.
 * Threads: any; the table is constant. */
#ifndef CONFIG_OPTION_H
#define CONFIG_OPTION_H

#include "config/job.h"

enum option_type {
    OPT_BOOL,    /* int; true, false */
    OPT_INT,     /* int64_t */
    OPT_REAL,    /* double */
    OPT_SECONDS, /* int64_t milliseconds; seconds in the file, fractions allowed */
    OPT_CHOICE,  /* an enum; one of `choices` */
    OPT_INTS,    /* job.model.n_hidden and .hidden; [1, 2, 3] */
    OPT_NAME,    /* const char *; letters, digits, '.', '_', '-' */
    OPT_STRING,  /* const char *, NULL: none */
    OPT_PATH,    /* const char *, NULL: none; absolute once read */
};

enum {
    OPT_REQUIRED = 1, /* must be given where it applies */
    OPT_RESUME = 2,   /* a resumed run may change it */
    OPT_ABOVE = 4,    /* `min` itself is not allowed */
    OPT_BELOW = 8,    /* `max` itself is not allowed */

    OPT_TEXT_BYTES = 4095, /* the longest string */
};

struct option {
    const char *key; /* dotted: "train.epochs" */
    enum option_type type;
    size_t offset;              /* of its field in struct job */
    const char *def;            /* the default as a job file would write it; NULL: none */
    double min, max;            /* numbers */
    const char *const *choices; /* OPT_CHOICE: by enum value, NULL at the end */
    const char *unit;           /* NULL: none */
    unsigned flags;
    const char *only;     /* it exists only while this OPT_CHOICE, an earlier row, */
    unsigned only_values; /* has one of these values, a bit each; NULL: always */
    const char *help;     /* a sentence or two */
    const char *also;     /* what others call it, to recognize; NULL: nothing else */
};

extern const struct option config_options[];
extern const size_t n_config_options;

/* The option `key`, or NULL. */
const struct option *option_find(const char *key);

/* The option or group of keys ("train") that `key` most resembles; never NULL.  Static storage or
 * `group`, which has room for 64 bytes. */
const char *option_closest(const char *key, char group[64]);

/* The first option whose key starts with "group.", or NULL. */
const struct option *option_first(const char *group);

static inline void *option_field(const struct option *o, const struct job *job)
{
    return (char *)job + o->offset;
}

/* May it be left out, or null, and then is nothing? */
static inline int option_may_be_none(const struct option *o)
{
    return o->type >= OPT_STRING && !o->def;
}

/* Does `job`, as far as it is filled in, have this option? */
int option_applies(const struct option *o, const struct job *job);

/* Set o's field of `job` from `len` bytes of text, with a NUL somewhere behind them; `quoted`: it
 * stood in quotes, so it is a string. Fails with ERR_CONFIG: "train.epochs is "ten", want an
 * integer from 1 to 1000000 epochs". */
int option_parse(const struct option *o, struct job *job, const char *text, size_t len, int quoted,
                 struct err *err);

/* Append the field as a job file writes it; "null" for none. */
void option_format(const struct option *o, const struct job *job, struct buf *out);

/* Append what it may be: "an integer from 1 to 1000000 epochs". */
void option_want(const struct option *o, struct buf *out);

/* Append the values of its selector (`only`) with which it exists: "cosine or linear". */
void option_when(const struct option *o, struct buf *out);

/* The ERR_CONFIG for a value that is `seen`. */
int option_fail(const struct option *o, const char *seen, struct err *err);

/* Bytes of the character at s, or 0 where there is none that a line of YAML may hold: broken UTF-8,
 * control characters, line separators, byte order marks, non-characters, or the end at `len`. */
size_t line_char_len(const char *s, size_t len);

/* `len` bytes of a stranger's text, with a NUL somewhere behind them, as they may be shown: in
 * quotes unless a number, cut when long,
 * '?' for what a terminal would not print.  Returns `out`. */
const char *show_text(const char *text, size_t len, char out[64]);

#endif
