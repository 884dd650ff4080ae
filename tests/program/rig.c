/* rig - makes memory, programs and samples for the tests of this folder, and runs one program or
 * those of several ranks side by side. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "program/impl.h"
#include "ref_backend.h"
#include "tensor/half.h"

const struct sample_spec rig_mnist = SAMPLE_IMAGES(28, 28, 1, 10);

struct err rig_err;

void rig_must(int rc)
{
    if (rc < 0)
        assert_failed(rig_err.msg, rig_err.file, rig_err.line);
}

void *rig_put(struct backend *b, const void *from, size_t n_bytes)
{
    void *p;

    rig_must(backend_alloc(b, n_bytes, "a test", &p, &rig_err));
    rig_must(backend_copy_in(b, p, from, n_bytes, &rig_err));
    return p;
}

float test_uniform(uint64_t step, uint64_t index)
{
    return 2 * rng_to_unit(rng_draw(7, RNG_TEST, step, index).v[0]) - 1;
}

struct rig_model rig_model(const struct model_arch *arch)
{
    return (struct rig_model){.o.kind = arch, .mlp.activation = ACT_RELU};
}

struct model_options rig_options(const struct rig_model *model)
{
    struct model_options o = model->o;

    o.options = model->list.layers ? (const void *)&model->list : &model->mlp;
    return o;
}

struct graph *rig_graph(const struct rig_model *model, const struct sample_spec *in, int64_t batch,
                        int training, int sync)
{
    const struct model_options o = rig_options(model);
    struct graph *g;

    rig_must(model_build(&o, in, batch, training, sync, &g, &rig_err));
    if (training)
        rig_must(program_differentiate(g, &rig_err));
    return g;
}

static void *aligned(int64_t n_bytes)
{
    void *p;

    rig_must(try_alloc(&p, (size_t)n_bytes + 64, "test memory", &rig_err));
    return p;
}

static void open_spaces(struct rig *r)
{
    const struct layout *l = r->layout;

    r->spaces = (struct program_spaces){
        .param = aligned(l->n_total * 4),
        .base = aligned(l->n_base_bytes),
        .grad = aligned(l->n_grad * 4),
        .state = aligned(l->n_state_total * 4),
        .shadow = aligned(l->n_state_total * 4),
        .metrics = r->metrics,
        .scalars = &r->scalars,
    };
    if (l->copy_dtype != DTYPE_F32)
        r->spaces.copy = aligned(l->n_total * 2);
    if (l->has_scaler)
        r->spaces.scaler = r->scaler;
    r->scaler[SCALER_SCALE] = 1;
    memset(r->spaces.grad, 0xff, (size_t)l->n_grad * 4);
}

void rig_open(struct rig *r, unsigned fusions, struct graph *g, struct layout *layout)
{
    struct backend *b;

    rig_must(ref_open(fusions, &b));
    rig_open_on(r, b, g, layout);
}

void rig_open_on(struct rig *r, struct backend *b, struct graph *g, struct layout *layout)
{
    *r = (struct rig){.backend = b, .graph = g, .layout = layout, .owns_layout = !layout};
    if (!layout)
        rig_must(layout_new(g, 1 << 16, &r->layout, &rig_err));
    rig_must(program_new(r->backend, g, r->layout, &r->program, &rig_err));
    open_spaces(r);
    r->arena_bytes = program_arena_bytes(r->program);
    r->arena = aligned((int64_t)r->arena_bytes);
    rig_must(program_bind(r->program, &r->spaces, r->arena, &rig_err));
    r->scalars = (struct step_scalars){.seed = 3, .step = 5, .loss_scale = 1, .rate = 0.1F};
    if (g->batch)
        r->scalars.loss_scale = 1 / (float)g->batch;
}

void rig_close(struct rig *r)
{
    program_free(r->program);
    if (r->owns_layout)
        layout_free(r->layout);
    free(r->spaces.param);
    free(r->spaces.base);
    free(r->spaces.copy);
    free(r->spaces.grad);
    free(r->spaces.state);
    free(r->spaces.shadow);
    free(r->arena);
    backend_close(r->backend);
}

void rig_init_params(const struct layout *l, uint64_t seed, double std, float *to)
{
    memset(to, 0, (size_t)l->n_total * sizeof *to);
    for (int i = 0; i < l->n_params; i++)
        layout_init_param(l, i, seed,
                          (struct layout_init){std < 0 ? INIT_RULE_OWN : INIT_RULE_NORMAL, std}, 0,
                          l->param[i].length, to + l->param[i].offset);
}

static void init_states(const struct layout *l, float *to)
{
    memset(to, 0, (size_t)l->n_state_total * sizeof *to);
    for (int i = 0; i < l->n_states; i++)
        for (int64_t e = 0; e < l->state[i].length; e++)
            to[l->state[i].offset + e] = l->state[i].init_state;
}

void rig_init(struct rig *r, uint64_t seed)
{
    rig_init_params(r->layout, seed, -1, r->spaces.param);
    init_states(r->layout, r->spaces.state);
    for (int64_t i = 0; r->spaces.copy && i < r->layout->n_total; i++)
        real_put(r->spaces.copy, r->layout->copy_dtype, i, ((float *)r->spaces.param)[i]);
}

/* Give tokens to an input of that name that is no field of the samples. */
static void fill_tokens(struct rig *r)
{
    for (int v = 0; v < r->graph->n_values; v++) {
        const struct value *value = &r->graph->value[v];

        if (value->role != VALUE_INPUT || value->dtype != DTYPE_I32 ||
            strcmp(value->name, "tokens") != 0)
            continue;
        for (int64_t i = 0; i < shape_elements(&value->shape); i++)
            ((int32_t *)r->program->place[v].address)[i] = (int32_t)(i % 3);
    }
}

