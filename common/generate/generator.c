/* generator - the weights, the cache, and two programs that read it: for one token, and for a piece
 * of a text. */
#include "generate/generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/util.h"
#include "export/base_file.h"
#include "generate/unroll.h"
#include "import/arch.h"
#include "program/program.h"
#include "tensor/half.h"

/* LEAST_PLACES: of a cache, which then doubles. */
enum { PIECE_ROWS = 16, LEAST_PLACES = 128, LAYOUT_BUCKET = 4 << 20 };

enum { ONE_ROW, PIECE, N_PACES };

/* The program for so many rows, and the memory that it does not share. */
struct pace {
    struct unroll u;
    struct program *program;
    void *arena;
    void **table;                 /* [u.n_tables] */
    float **mask;                 /* [u.n_layers], equal ones for equal windows */
    float **new_key, **new_value; /* [u.n_layers] */
};

struct generator {
    struct unroll_request of;
    struct backend *backend;
    struct layout *layout;
    struct program_spaces spaces;
    struct pace pace[N_PACES];
    float **key, **value; /* [n_layers]: [heads,places,width] */
    int n_layers;
    int64_t places, n_tokens;
};

/* ---- memory ---- */

static int generator_alloc(struct generator *g, int64_t n, void *to, const char *what,
                           struct err *err)
{
    void *p = NULL;
    const int rc = backend_alloc(g->backend, (size_t)max_i64(n, 1) * sizeof(float), what, &p, err);

    if (rc == 0) {
        memset(p, 0, (size_t)max_i64(n, 1) * sizeof(float));
        *(void **)to = p;
    }
    return rc;
}

static void pace_free(struct generator *g, struct pace *p)
{
    for (int i = 0; p->table && i < p->u.n_tables; i++)
        backend_free(g->backend, p->table[i]);
    for (int i = 0; p->mask && i < p->u.n_layers; i++) {
        int is_first = 1;

        for (int k = 0; k < i; k++)
            is_first &= p->mask[k] != p->mask[i];
        if (is_first)
            backend_free(g->backend, p->mask[i]);
        backend_free(g->backend, p->new_key[i]);
        backend_free(g->backend, p->new_value[i]);
    }
    free(p->table);
    free(p->mask);
    free(p->new_key);
    free(p->new_value);
    program_free(p->program);
    backend_free(g->backend, p->arena);
    unroll_fini(&p->u);
    *p = (struct pace){.program = NULL};
}

void generator_close(struct generator *g)
{
    if (!g)
        return;
    for (int i = 0; i < N_PACES; i++)
        pace_free(g, &g->pace[i]);
    for (int i = 0; i < g->n_layers; i++) {
        backend_free(g->backend, g->key[i]);
        backend_free(g->backend, g->value[i]);
    }
    free(g->key);
    free(g->value);
    if (g->backend) {
        backend_free(g->backend, g->spaces.param);
        backend_free(g->backend, g->spaces.metrics);
        backend_free(g->backend, g->spaces.scalars);
    }
    layout_free(g->layout);
    backend_close(g->backend);
    free(g);
}

/* ---- the weights ---- */

/* From the end, since the narrow numbers lie at the start of the same memory. */
static void generator_widen(float *x, enum dtype from, int64_t n)
{
    uint16_t narrow;

    for (int64_t i = n; dtype_is_half(from) && i-- > 0;) {
        memcpy(&narrow, (const char *)x + (size_t)i * sizeof narrow, sizeof narrow);
        x[i] = from == DTYPE_BF16 ? bf16_to_float(narrow) : f16_to_float(narrow);
    }
}

/* Take a tensor from the checkpoint or, if it is not there, from `base`, unless that is NULL. */
static int generator_take(struct generator *g, const struct st_file *f, struct base_file *base,
                          const struct segment *s, struct err *err)
{
    const struct st_tensor *t = st_find(f, s->name);
    float *to = (float *)g->spaces.param + s->offset;
    char text[2][SHAPE_TEXT_LEN];
    int rc;

    if (!t && base)
        return base_file_read(base, s->name, &s->shape, to, err);
    if (!t)
        return err_set(err, ERR_CONFIG, "the checkpoint has no tensor \"%s\"", s->name);
    if (!shape_equal(&t->shape, &s->shape))
        return err_set(err, ERR_CONFIG, "tensor \"%s\" is %s, want %s", s->name,
                       shape_text(&t->shape, text[0]), shape_text(&s->shape, text[1]));
    if (t->dtype != DTYPE_F32 && !dtype_is_half(t->dtype))
        return err_set(err, ERR_UNSUPPORTED,
                       "tensor \"%s\" is %s, want float32, bfloat16 or float16", s->name,
                       dtype_name(t->dtype));
    rc = st_read(f, t, 0, to, st_bytes(t), err);
    generator_widen(to, t->dtype, s->length);
    return rc;
}

