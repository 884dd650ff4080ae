/* Writes a run's files (job.yaml, events.jsonl, metrics.csv), and keeps the live line on the
 * terminal.  record_end.c has the end. */
#include "driver/record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "driver/check.h"
#include "driver/drawing.h"
#include "driver/exec.h"
#include "driver/find_lr.h"
#include "driver/traces.h"
#include "job/imported.h"
#include "report/began.h"
#include "report/hashes.h"
#include "report/incidents.h"
#include "report/meter.h"
#include "report/metrics.h"

char *record_path(const struct options *o, const struct job *job)
{
    return o->run_dir ? xstrdup(o->run_dir)
                      : xasprintf("runs/%s%s", job->name, o->find_lr ? "-find-lr" : "");
}

char *record_run(const struct options *o, const struct job *job)
{
    char *path = record_path(o, job);
    const struct run_dir_request q = {.path = path, .is_explicit = o->run_dir != NULL, .resume = 1};
    char *folder = run_dir_to_resume(&q);

    free(path);
    return folder;
}

/* ---- opening ---- */

static int compare_jobs(const char *dir, const struct job *job, struct err *err)
{
    char *path = xasprintf("%s/job.yaml", dir);
    struct job *old = NULL;
    int rc = 0;

    if (access(path, F_OK) == 0) { /* else the run was killed before it wrote the file */
        rc = job_load(path, NULL, 0, &old, err);
        if (rc == 0)
            rc = job_compare_for_resume(old, job, err);
        if (rc < 0)
            err_wrap(err, "--resume in %s", dir);
        job_free(old);
    }
    free(path);
    return rc;
}

int record_check_resume(const char *dir, const struct job *job, struct err *err)
{
    const int rc = compare_jobs(dir, job, err);

    if (rc < 0)
        return rc;
    return began_check_checkpoints(dir, err) < 0 ? err_wrap(err, "--resume in %s", dir) : 0;
}

/* The run goes on with this network when the file of model.import is gone. */
static int write_network(const struct record *r, struct err *err)
{
    char *path = xasprintf("%s/" IMPORTED_FILE, r->dir.path);
    struct buf packed = {0};
    int rc = 0;

    imported_pack(r->job, &packed);
    if (packed.len)
        rc = run_dir_replace(path, packed.data, packed.len, err);
    buf_fini(&packed);
    free(path);
    return rc;
}

static int write_job(const struct record *r, struct err *err)
{
    char *path = xasprintf("%s/job.yaml", r->dir.path);
    struct buf text = {0};
    int rc;

    job_write(r->job, &text);
    rc = run_dir_replace(path, text.data, text.len, err);
    buf_fini(&text);
    free(path);
    return rc == 0 ? write_network(r, err) : rc;
}

/* 1: job.yaml has the text that write_job would write. */
static int is_job_written(const struct record *r)
{
    char *path = xasprintf("%s/job.yaml", r->dir.path);
    struct buf before = {0}, now = {0};
    struct job *old = NULL;
    struct err ignored;
    int yes;

    if (job_load(path, NULL, 0, &old, &ignored) == 0)
        job_write(old, &before);
    job_write(r->job, &now);
    yes = !strcmp(buf_cstr(&before), buf_cstr(&now));
    job_free(old);
    buf_fini(&before);
    buf_fini(&now);
    free(path);
    return yes;
}

static void record_say_where(const struct record *r)
{
    if (r->dir.resumed)
        log_info("going on with the run in %s", r->dir.path);
    else if (r->options->resume)
        log_warn("--resume: there is no run in %s yet: starting from the beginning", r->dir.path);
    else if (r->dir.renamed)
        log_info("run directory: %s (those before it hold runs already; --resume goes on with the "
                 "last one that has trained)",
                 r->dir.path);
    else
        log_info("run directory: %s", r->dir.path);
}

/* Check the run that is to be resumed before the directory is claimed: a start that is refused must
 * not take the directory from a driver at work.  A standby that leads (q->run) needs no checkpoint,
 * because the followers have the state. */
static int check_before_claim(const struct run_dir_request *q, const struct job *job,
                              struct err *err)
{
    char *dir;
    int rc;