void rig_fill(struct rig *r, int64_t first)
{
    const struct graph *g = r->graph;
    float *x = program_input(r->program, 0);
    int32_t *labels = program_input(r->program, 1);
    int64_t each, classes;

    r->scalars.first_position = first;
    fill_tokens(r);
    if (!g->batch)
        return;
    each = shape_elements(&g->value[g->input[0]].shape) / g->batch;
    classes = g->value[g->logits].shape.dim[1];
    for (int64_t s = 0; s < g->batch; s++) {
        labels[s] = (int32_t)((first + s) * 7 % classes);
        for (int64_t e = 0; e < each; e++)
            x[s * each + e] = test_uniform((uint64_t)(first + s), (uint64_t)e);
    }
}

/* Fill the arena with NaNs, so that a value which is read before it is written shows. */
static void spoil(struct rig *r)
{
    const int64_t first = r->scalars.first_position;

    memset(r->arena, 0xff, r->arena_bytes);
    memset(r->metrics, 0, sizeof r->metrics);
    rig_fill(r, first);
}

/* All rigs are at the same SYNC stage: give each of them the sum of their values. */
static void sum_sync(struct rig *const *r, int n, const int *at)
{
    const int64_t len = program_stage(r[0]->program, at[0])->n_sync;

    for (int64_t e = 0; e < len; e++) {
        double sum = 0;

        for (int k = 0; k < n; k++)
            sum += ((double *)program_stage(r[k]->program, at[k])->sync)[e];
        for (int k = 0; k < n; k++)
            ((double *)program_stage(r[k]->program, at[k])->sync)[e] = sum;
    }
}

/* The next stage that is not a RUN stage.  Ranks differ in their RUN stages alone: a rank without
 * samples has fewer. */
static int next_collective(const struct rig *r, int i)
{
    while (i < program_n_stages(r->program) && program_stage(r->program, i)->kind == STAGE_RUN)
        i++;
    return i;
}

static void run_until(struct rig *r, int from, int to)
{
    for (int i = from; i < to; i++)
        rig_must(program_run_stage(r->program, i, &rig_err));
}

void rigs_run(struct rig *const *r, int n)
{
    int at[8] = {0};

    ASSERT(n <= 8);
    for (int k = 0; k < n; k++)
        spoil(r[k]);
    for (;;) {
        int is_end = 0;

        for (int k = 0; k < n; k++) {
            int next = next_collective(r[k], at[k]);

            run_until(r[k], at[k], next);
            at[k] = next;
            is_end += next == program_n_stages(r[k]->program);
        }
        ASSERT(is_end == 0 || is_end == n);
        if (is_end)
            return;
        if (program_stage(r[0]->program, at[0])->kind == STAGE_SYNC)
            sum_sync(r, n, at);
        for (int k = 0; k < n; k++)
            at[k]++;
    }
}

void rig_run(struct rig *r) { rigs_run(&r, 1); }

double rig_loss(struct rig *r)
{
    rig_run(r);
    return r->metrics[METRIC_LOSS_SUM] * r->scalars.loss_scale;
}

static const struct segment *segment_named(const struct rig *r, const char *name)
{
    for (int i = 0; i < r->layout->n_params; i++)
        if (!strcmp(r->layout->param[i].name, name))
            return &r->layout->param[i];
    assert_failed(name, __FILE__, __LINE__);
}

float *rig_param(const struct rig *r, const char *name, int64_t *length)
{
    const struct segment *s = segment_named(r, name);

    if (length)
        *length = s->length;
    return (float *)r->spaces.param + s->offset;
}

float *rig_grad(const struct rig *r, const char *name)
{
    return (float *)r->spaces.grad + segment_named(r, name)->offset;
}
