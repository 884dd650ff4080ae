/* gpu_profile - measures LeNet's training step on a GPU, kernel by kernel.
 *
 *     gpu_profile [BATCH [float32|tf32|bfloat16|float16 [tuned]]]     default 256 float32
 *
 * Without a GPU it ends with 77.
 *
 * Each kernel of the program, and the update that follows, is recorded RUNS times in a row, and the
 * recording is launched; so is the whole step, once and RUNS times in one recording.  A line's time
 * is therefore the kernel's time and the gap to the next kernel.  A step that takes longer than the
 * sum of its lines waits for something else.  The copies of scalars and samples to the GPU and the
 * all-reduces are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "gpu.h"
#include "job/job.h"
#include "model/model.h"
#include "op/op.h"
#include "program/impl.h"
#include "step/programs.h"
#include "step/update.h"

enum { RUNS = 20, SERIES = 7, BUCKET_BYTES = 1 << 20, MAX_BATCH = 1 << 16 };

struct rig {
    struct job *job;
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    struct buffers *buffers;
    struct update *update;
    struct program *program;
};

static struct err err;

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "gpu_profile: %s\n", err.msg);
        exit(1);
    }
}

/* ---- the step's parts ---- */

static struct job *make_job(const char *precision)
{
    char text[200];
    const int is_tf32 = strcmp(precision, "tf32") == 0;
    struct job *job;

    snprintf(text, sizeof text,
             "model: {arch: lenet}\ndata: {format: digits}\noptimizer: {lr: 0.001}\n"
             "precision: %s\ntrain: {tf32: %s}\n",
             is_tf32 ? "float32" : precision, is_tf32 ? "true" : "false");
    must(job_parse(text, strlen(text), "gpu_profile's job", NULL, &job, &err));
    return job;
}

static struct graph *make_graph(const struct rig *r, int64_t batch)
{
    static const struct sample_spec mnist = SAMPLE_IMAGES(28, 28, 1, 10);
    struct graph *g;

    must(model_build(&r->job->model, &mnist, batch, 1, 0, &g, &err));
    must(program_differentiate(g, &err));
    must(program_set_precision(g, programs_precision(r->job, 0), &err));
    return g;
}

static void choose(const struct rig *r, int tuned)
{
    const struct plugin_choices choices = {.allow_tf32 = r->job->train.tf32,
                                           .max_workspace = (size_t)r->job->train.max_workspace
                                                            << 20,
                                           .autotune = tuned};

    if (gpu_plugin()->configure)
        gpu_plugin()->configure(r->backend, &choices);
}

/* Fill the inputs with the same noise in each run; the results do not matter here. */
static void put_samples(const struct rig *r)
{
    const struct graph *g = r->program->graph;
    const int64_t n = shape_elements(&g->value[g->input[0]].shape);
    float *x = malloc((size_t)n * sizeof *x);
    int32_t *y = calloc((size_t)g->batch, sizeof *y);
    const struct step_scalars scalars = {
        .n_targets = g->batch, .loss_scale = 1.0f / (float)g->batch, .rate = 0.001f, .stamp = 1};

    ASSERT(x && y);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 7919 % 256) / 255.0f;
    must(backend_copy_in(r->backend, program_input(r->program, 0), x, (size_t)n * sizeof *x, &err));
    must(backend_copy_in(r->backend, program_input(r->program, 1), y, (size_t)g->batch * sizeof *y,
                         &err));
    must(
        backend_copy_in(r->backend, &r->buffers->numbers->scalars, &scalars, sizeof scalars, &err));
    free(x);
    free(y);
}

static void rig_open(struct rig *r, int64_t batch, const char *precision, int tuned)
{
    struct program_spaces spaces;
    struct graph *g;

    *r = (struct rig){.job = make_job(precision)};
    must(gpu_open(&r->backend, &err));
    choose(r, tuned);
    g = make_graph(r, 1);
    must(layout_new(g, BUCKET_BYTES, &r->layout, &err));
    graph_free(g);
    must(state_new(r->backend, r->layout, NULL, 0, &r->state, &err));
    must(state_init(r->state, r->job, &err));
    must(buffers_new(r->backend, NULL, r->state, 0, &r->buffers, &err));
    must(update_new(r->job, r->backend, r->state, r->buffers, &r->update, &err));
    must(update_refresh(r->update, &err));
    must(program_new(r->backend, make_graph(r, batch), r->layout, &r->program, &err));
    must(buffers_fit(r->buffers, program_arena_bytes(r->program), &err));
    spaces = buffers_spaces(r->buffers, r->state);
    must(program_bind(r->program, &spaces, r->buffers->arena, &err));
    put_samples(r);
}