    if (!q->resume)
        return 0;
    dir = run_dir_to_resume(q);
    rc = q->run ? compare_jobs(dir, job, err) : record_check_resume(dir, job, err);
    free(dir);
    return rc;
}

struct resuming {
    const struct options *options;
    const struct job *job;
};

static int record_check_data(void *arg, const char *dir, struct err *err)
{
    const struct resuming *r = arg;

    return check_resume(r->options, r->job, dir, err);
}

/* Open audit.jsonl.  Strangers can cause lines in it, so its bounds are lower than those of the
 * events. */
static int open_audit(struct record *r, struct err *err)
{
    char *path = xasprintf("%s/audit.jsonl", r->dir.path);
    struct lines_options lines = {.path = path,
                                  .run_dir = r->dir.path,
                                  .what = "a line",
                                  .most_bytes = 8 << 20,
                                  .most_queued = 1 << 20,
                                  .owner_ms = 1000,
                                  .writer = r->disk};
    int fd, rc = lines_open(path, &fd, err);

    if (rc == 0)
        r->audit = audit_new(lines_new(fd, &lines));
    free(path);
    return rc;
}

/* Open events.jsonl.  Its bound of 64 MiB is enough for 100,000 epochs. */
static struct events *record_open_events(struct record *r)
{
    struct lines_options lines = {.path = r->dir.events,
                                  .run_dir = r->dir.path,
                                  .what = "an event",
                                  .most_bytes = 64 << 20,
                                  .wants_lock = r->dir.wants_lock,
                                  .writer = r->disk};
    int fd = r->dir.events_fd;

    r->dir.events_fd = -1;
    return events_new(lines_new(fd, &lines), r->options->device);
}

/* Find the run directory for a standby that leads.  It goes on in that of the run.  If the run is
 * not there, because the driver had another disk, the standby takes a new folder with a free name.
 */
static char *find_inherited(struct run_dir_request *q, char *path, const struct legacy *l)
{
    char *found;

    q->run = l->run;
    q->term = l->term;
    q->check = NULL; /* the followers have the state, so no checkpoint is checked */
    found = run_dir_find(q);
    q->is_explicit = q->resume = found != NULL;
    if (!found)
        return path;
    q->path = found;
    free(path);
    return found;
}

/* A standby that takes over goes on without a key rather than not at all; its own start was with
 * it. */
static int record_open_key(struct record *r, int must_go_on, struct err *err)
{
    if (!r->options->sign || signing_open_private(r->options->sign, &r->key, err) == 0)
        return 0;
    if (!must_go_on)
        return err_wrap(err, "--sign");
    log_warn("--sign: %s; the run's record will not be signed", err->msg);
    return 0;
}

int record_open(struct record *r, const struct options *o, const struct job *job,
                const struct legacy *legacy, struct writer *disk, struct err *err)
{
    char *path = record_path(o, job);
    struct resuming resuming = {o, job};
    struct run_dir_request q = {.path = path,
                                .is_explicit = o->run_dir != NULL,
                                .resume = o->resume,
                                .check = record_check_data,
                                .arg = &resuming};
    int rc;

    if (legacy)
        path = find_inherited(&q, path, legacy);

    *r = (struct record){0};
    r->options = o;
    r->job = job;
    r->disk = disk;
    rc = record_open_key(r, legacy != NULL, err);
    if (rc == 0)
        rc = check_before_claim(&q, job, err);
    if (rc == 0)
        rc = run_dir_claim(&q, &r->dir, err);
    free(path);
    if (rc < 0)
        return rc;
    rc = r->dir.resumed ? compare_jobs(r->dir.path, r->job, err) : write_job(r, err);
    if (rc == 0)
        rc = open_audit(r, err);
    if (rc < 0) {
        run_dir_discard(&r->dir);
        run_dir_fini(&r->dir);
        return rc;
    }
    r->rates = o->find_lr ? xcalloc(1, sizeof *r->rates) : NULL;
    r->events = record_open_events(r);
    if (job->report.every_steps > 0)
        r->metrics = series_new(r->dir.path, &metrics_series, disk);
    if (job->checkpoint.hashes > 0)
        r->hashes = series_new(r->dir.path, &hashes_series, disk);
    if (job->report.tensorboard)
        r->board = board_new(r->dir.path, r->dir.run, job, disk);
    r->drawing = drawing_new(r->dir.path, disk, STDOUT_FILENO);
    r->traces = traces_open(r->dir.path, job->name, disk);
    r->is_live = meter_start(STDERR_FILENO);
    record_say_where(r);
    if (!job->report.exec)
        return 0;
    rc = exec_new(job->report.exec, r->dir.path, EXEC_GRACE_MS, &r->exec, err);
    if (rc == 0)
        events_listen(r->events, exec_hear, r->exec, 1);
    return rc;
}

