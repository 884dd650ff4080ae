/* option - one key of the job file, and what can be done with any of them.
 *
 * A row says everything about a key: its type, default, range, unit and help.  Reading, checks,
 * --help-job and job.yaml follow from it.  A room that brings keys of its own writes rows and the
 * struct that they fill; an entry of a registry (an architecture, an optimizer ...) embeds a struct
 * option_group, which names both.  job/rows.c lists all of them; config/table.h walks the list.
 *
 * Threads: any; rows are constant. */
#ifndef CONFIG_OPTION_H
#define CONFIG_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum option_type {
    OPT_BOOL,    /* int; true, false */
    OPT_INT,     /* int64_t; where there are `choices`, a word is the number option_word(i) */
    OPT_REAL,    /* double */
    OPT_SECONDS, /* int64_t milliseconds; seconds in the file, fractions allowed */
    OPT_CHOICE,  /* an enum; one of `choices` */
    OPT_ENTRY,   /* const struct option_group *; the entry of `registry` with this name */
    OPT_INTS,    /* struct option_ints; [1, 2, 3] */
    OPT_REALS,   /* struct option_reals; [0.9, 0.999]; as many as `count` says, where it is not 0 */
    OPT_NUMBERS, /* struct option_numbers; the same for long lists */
    OPT_SET,     /* unsigned, a bit for each of `choices`; [bias, norm] */
    OPT_ITEMS,   /* struct option_items; [{match: "fc.*", lr_scale: 10}], keys by `item` */
    OPT_TREE,    /* const char *; a list of layers, in YAML's flow style (config/tree.h) */
    OPT_NAME,    /* const char *; letters, digits, '.', '_', '-' */
    OPT_STRING,  /* const char *, NULL: none */
    OPT_PATH,    /* const char *, NULL: none; absolute once read */
};

enum {
    OPT_REQUIRED = 1, /* must be given where it applies */
    OPT_RESUME = 2,   /* a resumed run may change it; OPT_ENTRY: and all keys of its entries */
    OPT_ABOVE = 4,    /* `min` itself is not allowed */
    OPT_BELOW = 8,    /* `max` itself is not allowed */
    OPT_SHORT = 32,   /* a word in place of the mapping that has this key is this key's value */
    OPT_MAP = 64,     /* OPT_TREE: the file gives a mapping, not a list.  OPT_STRING: a mapping in
                         the file is its text in YAML's flow style, "{a: b}" */
    OPT_NONE = 128,   /* OPT_PATH: the bare word none is no value, too */
    OPT_MANY = 16,    /* OPT_STRING: a list in the file is its items, separated by ", " */

    OPT_TEXT_BYTES = 4095,     /* the longest string */
    OPT_TREE_BYTES = 32768,    /* the longest OPT_TREE */
    OPT_MAX_INTS = 16,         /* the longest list of integers */
    OPT_MAX_REALS = 256,       /* ... of numbers */
    OPT_REALS_BYTES = 8192,    /* ... and its longest text */
    OPT_MAX_NUMBERS = 4096,    /* ... of OPT_NUMBERS */
    OPT_NUMBERS_BYTES = 65536, /* ... and its longest text */
    OPT_MAX_ITEMS = 64,        /* ... of mappings */
};

struct option_ints {
    int n;
    int64_t v[OPT_MAX_INTS];
};

struct option_reals {
    int n;
    double v[OPT_MAX_REALS];
};

struct option_numbers {
    int n;
    const double *v; /* [n], in the job's arena */
};

struct option_items {
    int n;
    const void *v; /* n structs of the size that the row's `item` says, in the job's arena */
};

struct option_registry;
struct option_item;

struct option {
    const char *key; /* dotted: "train.epochs" */
    enum option_type type;
    size_t offset;              /* of its field in the struct that the row belongs to */
    const char *def;            /* the default as a job file would write it; NULL: none */
    double min, max;            /* numbers */
    const char *const *choices; /* OPT_CHOICE: names by enum value, NULL at the end; OPT_INT: words
                                   that may stand in place of a number, or OPT_PATH of a path */
    int first;                  /* OPT_CHOICE: lower values cannot be chosen */
    const char *unit;           /* NULL: none */
    unsigned flags;
    const char *only;     /* it exists only while this OPT_CHOICE, an earlier row of its struct, */
    unsigned only_values; /* has one of these values, a bit each; NULL: always */
    const char *help;     /* a sentence or two */
    const char *also;     /* what others call it, to recognize; NULL: nothing else */
    const struct option_registry *registry; /* OPT_ENTRY */
    int count;                              /* OPT_REALS: so many; 0: up to OPT_MAX_REALS */
    const struct option_item *item;         /* OPT_ITEMS */
    /* OPT_TREE: checks the text; a failure sets *at to where in the text it is. */
    int (*tree)(const char *text, size_t len, size_t *at, struct err *err);
};

