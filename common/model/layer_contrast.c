/* layer_contrast - the loss contrastive: two outputs of an imported network, whose rows belong
 * together, each among all rows of the other in the global batch. */
#include "model/layer_impl.h"
#include "model/losses.h"
#include "op/compose.h"

/* Which output the k-th loss takes besides its own, for messages. */
static int contrast_fail(struct compose *c, const struct net *m, const struct loss_term *l,
                         const char *output, int value, const char *want)
{
    char text[SHAPE_TEXT_LEN];

    c->rc =
        err_set(c->err, ERR_CONFIG, "model.loss: contrastive of %s takes %s, which is %s, want %s",
                l->output, output, shape_text(&m->g->value[value].shape, text), want);
    return NO_VALUE;
}

int layer_contrast(struct net *m, struct compose *c, int k)
{
    const struct loss_term *l = &m->losses->term[k];
    const int a = m->loss_of[k], b = m->loss_with[k], scale = m->loss_scale[k];
    const struct shape *s = &m->g->value[a].shape;

    if (s->n != 2 || s->dim[0] != m->g->batch)
        return contrast_fail(c, m, l, l->output, a, "[batch, features]");
    if (!shape_equal(s, &m->g->value[b].shape))
        return contrast_fail(c, m, l, l->with, b, "the shape of the other output");
    if (scale != NO_VALUE && shape_elements(&m->g->value[scale].shape) != 1)
        return contrast_fail(c, m, l, l->scale, scale, "one number");
    return compose_contrast(
        c, &(struct compose_contrast){
               .a = a, .b = b, .scale = scale, .factor = 1 / l->temperature, .all = m->all});
}
