/* dpdriver --check: opens the job on an engine as a run would, prints a summary, and trains
 * nothing. With --resume it also loads the newest checkpoint of the run. */
#include "driver/check.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "driver/local.h"
#include "driver/record.h"
#include "driver/trial.h"
#include "import/arch.h"
#include "import/print.h"
#include "report/run_dir.h"
#include "train/engine.h"

static void print_summary(const struct options *o, const struct job *job, const char *resume,
                          const struct report *r)
{
    char layout[HASH_TEXT_LEN];
    struct buf text = {0};

    hash_to_text(r->opened.layout, layout);
    job_write(job, &text);
    if (import_options_of(&job->model))
        import_print(import_options_of(&job->model)->network, &text);
    printf("%s\n", buf_cstr(&text));
    printf("parameters         %lld in %d tensors, layout %.16s\n",
           (long long)r->opened.n_parameters, r->opened.n_tensors, layout);
    printf("training samples   %lld: %lld steps per epoch, %lld epochs\n",
           (long long)r->opened.n_train, (long long)r->opened.steps_per_epoch,
           (long long)job->train.epochs);
    printf("validation samples %lld\n", (long long)r->opened.n_validation);
    printf("%s", r->opened.fields ? r->opened.fields : "");
    buf_clear(&text);
    devices_describe(&o->devices, o->device, &text);
    printf("ranks              %lld, this one on %s\n", (long long)o->n_ranks, buf_cstr(&text));
    if (job->precision == PRECISION_BFLOAT16 && !device_is_cuda(o->device))
        printf("bfloat16           %s\n", backend_cpu_bf16());
    if (resume)
        printf("would go on        in %s, from step %lld\n", resume, (long long)r->opened.step);
    if (device_is_cuda(o->device) && o->n_ranks > 1)
        printf(
            "between GPUs       NCCL's connections are neither encrypted nor proven: they need a "
            "private network, or a tunnel such as WireGuard or IPsec\n");
    printf("the job is fine\n");
    buf_fini(&text);
}

/* Wait for the report that the engine has opened the job, or that it cannot. */
static struct report *wait_opened(struct mailbox *reports)
{
    for (;;) {
        struct report *r = container_of(mailbox_wait(reports), struct report, mail);

        if (r->kind == REPORT_OPENED || r->kind == REPORT_FAULT)
            return r;
        if (r->kind == REPORT_WARNING)
            log_warn("%s", r->warning.text);
        report_free(r);
    }
}

static void check_free_report(struct mail *m) { report_free(container_of(m, struct report, mail)); }

/* Open the job.  `resume` is the run directory whose newest checkpoint is loaded; NULL: none is.
 * The last flag asks for a summary. */
static int check_open_job(const struct options *o, const struct job *job, const char *resume,
                          int prints, struct err *err)
{
    struct engine_options eo = {
        .plugin = o->devices.plugin, .device = o->device, .n_threads = (int)o->common.n_threads};
    struct mailbox reports;
    struct engine *e;
    struct report *r;
    int rc;

    mailbox_init(&reports, NULL, NULL);
    rc = engine_new(&eo, &reports, &e, err);
    if (rc == 0) {
        engine_post(e, trial_command(o, job, resume));
        r = wait_opened(&reports);
        if (r->kind == REPORT_FAULT) {
            *err = r->fault.err;
            rc = err->code;
        } else if (prints) {
            print_summary(o, job, resume, r);
        }
        report_free(r);
        engine_free(e);
    }
    mailbox_fini(&reports, check_free_report);
    return rc;
}

int check_resume(const struct options *o, const struct job *job, const char *dir, struct err *err)
{
    return check_open_job(o, job, dir, 0, err);
}

/* With --resume: *out is the folder of the run to go on with, for free().  Its job must be this
 * one. *out stays NULL if there is no run yet: a start with --resume would then begin a new one. */
static int find_run(const struct run_dir_request *q, const struct job *job, char **out,
                    struct err *err)
{
    char *folder = run_dir_to_resume(q);
    int rc = 0;

    if (run_dir_holds_run(folder)) {
        rc = record_check_resume(folder, job, err);
        *out = xstrdup(folder);
    } else {
        log_warn("--resume: there is no run in %s yet: it would start from the beginning", folder);
    }
    free(folder);
    return rc;
}

static void tell_links(void *arg, const char *text)
{
    (void)arg;
    log_warn("%s", text);
}

int check_run(const struct options *o, const struct job *job)
{
    char *path = record_path(o, job), *resume = NULL;
    struct run_dir_request q = {
        .path = path, .is_explicit = o->run_dir != NULL, .resume = o->resume};
    struct err err;
    int rc = run_dir_check(&q, &err);

    if (rc == 0)
        rc = local_check_gpus(o, job, &err);
    if (rc == 0 && o->resume)
        rc = find_run(&q, job, &resume, &err);
    if (rc == 0) {
        if (resume)
            ckpt_check_links(resume, tell_links, NULL);
        else /* a new run, perhaps in a folder of another name */
            ckpt_check_disk(path, tell_links, NULL);
        rc = check_open_job(o, job, resume, 1, &err);
    }
    free(resume);
    free(path);
    if (rc == 0)
        return STATUS_OK;
    log_error("%s", err.msg);
    return STATUS_USAGE;
}