/* A mapping in a list.  Its rows have keys without dots, plain types or strings, and no `only`.  A
 * number without default that is not given is NAN. */
struct option_item {
    const struct option *option;
    int n_options;
    size_t size; /* of the struct that the rows fill */
};

/* The part that every entry of a registry has; it is the entry's first member. */
struct option_group {
    const char *name;            /* the word in the job file: "sgd" */
    const char *help;            /* one line for --help-job */
    const struct option *option; /* its own keys; offsets are into its own options struct */
    int n_options;
    size_t size;                                        /* of that struct; 0: none */
    int (*check)(const void *options, struct err *err); /* checks options against each other; NULL:
                                                         * none. A message begins with the key. */
};

/* The entries of one kind.  The job holds a pointer to the chosen entry (the field of the OPT_ENTRY
 * row) and one to this entry's options struct, filled in. */
struct option_registry {
    const struct option_group *const *entry; /* NULL at the end */
    size_t options; /* offset of `const void *options`, in the struct of the OPT_ENTRY row */
};

/* 1: the text is one of the option's words. */
int option_is_word(const struct option *o, const char *text, size_t len);

/* OPT_INT: the value that the i-th of its words has; numbers are at least 0 where there are words.
 */
static inline int64_t option_word(int i) { return -1 - i; }

/* Copy the first item of an OPT_MANY text to `item`.  Returns the rest, or NULL if there are no
 * more. */
const char *option_next_item(const char *text, char item[OPT_TEXT_BYTES + 1]);

/* May the option be left out, or be null, and then be none? */
static inline int option_may_be_none(const struct option *o)
{
    return o->type >= OPT_STRING && !o->def;
}

/* May a job file give the option a list? */
static inline int option_takes_list(const struct option *o)
{
    return (o->type >= OPT_INTS && o->type <= OPT_TREE) || o->flags & OPT_MANY;
}

/* Set `field` from `len` bytes of text, with a NUL somewhere after them; `quoted`: the text stood
 * in quotes, so it is a string.  Strings are copied into `arena`.  Fails with ERR_CONFIG:
 * "train.epochs is "ten", want an integer from 1 to 1000000 epochs". */
int option_parse(const struct option *o, void *field, struct arena *arena, const char *text,
                 size_t len, int quoted, struct err *err);

/* The same without a field: fails where option_parse would. */
int option_try(const struct option *o, const char *text, size_t len, int quoted, struct err *err);

/* For option_parse: an OPT_ITEMS field, from YAML's flow style. */
int option_parse_items(const struct option *o, struct option_items *field, struct arena *arena,
                       const char *text, size_t len, struct err *err);
void option_format_items(const struct option *o, const struct option_items *field, struct buf *out);

/* Append the field as a job file writes it; "null" for none. */
void option_format(const struct option *o, const void *field, struct buf *out);

/* Append the values that it may have: "an integer from 1 to 1000000 epochs". */
void option_want(const struct option *o, struct buf *out);

/* The default as text; "must be given" or "none" where there is none. */
const char *option_default_text(const struct option *o);

/* The ERR_CONFIG for a value that is `seen`. */
int option_fail(const struct option *o, const char *seen, struct err *err);

/* The entry with this name, or NULL. */
const struct option_group *option_entry(const struct option_registry *r, const char *name,
                                        size_t len);

/* Bytes of the character at s, or 0 where there is none that a line of YAML may hold: broken UTF-8,
 * control characters, line separators, byte order marks, non-characters, or the end at `len`. */
size_t line_char_len(const char *s, size_t len);

/* Make `len` bytes of a stranger's text, with a NUL somewhere after them, fit to be shown: in
 * quotes unless a number, cut when long, '?' for what a terminal would not print.  Returns `out`.
 */
const char *show_text(const char *text, size_t len, char out[64]);

/* The same of a scalar: if it was quoted where it must not be, `out` says so. */
const char *show_scalar(const char *text, size_t len, int quoted, char out[96]);

#endif
