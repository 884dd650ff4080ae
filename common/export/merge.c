/* merge - copies the tensors of a checkpoint, and adds to those weights that have adapters.
 *
 * The graph says which way a weight lies, and what else reads it.  With model.base a checkpoint has
 * no base; its weights are then read from the file that the run began with, so the sum is with
 * these numbers, not with what was left of them in fewer bits. */
#include "export/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "export/base_file.h"
#include "export/new_file.h"
#include "import/arch.h"
#include "import/network.h"
#include "model/lora.h"
#include "op/op.h"

enum { MERGE_BATCH = 2 };

/* The adapters of one layer.  Of a convolution `in` stands for C*R*S. */
struct merge_pair {
    int is_embedding;
    const struct st_tensor *a, *b; /* [rank,in], [out,rank] */
    float *at, *bt;                /* their elements */
};

struct merge {
    const struct export_request *r;
    const struct graph *g;
    struct st_tensor *tensor; /* [n] those that are written */
    const char **in_base;     /* [n] its name in the base's file; NULL: the checkpoint has it */
    int n;
    struct base_file *base; /* NULL: the checkpoint has all */
    struct err *err;
};

/* ---- the graph ---- */

static int merge_refuse(struct merge *m, const char *name, const char *how)
{
    return err_set(m->err, ERR_CONFIG,
                   "\"%s\" %s, which the sum with its adapters would change, too; leave that layer "
                   "out of model.lora.match",
                   name, how);
}

/* 1: node n reads the weight `id` as the layer whose adapters they are.  *turned: 1 if the weight
 * is [in,out], as an embedding's table is, whose `in` are the tokens. */
static int merge_is_layer(const struct merge_pair *p, const struct node *n, int operand,
                          int *turned)
{
    *turned = n->op == OP_embedding || (n->op == OP_linear && n->attr.linear.transposed);
    if (p->is_embedding)
        return n->op == OP_embedding && operand == (int)EMBEDDING_TABLE;
    return n->op == OP_linear || (n->op == OP_conv2d && n->attr.conv.groups == 1);
}

/* Fails unless layers of the adapters' kind alone read the weight, all in the same direction. */
static int merge_check_readers(struct merge *m, const char *name, const struct merge_pair *p,
                               int *turned)
{
    const struct value *w = graph_find(m->g, name);
    const int id = w ? (int)(w - m->g->value) : NO_VALUE;
    const struct import_options *import = import_options_of(m->r->model);
    int n_readers = 0, seen;

    for (int i = 0; i < m->g->n_nodes; i++)
        for (int k = 0; k < m->g->node[i].n_in; k++) {
            if (m->g->node[i].in[k] != id)
                continue;
            if (!merge_is_layer(p, &m->g->node[i], k, &seen))
                return merge_refuse(m, name,
                                    m->g->node[i].op == OP_conv2d
                                        ? "is of a convolution of several groups"
                                    : p->is_embedding ? "is no weight of embeddings alone"
                                                      : "is no weight of linear layers alone");
            if (n_readers++ > 0 && seen != *turned)
                return merge_refuse(m, name, "is read in both directions");
            *turned = seen;
        }
    for (int i = 0; import && i < import->network->n_tensors; i++) {
        const struct import_tensor *t = &import->network->tensor[i];

        if (t->same_as >= 0 && !strcmp(import->network->tensor[t->same_as].name, name))
            return merge_refuse(m, name, "has a second name");
    }
    return 0;
}

/* ---- the sums ---- */

static const struct st_tensor *merge_find(const struct merge *m, const char *weight,
                                          const char *end)
{
    const size_t n = strlen(weight) - strlen(".weight");
    char *name = xasprintf("%.*s%s", (int)n, weight, end);
    const struct st_tensor *t = st_find(m->r->weights, name);

    free(name);
    return t;
}

