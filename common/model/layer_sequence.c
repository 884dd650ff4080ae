/* layer_sequence - embeddings, positions, attention with its own projections, and what is taken
 * over all positions of a sequence or all pixels of an image. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "model/layer_impl.h"
#include "op/compose.h"

/* The field that h is; NULL: h was computed. */
static const struct sample_field *sequence_field(const struct net *m)
{
    for (int i = 0; i < m->spec->n_fields; i++)
        if (m->g->input[i] == m->h)
            return &m->spec->field[i];
    return NULL;
}

static int sequence_check_lookup(struct net *m, const char *name, int64_t vocab)
{
    const struct sample_field *f = sequence_field(m);
    char text[SHAPE_TEXT_LEN];

    if (m->g->value[m->h].dtype != DTYPE_I32)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s of real numbers, want whole numbers: tokens, or an "
                        "input of npy that has a name, as in data.train: {ids: ids.npy, labels: "
                        "y.npy}",
                        name, shape_text(net_shape(m), text));
    else if (vocab == 0 && (!f || f->n_classes == 0))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: embedding needs vocab, the number of different numbers, because these "
                        "data do not say it",
                        name);
    else if (vocab && f && vocab < f->n_classes)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: vocab is %lld, but the data have %lld tokens",
                        name, (long long)vocab, (long long)f->n_classes);
    return m->rc;
}

void layer_lookup(struct net *m, const char *name, int64_t vocab, int64_t width)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    int table;

    if (m->rc < 0 || sequence_check_lookup(m, name, vocab) < 0)
        return;
    vocab = vocab ? vocab : sequence_field(m)->n_classes;
    table = net_param(m, name, "weight", SHAPE(vocab, width),
                      (struct param_info){PARAM_NORMAL, 1, PARAM_EMBEDDING, 0});
    m->h = compose_lookup(&c, table, m->h, -1);
    m->rc = c.rc;
}

static int sequence_want(struct net *m, const char *name)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && net_shape(m)->n != 3)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: its input is %s, want sequences [N,T,C]", name,
                        shape_text(net_shape(m), text));
    return m->rc;
}

void layer_position(struct net *m, const char *name, float std)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    int rows;

    if (sequence_want(m, name) < 0)
        return;
    rows = net_param(m, name, "weight", SHAPE(net_shape(m)->dim[1], net_shape(m)->dim[2]),
                     (struct param_info){PARAM_NORMAL, std, PARAM_EMBEDDING, 0});
    m->h = compose_elementwise(&c, EW_ADD, m->h, rows);
    m->rc = c.rc;
}

void layer_reduce(struct net *m, const char *name, enum reduction kind)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    char text[SHAPE_TEXT_LEN];

    if (m->rc < 0)
        return;
    if (net_shape(m)->n != 3 && net_shape(m)->n != 4) {
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want sequences [N,T,C] or images [N,H,W,C]", name,
                        shape_text(net_shape(m), text));
        return;
    }
    m->h = compose_reduce(&c, kind, m->h, net_shape(m)->n == 3 ? 1u << 1 : 1u << 1 | 1u << 2, 0);
    m->rc = c.rc;
}

/* ---- attention.  N samples, T positions, H heads of D numbers, G heads of k and v. ---- */

/* Cosines or sines of the positions' angles, [T,D], as in Llama: number i of the first half of a
 * head and number i of the second are turned by the position times base^(-2i/D). */
static int attention_angles(struct compose *c, int64_t length, int64_t width, double base,
                            double (*of)(double))
{
    const int64_t half = width / 2;
    float *table;
    int v;

    if (!compose_has_room(c, length, width))
        return NO_VALUE;
    table = xmalloc((size_t)(length * width) * sizeof *table + 1);
    for (int64_t i = 0; i < length * width; i++)
        table[i] = (float)of((double)(i / width) * pow(base, -(double)(i % half) / (double)half));
    v = compose_const(c, SHAPE(length, width), table);
    free(table);
    return v;
}

