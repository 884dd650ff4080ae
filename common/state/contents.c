/* contents - lists a state's tensors by the files of a checkpoint.
 *
 * One rank (snapshot.c) or all ranks (part.c) write a checkpoint by these lists, so the files are
 * the same. */
#include "state/contents.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/lower.h"
#include "model/lora.h"
#include "state/loop.h"

static const char running_mean[] = "running_mean";
const char contents_count[] = "num_batches_tracked";

/* The places of struct contents' lists. */
enum { OF_MODEL, OF_OPTIMIZER, OF_AVERAGE, OF_ADAPTER };

size_t contents_tracked(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && !strcmp(dot + 1, running_mean) ? (size_t)(dot + 1 - name) : 0;
}

char *contents_name(const struct slot_def *d, const char *base)
{
    return xasprintf("%s%s", base, d->file == SLOT_IN_AVERAGE ? "" : d->suffix);
}

static void contents_add(struct contents *c, int file, struct st_tensor tensor,
                         struct contents_source from)
{
    ASSERT(from.slot == CONTENTS_COUNT || tensor.name);
    ASSERT(c->n[file] < c->most);
    c->tensor[file][c->n[file]] = tensor;
    c->source[file][c->n[file]++] = from;
}

/* A tensor of the model's file or of the average's, and the count that belongs to it. */
static void add_of_model(struct contents *c, int file, struct st_tensor tensor,
                         struct contents_source from)
{
    const int len = (int)contents_tracked(tensor.name);

    contents_add(c, file, tensor, from);
    if (len)
        contents_add(c, file,
                     (struct st_tensor){.name = arena_printf(&c->memory, "%.*s%s", len, tensor.name,
                                                             contents_count),
                                        .dtype = DTYPE_I64},
                     (struct contents_source){.slot = CONTENTS_COUNT});
}

/* A tensor of the model's file, under PEFT's name, in a file of its own. */
static void contents_add_adapter(struct contents *c, struct st_tensor tensor,
                                 struct contents_source from)
{
    tensor.name = arena_printf(&c->memory, LORA_PREFIX "%s", tensor.name);
    contents_add(c, OF_ADAPTER, tensor, from);
}

static const struct slot_def *of_average(const struct state *s, enum slot_scope scope)
{
    for (int k = 0; k < s->n_slots; k++)
        if (s->slot[k].def->file == SLOT_IN_AVERAGE && s->slot[k].def->scope == scope)
            return s->slot[k].def;
    return NULL;
}

/* The file with averaged weights has the rest of the model, too: frozen parameters, and statistics
 * if the average has none of its own. */
static int is_beside_average(const struct state *s, const struct slot_def *d, int i)
{
    const struct slot_def *average = of_average(s, SLOT_PER_TRAINED);

    if (d->scope == SLOT_PER_STATISTIC)
        return average && !of_average(s, SLOT_PER_STATISTIC);
    return average && i >= slot_n_tensors(s->layout, average);
}

/* Append the k-th slot's tensors to the lists of its files. */
static void contents_add_slot(struct contents *c, const struct state *s, int k)
{
    const struct slot_def *d = s->slot[k].def;

    for (int i = 0; i < slot_n_tensors(s->layout, d); i++) {
        const struct slot_tensor t = slot_tensor(s->layout, d, i);
        char *name = contents_name(d, t.base);
        const struct st_tensor tensor = {
            .name = arena_strdup(&c->memory, name), .dtype = d->dtype, .shape = t.shape};
        const struct contents_source from = {k, t.at};

        free(name);
        if (d->file == SLOT_IN_OPTIMIZER)
            contents_add(c, OF_OPTIMIZER, tensor, from);
        if (d->file == SLOT_IN_MODEL)
            add_of_model(c, OF_MODEL, tensor, from);
        if (d->file == SLOT_IN_MODEL && lora_is_name(tensor.name))
            contents_add_adapter(c, tensor, from);
        if (d->file == SLOT_IN_AVERAGE || (d->file == SLOT_IN_MODEL && is_beside_average(s, d, i)))
            add_of_model(c, OF_AVERAGE, tensor, from);
    }
}

/* ---- imported networks ---- */

/* A tensor of a file, by its name. */
struct contents_place {
    const char *name;
    int at;
};

static int contents_by_name(const void *a, const void *b)
{
    return strcmp(((const struct contents_place *)a)->name,
                  ((const struct contents_place *)b)->name);
}

/* For each tensor of the network its place in the file, -1: it is not there.  To be freed. */
static int *contents_places(const struct contents *c, int file, const struct import_network *n)
{
    struct contents_place *place = xcalloc((size_t)c->n[file] + 1, sizeof *place);
    int *at = xcalloc((size_t)n->n_tensors + 1, sizeof *at);
    size_t n_places = 0;

    for (int i = 0; i < c->n[file]; i++)
        place[n_places++] = (struct contents_place){c->tensor[file][i].name, i};
    qsort(place, n_places, sizeof *place, contents_by_name);
    for (int i = 0; i < n->n_tensors; i++) {
        const struct contents_place like = {n->tensor[i].name, 0},
                                    *found = bsearch(&like, place, n_places, sizeof *place,
                                                     contents_by_name);

        at[i] = found ? found->at : -1;
    }
    free(place);
    return at;
}

