/* The last layer: the loss that the job asks for.  It is refused if the samples do not have the
 * targets that it compares with. */
#include <math.h>

#include "base/buf.h"
#include "model/layer_impl.h"
#include "model/losses.h"
#include "op/compose.h"

/* The samples must have the targets that the job's loss compares with. */
static int check_loss(const struct net *m, const struct model_options *o, struct err *err)
{
    static const char *const name[] = {LOSS_LIST(WORD_NAME)};
    const struct sample_field *t = net_target(m);
    const int is_sequence = t->role == SAMPLE_CLASS && t->shape.n >= 1;
    const enum loss loss = m->losses->term[0].kind;
    const int of_classes = loss_is_of_classes(loss);
    struct buf text = {0};

    if (!m->loss_of && m->losses->term[0].output)
        return err_set(err, ERR_CONFIG,
                       "model.loss names the output %.60s; outputs have names with model.import "
                       "alone: want the loss by itself, such as %s or {name: huber, delta: 0.5}",
                       m->losses->term[0].output, name[LOSS_CROSS_ENTROPY]);
    if (loss_is_free(loss) || (is_sequence && of_classes && m->length == shape_elements(&t->shape)))
        return 0;
    if ((t->role != SAMPLE_CLASS || t->shape.n != 0) && (t->role != SAMPLE_REAL || of_classes)) {
        sample_field_print(t, &text);
        err_set(err, ERR_CONFIG, "model.loss %s needs one class label a %s%s; the target is %s%s",
                name[loss], m->length ? "token" : "sample", of_classes ? "" : ", or real numbers",
                buf_cstr(&text),
                t->role == SAMPLE_REAL ? "; store classes as whole numbers, such as int64, or set "
                                         "model.loss mse, l1 or bce"
                : of_classes           ? ""
                                       : "; store numbers as float32");
        buf_fini(&text);
        return err->code;
    }
    if (!of_classes && o->label_smoothing != 0)
        return err_set(err, ERR_CONFIG,
                       "train.label_smoothing is %g, but model.loss is %s: smoothing belongs to "
                       "cross_entropy; set it to 0",
                       o->label_smoothing, name[loss]);
    return 0;
}

/* Put the class weights into the graph's arena, as float32, multiplied by the power of two that
 * brings the largest of them to [0.5, 1): a mean with weights does not depend on their scale.  Then
 * all weights from 1/64 on are multiples of 1 / WEIGHT_UNITS, and lower ones are rounded to one. */
static int weigh_classes(struct net *m, const struct option_numbers *from, union node_attr *attr,
                         struct err *err)
{
    const struct shape *logits = net_shape(m);
    const int64_t n = logits->dim[logits->n - 1];
    float most = 0, *w;
    int exponent;

    if (from->n == 0)
        return 0;
    if (from->n != n)
        return err_set(err, ERR_CONFIG,
                       "train.class_weights has %d numbers, want %lld, one for each class", from->n,
                       (long long)n);
    w = arena_alloc(&m->g->arena, (size_t)n * sizeof *w);
    for (int i = 0; i < from->n; i++)
        most = fmaxf(most, (float)from->v[i]);
    (void)frexpf(most, &exponent);
    for (int i = 0; i < from->n; i++) {
        const double scaled = ldexp((double)(float)from->v[i], -exponent);

        w[i] = (float)(rint(scaled * WEIGHT_UNITS) / WEIGHT_UNITS);
        attr->loss.class_weight_sum += (double)w[i];
    }
    attr->loss.class_weight = w;
    return 0;
}

/* ---- several losses, or one without an operator of its own ---- */

/* 1: the samples are lines of as many tokens as there are places, so the outputs are [N,T,V]. */
static int loss_is_of_tokens(const struct net *m, int64_t places)
{
    const struct sample_field *x = &m->spec->field[0];

    return x->role == SAMPLE_INPUT && x->dtype == DTYPE_I32 && x->shape.n == 1 &&
           x->shape.dim[0] == places;
}