/* ---- events ---- */

static void show_progress(const struct record *r, const struct session_event *ev)
{
    const struct job_train *t = &r->job->train;
    struct meter_reading m = {
        .epoch = ev->progress.epoch,
        .n_epochs = ev->progress.n_epochs,
        .step = ev->progress.step,
        .n_steps = ev->progress.n_epochs * ev->progress.steps_per_epoch,
        .samples_per_step = t->global_batch,
        .loss = ev->progress.loss,
        .samples_per_second = ev->progress.samples_per_second,
    };

    if (t->max_steps)
        m.n_steps = min_i64(m.n_steps, t->max_steps);
    meter_show(&m, clock_mono_ns());
}

static void show_epoch(struct record *r, const struct session_epoch *e)
{
    char line[512];

    table_add(&r->table, e);
    if (r->is_live)
        table_data_wait_text(e->data_wait_share, e->data_wait_cause, e->data_wait_rank, line,
                             sizeof line);
    else
        table_epoch_text(e, r->job->train.epochs, line, sizeof line);
    if (line[0])
        log_info("%s", line);
}

/* Write job.yaml of a resumed run, once the present job has opened the run's checkpoint.  So a
 * start that is refused, such as one with other data, changes nothing. */
static void renew_job(struct record *r)
{
    struct err err;

    if (owner_is_other(r->dir.path))
        return;
    if (!r->dir.resumed || is_job_written(r))
        return;
    record_unattest(r); /* it tells of the job before */
    if (write_job(r, &err) < 0)
        log_warn("%s; it stays as it was before", err.msg);
}

static void begin_training(struct record *r)
{
    run_dir_begin_training(&r->dir);
    record_unattest(r);
}

struct chore {
    struct task task;
    struct record *record;
    void (*run)(struct record *r);
};

static void run_chore(struct task *t)
{
    struct chore *c = container_of(t, struct chore, task);

    c->run(c->record);
    free(c);
}

/* Have the disk's thread call `run`, in order with the events. */
static void let_disk(struct record *r, void (*run)(struct record *))
{
    struct chore *c = xmalloc(sizeof *c);

    *c = (struct chore){.task.run = run_chore, .record = r, .run = run};
    if (writer_put(r->disk, &c->task) == WRITER_FULL)
        free(c); /* not done: the disk hangs, which the events report */
}

/* 1: the job may end after this event, so the live line must be removed.  Local followers write to
 * the same terminal when the job ends, and do not know of the line. */
static int may_be_the_end(enum event_kind kind)
{
    return kind == EVENT_CHECKPOINT || kind == EVENT_ERROR || kind == EVENT_DONE;
}