static int merge_read(struct merge *m, const struct st_tensor *t, float **out)
{
    int rc = try_alloc((void **)out, st_bytes(t), "a layer's adapters", m->err);

    return rc < 0 ? rc : st_read(m->r->weights, t, 0, *out, st_bytes(t), m->err);
}

/* w [out,in], or [in,out]. */
static void merge_sum(const struct merge_pair *p, double scale, int turned, float *w)
{
    const int64_t rank = p->a->shape.dim[0], in = shape_elements(&p->a->shape) / rank,
                  out = p->b->shape.dim[0];

    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            float *at = &w[turned ? i * out + o : o * in + i];
            double sum = 0;

            for (int64_t k = 0; k < rank; k++)
                sum += (double)p->bt[o * rank + k] * (double)p->at[k * in + i];
            *at = (float)((double)*at + scale * sum);
        }
}

/* The shapes that A and B of the layer's kind have. */
static int merge_fits(const struct st_tensor *w, const struct merge_pair *p, int turned)
{
    const struct shape *a = &p->a->shape, *b = &p->b->shape;
    struct shape in = w->shape, out = w->shape;

    if (w->dtype != DTYPE_F32 || p->a->dtype != DTYPE_F32 || p->b->dtype != DTYPE_F32 ||
        w->shape.n < 2 || a->n != w->shape.n || a->dim[0] < 1)
        return 0;
    in.dim[0] = a->dim[0];
    if (turned)
        in.dim[1] = w->shape.dim[0];
    for (int i = 1; i < out.n; i++)
        out.dim[i] = 1;
    out.dim[0] = w->shape.dim[turned];
    out.dim[1] = a->dim[0];
    return shape_equal(a, &in) && shape_equal(b, &out);
}

/* Find the layer's adapters: 0: it has none. */
static int merge_find_pair(const struct merge *m, const char *weight, struct merge_pair *p)
{
    static const char *const ends[2][2] = {{LORA_A, LORA_B}, {LORA_EMBEDDING_A, LORA_EMBEDDING_B}};

    for (int k = 0; k < 2; k++) {
        *p = (struct merge_pair){.is_embedding = k,
                                 .a = merge_find(m, weight, ends[k][0]),
                                 .b = merge_find(m, weight, ends[k][1])};
        if (p->a && p->b)
            return 1;
    }
    return 0;
}

/* Add to the elements w of this tensor, if it has adapters; returns 1 if it has, or an error. */
static int merge_add(struct merge *m, const struct st_tensor *t, float *w)
{
    static const char end[] = ".weight";
    const size_t n = strlen(t->name);
    struct merge_pair p;
    int turned = 0, rc;

    if (n <= strlen(end) || strcmp(t->name + n - strlen(end), end) != 0)
        return 0;
    if (!merge_find_pair(m, t->name, &p))
        return 0;
    rc = merge_check_readers(m, t->name, &p, &turned);
    if (rc == 0 && !merge_fits(t, &p, turned))
        rc = err_set(m->err, ERR_CONFIG, "\"%s\" and its adapters do not fit each other", t->name);
    if (rc == 0)
        rc = merge_read(m, p.a, &p.at);
    if (rc == 0)
        rc = merge_read(m, p.b, &p.bt);
    if (rc == 0)
        merge_sum(&p, lora_scale(&m->r->model->lora), turned, w);
    free(p.at);
    free(p.bt);
    return rc < 0 ? rc : 1;
}

/* ---- the file ---- */

static void merge_list_base(struct merge *m, const char *name, const struct value *v)
{
    if (st_find(m->r->weights, name))
        return;
    m->tensor[m->n] = (struct st_tensor){.name = name, .dtype = DTYPE_F32, .shape = v->shape};
    m->in_base[m->n++] = v->name;
}