/* The dimension, 1 or 2, of an output [N,a,b] that has the classes, for a class at each place.  0:
 * neither fits, or both do. */
static int loss_class_dim(const struct net *m, const struct loss_term *l, const struct shape *s,
                          int64_t places)
{
    const int fits[3] = {0, s->dim[2] == places, s->dim[1] == places};

    if (l->class_dim)
        return fits[l->class_dim] ? l->class_dim : 0;
    if (fits[1] && fits[2])
        return loss_is_of_tokens(m, places) ? 2 : 0;
    return fits[1] ? 1 : fits[2] ? 2 : 0;
}

/* A loss's output as rows, [rows,outputs]: a row for each class among the targets, or for each
 * sample where the targets are numbers.  Classes of images are [N,C,H,W]. */
static int loss_as_rows(struct net *m, struct compose *c, const struct loss_term *l, int value)
{
    static const int channels_last[2][4] = {{0, 2, 1}, {0, 2, 3, 1}};
    const struct sample_field *t = net_target(m);
    const int64_t places = shape_elements(&t->shape), n = m->g->batch;
    struct shape s = m->g->value[value].shape;
    const int is_class = t->role == SAMPLE_CLASS;
    const int class_dim = s.n == 3 ? loss_class_dim(m, l, &s, places) : 0;

    if (is_class && class_dim == 2 && t->shape.n == 1)
        return compose_reshape(c, value, SHAPE(n * places, s.dim[2]));
    if (is_class && t->shape.n > 0 &&
        (class_dim == 1 || (s.n == 4 && s.dim[2] * s.dim[3] == places &&
                            (t->shape.n != 2 || s.dim[2] == t->shape.dim[0])))) {
        value = compose_permute(c, value, channels_last[s.n - 3]);
        return compose_reshape(c, value, SHAPE(n * places, s.dim[1]));
    }
    if (!is_class && s.n > 2) {
        for (int d = s.n - 1; d > 1; d--)
            s.dim[1] *= s.dim[d];
        return compose_reshape(c, value, SHAPE(n, s.dim[1]));
    }
    return value;
}

/* The k-th loss's output as rows: one for each class among the targets, or for each sample. */
static int loss_checked_rows(struct net *m, struct compose *c, int k)
{
    static const char *const name[] = {LOSS_LIST(WORD_NAME)};
    const struct loss_term *l = &m->losses->term[k];
    const struct sample_field *t = net_target(m);
    const int is_class = t->role == SAMPLE_CLASS, x = loss_as_rows(m, c, l, m->loss_of[k]);
    const int64_t rows = m->g->batch * (is_class ? shape_elements(&t->shape) : 1);
    const char *output = l->output ? l->output : "0";
    struct buf target = {0};
    char text[SHAPE_TEXT_LEN];
    const struct shape *s;

    if (c->rc < 0)
        return NO_VALUE;
    s = &m->g->value[x].shape;
    sample_field_print(t, &target);
    if (is_class && loss_is_of_classes(l->kind) && s->n == 3 && t->shape.n == 1 &&
        s->dim[1] == s->dim[2] && s->dim[1] == t->shape.dim[0])
        c->rc = err_set(c->err, ERR_CONFIG,
                        "model.loss: output %s is %s, which has as many classes as places; say "
                        "which dimension has the classes: {name: %s, class_dim: 1} for [batch, "
                        "classes, places], class_dim: 2 for [batch, places, classes]",
                        output, shape_text(s, text), name[l->kind]);
    else if (s->n != 2 || s->dim[0] != rows)
        c->rc =
            err_set(c->err, ERR_CONFIG,
                    "model.loss: output %s is %s and the target is %s; want an output "
                    "[batch, outputs], or for a class at each place [batch, places, classes], "
                    "[batch, classes, places] or [batch, classes, rows, columns]",
                    output, shape_text(&m->g->value[m->loss_of[k]].shape, text), buf_cstr(&target));
    else if (loss_is_of_classes(l->kind) && (!is_class || s->dim[1] < t->n_classes))
        c->rc = err_set(c->err, ERR_CONFIG,
                        "model.loss: %s of output %s, which has %lld numbers for each target, "
                        "needs classes below that; the target is %s",
                        name[l->kind], output, (long long)s->dim[1], buf_cstr(&target));
    buf_fini(&target);
    return c->rc < 0 ? NO_VALUE : x;
}

