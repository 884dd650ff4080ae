/* The settings of a range test, and what it leaves: a table on the terminal and two files.  Rows
 * come from driver/record.c, which has them from the session. */
#include "driver/find_lr.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "report/run_dir.h"

static const char *const find_lr_own[] = {
    "schedule.name=range",
    "schedule.warmup_steps=0",
    "schedule.warmup_epochs=0",
    "schedule.warmup_from_one_rank=false",
    "schedule.total_steps=0",
    "schedule.timing=dptrain",
    "optimizer.scale_lr_by_ranks=false",
    "train.epochs=1000000",
    "train.stop_after=0",
    "train.validate_every=0",
    "train.best.metric=none",
    "train.early_stop.patience=0",
    "train.average.name=none",
    "train.on_nonfinite=stop",
    "train.on_spike=none",
    "checkpoint.every_epochs=0",
    "checkpoint.every_steps=0",
    "report.every_steps=1",
    "report.tensorboard=false",
    "report.trace=[]",
    "report.exec=",
    "cluster.driver_timeout=0",
};

_Static_assert(1 + ARRAY_LEN(find_lr_own) + ARG_MAX_LIST <= FIND_LR_MOST_SETS, "all of them fit");

static int find_lr_begins(const char *set, const char *key)
{
    return !strncmp(set, key, strlen(key));
}

/* 1: the user's setting is one of what the test replaces as a whole: a key of another schedule, or
 * of averaged weights, which the test has not. */
static int find_lr_replaces(const char *set)
{
    return find_lr_begins(set, "train.average.") ||
           (find_lr_begins(set, "schedule.") && !find_lr_begins(set, "schedule.first_lr=") &&
            !find_lr_begins(set, "schedule.last_lr="));
}

size_t find_lr_sets(const struct options *o, const char **set)
{
    size_t n = 0;

    set[n++] = "train.max_steps=200"; /* unless the user says otherwise */
    for (size_t i = 0; i < o->sets.n; i++)
        if (!find_lr_replaces(o->sets.item[i]))
            set[n++] = o->sets.item[i];
    for (size_t i = 0; i < ARRAY_LEN(find_lr_own); i++)
        set[n++] = find_lr_own[i];
    return n;
}

void find_lr_show(struct rates *r, const struct options *o)
{
    struct buf text = {0};

    rates_find(r);
    if (o->common.log_format == LOG_JSON)
        rates_put_json(r, &text);
    else
        rates_put_table(r, &text);
    log_put(STDOUT_FILENO, text.data, text.len);
    buf_fini(&text);
}

static void find_lr_put(const char *run_dir, const char *file, struct buf *text)
{
    char *path = xasprintf("%s/%s", run_dir, file);
    struct err err;

    if (run_dir_replace(path, text->data, text->len, &err) < 0)
        log_warn("%s", err.msg);
    else
        log_info("%s is written", path);
    free(path);
    buf_fini(text);
}

void find_lr_write(const struct rates *r, const char *run_dir, const char *name)
{
    struct buf csv = {0}, svg = {0};

    rates_put_csv(r, &csv);
    rates_put_svg(r, name, &svg);
    find_lr_put(run_dir, "find_lr.csv", &csv);
    find_lr_put(run_dir, "find_lr.svg", &svg);
}
