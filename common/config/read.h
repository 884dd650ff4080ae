/* read - from text to the fields of a job, remembering where each value came from.
 *
 * Values are first collected as text: which row a key has may depend on a choice that comes later
 * in the file, or in a --set.  Each is checked at once against the rows of its key; read_finish
 * then makes the choices, in the table's order, and fills in fields and defaults.
 *
 * Life:    reader_init -> read_yaml -> read_set ... -> read_finish -> reader_fini.
 * Threads: one at a time.
 * Errors:  ERR_CONFIG, with the place in front. */
#ifndef CONFIG_READ_H
#define CONFIG_READ_H

#include "config/table.h"

enum { READ_MAX_BYTES = 256 << 10 }; /* of a job file */

struct given { /* a key's last value; FROM_DEFAULT with a text: the owner's, in the place of the
                * row's default */
    enum { FROM_DEFAULT, FROM_FILE, FROM_SET } from;
    int line, column; /* FROM_FILE: from 1 */
    const char *text; /* in the job's arena */
    size_t len;
    int is_quoted, is_list;
    int is_map;  /* a mapping, in YAML's flow style; is_list is set, too */
    int is_none; /* null, or empty by --set: the key is to have no value */
};

struct reader {
    const struct option_list *list;
    void *job;            /* being filled in */
    struct arena *arena;  /* for what the job points to */
    const char *origin;   /* names the text */
    const char *base_dir; /* of relative paths; NULL: refused */
    struct given *given;  /* by the index of the first row with the key */
};

/* `job` is zeroed; all is borrowed. */
void reader_init(struct reader *r, const struct option_list *list, void *job, struct arena *arena);
void reader_fini(struct reader *r);

/* All values of a job file.  `origin` names the text in messages; relative paths are relative to
 * `base_dir`, or refused where it is NULL. */
int read_yaml(struct reader *r, const char *text, size_t len, struct err *err);

/* One "key=value"; relative paths are relative to the current folder. */
int read_set(struct reader *r, const char *assignment, struct err *err);

/* Fill in the job.  All that is needed must be there, all that is there must be needed, and every
 * chosen entry must agree with its options. */
int read_finish(struct reader *r, struct err *err);

/* Put in front of err's message, which begins with a key, where this key's value came from. */
int read_locate(const struct reader *r, struct err *err);

/* For read_yaml: this key has this value. */
int read_give(struct reader *r, const struct option_ref *ref, const struct given *value,
              const char *base_dir, struct err *err);

/* For read_yaml: this key is null.  Where several entries have the key, the chosen one's row says
 * whether it may be. */
int read_give_none(struct reader *r, const struct option_ref *ref, const struct given *value,
                   struct err *err);

/* For read_set: the row, which takes a list of texts, has this list in YAML's flow style. */
int read_give_list(struct reader *r, const struct option_ref *ref, const char *text,
                   struct err *err);

/* The row's field of `job` from text.  A path is made absolute with `base_dir`; where this is NULL,
 * a relative one is refused. */
int read_field(const struct option_ref *ref, void *job, struct arena *arena, const char *text,
               size_t len, const char *base_dir, struct err *err);

#endif
