/* Reads DeepSpeed's collected values, and gives the job ours.  Each of ours gets the place of
 * DeepSpeed's key, so a message about optimizer.lr points into the file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "deepspeed/impl.h"

int ds_has(const struct ds_file *f, enum id id) { return f->value[id].text != NULL; }

int ds_is_word(const struct ds_file *f, enum id id, const char *word)
{
    return ds_has(f, id) && !strcasecmp(f->value[id].text, word);
}

/* Give our key this text, in the place of `at`. */
int ds_put(struct ds_file *f, const struct ds_value *at, const char *key, const char *text,
           struct err *err)
{
    const struct option_ref *ref = table_find(f->r->list, key);
    const struct given g = {.from = FROM_FILE,
                            .line = at->line,
                            .column = at->column,
                            .text = text,
                            .len = strlen(text),
                            .is_quoted = at->is_quoted && text == at->text,
                            .is_list = at->is_list};

    ASSERT(ref);
    return read_give(f->r, ref, &g, NULL, err) < 0 ? ds_fail_at(f, at, err) : 0;
}

int ds_put_value(struct ds_file *f, enum id id, const char *key, struct err *err)
{
    return ds_has(f, id) ? ds_put(f, &f->value[id], key, f->value[id].text, err) : 0;
}

int ds_put_number(struct ds_file *f, const struct ds_value *at, const char *key, double v,
                  struct err *err)
{
    char text[40];

    snprintf(text, sizeof text, "%.17g", v);
    return ds_put(f, at, key, text, err);
}

/* A number that is not the reader's own, in the range; `missing` if it is not given. */
int ds_number(const struct ds_file *f, enum id id, const char *name, double min, double max,
              double missing, double *out, struct err *err)
{
    const struct ds_value *v = &f->value[id];
    char *end;

    *out = missing;
    if (!v->text)
        return 0;
    *out = strtod(v->text, &end);
    if (*end || end == v->text || v->is_quoted || v->is_list || !(*out >= min && *out <= max)) {
        err_set(err, ERR_CONFIG,
                v->is_quoted ? "%s is \"%.40s\" in quotes, want a number from %g to %g"
                             : "%s is %.40s, want a number from %g to %g",
                name, v->text, min, max);
        return ds_fail_at(f, v, err);
    }
    return 0;
}

int ds_integer(const struct ds_file *f, enum id id, const char *name, double *out, struct err *err)
{
    int rc = ds_number(f, id, name, 1, 1e9, 0, out, err);

    if (rc == 0 && *out != floor(*out)) {
        err_set(err, ERR_CONFIG, "%s is %s, want an integer", name, f->value[id].text);
        rc = ds_fail_at(f, &f->value[id], err);
    }
    return rc;
}

/* Give an integer, which may be written 1e5. */
int ds_put_integer(struct ds_file *f, enum id id, const char *name, const char *key,
                   struct err *err)
{
    double n;

    if (!ds_has(f, id))
        return 0;
    if (ds_integer(f, id, name, &n, err) < 0)
        return err->code;
    return ds_put_number(f, &f->value[id], key, n, err);
}

int ds_is_true(const struct ds_file *f, enum id id) { return ds_is_word(f, id, "true"); }
