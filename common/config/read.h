/* read - from text to a job's fields, remembering where each came from.
 *
 * Private to config/.
 *
 * Life:    reader_init -> read_defaults -> read_yaml -> read_set ... -> read_check -> reader_fini.
 * Errors:  ERR_CONFIG, with the place in front. */
#ifndef CONFIG_READ_H
#define CONFIG_READ_H

#include "config/option.h"

struct source {
    enum { FROM_DEFAULT, FROM_FILE, FROM_SET } kind;
    int line, column; /* FROM_FILE: from 1 */
};

struct reader {
    struct job *job;      /* being filled in */
    const char *origin;   /* names the text */
    const char *base_dir; /* of relative paths; NULL: refused */
    struct source *from;  /* one for each option */
};

/* `job` is zeroed but for its arena; borrowed, like the strings. */
void reader_init(struct reader *r, struct job *job, const char *origin, const char *base_dir);
void reader_fini(struct reader *r);

void read_defaults(struct reader *r);
int read_yaml(struct reader *r, const char *text, size_t len, struct err *err);

/* One "key=value"; relative paths are relative to the current folder. */
int read_set(struct reader *r, const char *assignment, struct err *err);

/* That all which is needed is there, all that is there is needed, and options agree. */
int read_check(struct reader *r, struct err *err);

/* Put in front of err's message where o's value came from. */
int read_locate(const struct reader *r, const struct option *o, struct err *err);

/* o's field from text; for a path, made absolute.  NULL `base_dir`: relative paths are refused. */
int read_value(struct job *job, const struct option *o, const char *text, size_t len, int quoted,
               const char *base_dir, struct err *err);

#endif
