/* The list of architectures, made from the words in model/meson.build, and what all networks have
 * in common: the inputs and the loss. */
#include "model/model.h"

#include "base/buf.h"
#include "base/util.h"
#include "model/layer.h"
#include "model/lora.h"
#include "model/losses.h"

const struct option_group *const model_archs[] = {
#define X(name) &arch_##name.group,
    ARCH_LIST(X)
#undef X
        NULL};

void net_add_inputs(struct net *m)
{
    for (int i = 0; i < m->spec->n_fields; i++) {
        const struct sample_field *f = &m->spec->field[i];

        (void)graph_input(m->g, f->dtype, sample_batch_shape(f, m->g->batch), f->name);
    }
}

static int model_fail(const char *arch, const struct sample_spec *spec, struct err *err)
{
    struct buf text = {0};

    sample_print(spec, &text);
    err_wrap(err, "model %s for samples of %s", arch, buf_cstr(&text));
    buf_fini(&text);
    return err->code;
}

/* Other networks would let the tokens of one document see another one. */
static int model_check_packed(const struct model_arch *kind, const struct sample_spec *spec,
                              struct err *err)
{
    if (kind->packs || sample_starts(spec) < 0)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "it cannot keep packed documents apart; set data.pack false, or take model.arch "
                   "gpt or gpt2, or a folder of transformers' (model.import)");
}

int model_build(const struct model_options *o, const struct sample_spec *spec, int64_t batch,
                int training, int sync, struct graph **out, struct err *err)
{
    struct graph *g = graph_new(batch, training);
    struct losses losses;
    struct net m = {.g = g,
                    .spec = spec,
                    .sync = sync & MODEL_SYNC_NORMS,
                    .all = sync & MODEL_SYNC_LOSS ? o->global_batch : 0,
                    .h = NO_VALUE,
                    .losses = &losses,
                    .err = err};

    ASSERT(batch >= 0);
    net_add_inputs(&m);
    m.rc = losses_of(o, &g->arena, &losses, err);
    if (m.rc == 0)
        m.rc = model_check_packed(o->kind, spec, err);
    if (m.rc == 0)
        o->kind->build(&m, o->options);
    layer_loss(&m, "loss", o);
    if (m.rc == 0)
        m.rc = lora_apply(&o->lora,
                          &(struct lora_place){.first_tag = m.n_dropouts,
                                               .first_node = m.n_reference,
                                               .logits = m.n_reference > 0 ? m.h : g->logits},
                          g, err);
    if (m.rc < 0) {
        graph_free(g);
        return model_fail(o->kind->group.name, spec, err);
    }
    *out = g;
    return 0;
}

int model_counts_top5(const struct model_options *o, const struct graph *g)
{
    const struct shape *logits = &g->value[g->logits].shape;

    return (o->loss == LOSS_CROSS_ENTROPY || o->loss == LOSS_FOCAL) &&
           logits->dim[logits->n - 1] > 5;
}
