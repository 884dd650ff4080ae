/* cudnn_plan - finds the plan of a graph.
 *
 * cudnn_plan_for() joins the operations into a graph, asks the heuristics, refuses engines by their
 * notes, and finalises configurations in the heuristics' order until one succeeds, or as many as
 * are to be timed.  cudnn_keep.c restores a plan that an earlier process chose.
 *
 * A heuristics query may return no configuration and no error.  Then there is no engine (or, for
 * engines compiled at run time, libcuda.so.1 cannot be loaded). */
#include "backend/cuda/cudnn_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct search {
    struct cudnn_device *device;
    const struct cudnn_rules *rules;
    int f32;
    int n_seen, n_refused, n_large, n_failed;
    char last[200]; /* cuDNN's text about the last failure */
    struct cudnn_plan found[CUDNN_CANDIDATES];
    int n_found, n_wanted;
};

static unsigned notes_of(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type)
{
    int note[16]; /* enums */
    int64_t n = 0;
    unsigned bits = 0;

    if (cudnnBackendGetAttribute(engine, name, type, ARRAY_LEN(note), &n, note) !=
        CUDNN_STATUS_SUCCESS)
        return ~0u; /* the notes are unknown, so the engine must be refused */
    for (int64_t i = 0; i < n; i++)
        bits |= 1u << note[i];
    return bits;
}

/* Notes that rule an engine out.  For float32: COARSE always, and ROUNDING unless TF32 is allowed.
 * For all types: NEVER. */
enum {
    COARSE = 1 << CUDNN_NUMERICAL_NOTE_FFT | 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
             1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 |
             1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    ROUNDING =
        1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    NEVER = 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
};

static int is_allowed(int f32, const struct cudnn_rules *rules, unsigned numerical)
{
    unsigned no = NEVER;

    if (f32)
        no |= rules->allow_tf32 ? COARSE : COARSE | ROUNDING;
    return !(numerical & no);
}