/* The network computed the loss: one number for all samples, or one for each. */
static int loss_given(struct net *m, struct compose *c, int value, int64_t rows)
{
    const int64_t n = m->g->batch;
    char text[SHAPE_TEXT_LEN];
    struct shape s;

    if (c->rc < 0)
        return NO_VALUE;
    s = m->g->value[value].shape;
    if (s.n > 0 && s.dim[0] == n && shape_elements(&s) == rows)
        return compose_reshape(c, value, SHAPE(rows, 1));
    if (s.n > 0 && s.dim[0] == n && shape_elements(&s) == n && n > 0) {
        value = compose_expand(c, compose_reshape(c, value, SHAPE(n, 1)), SHAPE(n, rows / n));
        return compose_reshape(c, value, SHAPE(rows, 1));
    }
    if (s.n == 0 || (s.n == 1 && s.dim[0] == 1))
        return compose_expand(c, compose_reshape(c, value, SHAPE(1, 1)), SHAPE(rows, 1));
    c->rc = err_set(c->err, ERR_CONFIG,
                    "model.loss: output is %s, want one number, or one for each sample",
                    shape_text(&s, text));
    return NO_VALUE;
}

/* The k-th loss's output, or what a contrastive loss makes of it. */
static int loss_made(struct net *m, struct compose *c, int k, int value)
{
    return m->losses->term[k].kind == LOSS_CONTRASTIVE ? layer_contrast(m, c, k) : value;
}

/* The targets as numbers, [N,C]; labels become 1 at their places. */
static int loss_numbers_of(struct net *m, struct compose *c, int target, int64_t outputs)
{
    const struct value *t = &m->g->value[target];
    const int64_t n = shape_elements(&t->shape);

    if (t->dtype == DTYPE_I32)
        return compose_hot_rows(c, target, outputs);
    if (n != m->g->batch * outputs) {
        c->rc = err_set(c->err, ERR_CONFIG,
                        "model.loss: an output has %lld numbers for a sample, and its target %lld",
                        (long long)outputs, (long long)(m->g->batch > 0 ? n / m->g->batch : 0));
        return NO_VALUE;
    }
    return compose_reshape(c, target, SHAPE(m->g->batch, outputs));
}

static int loss_has_positives(const struct loss_term *l)
{
    return l->positive != 1 || l->n_positives > 0;
}

/* The weight of targets of 1, for each output. */
static float *loss_positives(struct net *m, struct compose *c, const struct loss_term *l,
                             int64_t outputs)
{
    float *positive = arena_alloc(&m->g->arena, (size_t)outputs * sizeof *positive + 1);

    if (l->n_positives > 0 && l->n_positives != outputs)
        c->rc = err_set(c->err, ERR_CONFIG,
                        "model.loss: positive has %d numbers, want %lld, one for each output, or "
                        "one number for all",
                        l->n_positives, (long long)outputs);
    for (int64_t i = 0; i < outputs && c->rc == 0; i++)
        positive[i] = (float)(l->n_positives > 0 ? l->positives[i] : l->positive);
    return positive;
}

