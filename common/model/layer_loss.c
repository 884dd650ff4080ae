/* The last layer: the loss that the job asks for.  It is refused if the samples do not have the
 * targets that it compares with. */
#include <inttypes.h>
#include <math.h>

#include "base/buf.h"
#include "model/layer_impl.h"

/* The samples must have the targets that the job's loss compares with. */
static int check_loss(const struct net *m, const struct model_options *o, struct err *err)
{
    static const char *const name[] = {LOSS_LIST(WORD_NAME)};
    const struct sample_field *t = net_target(m);
    const int is_sequence = t->role == SAMPLE_CLASS && t->shape.n >= 1;
    const enum loss loss = o->loss;
    struct buf text = {0};

    if (is_sequence && loss == LOSS_CROSS_ENTROPY && m->length == shape_elements(&t->shape))
        return 0;
    if ((t->role != SAMPLE_CLASS || t->shape.n != 0) &&
        (t->role != SAMPLE_REAL || loss == LOSS_CROSS_ENTROPY)) {
        sample_field_print(t, &text);
        err_set(err, ERR_CONFIG, "model.loss %s needs one class label a %s%s; the target is %s%s",
                name[loss], m->length ? "token" : "sample",
                loss == LOSS_CROSS_ENTROPY ? "" : ", or real numbers", buf_cstr(&text),
                t->role == SAMPLE_REAL ? "; store classes as whole numbers, such as int64, or set "
                                         "model.loss mse, l1 or bce"
                : loss != LOSS_CROSS_ENTROPY ? "; store numbers as float32"
                                             : "");
        buf_fini(&text);
        return err->code;
    }
    if (loss != LOSS_CROSS_ENTROPY && o->label_smoothing != 0)
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
                       "train.class_weights has %d numbers, want %" PRId64 ", one for each class",
                       from->n, n);
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

void layer_loss(struct net *m, const char *name, const struct model_options *o)
{
    static const enum pointwise kinds[] = {[LOSS_MSE] = POINTWISE_SQUARED,
                                           [LOSS_L1] = POINTWISE_ABSOLUTE,
                                           [LOSS_BCE] = POINTWISE_LOGISTIC};
    const enum op op = o->loss == LOSS_CROSS_ENTROPY ? OP_softmax_xent : OP_pointwise_loss;
    /* Smoothing helps training; a validation loss with it could not be compared with others. */
    union node_attr attr = {.loss.label_smoothing = m->g->training ? (float)o->label_smoothing : 0};
    int out[NODE_MAX_OUT] = {m->g->training ? NODE_NEW_OUT : NODE_NO_OUT};
    const int target = m->g->input[sample_target(m->spec)];

    if (m->rc == 0)
        m->rc = check_loss(m, o, m->err);
    if (m->rc == 0)
        m->rc = weigh_classes(m, &o->class_weights, &attr, m->err);
    if (m->rc < 0)
        return;
    if (op == OP_pointwise_loss)
        attr.loss.pointwise = kinds[o->loss];
    m->g->logits = m->h;
    attr.loss.counts_top5 = !m->g->training && model_counts_top5(o, m->g);
    net_append(m, op, &attr, (int[]){m->h, target, m->g->metrics}, 3, out, name);
}
