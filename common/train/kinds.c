/* kinds - a rank's processor, as a hash and in words, from uname and /proc/cpuinfo.
 *
 * The machine's architecture is part of the hash by itself, because an emulator may show its host's
 * /proc/cpuinfo. */
#include "train/kinds.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/alloc.h"
#include "base/util.h"
#include "train/trainer_impl.h"

/* Each rank sends this to all others. */
struct kind {
    struct hash128 hash;
    char text[112]; /* ends with a zero */
};

static const char *const kinds_caps[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};

/* The value of a line "key : value" of /proc/cpuinfo, or NULL if it is another line. */
static const char *kinds_value(const char *line, const char *key)
{
    const size_t n = strlen(key);

    if (strncmp(line, key, n) != 0 || !strchr(line, ':'))
        return NULL;
    line = strchr(line, ':') + 1;
    return line + strspn(line, " \t");
}

/* Note the processor's name. */
static void kinds_name(char *line, char *name, size_t n)
{
    const char *model = kinds_value(line, "model name");
    const char *part = kinds_value(line, "CPU part");

    if (!model && !part)
        return;
    line[strcspn(line, "\n")] = 0;
    snprintf(name, n, "%s%s", model ? "" : "part ", model ? model : part);
}

/* Add what /proc/cpuinfo says of the first processor's kind, and write its name.  0: it cannot be
 * read. */
static int kinds_add_processor(struct hasher *h, char *name, size_t n_name)
{
    static const char *const keys[] = {"vendor_id", "cpu family",      "model",    "stepping",
                                       "flags",     "CPU implementer", "CPU part", "Features"};
    FILE *f = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    while (f && getline(&line, &cap, f) > 1) { /* an empty line ends the first processor */
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
            if (!strncmp(line, keys[i], strlen(keys[i]))) {
                hasher_add_text(h, line);
                n++;
                break;
            }
        kinds_name(line, name, n_name);
    }
    free(line);
    if (f)
        fclose(f);
    return n > 0;
}

/* The kind of this rank's processor.  n_threads is 0 if their number does not count. */
static struct kind kinds_mine(const struct trainer *t, int n_threads)
{
    struct hasher *h = hasher_new();
    struct utsname system = {0};
    char name[64] = "unknown processor";
    struct kind mine = {0};
    size_t n;

    uname(&system);
    hasher_add_text(h, system.machine);
    if (!kinds_add_processor(h, name, sizeof name))
        hasher_add_i64(h, t->rank);
    n = (size_t)snprintf(mine.text, sizeof mine.text, "%.12s, %s", system.machine, name);
    for (size_t i = 0; i < ARRAY_LEN(kinds_caps); i++) {
        const char *cap = getenv(kinds_caps[i]);

        hasher_add_text(h, cap ? cap : "");
        if (cap && n < sizeof mine.text)
            n += (size_t)snprintf(mine.text + n, sizeof mine.text - n, ", %s", cap);
    }
    hasher_add_i64(h, n_threads);
    mine.hash = hasher_end(h);
    hasher_free(h);
    return mine;
}

struct hash128 kinds_hash(const struct trainer *t) { return kinds_mine(t, t->n_threads).hash; }

/* The bytes of another rank may be anything, so those that are no text become "?". */
static const char *kinds_text(struct kind *k)
{
    k->text[sizeof k->text - 1] = 0;
    for (char *c = k->text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    return k->text;
}

/* Warn of ranks whose processor is not of rank 0's kind. */
static void kinds_warn(struct trainer *t, struct kind *all)
{
    int n = 0, first = 0;
    char *text;

    for (int k = t->n_ranks - 1; k > 0; k--)
        if (!hash_equal(all[k].hash, all[0].hash)) {
            first = k;
            n++;
        }
    if (n == 0)
        return;
    text = xasprintf("strategy.shards: %d of %d ranks, first rank %d (%s), have a processor of "
                     "another kind than rank 0's (%s), so this run's bits depend on the rank that "
                     "computes a share; want processors of one kind, and an equal %s",
                     n, t->n_ranks, first, kinds_text(&all[first]), kinds_text(&all[0]),
                     kinds_caps[0]);
    trainer_warn(t, text);
    free(text);
}

int kinds_form(struct trainer *t, struct err *err)
{
    struct kind *all, mine;
    int rc;

    if (t->shares.n == 0 || t->n_ranks == 1 || coll_is_device(t->step.coll))
        return 0;
    mine = kinds_mine(t, 0);
    all = xcalloc((size_t)t->n_ranks, sizeof *all);
    rc = step_allgather(&t->step, PHASE_FORM, &mine, sizeof mine, all, err);
    if (rc == 0 && t->rank == 0)
        kinds_warn(t, all);
    free(all);
    return rc;
}