/* The layout is that of a training graph, as everywhere. */
static int generator_layout(struct generator *g, struct err *err)
{
    struct graph *graph = NULL;
    int rc = unroll_model(&g->of, 1, 1, 0, &graph, err);

    if (rc == 0)
        rc = program_differentiate(graph, err);
    if (rc == 0)
        rc = layout_new(graph, LAYOUT_BUCKET, &g->layout, err);
    graph_free(graph);
    return rc;
}

static int generator_read(struct generator *g, const struct st_file *f, struct err *err)
{
    struct base_file *base = NULL;
    int rc = generator_layout(g, err);

    if (rc == 0)
        rc = generator_alloc(g, g->layout->n_total, &g->spaces.param, "weights", err);
    if (rc == 0)
        rc = generator_alloc(g, 2 * METRIC_COUNT, &g->spaces.metrics, "metrics", err);
    if (rc == 0)
        rc = generator_alloc(g, sizeof(struct step_scalars), &g->spaces.scalars, "scalars", err);
    if (rc == 0 && g->of.model->base != BASE_FLOAT32)
        rc = base_file_open(g->of.model, &base, err);
    for (int i = 0; rc == 0 && i < g->layout->n_params; i++)
        rc = generator_take(g, f, base, &g->layout->param[i], err);
    base_file_close(base);
    return rc;
}

/* ---- programs ---- */

static int pace_place_layer(struct generator *g, struct pace *p, int i, struct err *err)
{
    const struct unroll_layer *l = &p->u.layer[i];
    const int64_t n = l->heads * p->u.rows * l->width;
    int rc = generator_alloc(g, n, &p->new_key[i], "new keys", err);

    if (rc == 0)
        rc = generator_alloc(g, n, &p->new_value[i], "new values", err);
    for (int k = 0; k < i && !p->mask[i]; k++)
        if (p->u.layer[k].mask == l->mask)
            p->mask[i] = p->mask[k];
    if (rc == 0 && !p->mask[i])
        rc = generator_alloc(g, p->u.rows * (p->u.places + p->u.rows), &p->mask[i], "a mask", err);
    if (rc < 0)
        return rc;
    program_place(p->program, l->key, g->key[i]);
    program_place(p->program, l->value, g->value[i]);
    program_place(p->program, l->new_key, p->new_key[i]);
    program_place(p->program, l->new_value, p->new_value[i]);
    program_place(p->program, l->mask, p->mask[i]);
    return 0;
}

static int pace_place_all(struct generator *g, struct pace *p, struct err *err)
{
    int rc = 0;

    p->table = xcalloc((size_t)p->u.n_tables + 1, sizeof *p->table);
    p->mask = xcalloc((size_t)p->u.n_layers + 1, sizeof *p->mask);
    p->new_key = xcalloc((size_t)p->u.n_layers + 1, sizeof *p->new_key);
    p->new_value = xcalloc((size_t)p->u.n_layers + 1, sizeof *p->new_value);
    for (int i = 0; i < p->u.n_layers && rc == 0; i++)
        rc = pace_place_layer(g, p, i, err);
    for (int i = 0; i < p->u.n_tables && rc == 0; i++) {
        rc = generator_alloc(g, p->u.rows * p->u.table[i].width, &p->table[i], "a table", err);
        if (rc == 0)
            program_place(p->program, p->u.table[i].value, p->table[i]);
    }
    return rc;
}

