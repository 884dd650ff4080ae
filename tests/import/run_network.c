/* run_network - a foreign network on files of numbers, for comparisons with PyTorch:
 *
 *     run_network NETWORK DIR BATCH      run a training step's forward and backward pass
 *     run_network --check NETWORK        make it for two batch sizes, and differentiate it
 *     run_network --forward NETWORK DIR BATCH    run it in evaluation, for all of its outputs
 *
 * NETWORK is text (text_network.h), or a file whose name ends in .pt2 or .onnx.
 * DIR/TENSOR has the float32 elements of each parameter and running statistic, DIR/input.I those of
 * input I (int32 for integers), images as [N,H,W,C]. DIR/target is a target of the first output's
 * shape: the loss is the mean of squares over samples. Afterwards DIR/output.I, DIR/TENSOR.grad and
 * DIR/TENSOR.next are there. --forward reads no target, writes DIR/output.I alone, and prints a
 * line for each: I, its name, f32 or i32, and its extents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/lower.h"
#include "import/onnx.h"
#include "import/pt2.h"
#include "op/compose.h"
#include "rig.h"
#include "text_network.h"

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void *file_read(const char *dir, const char *name, void *to, size_t n_bytes)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f || fread(to, 1, n_bytes, f) != n_bytes)
        die(path);
    fclose(f);
    return to;
}

static void file_write(const char *dir, const char *name, const char *end, const void *from,
                       size_t n_bytes)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s%s", dir, name, end);
    f = fopen(path, "wb");
    if (!f || fwrite(from, 1, n_bytes, f) != n_bytes || fclose(f))
        die(path);
}

static struct import_network *load(const char *path)
{
    struct buf text = {0};
    FILE *f = fopen(path, "rb");
    char part[65536];
    struct import_network *n;
    size_t got;

    if (!f)
        die(path);
    if (onnx_is_name(path)) {
        if (onnx_read(path, &n, &rig_err) < 0)
            die(rig_err.msg);
        fclose(f);
        return n;
    }
    if (strlen(path) > 4 && !strcmp(path + strlen(path) - 4, ".pt2")) {
        rig_must(pt2_read(path, &n, &rig_err));
        fclose(f);
        return n;
    }
    while ((got = fread(part, 1, sizeof part, f)) > 0)
        buf_append(&text, part, got);
    fclose(f);
    n = text_network(buf_cstr(&text));
    buf_fini(&text);
    return n;
}

static int is_whole(enum import_type t) { return t >= IMPORT_I64; }

/* The inputs of the network, images as [N,H,W,C]. */
static void add_inputs(struct graph *g, const struct import_network *n, int *input)
{
    for (int i = 0; i < n->n_inputs; i++) {
        const struct import_value *v = &n->value[n->input[i].value];
        struct shape s = {.n = v->n_dims};

        for (int d = 0; d < v->n_dims; d++)
            s.dim[d] = v->dim[v->n_dims == 4 ? (const int[]){0, 2, 3, 1}[d] : d];
        s.dim[0] = g->batch;
        input[i] = graph_input(g, is_whole(v->type) ? DTYPE_I32 : DTYPE_F32, s, n->input[i].name);
    }
}

/* Of y as a row for each sample. */
static void add_loss(struct graph *g, int y)
{
    const union node_attr attr = {.loss.pointwise = POINTWISE_SQUARED};
    struct compose c = {.g = g, .name = "rows", .err = &rig_err};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT}, target;

    y = compose_reshape(&c, y, SHAPE(g->batch, shape_elements(&g->value[y].shape) / g->batch));
    rig_must(c.rc);
    target = graph_input(g, DTYPE_F32, g->value[y].shape, "target");
    g->logits = y;
    rig_must(graph_node(g, OP_pointwise_loss, &attr, (int[]){y, target, g->metrics}, 3, out, "loss",
                        &rig_err));
    import_freeze_unused(g, &y, 1);
}

static int freezes_all(const void *of, const char *name)
{
    (void)of;
    (void)name;
    return 1;
}

static struct graph *build(const struct import_network *n, int64_t batch, int training,
                           int *outputs)
{
    struct graph *g = graph_new(batch, training);
    struct net m = {.g = g, .h = NO_VALUE, .err = &rig_err};
    int input[GRAPH_MAX_INPUTS];
    const struct import_choices c = {
        .input = input, .dropout = -1, .is_frozen = training ? NULL : freezes_all};

    add_inputs(g, n, input);
    if (import_lower(&m, n, &c, outputs) < 0)
        die(rig_err.msg);
    return g;
}

