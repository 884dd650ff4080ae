/* ref_tokens - the naive kernels of what transformers have: embeddings, class token, attention.
 * Sums are in double. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ref_kernels.h"
#include "tensor/sample.h"

/* The place of token r in its document. */
static int64_t ref_place(const int32_t *starts, int64_t r, int64_t T)
{
    const int64_t start = starts ? starts[r] : 0;

    return r % T - (start < 0 ? 0 : start > r % T ? r % T : start);
}

void ref_embedding(const struct ref_node *n)
{
    const struct shape *tokens = &n->in_shape[EMBEDDING_TOKENS];
    const int64_t C = n->in_shape[EMBEDDING_TABLE].dim[1], T = tokens->dim[tokens->n - 1];
    const float *table = n->in[EMBEDDING_TABLE], *position = n->in[EMBEDDING_POSITION];
    const int32_t *token = n->in[EMBEDDING_TOKENS];
    float *y = n->out[EMBEDDING_Y];

    for (int64_t r = 0; r < shape_elements(tokens); r++)
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] =
                table[token[r] * C + c] +
                (position ? position[ref_place(n->in[EMBEDDING_STARTS], r, T) * C + c] : 0);
}

/* Element i of the codes, the operand `of`, whose scales are the next one. */
static float ref_unpacked(const struct ref_node *n, int of, int64_t i)
{
    const float *scales = n->in[of + 1];

    return scales ? (float)((const int8_t *)n->in[of])[i] * scales[i / 64]
                  : ((const float *)n->in[of])[i];
}

void ref_unpack(const struct ref_node *n)
{
    for (int64_t i = 0; i < shape_elements(&n->out_shape[UNPACK_Y]); i++)
        ((float *)n->out[UNPACK_Y])[i] = ref_unpacked(n, UNPACK_CODES, i);
}

void ref_unpack_rows(const struct ref_node *n)
{
    const struct shape *tokens = &n->in_shape[UNPACK_ROWS_TOKENS];
    const int64_t C = n->in_shape[UNPACK_ROWS_CODES].dim[1], T = tokens->dim[tokens->n - 1];
    const float *position = n->in[UNPACK_ROWS_POSITION];
    const int32_t *token = n->in[UNPACK_ROWS_TOKENS];
    float *y = n->out[UNPACK_ROWS_Y];

    for (int64_t r = 0; r < shape_elements(tokens); r++)
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = ref_unpacked(n, UNPACK_ROWS_CODES, token[r] * C + c) +
                           (position ? position[r % T * C + c] : 0);
}

/* sums: the dimension of the weight that is summed. */
static void ref_unpack_product(const struct ref_node *n, int sums, const float *b)
{
    const struct shape *w = &n->in_shape[UNPACK_LINEAR_CODES];
    const int64_t R = n->in_shape[UNPACK_LINEAR_X].dim[0], K = w->dim[sums], N = w->dim[!sums];
    const float *x = n->in[UNPACK_LINEAR_X];
    float *y = n->out[UNPACK_LINEAR_Y];

    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < N; o++) {
            double sum = b ? b[o] : 0;

            for (int64_t k = 0; k < K; k++)
                sum += (double)x[r * K + k] *
                       (double)ref_unpacked(n, UNPACK_LINEAR_CODES, sums ? o * K + k : k * N + o);
            y[r * N + o] = (float)sum;
        }
}

void ref_unpack_linear(const struct ref_node *n)
{
    ref_unpack_product(n, !n->attr.linear.transposed, n->in[UNPACK_LINEAR_B]);
}

void ref_unpack_linear_grad_x(const struct ref_node *n)
{
    ref_unpack_product(n, n->attr.linear.transposed, NULL);
}

