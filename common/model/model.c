/* The list of architectures, made from the words in model/meson.build, and what all networks have
 * in common: the inputs and the loss. */
#include "model/model.h"

#include "base/util.h"
#include "model/layer.h"

const struct option_group *const model_archs[] = {
#define X(name) &arch_##name.group,
    ARCH_LIST(X)
#undef X
        NULL};

int model_build(const struct model_options *o, const struct model_input *in, int64_t batch,
                int training, int sync, struct graph **out, struct err *err)
{
    struct graph *g = graph_new(batch, training);
    struct net m = {.g = g, .in = in, .sync = sync, .err = err};

    ASSERT(batch >= 0);
    m.h = graph_input(g, DTYPE_F32, SHAPE(batch, in->image[0], in->image[1], in->image[2]), "x");
    m.target = graph_input(g, DTYPE_I32, SHAPE(batch), "labels");
    o->kind->build(&m, o->options);
    layer_loss(&m, "loss", o->loss, o->label_smoothing);
    if (m.rc < 0) {
        graph_free(g);
        return err_wrap(err, "model %s for samples of %lldx%lldx%lld", o->kind->group.name,
                        (long long)in->image[0], (long long)in->image[1], (long long)in->image[2]);
    }
    *out = g;
    return 0;
}