/* Reads the index and the notes of a configuration's engine into *p. */
static int cuda_cudnn_plan_look_at(cudnnBackendDescriptor_t config, struct cudnn_plan *p,
                                   unsigned *numerical)
{
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0;
    unsigned behaviour;
    int ok =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                 &p->engine) == CUDNN_STATUS_SUCCESS;

    if (ok) {
        *numerical = notes_of(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
        behaviour = notes_of(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
        p->uses_tensor_cores = !!(*numerical & 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        p->of_last_resort = !!(*numerical & 1u << CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
        p->compiled_at_run_time = !!(behaviour & 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    }
    cudnn_destroy(engine);
    return ok;
}

int cudnn_engine_fits(cudnnBackendDescriptor_t config, int f32, const struct cudnn_rules *rules,
                      struct cudnn_plan *p)
{
    unsigned numerical = 0;

    return cuda_cudnn_plan_look_at(config, p, &numerical) && is_allowed(f32, rules, numerical);
}

cudnnStatus_t cudnn_plan_workspace(struct cudnn_plan *p)
{
    int64_t n = 0, bytes = 0;
    cudnnStatus_t st = cudnnBackendGetAttribute(p->raw, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                CUDNN_TYPE_INT64, 1, &n, &bytes);

    p->workspace = (size_t)bytes;
    return st;
}

static cudnnStatus_t cuda_cudnn_plan_finalise(const struct search *s,
                                              cudnnBackendDescriptor_t config, struct cudnn_plan *p)
{
    const struct cudnn_device *d = s->device;
    const struct attr a[] = {
        ATTR(EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &config),
        d->handle ? (struct attr)ATTR(EXECUTION_PLAN_HANDLE, HANDLE, 1, &d->handle)
                  : (struct attr)ATTR(EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, &d->prop)};
    cudnnStatus_t st = cudnn_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, a, 2, &p->raw);

    return st == CUDNN_STATUS_SUCCESS ? cudnn_plan_workspace(p) : st;
}

/* Adds the plan of this configuration to s->found, if it keeps the rules. */
static void try_config(struct search *s, cudnnBackendDescriptor_t config)
{
    struct cudnn_plan *p = &s->found[s->n_found];
    cudnnStatus_t st;

    s->n_seen++;
    *p = (struct cudnn_plan){0};
    if (!cudnn_engine_fits(config, s->f32, s->rules, p)) {
        s->n_refused++;
        return;
    }
    st = cuda_cudnn_plan_finalise(s, config, p);
    if (st == CUDNN_STATUS_SUCCESS && p->workspace <= s->rules->max_workspace) {
        s->n_found++;
        return;
    }
    if (st == CUDNN_STATUS_SUCCESS) {
        s->n_large++;
    } else {
        s->n_failed++;
        cudnnGetLastErrorString(s->last, sizeof s->last);
    }
    cudnn_destroy(p->raw);
}

/* Gets *n configurations in the order in which the heuristics recommend them.  The caller destroys
 * them and *heur, and frees *config. */
static cudnnStatus_t cuda_cudnn_plan_ask(const struct search *s, cudnnBackendDescriptor_t graph,
                                         cudnnBackendHeurMode_t mode,
                                         cudnnBackendDescriptor_t *heur,
                                         cudnnBackendDescriptor_t **config, int64_t *n)
{
    const struct attr a[] = {ATTR(ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &graph),
                             ATTR(ENGINEHEUR_MODE, HEUR_MODE, 1, &mode),
                             ATTR(ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, &s->device->prop)};
    int64_t room = 0;
    cudnnStatus_t st =
        cudnn_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, a, s->device->prop ? 3 : 2, heur);

    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendGetAttribute(*heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &room, NULL);
    if (st != CUDNN_STATUS_SUCCESS || room <= 0)
        return st;
    *config = xcalloc((size_t)room, sizeof **config);
    for (*n = 0; st == CUDNN_STATUS_SUCCESS && *n < room; ++*n)
        st = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &(*config)[*n]);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendGetAttribute(*heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &room, *config);
    for (; *n > room; --*n)
        cudnn_destroy((*config)[*n - 1]);
    return st;
}

static void search_mode(struct search *s, cudnnBackendDescriptor_t graph,
                        cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heur = NULL, *config = NULL;
    int64_t n = 0;

    if (cuda_cudnn_plan_ask(s, graph, mode, &heur, &config, &n) != CUDNN_STATUS_SUCCESS)
        cudnnGetLastErrorString(s->last, sizeof s->last);
    else
        for (int64_t i = 0; i < n && s->n_found < s->n_wanted; i++)
            try_config(s, config[i]);
    for (int64_t i = 0; i < n; i++)
        cudnn_destroy(config[i]);
    free(config);
    cudnn_destroy(heur);
}

static int no_engine(const struct search *s, const char *what, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: no cuDNN engine on %s: of %d configurations %d are not exact or not "
                   "repeatable enough (%s), %d want more than %zu MiB of workspace "
                   "(train.max_workspace), %d failed%s%s",
                   what, s->device->gpu, s->n_seen, s->n_refused,
                   s->f32 && !s->rules->allow_tf32 ? "TF32 is not allowed" : "rules", s->n_large,
                   s->rules->max_workspace >> 20, s->n_failed, s->last[0] ? ": " : "", s->last);
}

/* The fastest plan, or the first if none can be timed (for lack of memory, say).  is_sure: the
 * result was timed, or is the only plan. */
static int cuda_cudnn_plan_fastest(const struct cudnn_graph *g, const struct search *s,
                                   int *is_sure)
{
    const struct cudnn_device *d = g->device;
    size_t n_bytes[CUDNN_MAX_TENSORS];
    double best_us = 0.0, us = 0.0;
    int best = 0;
    struct err none;

    for (int i = 0; i < g->n_tensors; i++)
        n_bytes[i] = g->tensor[i].n_bytes;

    *is_sure = s->n_found == 1;
    for (int i = 0; s->n_found > 1 && i < s->n_found; i++)
        if (d->timer(d->timer_arg, g->device, &s->found[i], n_bytes, &us, &none) == 0 &&
            (best_us == 0.0 || us < best_us)) {
            best = i;
            best_us = us;
            *is_sure = 1;
        }
    return best;
}