void ref_embedding_grad(const struct ref_node *n)
{
    const struct shape *tokens = &n->in_shape[EMBEDDING_GRAD_TOKENS];
    const int64_t C = n->in_shape[EMBEDDING_GRAD_DY].dim[1], T = tokens->dim[tokens->n - 1];
    const int64_t V = n->attr.embedding.rows, P = n->attr.embedding.positions;
    const int32_t *token = n->in[EMBEDDING_GRAD_TOKENS];
    const float *dy = n->in[EMBEDDING_GRAD_DY];
    double *dtable = ref_sums(V * C), *dposition = ref_sums(P * C);

    for (int64_t r = 0; r < shape_elements(tokens); r++)
        for (int64_t c = 0; c < C; c++) {
            if (token[r] != n->attr.embedding.padding - 1)
                dtable[token[r] * C + c] += dy[r * C + c];
            if (P)
                dposition[ref_place(n->in[EMBEDDING_GRAD_STARTS], r, T) * C + c] += dy[r * C + c];
        }
    if (n->out[EMBEDDING_GRAD_DTABLE])
        ref_round(dtable, V * C, n->out[EMBEDDING_GRAD_DTABLE]);
    if (n->out[EMBEDDING_GRAD_DPOSITION])
        ref_round(dposition, P * C, n->out[EMBEDDING_GRAD_DPOSITION]);
    free(dtable);
    free(dposition);
}

void ref_class_token(const struct ref_node *n)
{
    const int64_t T = n->attr.class_token.length, C = n->in_shape[CLASS_TOKEN_X].dim[1];
    const float *x = n->in[CLASS_TOKEN_X], *position = n->in[CLASS_TOKEN_POSITION];
    const float *token = n->in[CLASS_TOKEN_TOKEN];
    float *y = n->out[CLASS_TOKEN_Y];

    for (int64_t r = 0; r < n->out_shape[CLASS_TOKEN_Y].dim[0]; r++)
        for (int64_t c = 0; c < C; c++)
            *y++ = (r % T == 0 ? token[c] : *x++) + position[r % T * C + c];
}

void ref_class_token_grad(const struct ref_node *n)
{
    const int64_t T = n->attr.class_token.length, C = n->in_shape[CLASS_TOKEN_GRAD_DY].dim[1];
    const float *dy = n->in[CLASS_TOKEN_GRAD_DY];
    float *dx = n->out[CLASS_TOKEN_GRAD_DX];
    double *sum = ref_sums(T * C);

    for (int64_t r = 0; r < n->in_shape[CLASS_TOKEN_GRAD_DY].dim[0]; r++)
        for (int64_t c = 0; c < C; c++, dy++) {
            sum[r % T * C + c] += *dy;
            if (dx && r % T)
                *dx++ = *dy;
        }
    if (n->out[CLASS_TOKEN_GRAD_DTOKEN])
        ref_round(sum, C, n->out[CLASS_TOKEN_GRAD_DTOKEN]);
    if (n->out[CLASS_TOKEN_GRAD_DPOSITION])
        ref_round(sum, T * C, n->out[CLASS_TOKEN_GRAD_DPOSITION]);
    free(sum);
}

/* One head of one sample of an attention node. */
struct ref_head {
    const struct ref_node *n;
    const struct step_scalars *scalars;
    const int32_t *starts; /* of all samples, or NULL */
    int64_t sample, head, T, H, D, C;
};

static double qkv(const struct ref_head *h, int which, int64_t i, int64_t d)
{
    const float *x = h->n->in[ATTENTION_QKV];

    return x[(h->sample * h->T + i) * 3 * h->C + which * h->C + h->head * h->D + d];
}

static int64_t in_y(const struct ref_head *h, int64_t i, int64_t d)
{
    return (h->sample * h->T + i) * h->C + h->head * h->D + d;
}

static double kept(const struct ref_head *h, int64_t i, int64_t j)
{
    const float p = h->n->attr.attention.p;
    uint64_t e;
    struct rng_block b;

    if (p == 0)
        return 1;
    e = (uint64_t)((((h->scalars->first_position + h->sample) * h->H + h->head) * h->T + i) * h->T +
                   j);
    b = rng_draw(h->scalars->seed, RNG_DROPOUT, h->scalars->step,
                 ((uint64_t)h->n->attr.attention.tag << 40) + (e >> 2));
    return rng_to_unit(b.v[e & 3]) >= p ? (double)(1 / (1 - p)) : 0;
}