static int pace_open(struct generator *g, struct pace *p, int64_t rows, struct err *err)
{
    struct unroll_request r = g->of;
    struct graph *graph;
    int rc;

    r.rows = rows;
    r.places = g->places;
    rc = unroll_build(&r, &p->u, err);
    if (rc < 0)
        return rc;
    graph = p->u.g;
    p->u.g = NULL;
    rc = program_new(g->backend, graph, g->layout, &p->program, err);
    if (rc == 0)
        rc = pace_place_all(g, p, err);
    if (rc == 0)
        rc = backend_alloc(g->backend, program_arena_bytes(p->program), "temporaries", &p->arena,
                           err);
    return rc == 0 ? program_bind(p->program, &g->spaces, p->arena, err) : rc;
}

/* ---- the cache ---- */

/* Give one cache [heads,from,width] `to` places. */
static int cache_grow_part(struct generator *g, float **cache, const struct unroll_layer *l,
                           int64_t from, int64_t to, struct err *err)
{
    float *more = NULL;
    const int rc = generator_alloc(g, l->heads * to * l->width, &more, "keys and values", err);

    for (int64_t h = 0; rc == 0 && h < l->heads; h++)
        memcpy(more + h * to * l->width, *cache + h * from * l->width,
               (size_t)(from * l->width) * sizeof *more);
    if (rc == 0) {
        backend_free(g->backend, *cache);
        *cache = more;
    }
    return rc;
}

/* The programs are bound to the cache, so they are made anew where they are needed. */
static int cache_grow(struct generator *g, int64_t wanted, struct err *err)
{
    const int64_t from = g->places;
    int rc = 0;

    while (g->places < wanted)
        g->places = min_i64(2 * g->places, g->of.context);
    if (g->places == from)
        return 0;
    for (int i = 0; i < g->n_layers && rc == 0; i++) {
        const struct unroll_layer l = g->pace[ONE_ROW].u.layer[i];

        rc = cache_grow_part(g, &g->key[i], &l, from, g->places, err);
        if (rc == 0)
            rc = cache_grow_part(g, &g->value[i], &l, from, g->places, err);
    }
    for (int i = 0; i < N_PACES; i++)
        pace_free(g, &g->pace[i]);
    return rc == 0 ? pace_open(g, &g->pace[ONE_ROW], 1, err) : rc;
}

static int cache_open(struct generator *g, struct err *err)
{
    struct unroll_request r = g->of;
    struct unroll u;
    int rc;

    r.rows = 1;
    r.places = g->places = min_i64(LEAST_PLACES, g->of.context);
    rc = unroll_build(&r, &u, err);
    if (rc < 0)
        return rc;
    g->n_layers = u.n_layers;
    g->key = xcalloc((size_t)u.n_layers, sizeof *g->key);
    g->value = xcalloc((size_t)u.n_layers, sizeof *g->value);
    for (int i = 0; i < u.n_layers && rc == 0; i++) {
        const int64_t n = u.layer[i].heads * g->places * u.layer[i].width;

        rc = generator_alloc(g, n, &g->key[i], "keys", err);
        if (rc == 0)
            rc = generator_alloc(g, n, &g->value[i], "values", err);
    }
    unroll_fini(&u);
    return rc == 0 ? pace_open(g, &g->pace[ONE_ROW], 1, err) : rc;
}

/* Copy new rows [heads,rows,width] to the places from `at` on. */
static void cache_put(float *cache, const float *rows, const struct unroll *u,
                      const struct unroll_layer *l, int64_t at)
{
    for (int64_t h = 0; h < l->heads; h++)
        memcpy(cache + (h * u->places + at) * l->width, rows + h * u->rows * l->width,
               (size_t)(u->rows * l->width) * sizeof *cache);
}

/* ---- running ---- */

/* Row i stands at place at + i.  It sees the places of the cache that are filled, and the rows up
 * to itself, as far as the window reaches. */
static void pace_fill_mask(float *mask, const struct unroll *u, int64_t window, int64_t at)
{
    for (int64_t i = 0; i < u->rows; i++, mask += u->places + u->rows) {
        const int64_t first = window > 0 ? max_i64(at + i - window + 1, 0) : 0;

        for (int64_t j = 0; j < u->places; j++)
            mask[j] = j >= first && j < at ? 0 : -INFINITY;
        for (int64_t j = 0; j < u->rows; j++)
            mask[u->places + j] = at + j >= first && j <= i ? 0 : -INFINITY;
    }
}

