/* lora_append - the adapters of a layer, as nodes: one product that brings its input to the rank,
 * and one from there, whose result is added to the layer's output. */
#include <math.h>

#include "base/util.h"
#include "model/lora_impl.h"
#include "op/compose.h"

/* The parameter `end` of the layer, which layers of one weight share.  A network may have a
 * parameter of that name itself. */
static int lora_param(struct lora *l, struct compose *c, const char *layer, const char *end,
                      struct shape shape, struct param_info info)
{
    const char *name = arena_printf(&l->g->arena, "%s%s", layer, end);
    const struct value *v = graph_find(l->g, name);

    if (c->rc == 0 && v &&
        (!v->info || v->info->kind != PARAM_ADAPTER || !shape_equal(&v->shape, &shape)))
        c->rc = err_set(l->err, ERR_CONFIG,
                        "model.lora: the network has \"%s\" already, a parameter of its own or an "
                        "adapter of another shape; leave the layer out of model.lora.match",
                        name);
    if (c->rc < 0)
        return NO_VALUE;
    return v ? (int)(v - l->g->value) : graph_param(l->g, shape, info, name);
}

/* The scaled product of h [..,rank] with B is added to y. */
static int lora_sum(struct lora *l, struct compose *c, enum op op, const union node_attr *attr,
                    int h, int b, int y)
{
    h = compose_constants(c, EW_AFFINE, h, (float)lora_scale(l->o), 0);
    h = compose_append(c, op, attr, (int[]){h, b}, 2);
    h = compose_elementwise(c, EW_ADD, y, h);
    return c->rc < 0 ? NO_VALUE : h;
}

static int lora_dropout(struct lora *l, struct compose *c, int x)
{
    const int64_t rows = l->g->batch ? l->g->value[x].shape.dim[0] / l->g->batch : 1;

    return l->o->dropout > 0 && l->g->training
               ? compose_dropout(c, x, l->o->dropout, l->tag++, rows, 0)
               : x;
}

static struct param_info lora_zeros(void)
{
    return (struct param_info){PARAM_CONST, 0, PARAM_ADAPTER, 0};
}

/* U(-1/sqrt(fan_in), 1/sqrt(fan_in)) */
static struct param_info lora_uniform(int64_t fan_in)
{
    return (struct param_info){PARAM_UNIFORM, fan_in ? (float)(1 / sqrt((double)fan_in)) : 0,
                               PARAM_ADAPTER, 0};
}

static int lora_append_linear(struct lora *l, struct compose *c, const char *layer, int x, int y)
{
    const int64_t rank = l->o->rank, in = l->g->value[x].shape.dim[1],
                  out = l->g->value[y].shape.dim[1];
    const int a = lora_param(l, c, layer, LORA_A, SHAPE(rank, in), lora_uniform(in)),
              b = lora_param(l, c, layer, LORA_B, SHAPE(out, rank), lora_zeros());
    int h;

    ASSERT(l->g->value[x].shape.n == 2);
    if (c->rc < 0)
        return NO_VALUE;
    h = compose_append(c, OP_linear, NULL, (int[]){lora_dropout(l, c, x), a}, 2);
    return lora_sum(l, c, OP_linear, NULL, h, b, y);
}

/* A has the layer's kernel and sees all channels, B is 1 x 1 in the layer's groups. */
static int lora_append_convolution(struct lora *l, struct compose *c, const struct node *n,
                                   const char *layer, int x, int y)
{
    const struct shape w = l->g->value[n->in[CONV2D_W]].shape;
    const int64_t rank = l->o->rank, in = l->g->value[x].shape.dim[3], groups = n->attr.conv.groups;
    union node_attr to_rank = n->attr, from_rank = {0};
    int a, b, h;

    if (rank % groups) {
        err_set(
            l->err, ERR_CONFIG,
            "model.lora: \"%s\" is a convolution of %lld groups, want a model.lora.rank that is "
            "a multiple of that, not %lld; or leave it out of model.lora.match",
            layer, (long long)groups, (long long)rank);
        return NO_VALUE;
    }
    a = lora_param(l, c, layer, LORA_A, SHAPE(rank, in, w.dim[2], w.dim[3]),
                   lora_uniform(in * w.dim[2] * w.dim[3]));
    b = lora_param(l, c, layer, LORA_B, SHAPE(w.dim[0], rank / groups, 1, 1), lora_zeros());
    if (c->rc < 0)
        return NO_VALUE;
    to_rank.conv.groups = 1;
    for (int i = 0; i < 2; i++)
        from_rank.conv.stride[i] = from_rank.conv.dilation[i] = 1;
    from_rank.conv.groups = n->attr.conv.groups;
    h = compose_append(c, OP_conv2d, &to_rank, (int[]){lora_dropout(l, c, x), a}, 2);
    return lora_sum(l, c, OP_conv2d, &from_rank, h, b, y);
}

/* The rows of A^T that the tokens name; there is no dropout. */
static int lora_append_embedding(struct lora *l, struct compose *c, const struct node *n,
                                 const char *layer, int tokens, int y)
{
    const struct shape table = l->g->value[n->in[EMBEDDING_TABLE]].shape;
    const union node_attr attr = {.embedding.padding = n->attr.embedding.padding};
    const int64_t rank = l->o->rank;
    const int a = lora_param(l, c, layer, LORA_EMBEDDING_A, SHAPE(rank, table.dim[0]),
                             lora_zeros()),
              b = lora_param(l, c, layer, LORA_EMBEDDING_B, SHAPE(table.dim[1], rank),
                             (struct param_info){PARAM_NORMAL, 1, PARAM_ADAPTER, 0});
    int h;

    if (c->rc < 0)
        return NO_VALUE;
    h = compose_permute(c, a, (int[]){1, 0});
    h = compose_append(c, OP_embedding, &attr, (int[]){h, tokens, NO_VALUE}, 3);
    return lora_sum(l, c, OP_linear, NULL, h, b, y);
}

int lora_append(struct lora *l, enum lora_kind kind, const struct node *n, const char *layer, int x,
                int y)
{
    struct compose c = {
        .g = l->g, .name = arena_printf(&l->g->arena, "%s.lora", layer), .err = l->err};

    ASSERT(kind != LORA_OF_NONE);
    if (kind == LORA_OF_EMBEDDING)
        return lora_append_embedding(l, &c, n, layer, x, y);
    return kind == LORA_OF_LINEAR ? lora_append_linear(l, &c, layer, x, y)
                                  : lora_append_convolution(l, &c, n, layer, x, y);
}