/* Columns [from, from + heads * D) of the rows h, as [N,heads,T,D]. */
static int attention_heads(const struct net *m, struct compose *c, int64_t from, int64_t heads,
                           int64_t width)
{
    const int64_t n = net_shape(m)->dim[0] / m->length;
    int x = compose_slice(c, m->h, 1, from, from + heads * width, 1);

    x = compose_reshape(c, x, SHAPE(n, m->length, heads, width));
    return compose_permute(c, x, (const int[]){0, 2, 1, 3});
}

/* From the projections q, k and v, rows [N*T,(H+2G)*D], to rows [N*T,H*D]. */
static void attention_compose(struct net *m, const char *name, const struct layer_heads *a,
                              int64_t width)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    const int64_t H = a->heads, G = a->kv_heads, rows = m->rc < 0 ? 0 : net_shape(m)->dim[0];
    struct compose_attention all = {.mask = NO_VALUE,
                                    .starts = NO_VALUE,
                                    .causal = a->causal,
                                    .p = a->dropout,
                                    .tag = m->n_dropouts,
                                    .rows = 1};
    int x;

    if (m->rc < 0)
        return;
    all.q = attention_heads(m, &c, 0, H, width);
    all.k = attention_heads(m, &c, H * width, G, width);
    all.v = attention_heads(m, &c, (H + G) * width, G, width);
    if (a->rope) {
        const int cosines = attention_angles(&c, m->length, width, a->rope_base, cos);
        const int sines = attention_angles(&c, m->length, width, a->rope_base, sin);

        all.q = compose_rotary(&c, all.q, cosines, sines, 1, 0);
        all.k = compose_rotary(&c, all.k, cosines, sines, 1, 0);
    }
    m->n_dropouts += a->dropout > 0;
    x = compose_permute(&c, compose_attention(&c, &all), (const int[]){0, 2, 1, 3});
    m->h = compose_reshape(&c, x, SHAPE(rows, H * width));
    m->rc = c.rc;
}

static int attention_check(struct net *m, const char *name, const struct layer_heads *a)
{
    const int64_t width = m->rc < 0 ? 0 : net_shape(m)->dim[net_shape(m)->n - 1];

    if (m->rc == 0 && m->length == 0)
        return sequence_want(m, name);
    if (m->rc == 0 && a->width == 0 && width % a->heads)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input has %lld features, want a multiple of heads, %lld; or give "
                        "head_width",
                        name, (long long)width, (long long)a->heads);
    else if (m->rc == 0 && a->heads % a->kv_heads)
        m->rc = err_set(m->err, ERR_CONFIG, "%s: heads is %lld, want a multiple of kv_heads, %lld",
                        name, (long long)a->heads, (long long)a->kv_heads);
    else if (m->rc == 0 && a->rope && (a->width ? a->width : width / a->heads) % 2)
        m->rc =
            err_set(m->err, ERR_CONFIG, "%s: a head has %lld numbers, want an even number for rope",
                    name, (long long)(a->width ? a->width : width / a->heads));
    return m->rc;
}

void layer_multi_head(struct net *m, const char *name, const struct layer_heads *given)
{
    struct layer_heads a = *given;
    struct layer_dense in = {.weight = {DENSE_XAVIER, 0}, .is_joint = 1, .no_bias = !a.bias},
                       out = {.weight = {DENSE_PYTORCH, 0}, .no_bias = !a.bias};
    int64_t width;

    a.kv_heads = a.kv_heads ? a.kv_heads : a.heads;
    if (attention_check(m, name, &a) < 0)
        return;
    out.features = net_shape(m)->dim[1];
    width = a.width ? a.width : out.features / a.heads;
    in.features = (a.heads + 2 * a.kv_heads) * width;
    layer_dense(m, net_name(m, name, "in_proj"), &in);
    if (a.kv_heads == a.heads && !a.rope)
        layer_attention(m, name, a.heads, a.causal, (float)a.dropout);
    else
        attention_compose(m, name, &a, width);
    layer_dense(m, net_name(m, name, "out_proj"), &out);
}