/* A second name of tied weights, which PyTorch's state dict has, too. */
static void contents_add_tied(struct contents *c, int file, const struct import_tensor *tied,
                              int first)
{
    struct st_tensor t;

    if (first < 0)
        return;
    t = c->tensor[file][first];
    t.name = arena_strdup(&c->memory, tied->name);
    contents_add(c, file, t, c->source[file][first]);
}

/* Returns its place in the file, -1: the file cannot hold it. */
static int contents_add_kept(struct contents *c, int file, const struct import_tensor *t)
{
    struct st_tensor to = {.name = arena_strdup(&c->memory, t->name), .shape = {.n = t->n_dims}};

    if (!t->bytes)
        return -1;
    to.dtype = import_dtype(t->type);
    to.data = t->bytes;
    memcpy(to.shape.dim, t->dim, (size_t)t->n_dims * sizeof *t->dim);
    contents_add(c, file, to, (struct contents_source){.slot = CONTENTS_KEPT, .kept = t->bytes});
    return c->n[file] - 1;
}

/* Append what the state dict of an imported network has besides the slots' tensors. */
static void contents_add_imported(struct contents *c, int file, const struct import_network *n)
{
    int *at = contents_places(c, file, n);
    char *is_kept = import_kept(n);

    for (int i = 0; i < n->n_tensors; i++)
        if (n->tensor[i].same_as >= 0 && n->tensor[i].role != IMPORT_CONSTANT)
            contents_add_tied(c, file, &n->tensor[i], at[n->tensor[i].same_as]);
        else if (is_kept[i] && at[i] < 0)
            at[i] = contents_add_kept(c, file, &n->tensor[i]);
    free(at);
    free(is_kept);
}

/* The folder that the network came from; NULL: it came from a file, or there is none. */
static const char *contents_beside(struct contents *c, const struct state *s)
{
    return s->network && s->network->config ? arena_strdup(&c->memory, s->network->path) : NULL;
}

void contents_init(struct contents *c, const struct state *s)
{
    size_t n = s->network ? 1 + (size_t)s->network->n_tensors : 1;

    *c = (struct contents){0};
    for (int k = 0; k < s->n_slots; k++) /* with room for a count beside each tensor */
        n += 2 * (size_t)slot_n_tensors(s->layout, s->slot[k].def);
    c->most = (int)n;
    for (int f = 0; f < CONTENTS_FILES; f++) {
        c->tensor[f] = arena_alloc(&c->memory, n * sizeof *c->tensor[f]);
        c->source[f] = arena_alloc(&c->memory, n * sizeof *c->source[f]);
    }
    for (int k = 0; k < s->n_slots; k++)
        if (slot_is_saved(s->slot[k].def))
            contents_add_slot(c, s, k);
    if (s->network) {
        contents_add_imported(c, OF_MODEL, s->network);
        if (c->n[OF_AVERAGE])
            contents_add_imported(c, OF_AVERAGE, s->network);
    }
    c->files = (struct ckpt_content){
        .beside = contents_beside(c, s),
        .model = c->tensor[OF_MODEL],
        .n_model = c->n[OF_MODEL],
        .optimizer = c->tensor[OF_OPTIMIZER],
        .n_optimizer = c->n[OF_OPTIMIZER],
        .average = c->tensor[OF_AVERAGE],
        .n_average = c->n[OF_AVERAGE],
        .adapter = c->tensor[OF_ADAPTER],
        .n_adapter = c->n[OF_ADAPTER],
        .class_names = s->class_names ? arena_strdup(&c->memory, s->class_names) : NULL,
        .config = s->config ? arena_strdup(&c->memory, s->config) : NULL,
        .adapter_config = s->adapter_config ? arena_strdup(&c->memory, s->adapter_config) : NULL};
}

int64_t contents_bytes(const struct contents *c)
{
    int64_t n = 0;

    for (int f = 0; f < CONTENTS_FILES; f++)
        for (int i = 0; i < c->n[f]; i++)
            n += (int64_t)st_bytes(&c->tensor[f][i]);
    return n;
}

void contents_fini(struct contents *c) { arena_fini(&c->memory); }

int contents_set_state(struct contents *c, const struct state *s, int n_ranks, struct err *err)
{
    double loop[LOOP_LEN];
    const void *from = state_data(s, &slot_loop);

    c->files.state = s->at;
    c->files.state.n_ranks = n_ranks;
    c->files.back_to = ckpt_plan_newest(&s->plan, s->at.step);
    if (!from)
        return 0;
    if (backend_copy_out(s->backend, loop, from, sizeof loop, err) < 0)
        return err->code;
    c->files.n_best = loop_best(loop, c->files.best);
    ASSERT(c->files.n_best >= 0 && c->files.n_best <= CKPT_MOST_BEST);
    return 0;
}