void record_event(struct record *r, const struct session_event *ev)
{
    if (may_be_the_end(ev->kind))
        meter_clear();
    if (ev->kind != EVENT_ROW && ev->kind != EVENT_HASHES)
        record_hand_rows(r);
    traces_event(r->traces, ev);
    if (r->board)
        board_event(r->board, ev);
    switch (ev->kind) {
    case EVENT_PROGRESS:
        show_progress(r, ev);
        return;
    case EVENT_ROW:
        record_hold_row(r, &ev->row);
        if (r->rates)
            rates_add(r->rates, ev->row.step, ev->row.learning_rate, ev->row.loss);
        break;
    case EVENT_HASHES:
        record_hold_hashes(r, &ev->hashes);
        return;
    case EVENT_REFUSED:
        audit_refused(r->audit, ev->text);
        return;
    case EVENT_SPANS:
    case EVENT_TRACED:
        return;
    case EVENT_START:
        let_disk(r, renew_job);
        r->steps_per_epoch = ev->start.steps_per_epoch;
        r->data = ev->start.data;
        break;
    case EVENT_FORM:
        let_disk(r, begin_training);
        if (r->metrics)
            series_go_on(r->metrics, ev->step);
        if (r->hashes)
            series_go_on(r->hashes, ev->step);
        r->has_trained = 1;
        r->n_ranks = ev->form.n_ranks;
        break;
    case EVENT_EPOCH:
        if (!r->rates)
            show_epoch(r, &ev->epoch);
        break;
    case EVENT_CHECKPOINT:
        free(r->checkpoint);
        r->checkpoint = xstrdup(ev->text);
        r->checkpoint_step = ev->step;
        break;
    case EVENT_DONE:
        r->is_done = 1;
        r->seconds = ev->done.seconds;
        r->account = ev->account;
        r->cost = ev->cost;
        r->energy = ev->energy;
        free(r->no_energy);
        r->no_energy = ev->done.no_energy ? xstrdup(ev->done.no_energy) : NULL;
        r->step = r->checkpoint_step = ev->step;
        r->is_stopped_early = ev->done.reason && !strcmp(ev->done.reason, "early_stop");
        if (!r->checkpoint) /* nothing was to be done: take the one from which the run went on */
            r->checkpoint =
                xasprintf("%s/checkpoints/step-%08lld", r->dir.path, (long long)ev->step);
        break;
    case EVENT_ERROR:
        r->has_diverged |= ev->error.is_diverged;
        r->is_of_input |= ev->error.is_of_input;
        break;
    default:
        break;
    }
    events_add(r->events, ev);
    if (ev->kind == EVENT_EPOCH)
        drawing_epoch(r->drawing);
}

struct incident_file {
    struct task task;
    char *run_dir, *text;
};

static void incident_file_free(struct incident_file *f)
{
    free(f->run_dir);
    free(f->text);
    free(f);
}

static void write_incident(struct task *t)
{
    struct incident_file *f = container_of(t, struct incident_file, task);
    char *path = NULL;
    struct err err;
    int rc = incidents_write(f->run_dir, f->text, &path, &err);

    if (rc < 0)
        log_warn("what the ranks did last could not be written: %s", err.msg);
    else if (rc == 0)
        log_warn("what the ranks did last is in %s", path);
    free(path);
    incident_file_free(f);
}

void record_incident(struct record *r, const struct incident *i)
{
    struct incident_file *f = xmalloc(sizeof *f);

    *f = (struct incident_file){.run_dir = xstrdup(r->dir.path), .text = incidents_text(i)};
    f->task = (struct task){.n_bytes = strlen(f->text), .run = write_incident};
    if (writer_put(r->disk, &f->task) != WRITER_FULL)
        return;
    log_warn("what the ranks did last is not written: the disk hangs");
    incident_file_free(f);
}

void record_close(struct record *r, int status)
{
    meter_stop();
    exec_free(r->exec);
    if (r->dir.path)
        run_dir_end_training(&r->dir);
    if (r->rates && status == STATUS_OK)
        find_lr_write(r->rates, r->dir.path, r->job->name);
    if (r->dir.path && (status == STATUS_USAGE || (status == STATUS_STOPPED && !r->has_trained)))
        run_dir_discard(&r->dir);
    events_free(r->events);
    series_free(r->metrics);
    series_free(r->hashes);
    board_free(r->board);
    drawing_free(r->drawing);
    traces_free(r->traces);
    audit_free(r->audit);
    if (status != STATUS_USAGE)
        record_attest(r);
    signing_key_free(r->key);
    run_dir_fini(&r->dir);
    if (r->rates)
        rates_fini(r->rates);
    free(r->rates);
    free(r->row);
    free(r->hash_row);
    free(r->checkpoint);
    free(r->no_energy);
}
