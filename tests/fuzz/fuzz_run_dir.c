/* Fuzz target: the input is a file of a run directory that an earlier driver left: its owner, its
 * events, or its metrics.  The driver that goes on with the run takes from it what can be true, and
 * leaves whole lines in it.  The first byte chooses the file (enum kind); of metrics, the second
 * one is the step from which the run goes on. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "ckpt/owner.h"
#include "report/injected.h"
#include "report/led.h"
#include "report/metrics.h"
#include "scratch.h"
#include "session/command.h"

enum kind { OWNER, EVENTS, METRICS, N_KINDS };

enum { MOST_LEFT = 1 << 16, MOST_ROW = 500 }; /* bytes of metrics that are looked at, of a row */

static const char *const names[N_KINDS] = {"owner", "events.jsonl", "metrics.csv"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *folder, *paths[N_KINDS];

static void clean_up(void)
{
    for (int i = 0; i < N_KINDS; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    rmdir(folder);
    free(folder);
}

static void make_folder(void)
{
    folder = scratch_folder();
    for (int i = 0; i < N_KINDS; i++)
        paths[i] = xasprintf("%s/%s", folder, names[i]);
    atexit(clean_up);
    log_init("fuzz", LOG_TEXT, LOG_ERROR);
}

static void read_owner(void)
{
    struct owner o;
    struct err err = {0};
    const int rc = owner_read(folder, &o, &err), lives = rc == 0 ? owner_lives(&o) : 0;

    ASSERT(rc == 0 || (rc == ERR_CORRUPT && err.msg[0]));
    ASSERT(rc < 0 || (o.id[0] && strlen(o.id) < OWNER_ID && strlen(o.run) < OWNER_ID));
    ASSERT(lives >= -1 && lives <= 1);
    ASSERT(owner_is_other(folder) == (rc == 0 && !owner_is_self(&o)));
    ASSERT(owner_claim(folder, 5, &err) == 0); /* whatever stood there */
    ASSERT(owner_read(folder, &o, &err) == 0 && owner_is_self(&o) && o.run[0] && o.term == 5);
}

static void read_events(void)
{
    struct injection_list l = {.n = 0};
    struct err err;
    struct led led;
    int n_spent = 0;

    led_read(paths[EVENTS], &led);
    ASSERT(led.generation >= 0 && led.generation < INT64_MAX && led.step >= 0);
    ASSERT(led.epoch_step >= 0 && led.validated_step >= 0);
    ASSERT(led.voters.n_ranks >= 0 && led.voters.generation >= 0 && led.voters.term >= 0);
    ASSERT(inject_parse("kill:rank1@step5,kill:rank1@step5,delay:rank0@form:2s", &l, &err) == 0);
    n_spent = injected_spend(paths[EVENTS], &l);
    for (int i = 0; i < l.n; i++)
        n_spent -= l.item[i].is_spent;
    ASSERT(n_spent == 0);
}

/* A file that is taken has whole lines, and its last row is not beyond the step. */
static void check_metrics(int64_t step)
{
    static const char header[] = "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n";
    static char text[MOST_LEFT + 1];
    const int fd = open(paths[METRICS], O_RDONLY | O_CLOEXEC);
    const ssize_t n = pread(fd, text, MOST_LEFT, 0);
    const char *line;
    char *end;

    close(fd);
    ASSERT(n > 0);
    text[n] = 0;
    if (n == MOST_LEFT || strncmp(text, header, sizeof header - 1) != 0)
        return;
    ASSERT(text[n - 1] == '\n');
    line = memrchr(text, '\n', (size_t)n - 1);
    if (line && text + n - line < MOST_ROW)
        ASSERT(strtoll(line + 1, &end, 10) <= step || *end != ',');
}

/* Whatever is read as rows has steps that rise. */
static void read_rows(void)
{
    struct series_table t;
    struct err err;

    if (series_read(folder, &metrics_series, &t, &err) != 0)
        return;
    for (int64_t i = 0; i < t.n_rows; i++) {
        ASSERT(series_step(&t, i) > (i > 0 ? series_step(&t, i - 1) : 0));
        ASSERT(series_find(&t, series_step(&t, i)) == i);
    }
    series_table_fini(&t);
}

static void read_metrics(int64_t step)
{
    struct series *m = series_new(folder, &metrics_series, NULL);

    read_rows();
    series_go_on(m, step);
    check_metrics(step);
    series_add(m, &(struct metrics_row){.step = step + 1, .epoch = 1}, 1);
    check_metrics(step + 1);
    series_go_on(m, step);
    check_metrics(step);
    series_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum kind kind;
    size_t n_head;

    if (!folder)
        make_folder();
    if (size < 2)
        return 0;
    kind = (enum kind)(data[0] % N_KINDS);
    n_head = kind == METRICS ? 2 : 1;
    scratch_write(paths[kind], data + n_head, size - n_head);
    if (kind == OWNER)
        read_owner();
    else if (kind == EVENTS)
        read_events();
    else
        read_metrics(data[1]);
    unlink(paths[kind]);
    return 0;
}