/* One loss of each row, [rows,1]. */
static int loss_of_rows(struct net *m, struct compose *c, const struct loss_term *l, int x,
                        const union node_attr *attr)
{
    const int target = m->g->input[sample_target(m->spec)];
    const struct compose_classes classes = {.weight = attr->loss.class_weight,
                                            .smoothing = (double)attr->loss.label_smoothing,
                                            .gamma = l->kind == LOSS_FOCAL ? l->gamma : 0};
    float *positive = NULL;
    int64_t outputs;
    int t;

    if (c->rc < 0)
        return NO_VALUE;
    outputs = m->g->value[x].shape.dim[1];
    if (l->kind == LOSS_CROSS_ENTROPY || l->kind == LOSS_FOCAL)
        return compose_class_loss(c, x, target, &classes);
    t = loss_numbers_of(m, c, target, outputs);
    if (l->kind == LOSS_BCE && loss_has_positives(l))
        positive = loss_positives(m, c, l, outputs);
    if (c->rc < 0)
        return NO_VALUE;
    switch (l->kind) {
    case LOSS_HUBER:
        return compose_huber(c, x, t, l->delta);
    case LOSS_KL:
        return compose_divergence(c, x, t);
    case LOSS_BCE:
        return compose_logistic(c, x, t, positive);
    default:
        return compose_pointwise(c, l->kind == LOSS_MSE ? POINTWISE_SQUARED : POINTWISE_ABSOLUTE, x,
                                 t);
    }
}

/* 1: an operator computes this loss whole. */
static int loss_has_operator(const struct loss_term *l)
{
    return l->kind <= LOSS_BCE && !loss_has_positives(l);
}

/* Append the operator of the loss l for the rows x, with its weight in training.  attr: what the
 * losses of a network have in common, and the part. */
static void loss_append(struct net *m, const char *name, const struct loss_term *l, int x,
                        const union node_attr *attr)
{
    static const enum pointwise kinds[LOSS_OUTPUT + 1] = {[LOSS_MSE] = POINTWISE_SQUARED,
                                                          [LOSS_L1] = POINTWISE_ABSOLUTE,
                                                          [LOSS_BCE] = POINTWISE_LOGISTIC};
    const enum op op = loss_is_of_classes(l->kind) ? OP_softmax_xent : OP_pointwise_loss;
    const int has_gradient = m->g->training && attr->loss.part != LOSS_IS_COUNTED;
    const int target = m->g->input[sample_target(m->spec)];
    int out[NODE_MAX_OUT] = {has_gradient ? NODE_NEW_OUT : NODE_NO_OUT};
    union node_attr own = *attr;

    if (op == OP_pointwise_loss)
        own.loss.pointwise = kinds[l->kind];
    if (m->g->training)
        own.loss.factor = (float)l->weight;
    net_append(m, op, &own, (int[]){x, target, m->g->metrics}, 3, out, name);
}

static int64_t loss_last_dim(const struct shape *s) { return s->dim[s->n - 1]; }

/* The rows of the loss k, for which the class weights must do, too. */
static int loss_rows_of(struct net *m, struct compose *c, const union node_attr *of, int k)
{
    const int x = k ? loss_checked_rows(m, c, k) : m->g->logits;
    const int64_t classes = loss_last_dim(&m->g->value[m->g->logits].shape);

    if (c->rc < 0 || k == 0 || !of->loss.class_weight ||
        !loss_is_of_classes(m->losses->term[k].kind) ||
        loss_last_dim(&m->g->value[x].shape) == classes)
        return x;
    c->rc = err_set(c->err, ERR_CONFIG,
                    "train.class_weights has %lld numbers, but output %s of model.loss has %lld "
                    "classes, want as many in all of its outputs",
                    (long long)classes, m->losses->term[k].output,
                    (long long)loss_last_dim(&m->g->value[x].shape));
    return NO_VALUE;
}

/* The loss k > 0, by its operator. */
static void loss_append_more(struct net *m, struct compose *c, const union node_attr *of, int k)
{
    const int x = loss_rows_of(m, c, of, k);
    union node_attr attr = *of;

    attr.loss.part = LOSS_IS_MORE;
    if (c->rc == 0)
        loss_append(m, c->name, &m->losses->term[k], x, &attr);
    if (m->rc < 0)
        c->rc = m->rc;
}

