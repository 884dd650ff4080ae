/* csv_set - makes tables in text, and opens them as data sets. */
#ifndef TESTS_DATA_CSV_SET_H
#define TESTS_DATA_CSV_SET_H

#include "../test.h"

#include "idx_file.h"
#include "open_set.h"

enum { MOST_SETTINGS = 8 };

static inline void put(const char *folder, const char *name, const char *text)
{
    struct buf b = {0};

    buf_append(&b, text, strlen(text));
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* The warning of the last table that was opened; "": none. */
static char csv_told[4096];

static inline void csv_hear(void *arg, const char *text)
{
    (void)arg;
    snprintf(csv_told, sizeof csv_told, "%s", text);
}

/* Open with further settings, which a key of NULL ends.  The loss is mse if `numbers` is 1. */
static inline int open_table(struct dataset **out, const char *folder, enum dataset_purpose p,
                             int numbers, const struct setting *more, struct err *err)
{
    struct setting s[MOST_SETTINGS + 2] = {{"data.path", folder}};
    const struct dataset_request r = {
        .purpose = p, .targets_are_numbers = numbers, .warn = csv_hear};

    for (int i = 0; i < MOST_SETTINGS && more[i].key; i++)
        s[i + 1] = more[i];
    csv_told[0] = 0;
    *out = NULL;
    return open_set(out, &format_csv, s, &r, err);
}

static inline struct dataset *open_ok(const char *folder, enum dataset_purpose p, int numbers,
                                      const struct setting *more)
{
    struct dataset *ds;
    struct err err = {0};

    if (open_table(&ds, folder, p, numbers, more, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

#endif
