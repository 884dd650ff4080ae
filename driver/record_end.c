/* The end of a run on the terminal: the closing table, or how to go on after a failure, with the
 * command that a user may want next. */
#include "driver/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "ckpt/owner.h"
#include "daemon/disk.h"
#include "driver/command.h"
#include "driver/drawing.h"
#include "driver/exec.h"
#include "driver/find_lr.h"
#include "driver/next.h"
#include "driver/traces.h"
#include "job/course.h"
#include "report/meter.h"

/* The job with the limits of the command that goes on with the run.  It shares all else with the
 * run's job. */
static struct job with_limits(const struct job *job, const struct next *n)
{
    struct job longer = *job;

    if (n->epochs)
        longer.train.epochs = n->epochs;
    if (n->max_steps)
        longer.train.max_steps = n->max_steps;
    return longer;
}

/* The command, and behind it the rates that it changes, if it does.  Takes `command`. */
static char *with_rates(const struct record *r, char *command, const struct next *n)
{
    const struct course at = {r->step, r->steps_per_epoch, (int)r->options->n_ranks};
    const struct job longer = with_limits(r->job, n);
    struct buf text = {0};
    char *all = command;

    if (r->steps_per_epoch > 0 && course_compare(r->job, &longer, &at, &text)) {
        all = xasprintf("%s   # %s", command, buf_cstr(&text));
        free(command);
    }
    buf_fini(&text);
    return all;
}

/* The command that a user may want next: after the demo one with own data, else one that trains
 * longer. */
static char *next_command(const struct record *r)
{
    const struct data_format *format = r->job->data.kind;
    struct next next = next_limits(&r->job->train, r->step, r->steps_per_epoch);
    const char *sets[3] = {NULL};
    char epochs[48], steps[48], *command, *text;
    int n = 0;

    if (!r->options->job && !r->dir.resumed && format->own) {
        command = command_data(r->options, format->own);
        text = xasprintf("%s   # FOLDER: %s", command, format->own_folder);
        free(command);
        return text;
    }
    snprintf(epochs, sizeof epochs, "train.epochs=%lld", (long long)next.epochs);
    snprintf(steps, sizeof steps, "train.max_steps=%lld", (long long)next.max_steps);
    if (next.epochs)
        sets[n++] = epochs;
    if (next.max_steps)
        sets[n++] = steps;
    return with_rates(r, command_longer(r->options, r->dir.path, sets), &next);
}

/* After a run that diverged, show how to begin a new one: if resumed, the run would diverge again.
 */
static void say_how_to_begin_anew(const struct record *r)
{
    char rate[64], *command;
    const char *const sets[] = {rate, NULL};

    snprintf(rate, sizeof rate, "optimizer.lr=%.3g", optimizer_lr(&r->job->optimizer) / 10);
    command = command_new(r->options, r->options->job ? NULL : r->dir.path, sets);
    log_info("going on from %s would end alike; a new run with a lower rate: %s (from those "
             "weights: --set model.init.name=file --set model.init.path=%s/model.safetensors)",
             r->checkpoint, command, r->checkpoint);
    free(command);
}

static void say_how_to_go_on(const struct record *r)
{
    char *command = command_resume(r->options, r->dir.path);

    log_info("to go on from the newest checkpoint, %s: %s", r->checkpoint, command);
    free(command);
}

/* A mended file has another fingerprint, so its run cannot be resumed, but its weights are good. */
static void say_how_to_mend(const struct record *r)
{
    char *path = xasprintf("model.init.path=%s/model.safetensors", r->checkpoint);
    static const char *const skips[] = {"train.on_nonfinite=skip", NULL};
    const char *const sets[] = {"model.init.name=file", path, NULL};
    char *resumed = command_longer(r->options, r->dir.path, skips),
         *begun = command_new(r->options, r->options->job ? NULL : r->dir.path, sets);

    log_info("going on from %s would end alike, with any learning rate: mend what the error names. "
             "With another setting go on by --resume; with other data begin anew from those "
             "weights: %s; or leave such steps out: %s",
             r->checkpoint, begun, resumed);
    free(path);
    free(resumed);
    free(begun);
}

