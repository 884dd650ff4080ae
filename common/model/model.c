#include "model/model.h"

#include "base/util.h"
#include "model/layer.h"

static const struct {
    const char *name;
    void (*build)(struct net *m);
} table[] = {
    [MODEL_MLP] = {"mlp", model_mlp},
    [MODEL_LENET] = {"lenet", model_lenet},
    [MODEL_LENET5] = {"lenet5", model_lenet5},
};

int model_build(const struct job *job, const struct model_input *in, int64_t batch, int training,
                int sync, struct graph **out, struct err *err)
{
    struct graph *g = graph_new(batch, training);
    struct net m = {.g = g, .job = job, .in = in, .sync = sync, .err = err};

    ASSERT((size_t)job->model.arch < ARRAY_LEN(table) && batch >= 0);
    m.h = graph_input(g, DTYPE_F32, SHAPE(batch, in->image[0], in->image[1], in->image[2]), "x");
    m.target = graph_input(g, DTYPE_I32, SHAPE(batch), "labels");
    table[job->model.arch].build(&m);
    layer_loss(&m, "loss");
    if (m.rc < 0) {
        graph_free(g);
        return err_wrap(err, "model %s for samples of %lldx%lldx%lld", table[job->model.arch].name,
                        (long long)in->image[0], (long long)in->image[1], (long long)in->image[2]);
    }
    *out = g;
    return 0;
}
