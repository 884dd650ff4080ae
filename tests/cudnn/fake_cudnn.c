/* fake_cudnn - the descriptors of the stand-in for cuDNN.  A descriptor keeps its attributes as
 * they were set, and the execution reads them back.  Memory comes from calloc, which is not
 * counted: a run must not be seen to allocate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fake_cudnn.h"

/* The engines' notes, in the order of the heuristics.  Half precision may take the first engine,
 * float32 only FAKE_FIRST and those after it. */
static const int engine_note[FAKE_ENGINES] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                              CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                              CUDNN_NUMERICAL_NOTE_FFT, -1, -1};

int fake_note_of(int engine)
{
    return engine == fake_disowned ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : engine_note[engine];
}

static size_t size_of(cudnnBackendAttributeType_t t)
{
    return t == CUDNN_TYPE_INT64 || t == CUDNN_TYPE_BACKEND_DESCRIPTOR || t == CUDNN_TYPE_HANDLE ||
                   t == CUDNN_TYPE_VOID_PTR
               ? 8
           : t == CUDNN_TYPE_BOOLEAN || t == CUDNN_TYPE_CHAR ? 1
                                                             : 4;
}

const void *fake_get(const struct desc *d, int name, int64_t n)
{
    for (int i = 0; i < d->n_attrs; i++)
        if (d->attr[i].name == name) {
            ASSERT(n < 0 || d->attr[i].n == n);
            return d->attr[i].value;
        }
    ASSERT(n < 0);
    return NULL;
}

struct desc *fake_get_desc(const struct desc *d, int name)
{
    return *(struct desc *const *)fake_get(d, name, 1);
}

int64_t fake_workspace(const struct desc *plan)
{
    const struct desc *config = fake_get_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct desc *graph = fake_get_desc(config->source, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    struct desc *const *op = fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, -1);

    for (int64_t i = 0; i < graph->attr[0].n; i++)
        if (op[i]->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
            const struct desc *y = fake_get_desc(op[i], CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

            return FAKE_WORKSPACE * *(const int64_t *)fake_get(y, CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
        }
    return FAKE_WORKSPACE;
}

/* ---- the calls ---- */

static struct desc *new_desc(int type)
{
    struct desc *d = calloc(1, sizeof *d);

    d->type = type;
    d->n_refs = 1;
    fake_open_things++;
    return d;
}

size_t cudnnGetVersion(void) { return 91900; }

const char *cudnnGetErrorString(cudnnStatus_t st) { return st ? "FAKE_STATUS" : "SUCCESS"; }

void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "as told to"); }

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    *out = calloc(1, sizeof **out);
    fake_open_things++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    free(h);
    fake_open_things--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    *out = new_desc(type);
    return CUDNN_STATUS_SUCCESS;
}

void fake_release(struct desc *d)
{
    if (!d || --d->n_refs > 0)
        return;
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr *a = &d->attr[i];

        if (a->size == 0) /* descriptors */
            for (int64_t j = 0; j < a->n; j++)
                fake_release(((struct desc **)a->value)[j]);
        free(a->value);
    }
    fake_release(d->source);
    fake_open_things--;
    free(d);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    fake_release(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *value)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct desc *d = desc;
    const int refers = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const size_t size = size_of(type);
    struct attr *a = &d->attr[d->n_attrs++];

    ASSERT(!d->finalized && n > 0 && value && d->n_attrs <= MAX_ATTRS);
    *a = (struct attr){name, n, refers ? 0 : size, calloc((size_t)n, size)};
    memcpy(a->value, value, (size_t)n * size);
    for (int64_t i = 0; refers && i < n; i++) {
        ASSERT(((struct desc **)a->value)[i]->finalized);
        ((struct desc **)a->value)[i]->n_refs++;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- plans as text: the whole tree of descriptors, engine first ---- */

static void dump(const struct desc *d, FILE *to)
{
    fprintf(to, "%d %d ", d->type, d->n_attrs);
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr *a = &d->attr[i];

        fprintf(to, "%d %lld %zu ", a->name, (long long)a->n, a->size);
        for (int64_t j = 0; j < a->n; j++)
            if (a->size == 0)
                dump(((struct desc **)a->value)[j], to);
            else
                for (size_t k = 0; k < a->size; k++)
                    fprintf(to, "%d ",
                            ((const unsigned char *)a->value)[j * (int64_t)a->size + (int64_t)k]);
    }
}

/* The next number of the text. */
static long long next(char **at) { return strtoll(*at, at, 10); }

static struct desc *parse(char **at)
{
    struct desc *d = new_desc((int)next(at));