/* The weights of the checkpoint, and those of the base that it lacks, second names included. */
static void merge_list(struct merge *m)
{
    const struct import_options *import = import_options_of(m->r->model);
    const struct import_network *network = import ? import->network : NULL;
    const int n_tied = network ? network->n_tensors : 0,
              most = st_count(m->r->weights) + m->g->n_values + n_tied + 1;

    m->tensor = xcalloc((size_t)most, sizeof *m->tensor);
    m->in_base = xcalloc((size_t)most, sizeof *m->in_base);
    for (int i = 0; i < st_count(m->r->weights); i++)
        if (!lora_is_name(st_at(m->r->weights, i)->name))
            m->tensor[m->n++] = *st_at(m->r->weights, i);
    for (int v = 0; m->base && v < m->g->n_values; v++)
        if (m->g->value[v].role == VALUE_PARAM)
            merge_list_base(m, m->g->value[v].name, &m->g->value[v]);
    for (int i = 0; m->base && i < n_tied; i++) {
        const struct import_tensor *t = &network->tensor[i];
        const struct value *first =
            t->same_as >= 0 ? graph_find(m->g, network->tensor[t->same_as].name) : NULL;

        if (first && t->role == IMPORT_PARAMETER)
            merge_list_base(m, t->name, first);
    }
}

static int merge_get(struct merge *m, int i, char *to)
{
    const struct st_tensor *t = &m->tensor[i];

    return m->in_base[i]
               ? base_file_read(m->base, m->in_base[i], &t->shape, (float *)(void *)to, m->err)
               : st_read(m->r->weights, st_find(m->r->weights, t->name), 0, to, st_bytes(t),
                         m->err);
}

static int merge_fill(struct merge *m, char *to)
{
    int n_merged = 0, rc = 0;

    for (int i = 0; i < m->n && rc >= 0; i++) {
        rc = merge_get(m, i, to);
        if (rc == 0)
            rc = merge_add(m, &m->tensor[i], (float *)(void *)to);
        n_merged += rc == 1;
        to += st_bytes(&m->tensor[i]);
    }
    if (rc >= 0 && n_merged == 0)
        return err_set(m->err, ERR_CONFIG,
                       "the checkpoint has no adapters to merge, which model.lora makes");
    return rc < 0 ? rc : 0;
}

int merge_weights(const struct export_request *r, char **bytes, size_t *n_bytes, struct err *err)
{
    struct graph *g = NULL;
    struct merge m = {.r = r, .err = err};
    size_t n_head, n = 0;
    char *head;
    int rc = 0;

    if (r->model->lora.rank == 0)
        return err_set(err, ERR_CONFIG, "the job has no model.lora, so there is nothing to merge");
    if (r->model->base != BASE_FLOAT32)
        rc = base_file_open(r->model, &m.base, err);
    if (rc == 0)
        rc = model_build(r->model, &r->data->spec, MERGE_BATCH, 0, 0, &g, err);
    if (rc < 0) {
        base_file_close(m.base);
        return rc;
    }
    m.g = g;
    merge_list(&m);
    for (int i = 0; i < m.n; i++)
        n += st_bytes(&m.tensor[i]);
    head = st_head(m.tensor, m.n, NULL, &n_head);
    *bytes = NULL;
    *n_bytes = n_head + n;
    rc = try_alloc((void **)bytes, *n_bytes, "the merged weights", err);
    if (rc == 0) {
        memcpy(*bytes, head, n_head);
        rc = merge_fill(&m, *bytes + n_head);
    }
    if (rc < 0)
        free(*bytes);
    free(head);
    free(m.tensor);
    free(m.in_base);
    base_file_close(m.base);
    graph_free(g);
    return rc;
}

int export_merged(const struct export_request *r, const char *path, struct err *err)
{
    struct new_file to;
    char *bytes;
    size_t n;
    int rc = new_file_check(path, err);

    if (rc == 0)
        rc = merge_weights(r, &bytes, &n, err);
    if (rc < 0)
        return rc;
    rc = new_file_begin(&to, path, err);
    if (rc == 0)
        rc = new_file_put(&to, bytes, n, err);
    if (rc == 0)
        rc = new_file_end(&to, err);
    new_file_drop(&to);
    free(bytes);
    return rc;
}