static void name_tensors(const struct cudnn_graph *g, struct entry *e, struct cudnn_plan *p)
{
    for (int i = 0; i < g->n_tensors; i++) {
        const struct cudnn_operand *t = &g->tensor[i];

        e->uid[i] = t->is_inner ? -1 : i + 1;
        e->value[i] = t->value;
        e->number[i] = t->is_number ? &e->value[i] : NULL;
    }
    p->n_tensors = g->n_tensors;
    p->uid = e->uid;
    p->number = e->number;
}

static int cuda_cudnn_plan_choose(const struct cudnn_graph *g, const struct cudnn_rules *rules,
                                  struct entry *e, int *is_sure, struct err *err)
{
    struct search s = {.device = g->device, .rules = rules, .f32 = g->f32, .n_wanted = 1};
    const struct attr a[] = {ATTR(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, g->n_ops, g->op),
                             ATTR(OPERATIONGRAPH_HANDLE, HANDLE, 1, &g->device->handle)};
    cudnnBackendDescriptor_t graph = NULL;
    cudnnStatus_t st =
        cudnn_make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, a, g->device->handle ? 2 : 1, &graph);
    int best;

    if (st != CUDNN_STATUS_SUCCESS)
        return cudnn_refused(err, st, g->what, "operation graph");
    if (rules->autotune && g->device->timer)
        s.n_wanted = CUDNN_CANDIDATES;
    search_mode(&s, graph, CUDNN_HEUR_MODE_A);
    if (s.n_found == 0)
        search_mode(&s, graph, CUDNN_HEUR_MODE_FALLBACK);
    cudnn_destroy(graph);
    if (s.n_found == 0)
        return no_engine(&s, g->what, err);
    for (int i = 0; i < s.n_found; i++)
        name_tensors(g, e, &s.found[i]);
    best = cuda_cudnn_plan_fastest(g, &s, is_sure);
    for (int i = 0; i < s.n_found; i++)
        if (i != best)
            cudnn_destroy(s.found[i].raw);
    e->plan = s.found[best];
    return 0;
}

static struct entry *cuda_cudnn_plan_known(struct cudnn_device *d, struct hash128 h,
                                           const struct cudnn_rules *r)
{
    for (struct entry *e = d->first; e; e = e->next)
        if (hash_equal(e->plan.graph, h) && e->rules.max_workspace == r->max_workspace &&
            e->rules.allow_tf32 == r->allow_tf32 && e->rules.autotune == r->autotune)
            return e;
    return NULL;
}

static int new_entry(struct cudnn_graph *g, const struct cudnn_rules *rules, struct hash128 h,
                     struct entry **out, struct err *err)
{
    struct entry *e = xcalloc(1, sizeof *e);
    char key[CUDNN_KEY_LEN];
    int rc = 0, is_sure = 0;

    cudnn_plan_key(g->device, h, rules, key);
    if (!cudnn_restore(g, rules, key, &e->plan))
        rc = cuda_cudnn_plan_choose(g, rules, e, &is_sure, err);
    if (is_sure)
        cudnn_keep(g, key, &e->plan);
    if (rc < 0) {
        free(e);
        return rc;
    }
    e->rules = *rules;
    e->plan.graph = h;
    name_tensors(g, e, &e->plan);
    e->next = g->device->first;
    g->device->first = e;
    *out = e;
    return 0;
}

int cudnn_plan_for(struct cudnn_graph *g, const struct cudnn_rules *rules,
                   const struct cudnn_plan **out, struct err *err)
{
    const struct hash128 h = hasher_end(g->hash);
    struct entry *e = NULL;
    int rc = g->err.code;

    if (rc < 0)
        *err = g->err;
    else if (!(e = cuda_cudnn_plan_known(g->device, h, rules)))
        rc = new_entry(g, rules, h, &e, err);
    if (rc == 0)
        *out = &e->plan;
    cudnn_graph_free(g);
    return rc;
}

void cudnn_plan_key(const struct cudnn_device *d, struct hash128 graph,
                    const struct cudnn_rules *rules, char out[CUDNN_KEY_LEN])
{
    char text[HASH_TEXT_LEN];

    hash_to_text(graph, text);
    snprintf(out, CUDNN_KEY_LEN, "cudnn %zu, %s, %zu bytes%s%s, %s", cudnnGetVersion(), d->gpu,
             rules->max_workspace, rules->allow_tf32 ? ", tf32" : "",
             rules->autotune ? ", timed" : "", text);
}