static void rig_close(struct rig *r)
{
    program_free(r->program);
    update_free(r->update);
    buffers_free(r->buffers);
    state_free(r->state);
    layout_free(r->layout);
    backend_close(r->backend);
    job_free(r->job);
}

/* ---- timing ---- */

/* Run the program's step number i; past the last one, a part of the update; WHOLE: all of it. */
enum { WHOLE = -1 };

static void run(const struct rig *r, int i)
{
    const int n = r->program->n_steps;

    for (int s = 0; s < n; s++)
        if (i == s || i == WHOLE)
            must(program_run_step(r->program, s, &err));
    if (i == n || i == WHOLE)
        must(update_pack(r->update, &err));
    if (i == n + 1 || i == WHOLE)
        must(update_apply(r->update, &err));
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The median time, in microseconds, of launching `runs` in a row and waiting for their end. */
static double launch_us(const struct rig *r, int i, int runs)
{
    struct recording *recording = NULL;
    double us[SERIES];

    run(r, i); /* the first run lets libraries load their kernels */
    must(backend_record_begin(r->backend, &err));
    for (int k = 0; k < runs; k++)
        run(r, i);
    must(backend_record_end(r->backend, &recording, &err));
    for (int k = -1; k < SERIES; k++) {
        int64_t start;

        must(backend_sync(r->backend, &err));
        start = clock_mono_ns();
        must(backend_launch(r->backend, recording, &err));
        must(backend_sync(r->backend, &err));
        if (k >= 0) /* the first launch, not counted, sends the recording to the GPU */
            us[k] = (double)(clock_mono_ns() - start) * 1e-3;
    }
    backend_recording_free(r->backend, recording);
    qsort(us, SERIES, sizeof *us, by_size);
    return us[SERIES / 2];
}

static const char *name_of(const struct rig *r, int i, const char **op)
{
    static const char *const behind[][2] = {{"control vector", "pack"},
                                            {"check, optimizer, results", "update"}};
    const struct node *n;

    if (i >= r->program->n_steps) {
        *op = behind[i - r->program->n_steps][1];
        return behind[i - r->program->n_steps][0];
    }
    n = &r->program->graph->node[r->program->step[i].node];
    *op = op_get(n->op)->name;
    return n->name;
}

static void profile(const struct rig *r)
{
    const int n = r->program->n_steps + 2;
    /* A launch has a fixed cost besides its runs; the difference does not contain it. */
    const double whole = (launch_us(r, WHOLE, RUNS) - launch_us(r, WHOLE, 1)) / (RUNS - 1);
    double sum = 0;

    printf("     us  of step  operator                 node\n");
    for (int i = 0; i < n; i++) {
        const double us = (launch_us(r, i, RUNS) - launch_us(r, i, 1)) / (RUNS - 1);
        const char *op, *name = name_of(r, i, &op);

        sum += us;
        printf("%7.2f  %5.1f %%  %-23s  %s\n", us, 100 * us / whole, op, name);
    }
    printf("%7.2f           all of these; in one recording a step takes %.2f us, and %.2f us "
           "when each is launched and waited for\n",
           sum, whole, launch_us(r, WHOLE, 1));
}

int main(int argc, char **argv)
{
    const char *precision = argc > 2 ? argv[2] : "float32";
    const int64_t batch = argc > 1 ? atoll(argv[1]) : 256;
    const int tuned = argc > 3 && strcmp(argv[3], "tuned") == 0;
    struct rig r;
    int rc;

    if (batch < 1 || batch > MAX_BATCH || (argc > 3 && !tuned) || argc > 4) {
        fprintf(stderr, "usage: gpu_profile [BATCH [float32|tf32|bfloat16|float16 [tuned]]]\n");
        return 2;
    }
    rc = gpu_find();
    if (rc)
        return rc;
    rig_open(&r, batch, precision, tuned);
    printf("LeNet, batch %lld, %s%s, %s\n", (long long)batch, precision, tuned ? ", tuned" : "",
           gpu_probe()->gpu[0].name);
    profile(&r);
    rig_close(&r);
    return 0;
}