/* One loss of each row, with its weight, made of general nodes: [rows,1]. */
static int loss_composed(struct net *m, struct compose *c, const union node_attr *of, int k,
                         int64_t rows)
{
    const struct loss_term *l = &m->losses->term[k];
    const int value = m->loss_of ? m->loss_of[k] : m->g->logits;
    const int x = loss_is_free(l->kind) ? loss_given(m, c, loss_made(m, c, k, value), rows)
                                        : loss_of_rows(m, c, l, loss_rows_of(m, c, of, k), of);

    return l->weight != 1 && m->g->training
               ? compose_constants(c, EW_AFFINE, x, (float)l->weight, 0)
               : x;
}

/* Append the losses from the first-th on: those that have no operator as one sum. */
static void loss_add_more(struct net *m, const char *name, const union node_attr *of, int first,
                          enum loss_part part)
{
    const int target = m->g->input[sample_target(m->spec)];
    /* where no loss compares with the targets, there may be several for a row of the output */
    const int64_t rows =
        loss_is_free(m->losses->term[0].kind) && m->g->value[target].dtype == DTYPE_I32
            ? shape_elements(&m->g->value[target].shape)
            : m->g->value[m->g->logits].shape.dim[0];
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    const union node_attr attr = {.loss = {.pointwise = POINTWISE_GIVEN, .part = part}};
    int out[NODE_MAX_OUT] = {m->g->training ? NODE_NEW_OUT : NODE_NO_OUT};
    int sum = NO_VALUE;

    for (int k = first; k < (m->g->training ? m->losses->n : 1) && c.rc == 0; k++) {
        int x;

        if (k > 0 && loss_has_operator(&m->losses->term[k])) {
            loss_append_more(m, &c, of, k);
            continue;
        }
        x = loss_composed(m, &c, of, k, rows);
        sum = sum == NO_VALUE ? x : compose_elementwise(&c, EW_ADD, sum, x);
    }
    m->rc = c.rc;
    if (m->rc == 0 && sum != NO_VALUE)
        net_append(m, OP_pointwise_loss, &attr, (int[]){sum, target, m->g->metrics}, 3, out, name);
}

/* The output that predictions are: the first loss's, as rows.  Where the network gives nothing but
 * its loss, that is the prediction. */
static void loss_take_first(struct net *m, const char *name)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    const struct sample_field *t = net_target(m);
    const int64_t places = shape_elements(&t->shape);

    if (!loss_is_free(m->losses->term[0].kind))
        m->h = loss_checked_rows(m, &c, 0);
    else if (net_shape(m)->n < 2)
        m->h = loss_given(m, &c, m->h, m->g->batch);
    else
        m->h = loss_as_rows(m, &c, m->losses->term, m->h);
    m->rc = c.rc;
    if (m->rc == 0 && t->role == SAMPLE_CLASS && t->shape.n > 0 &&
        net_shape(m)->dim[0] == m->g->batch * places)
        m->length = places;
}

void layer_loss(struct net *m, const char *name, const struct model_options *o)
{
    const struct loss_term *first = m->losses->term;
    const int is_whole = loss_has_operator(first);
    /* Smoothing helps training; a validation loss with it could not be compared with others. */
    union node_attr attr = {
        .loss = {.label_smoothing = m->g->training ? (float)o->label_smoothing : 0,
                 .part = is_whole ? LOSS_IS_WHOLE : LOSS_IS_COUNTED}};

    if (first->kind == LOSS_DPO) {
        layer_preference(m, name, o);
        return;
    }
    if (m->rc == 0 && m->loss_of)
        loss_take_first(m, name);
    if (m->rc == 0)
        m->rc = check_loss(m, o, m->err);
    if (m->rc == 0)
        m->rc = weigh_classes(m, &o->class_weights, &attr, m->err);
    if (m->rc < 0)
        return;
    m->g->logits = m->h;
    attr.loss.counts_top5 = !m->g->training && model_counts_top5(o, m->g);
    if (!loss_is_free(first->kind))
        loss_append(m, name, first, m->h, &attr);
    if (m->rc == 0)
        loss_add_more(m, name, &attr, is_whole,
                      loss_is_free(first->kind) ? LOSS_IS_WHOLE : LOSS_IS_MORE);
}