/* 1: row i sees row j. */
static int sees(const struct ref_head *h, int64_t i, int64_t j)
{
    const int64_t window = h->n->attr.attention.window;

    if (!h->n->attr.attention.causal)
        return 1;
    if (j == i)
        return 1;
    return j < i && (!h->starts || h->starts[h->sample * h->T + i] <= j) &&
           (window == 0 || i - j < window);
}

/* P [T,T] of the head, without dropout; lse [T]. */
static void weights(const struct ref_head *h, double *P, double *lse)
{
    for (int64_t i = 0; i < h->T; i++) {
        double sum = 0;

        for (int64_t j = 0; j < h->T; j++) {
            double s = 0;

            for (int64_t d = 0; d < h->D; d++)
                s += qkv(h, 0, i, d) * qkv(h, 1, j, d);
            P[i * h->T + j] = sees(h, i, j) ? exp(s / sqrt((double)h->D)) : 0;
            sum += P[i * h->T + j];
        }
        lse[i] = log(sum);
        for (int64_t j = 0; j < h->T; j++)
            P[i * h->T + j] /= sum;
    }
}

static void head_forward(const struct ref_head *h)
{
    double *P = ref_sums(h->T * h->T), *lse = ref_sums(h->T);
    float *y = h->n->out[ATTENTION_Y], *lse_out = h->n->out[ATTENTION_LSE];

    weights(h, P, lse);
    for (int64_t i = 0; i < h->T; i++) {
        for (int64_t d = 0; d < h->D; d++) {
            double sum = 0;

            for (int64_t j = 0; j < h->T; j++)
                sum += kept(h, i, j) * P[i * h->T + j] * qkv(h, 2, j, d);
            y[in_y(h, i, d)] = (float)sum;
        }
        if (lse_out)
            lse_out[(h->sample * h->T + i) * h->H + h->head] = (float)lse[i];
    }
    free(P);
    free(lse);
}

static void head_grad(const struct ref_head *h)
{
    double *P = ref_sums(h->T * h->T), *lse = ref_sums(h->T), *dP = ref_sums(h->T * h->T);
    double *sum = ref_sums(h->T * 3 * h->D);
    const float *dy = h->n->in[ATTENTION_GRAD_DY];
    float *out = h->n->out[ATTENTION_GRAD_DQKV];

    weights(h, P, lse);
    for (int64_t i = 0; i < h->T; i++) {
        double delta = 0;

        for (int64_t j = 0; j < h->T; j++) {
            for (int64_t d = 0; d < h->D; d++)
                dP[i * h->T + j] += kept(h, i, j) * dy[in_y(h, i, d)] * qkv(h, 2, j, d);
            delta += P[i * h->T + j] * dP[i * h->T + j];
        }
        for (int64_t j = 0; j < h->T; j++)
            for (int64_t d = 0; d < h->D; d++) {
                const double p = P[i * h->T + j];
                const double ds = p * (dP[i * h->T + j] - delta) / sqrt((double)h->D);

                sum[(i * 3 + 0) * h->D + d] += ds * qkv(h, 1, j, d);
                sum[(j * 3 + 1) * h->D + d] += ds * qkv(h, 0, i, d);
                sum[(j * 3 + 2) * h->D + d] += kept(h, i, j) * p * dy[in_y(h, i, d)];
            }
    }
    for (int64_t i = 0; i < h->T * 3; i++)
        for (int64_t d = 0; d < h->D; d++)
            out[(h->sample * h->T + i / 3) * 3 * h->C + i % 3 * h->C + h->head * h->D + d] =
                (float)sum[i * h->D + d];
    free(P);
    free(lse);
    free(dP);
    free(sum);
}

/* The operands' numbers are those of the node. */
static void each_head(const struct ref_node *n, int scalars, int starts,
                      void (*run)(const struct ref_head *h))
{
    const int64_t T = n->attr.attention.length, H = n->attr.attention.heads;
    const int64_t C = n->in_shape[ATTENTION_QKV].dim[1] / 3;

    for (int64_t i = 0; i < n->in_shape[ATTENTION_QKV].dim[0] / T * H; i++)
        run(&(struct ref_head){n, n->in[scalars], n->in[starts], i / H, i % H, T, H, C / H, C});
}