/* 1: the disk hangs. */
static int tell_lost(struct record *r)
{
    const int hangs = events_flush(r->events, DISK_PATIENCE_MS) == WRITER_LATE;

    if (hangs)
        log_warn("%s: the disk hangs: the last events may be missing", r->dir.events);
    if (events_lost(r->events))
        log_warn("%s: %lld events could not be written", r->dir.events,
                 (long long)events_lost(r->events));
    return hangs;
}

/* A command that names a folder that is not there would fail. */
static void say_it_moved(const struct record *r)
{
    log_info("run directory %s is gone (moved?): to go on, move it back, or give --resume and the "
             "--run-dir that it is now",
             r->dir.path);
}

const char *record_why_deposed(const struct record *r)
{
    struct owner o;
    struct err ignored;

    if (owner_read(r->dir.path, &o, &ignored) == 0 && o.run[0] && strcmp(o.run, r->dir.run) != 0)
        return "this run's directory was moved or removed, and a new run has its name now (move "
               "the new one away and this one back, or go on by --resume with the --run-dir that "
               "it is now)";
    return "another driver leads this run: its name stands in the run directory's file owner";
}

/* Print the table by the thread of the log lines, because a write blocks if nobody reads the pipe.
 */
static void show_table(const struct record *r, const struct table_end *end)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    ASSERT(f);
    table_print(&r->table, end, f);
    fclose(f);
    log_put(STDOUT_FILENO, text, len);
    free(text);
}

void record_end(struct record *r, int status)
{
    char *model = r->checkpoint ? xasprintf("%s/model.safetensors", r->checkpoint) : NULL;
    char *next = r->is_stopped_early ? NULL : next_command(r);
    struct err ignored;
    int is_deposed, is_gone, has_hung;

    meter_stop();
    record_hand_rows(r);
    (void)events_check_owner(r->events);
    audit_flush(r->audit);
    drawing_end(r->drawing);
    traces_end(r->traces);
    if (r->board && status == STATUS_OK)
        board_end(r->board);
    if (r->exec)
        exec_hasten(r->exec, status == STATUS_STOPPED ? EXEC_SHORT_MS : EXEC_GRACE_MS);
    has_hung = tell_lost(r);
    is_gone = !has_hung && ckpt_check_run_dir(r->dir.path, &ignored) < 0;
    is_deposed = events_check_owner(r->events); /* as the disk's thread has found */
    if (status == STATUS_OK && r->rates)
        find_lr_show(r->rates, r->options);
    else if (status == STATUS_OK && r->options->common.log_format == LOG_TEXT)
        show_table(r, &(struct table_end){.seconds = r->seconds,
                                          .account = r->account,
                                          .cost = r->cost,
                                          .energy = r->energy,
                                          .no_energy = r->no_energy,
                                          .model_path = model,
                                          .next = next,
                                          .plot = has_hung ? NULL : drawing_plot(r->drawing)});
    if (status != STATUS_OK && r->checkpoint && is_gone)
        say_it_moved(r);
    else if (status == STATUS_FAILED && r->checkpoint && r->is_of_input)
        say_how_to_mend(r);
    else if (status == STATUS_FAILED && r->checkpoint && r->has_diverged)
        say_how_to_begin_anew(r);
    else if (status == STATUS_FAILED && r->checkpoint && !is_deposed)
        say_how_to_go_on(r); /* not if deposed: it would depose the new driver */
    free(next);
    free(model);
}

int record_await(struct record *r, int ms)
{
    if (!r->exec)
        return 1;
    exec_end(r->exec); /* for a job that could not begin */
    return exec_await(r->exec, ms);
}

void record_hasten(struct record *r, int is_urgent)
{
    if (r->exec)
        exec_hasten(r->exec, is_urgent ? 0 : EXEC_SHORT_MS);
}