    d->n_attrs = (int)next(at);
    d->finalized = 1;
    for (int i = 0; i < d->n_attrs; i++) {
        struct attr *a = &d->attr[i];

        a->name = (int)next(at);
        a->n = next(at);
        a->size = (size_t)next(at);
        a->value = calloc((size_t)a->n, a->size ? a->size : sizeof(struct desc *));
        for (int64_t j = 0; j < a->n; j++)
            if (a->size == 0)
                ((struct desc **)a->value)[j] = parse(at);
            else
                for (size_t k = 0; k < a->size; k++)
                    ((unsigned char *)a->value)[j * (int64_t)a->size + (int64_t)k] =
                        (unsigned char)next(at);
    }
    return d;
}

static void add_desc(struct desc *to, int name, struct desc *d)
{
    struct attr *a = &to->attr[to->n_attrs++];

    *a = (struct attr){name, 1, 0, calloc(1, sizeof d)};
    memcpy(a->value, &d, sizeof d);
}

static char *text_of(const struct desc *plan, size_t *n)
{
    const struct desc *config = fake_get_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    char *text = NULL;
    FILE *to = open_memstream(&text, n);

    fprintf(to, "{fake 91900 %d ", config->number);
    dump(fake_get_desc(config->source, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), to);
    fclose(to);
    return text;
}

/* A plan that is described by text alone gets the configuration that the text tells. */
static cudnnStatus_t restore(struct desc *plan)
{
    static const char head[] = "{fake 91900 ";
    const struct attr *json = NULL;
    struct desc *config;
    char *text, *at;

    for (int i = 0; i < plan->n_attrs; i++)
        if (plan->attr[i].name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
            json = &plan->attr[i];
    if (!json)
        return CUDNN_STATUS_SUCCESS;
    if (json->n < (int64_t)sizeof head || memcmp(json->value, head, sizeof head - 1) != 0)
        return CUDNN_STATUS_BAD_PARAM;
    text = calloc(1, (size_t)json->n + 1);
    memcpy(text, json->value, (size_t)json->n);
    at = text + sizeof head - 1;
    config = new_desc(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config->number = (int)next(&at);
    config->finalized = 1;
    config->source = new_desc(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    add_desc(config->source, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, parse(&at));
    add_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    free(text);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t desc)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    ((struct desc *)desc)->finalized = 1;
    return restore(desc);
}

static int only_falls_back;

void fakes_only_fall_back(int only) { only_falls_back = only; }

/* 1: the graph does more than one operation, or adds its result to what is there. */
static int has_tail(const struct desc *graph)
{
    struct desc *const *op = fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, -1);
    const float *beta = fake_get(op[0], CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, -1);

    for (int i = 0; i < graph->n_attrs; i++)
        if (graph->attr[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS && graph->attr[i].n > 1)
            return 1;
    return beta && *beta != 0.0f;
}

/* The number of engines that the heuristics `heur` name for their graph, in their mode. */
static int64_t n_engines(const struct desc *heur)
{
    const cudnnBackendHeurMode_t *mode = fake_get(heur, CUDNN_ATTR_ENGINEHEUR_MODE, 1);
    const struct desc *graph = fake_get_desc(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);

    if (only_falls_back && *mode != CUDNN_HEUR_MODE_FALLBACK)
        return 0;
    /* No engine, or only those that float32 must not take. */
    if (fake_refuse_tails && has_tail(graph))
        return fake_refuse_tails == FAKE_NO_ENGINES ? 0 : 3;
    return (int64_t)ARRAY_LEN(engine_note);
}

static void fill_configs(struct desc *heur, int64_t n, struct desc **config)
{
    for (int64_t i = 0; i < n; i++) {
        config[i]->number = (int)i;
        config[i]->source = heur;
        config[i]->finalized = 1;
        heur->n_refs++;
    }
}

static void tell_config(const struct desc *plan, struct desc *out)
{
    const struct desc *config = fake_get_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    out->number = config->number;
    out->source = config->source;
    out->source->n_refs++;
    out->finalized = 1;
}

static void tell_text(const struct desc *plan, int64_t room, int64_t *n, char *out)
{
    size_t size = 0;
    char *text = text_of(plan, &size);

    *n = (int64_t)size;
    if (room > 0)
        memcpy(out, text, (size_t)min_i64(room, *n));
    free(text);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const desc,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                                       void *out)
{
    if (fake_fails())
        return CUDNN_STATUS_INTERNAL_ERROR;

    struct desc *d = desc;

    (void)type;
    ASSERT(d->finalized || name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || d->number >= 0);
    *n = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *n = room ? n_engines(d) : n_engines(d) + 2; /* without room, only an upper bound */
        if (out) {
            fake_queries++;
            fill_configs(d, *n, out);
        }
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
        tell_config(d, *(struct desc **)out);
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
        tell_text(d, room, n, out);
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct desc **)out)->number = d->number;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)out = d->number;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = fake_note_of(d->number) >= 0;
        if (*n)
            *(int *)out = fake_note_of(d->number);
        break;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        *n = 0;
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)out = fake_workspace(d);
        break;
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}
