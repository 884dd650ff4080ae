/* onnx_doubt - what an exporter may have done to a network before it wrote it: batch norms folded
 * into convolutions, equal weights merged.  PyTorch's newer exporter notes the first at its nodes;
 * the rest can only be told as a doubt. */
#include <string.h>

#include "base/util.h"
#include "import/onnx_impl.h"

const char *onnx_file_metadata(const Onnx__NodeProto *n, const char *key)
{
    for (size_t i = 0; i < n->n_metadata_props; i++)
        if (n->metadata_props[i]->key && !strcmp(n->metadata_props[i]->key, key))
            return n->metadata_props[i]->value ? n->metadata_props[i]->value : "";
    return "";
}

void onnx_refuse_folded(struct onnx *o)
{
    const Onnx__GraphProto *g = o->file->model->graph;
    int n = 0;

    for (size_t i = 0; i < g->n_node; i++)
        n += strstr(onnx_file_metadata(g->node[i], "pkg.onnxscript.rewriter.rule_name"),
                    "FuseBatchNorm") != NULL;
    if (n > 0)
        onnx_fail(o, ERR_UNSUPPORTED,
                  "%d of its batch norms were folded into other layers by the exporter, so it "
                  "cannot be trained as it was meant; export the network after net.train() with "
                  "torch.onnx.export(..., dynamo=True, optimize=False)",
                  n);
}

/* The number of convolutions with a bias in a file without batch norms whose nodes do not say
 * whether some were folded. */
static int doubt_convolutions(const Onnx__GraphProto *g)
{
    int n = 0;

    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *node = g->node[i];

        if (!node->op_type || !strcmp(node->op_type, "BatchNormalization") ||
            *onnx_file_metadata(node, "pkg.torch.onnx.fx_node"))
            return 0;
        n += !strcmp(node->op_type, "Conv") && node->n_input > 2 && *node->input[2];
    }
    return n;
}

/* A vector among the weights that two nodes or more read: its name, or NULL. */
static const char *doubt_merged(const struct import_network *n)
{
    const char *name = NULL;
    char *seen = arena_alloc((struct arena *)(uintptr_t)&n->arena, (size_t)n->n_tensors + 1);

    memset(seen, 0, (size_t)n->n_tensors + 1);
    for (int i = 0; i < n->n_nodes; i++)
        for (int a = 0; a < n->node[i].n_args; a++) {
            const struct import_arg *arg = &n->node[i].arg[a];
            const int t = arg->kind == IMPORT_VALUE ? n->value[arg->values[0]].tensor : -1;

            if (t < 0 || n->tensor[t].role != IMPORT_PARAMETER || n->tensor[t].n_dims != 1)
                continue;
            name = seen[t] ? n->tensor[t].name : name;
            seen[t] = 1;
        }
    return name;
}

void onnx_doubt(const struct onnx_file *f, struct import_network *n)
{
    const char *merged = doubt_merged(n);
    const int folded = doubt_convolutions(f->model->graph);

    if (folded > 0)
        n->doubt = arena_printf(
            &n->arena,
            "%s has %d convolutions with a bias and no batch norm: if the network has batch norms, "
            "the exporter folded them, and it would train without them; then export it after "
            "net.train() with torch.onnx.export(..., dynamo=True, optimize=False)",
            n->path, folded);
    else if (merged)
        n->doubt = arena_printf(
            &n->arena,
            "%s: several nodes read %s, which they would train as one: if the network does not "
            "share it, the exporter merged equal weights; then export it with "
            "torch.onnx.export(..., dynamo=True, optimize=False)",
            n->path, merged);
}
