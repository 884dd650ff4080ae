/* init_find - what dpdriver --init finds in a folder, and the settings that it proposes.
 *
 * A recogniser looks at the names in a folder, and at the beginnings of files.  It reads no data
 * as a whole: the readers of common/data check them once the job runs.
 * A format of common/data gets a line of the table in driver/init_find.c.
 *
 * Life:    init_look_open -> init_find -> init_look_close; init_job_fini at the end.
 * Threads: main's.
 * Errors:  ERR_IO (a folder or file that cannot be read), ERR_ARG (a name that no job file can
 *          hold); they name the path. */
#ifndef DRIVER_INIT_FIND_H
#define DRIVER_INIT_FIND_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    INIT_NONE = 1, /* a recogniser: the folder has no such data */
    INIT_MOST_SETS = 40
};

struct init_look;

/* The settings of a job file that is being made, and what its reader should know. */
struct init_job {
    struct {
        const char *key;
        char *value; /* as a job file writes it */
    } set[INIT_MOST_SETS];
    int n;
    struct buf notes;                /* lines */
    const struct init_look *network; /* the folder of a network that is to be trained, borrowed;
                                        NULL: there is none */
};

/* Set a key to a value as a job file writes it; a later one counts. */
void init_set(struct init_job *j, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same to a text, or to a list of n texts, which are quoted where YAML wants it. */
void init_set_text(struct init_job *j, const char *key, const char *text);
void init_set_texts(struct init_job *j, const char *key, const char *const *text, int n);
/* The value of the key; NULL: it has none. */
const char *init_value(const struct init_job *j, const char *key);
/* Append a line for the head of the file. */
void init_note(struct init_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void init_job_fini(struct init_job *j);

/* ---- folders ---- */

/* A folder, or a single file in one: names are sorted, without those that begin with a dot. */
struct init_look {
    char *folder; /* absolute */
    char *path;   /* the folder, or the single file */
    char **name;  /* [n] */
    int n;
};

int init_look_open(struct init_look *l, const char *path, struct err *err);
void init_look_close(struct init_look *l);
int init_look_has(const struct init_look *l, const char *name);
/* The first of the names that is there; NULL: none is. */
const char *init_look_first(const struct init_look *l, const char *const *names);
char *init_look_join(const struct init_look *l, const char *name); /* for free() */
/* The first n bytes of a file, unpacked if it is .gz; *got may be fewer. */
int init_look_head(const struct init_look *l, const char *name, void *to, size_t n, size_t *got,
                   struct err *err);
int init_ends(const char *name, const char *end); /* upper and lower case are alike */

/* ---- recognisers ---- */

/* The names that people give to sets that validate, in the order in which they are looked for. */
extern const char *const init_validation_names[];

/* Settings of a network and its training for images with sides of this many pixels. */
void init_set_network(struct init_job *j, int64_t height, int64_t width);

/* The same of a language model: j->network, or one that begins anew. */
void init_set_language(struct init_job *j, int64_t context);

/* A recogniser: 0, and the settings are in *j; or INIT_NONE. */
typedef int init_finder(const struct init_look *l, struct init_job *j, struct err *err);
init_finder init_find_npy, init_find_csv, init_find_text;

/* 1: the folder holds a network of Hugging Face, config.json with a model_type. */
int init_is_network(const struct init_look *l);

/* Set the format that the folder's data have, or those of a folder in it, and all that suits it.
 * INIT_NONE: none is recognised. */
int init_find(const struct init_look *l, struct init_job *j, struct err *err);

#endif