static void pace_fill(const struct pace *p, const int32_t *token, int64_t at)
{
    const struct unroll *u = &p->u;

    memcpy(program_input(p->program, 0), token, (size_t)u->rows * sizeof *token);
    for (int i = 0; i < u->n_tables; i++) {
        const struct unroll_table *t = &u->table[i];

        for (int64_t r = 0; !t->rows && r < u->rows; r++)
            ((int32_t *)p->table[i])[r] = (int32_t)(at + r);
        if (t->rows)
            memcpy(p->table[i], t->rows + at * t->width,
                   (size_t)(u->rows * t->width) * sizeof(float));
    }
    for (int i = 0; i < u->n_layers; i++)
        if (i == 0 || p->mask[i] != p->mask[i - 1])
            pace_fill_mask(p->mask[i], u, u->layer[i].window, at);
}

static int pace_run(struct generator *g, struct pace *p, const int32_t *token, struct err *err)
{
    int rc = 0;

    pace_fill(p, token, g->n_tokens);
    for (int i = 0; i < program_n_stages(p->program) && rc == 0; i++)
        rc = program_run_stage(p->program, i, err);
    for (int i = 0; i < g->n_layers && rc == 0; i++) {
        cache_put(g->key[i], p->new_key[i], &p->u, &p->u.layer[i], g->n_tokens);
        cache_put(g->value[i], p->new_value[i], &p->u, &p->u.layer[i], g->n_tokens);
    }
    g->n_tokens += p->u.rows;
    return rc;
}

int generator_feed(struct generator *g, const int32_t *token, int64_t n, const float **logits,
                   struct err *err)
{
    const float *all;
    struct pace *p = NULL;
    int rc = 0;

    ASSERT(n >= 1 && n <= generator_room(g));
    while (n > 0 && rc == 0) {
        const int64_t rows = n >= PIECE_ROWS && PIECE_ROWS < g->of.context ? PIECE_ROWS : 1;

        rc = cache_grow(g, g->n_tokens + rows, err);
        p = &g->pace[rows > 1 ? PIECE : ONE_ROW];
        if (rc == 0 && !p->program)
            rc = pace_open(g, p, rows, err);
        if (rc == 0)
            rc = pace_run(g, p, token, err);
        token += rows;
        n -= rows;
    }
    if (rc < 0)
        return rc;
    all = program_logits(p->program);
    *logits = all + (p->u.rows - 1) * g->of.vocab;
    return 0;
}

int64_t generator_room(const struct generator *g) { return g->of.context - g->n_tokens; }
int64_t generator_vocab(const struct generator *g) { return g->of.vocab; }

/* ---- opening ---- */

/* The names of an embedding of tokens, in gpt and in folders' networks. */
static const char *const embeddings[] = {"transformer.wte.weight", "model.embed_tokens.weight"};

/* The rows of the tensor of this name, in the weights or in the imported network; 0: neither. */
static int64_t generator_rows_of(const struct generator_request *r, const char *name)
{
    const struct import_options *import = import_options_of(r->model);
    const struct st_tensor *t = st_find(r->weights, name);

    if (t)
        return t->shape.n == 2 ? t->shape.dim[0] : 0;
    for (int i = 0; import && import->network && i < import->network->n_tensors; i++)
        if (!strcmp(import->network->tensor[i].name, name))
            return import->network->tensor[i].dim[0];
    return 0;
}

static int generator_find_vocab(struct generator *g, const struct generator_request *r,
                                struct err *err)
{
    g->of.vocab = r->vocab;
    for (size_t i = 0; i < ARRAY_LEN(embeddings) && g->of.vocab == 0; i++)
        g->of.vocab = generator_rows_of(r, embeddings[i]);
    if (g->of.vocab > 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "the network has no tokens: neither a tensor %s nor %s; want a language model",
                   embeddings[0], embeddings[1]);
}

int generator_open(const struct generator_request *r, struct generator **out, struct err *err)
{
    struct generator *g = xcalloc(1, sizeof *g);
    int rc;

    ASSERT(r->context >= 2 && r->vocab >= 0);
    g->of = (struct unroll_request){.model = r->model, .context = r->context};
    rc = backend_open_cpu(r->n_threads, &g->backend, err);
    if (rc == 0)
        rc = generator_find_vocab(g, r, err);
    if (rc == 0)
        rc = generator_read(g, r->weights, err);
    if (rc == 0)
        rc = cache_open(g, err);
    if (rc < 0)
        generator_close(g);
    else
        *out = g;
    return rc;
}