static int check(const struct import_network *n)
{
    struct buf missing = {0};
    int *outputs = xcalloc((size_t)n->n_outputs + 1, sizeof *outputs);
    struct graph *g[2];

    if (import_check(n, &missing) > 0)
        die(buf_cstr(&missing));
    for (int i = 0; i < 2; i++)
        g[i] = build(n, i ? 5 : 3, 1, outputs);
    if (import_same_but_batch(g[0], g[1], &rig_err) < 0)
        die(rig_err.msg);
    graph_free(g[0]);
    add_loss(g[1], outputs[0]);
    if (program_differentiate(g[1], &rig_err) < 0)
        die(rig_err.msg);
    printf("ok %d nodes\n", g[1]->n_forward);
    graph_free(g[1]);
    graph_free(build(n, 0, 1, outputs));
    graph_free(build(n, 4, 0, outputs));
    free(outputs);
    return 0;
}

static void fill(struct rig *r, const struct graph *g, const char *dir, int has_target)
{
    char name[64];

    for (int i = 0; i < r->layout->n_params; i++) {
        const struct segment *s = &r->layout->param[i];

        file_read(dir, s->name, (float *)r->spaces.param + s->offset, (size_t)s->length * 4);
    }
    for (int i = 0; i < r->layout->n_states; i++)
        file_read(dir, r->layout->state[i].name,
                  (float *)r->spaces.state + r->layout->state[i].offset,
                  (size_t)r->layout->state[i].length * 4);
    for (int i = 0; i < g->n_inputs; i++) {
        snprintf(name, sizeof name, has_target && i == g->n_inputs - 1 ? "target" : "input.%d", i);
        file_read(dir, name, program_input(r->program, i),
                  (size_t)shape_elements(&g->value[g->input[i]].shape) * 4);
    }
}

/* An output of the network, which the program has run. */
static void write_output(const struct rig *r, const struct graph *g, int value, int i,
                         const char *name, const char *dir)
{
    const struct shape *s = &g->value[value].shape;
    const int is_whole = g->value[value].dtype == DTYPE_I32;
    char file[32], part[32];

    snprintf(part, sizeof part, "out%d", i);
    snprintf(file, sizeof file, "output.%d", i);
    file_write(dir, file, "", program_output(r->program, part, NULL),
               (size_t)shape_elements(s) * 4);
    printf("%d %s %s", i, name, is_whole ? "i32" : "f32");
    for (int d = 0; d < s->n; d++)
        printf(" %lld", (long long)s->dim[d]);
    printf("\n");
}

static int forward(const struct import_network *n, const char *dir, int64_t batch)
{
    int *outputs = xcalloc((size_t)n->n_outputs + 1, sizeof *outputs);
    struct graph *g = build(n, batch, 0, outputs);
    struct backend *b;
    struct rig r;
    char part[32];

    for (int i = 0; i < n->n_outputs; i++) {
        snprintf(part, sizeof part, "out%d", i);
        if (outputs[i] != NO_VALUE)
            graph_output(g, outputs[i], arena_strdup(&g->arena, part));
    }
    rig_must(backend_open_cpu(1, &b, &rig_err));
    rig_open_on(&r, b, g, NULL);
    fill(&r, g, dir, 0);
    for (int i = 0; i < program_n_stages(r.program); i++)
        rig_must(program_run_stage(r.program, i, &rig_err));
    for (int i = 0; i < n->n_outputs; i++)
        if (outputs[i] != NO_VALUE)
            write_output(&r, g, outputs[i], i, n->output[i].name, dir);
    rig_close(&r);
    free(outputs);
    return 0;
}

int main(int argc, char **argv)
{
    int outputs[64];
    struct import_network *n;
    struct backend *b;
    struct graph *g;
    struct rig r;

    if (argc == 3 && !strcmp(argv[1], "--check"))
        return check(load(argv[2]));
    if (argc == 5 && !strcmp(argv[1], "--forward"))
        return forward(load(argv[2]), argv[3], atoll(argv[4]));
    if (argc != 4)
        die("usage: run_network NETWORK DIR BATCH");
    n = load(argv[1]);
    g = build(n, atoll(argv[3]), 1, outputs);
    add_loss(g, outputs[0]);
    graph_output(g, outputs[0], "first");
    rig_must(program_differentiate(g, &rig_err));
    rig_must(backend_open_cpu(1, &b, &rig_err));
    rig_open_on(&r, b, g, NULL);
    fill(&r, g, argv[2], 1);
    for (int i = 0; i < program_n_stages(r.program); i++)
        rig_must(program_run_stage(r.program, i, &rig_err));
    file_write(argv[2], "output.0", "", program_output(r.program, "first", NULL),
               (size_t)shape_elements(&g->value[outputs[0]].shape) * 4);
    for (int i = 0; i < r.layout->n_params; i++)
        if (!graph_find(g, r.layout->param[i].name)->info->frozen)
            file_write(argv[2], r.layout->param[i].name, ".grad",
                       (float *)r.spaces.grad + r.layout->param[i].offset,
                       (size_t)r.layout->param[i].length * 4);
    for (int i = 0; i < r.layout->n_states; i++)
        file_write(argv[2], r.layout->state[i].name, ".next",
                   (float *)r.spaces.shadow + r.layout->state[i].offset,
                   (size_t)r.layout->state[i].length * 4);
    rig_close(&r);
    import_network_free(n);
    return 0;
}
