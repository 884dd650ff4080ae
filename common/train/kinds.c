/* kinds - a rank's processor and libraries, as a hash and in words.
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
#include "base/processor.h"
#include "base/util.h"
#include "train/trainer_impl.h"

static const char *const kinds_caps[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};

/* Add the processor, and write its name; one that cannot be read is like no other rank's. */
static void kinds_add_processor(struct hasher *h, int rank, char *name, size_t n_name)
{
    FILE *f = fopen("/proc/cpuinfo", "r");

    if (!f || !processor_add(f, h, name, n_name))
        hasher_add_i64(h, rank);
    if (f)
        fclose(f);
}

/* Add to the text, which is cut where it is full. */
static void kinds_say(struct kind *k, const char *text)
{
    const size_t n = strlen(k->text);

    snprintf(k->text + n, sizeof k->text - n, "%s%s", n ? ", " : "", text);
}

struct kind kinds_mine(const struct trainer *t, int n_threads)
{
    struct hasher *h = hasher_new();
    struct utsname system = {0};
    char name[64] = "unknown processor", libraries[64], threads[32];
    struct kind mine = {0};

    uname(&system);
    hasher_add_text(h, system.machine);
    kinds_add_processor(h, t->rank, name, sizeof name);
    backend_cpu_libraries(libraries, sizeof libraries);
    hasher_add_text(h, libraries);
    snprintf(mine.text, sizeof mine.text, "%.12s", system.machine);
    kinds_say(&mine, name);
    for (size_t i = 0; i < ARRAY_LEN(kinds_caps); i++) {
        const char *cap = getenv(kinds_caps[i]);

        hasher_add_text(h, cap ? cap : "");
        if (cap)
            kinds_say(&mine, cap);
    }
    kinds_say(&mine, libraries);
    hasher_add_i64(h, n_threads);
    snprintf(threads, sizeof threads, "%d thread%s", n_threads, n_threads == 1 ? "" : "s");
    if (n_threads > 0)
        kinds_say(&mine, threads);
    mine.hash = hasher_end(h);
    hasher_free(h);
    return mine;
}

/* The bytes of another rank may be anything, so those that are no text become "?". */
const char *kinds_text(struct kind *k)
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
    text = xasprintf("strategy.shards: %d of %d ranks, first rank %d (%s), have a processor or "
                     "libraries of another kind than rank 0's (%s), so this run's bits depend on "
                     "the rank that computes a share; want processors and libraries of one kind, "
                     "and an equal %s",
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