void ref_attention(const struct ref_node *n)
{
    each_head(n, ATTENTION_SCALARS, ATTENTION_STARTS, head_forward);
}

void ref_attention_grad(const struct ref_node *n)
{
    each_head(n, ATTENTION_GRAD_SCALARS, ATTENTION_GRAD_STARTS, head_grad);
}

void ref_rotary(const struct ref_node *n)
{
    const int64_t R = n->in_shape[ROTARY_X].dim[n->in_shape[ROTARY_X].n - 1];
    const int64_t T = n->in_shape[ROTARY_COS].dim[0], rows = shape_elements(&n->in_shape[0]) / R;
    const float *x = n->in[ROTARY_X], *cos = n->in[ROTARY_COS], *sin = n->in[ROTARY_SIN];
    float *y = n->out[ROTARY_Y];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < R; i++) {
            const int is_first = n->attr.rotary.pairs ? i % 2 == 0 : i < R / 2;
            const int64_t step = n->attr.rotary.pairs ? 1 : R / 2;
            const int64_t other = is_first ? i + step : i - step;
            const int64_t at = r / n->attr.rotary.inner % T * R;
            const double s = (double)sin[at + (n->attr.rotary.back ? other : i)] *
                             (is_first != n->attr.rotary.back ? -1 : 1);

            y[r * R + i] =
                (float)((double)x[r * R + i] * (double)cos[at + i] + (double)x[r * R + other] * s);
        }
}

/* ---- log-probabilities of labels ---- */

/* The logarithm of the sum of a row's exponentials. */
static double ref_log_sum(const float *row, int64_t C)
{
    double most = row[0], sum = 0;

    for (int64_t c = 1; c < C; c++)
        most = fmax(most, row[c]);
    for (int64_t c = 0; c < C; c++)
        sum += exp(row[c] - most);
    return most + log(sum);
}

void ref_label_log_p(const struct ref_node *n)
{
    const int64_t N = n->in_shape[LABEL_LOG_P_LOGITS].dim[0],
                  C = n->in_shape[LABEL_LOG_P_LOGITS].dim[1];
    const float *logits = n->in[LABEL_LOG_P_LOGITS];
    const int32_t *labels = n->in[LABEL_LOG_P_LABELS];
    float *y = n->out[LABEL_LOG_P_Y], *lse = n->out[LABEL_LOG_P_LSE];

    for (int64_t r = 0; r < N; r++) {
        const double sum = ref_log_sum(logits + r * C, C);

        y[r] = labels[r] == SAMPLE_IGNORED       ? 0
               : labels[r] < 0 || labels[r] >= C ? NAN
                                                 : (float)((double)logits[r * C + labels[r]] - sum);
        if (lse)
            lse[r] = (float)sum;
    }
}

void ref_label_log_p_grad(const struct ref_node *n)
{
    const int64_t N = n->in_shape[LABEL_LOG_P_GRAD_LOGITS].dim[0],
                  C = n->in_shape[LABEL_LOG_P_GRAD_LOGITS].dim[1];
    const float *logits = n->in[LABEL_LOG_P_GRAD_LOGITS], *dy = n->in[LABEL_LOG_P_GRAD_DY];
    const int32_t *labels = n->in[LABEL_LOG_P_GRAD_LABELS];
    float *dlogits = n->out[LABEL_LOG_P_GRAD_DLOGITS];

    for (int64_t r = 0; r < N; r++) {
        const double sum = ref_log_sum(logits + r * C, C);

        for (int64_t c = 0; c < C; c++)
            dlogits[r * C + c] =
                labels[r] == SAMPLE_IGNORED
                    ? 0
                    : (float)(((c == labels[r]) - exp(logits[r * C + c] - sum)) * (double)dy[r]);
    }
}
