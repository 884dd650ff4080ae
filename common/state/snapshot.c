/* snapshot - the state as a checkpoint holds it: copied to host memory and written, or read back
 * from the files. */
#include "state/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "import/network.h"
#include "state/contents.h"
#include "state/shards.h"

/* ---- writing ---- */

/* The files' tensors point into `bytes`, or into the state's own memory. */
struct snapshot {
    const struct state *state;
    char *bytes; /* the saved slots, one after another; or NULL */
    struct contents contents;
};

enum { SLOT_ALIGN = 64 };

int snapshot_borrows_frozen(const struct state *s)
{
    return s->layout->n_trained < s->layout->n_total && !backend_queues(s->backend);
}

/* The first bytes of a slot that a snapshot copies: all of them, but no frozen parameters of the
 * host's memory. */
static size_t snapshot_copied(const struct state *s, const struct slot *slot)
{
    if (!slot_is_saved(slot->def))
        return 0;
    if (slot->def == &slot_parameters && snapshot_borrows_frozen(s))
        return dtype_size(slot->def->dtype) * (size_t)s->layout->n_trained;
    return slot->n_bytes;
}

static size_t snapshot_room_of(const struct state *s, const struct slot *slot)
{
    return (snapshot_copied(s, slot) + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static size_t snapshot_place_of(const struct state *s, int slot)
{
    size_t at = 0;

    for (int k = 0; k < slot; k++)
        at += snapshot_room_of(s, &s->slot[k]);
    return at;
}

/* Where the files find byte `at` of a slot. */
static const char *snapshot_slot_at(const struct snapshot *p, int slot, size_t at, int is_borrowed)
{
    const struct slot *of = &p->state->slot[slot];

    if (is_borrowed || at >= snapshot_copied(p->state, of))
        return (const char *)of->data + at;
    return p->bytes + snapshot_place_of(p->state, slot) + at;
}

static void point_tensors(struct snapshot *p, int is_borrowed)
{
    struct contents *c = &p->contents;

    for (int f = 0; f < CONTENTS_FILES; f++)
        for (int i = 0; i < c->n[f]; i++) {
            const struct contents_source *from = &c->source[f][i];

            c->tensor[f][i].data = from->slot == CONTENTS_KEPT ? from->kept
                                   : from->slot == CONTENTS_COUNT
                                       ? (const void *)&c->files.state.n_updates
                                       : snapshot_slot_at(p, from->slot, from->at, is_borrowed);
        }
}

/* The memory is written at once, because memory of try_alloc takes its pages when it is written. So
 * a machine without room for the copy shows that as the run starts, not at the first checkpoint. */
static int snapshot_make_room(struct snapshot *p, struct err *err)
{
    const size_t n_bytes = snapshot_place_of(p->state, p->state->n_slots);

    if (p->bytes)
        return 0;
    if (try_alloc((void **)&p->bytes, n_bytes, "a copy of the training state", err) < 0)
        return err_wrap(err, "checkpoints");
    memset(p->bytes, 0, n_bytes);
    return 0;
}

int snapshot_new(const struct state *s, int has_room, struct snapshot **out, struct err *err)
{
    struct snapshot *p = xcalloc(1, sizeof *p);

    p->state = s;
    contents_init(&p->contents, s);
    if (has_room && !s->shards && snapshot_make_room(p, err) < 0) {
        snapshot_free(p);
        return err->code;
    }
    *out = p;
    return 0;
}

void snapshot_free(struct snapshot *p)
{
    if (!p)
        return;
    contents_fini(&p->contents);
    free(p->bytes);
    free(p);
}

/* 1: the slot is large.  Such slots change in updates alone, and in what comes between epochs. */
static int snapshot_can_wait(const struct slot *slot)
{
    return slot->def->scope == SLOT_PER_PARAMETER || slot->def->scope == SLOT_PER_TRAINED;
}

static int snapshot_copy_slot(struct snapshot *p, int k, struct err *err)
{
    const struct state *s = p->state;

    return backend_copy_out(s->backend, p->bytes + snapshot_place_of(s, k), s->slot[k].data,
                            snapshot_copied(s, &s->slot[k]), err);
}

static int snapshot_take_part(struct snapshot *p, const struct state *s, int n_ranks, int is_first,
                              struct err *err)
{
    int rc = snapshot_make_room(p, err);

    ASSERT(p->state == s);
    ASSERT(!s->shards || s->shards->now.size == 1); /* this rank holds all of it */
    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (slot_is_saved(s->slot[k].def) && !(is_first && snapshot_can_wait(&s->slot[k])))
            rc = snapshot_copy_slot(p, k, err);
    point_tensors(p, 0);
    return rc == 0 ? contents_set_state(&p->contents, s, n_ranks, err) : rc;
}

int snapshot_take(struct snapshot *p, const struct state *s, int n_ranks, struct err *err)
{
    return snapshot_take_part(p, s, n_ranks, 0, err);
}

int snapshot_take_first(struct snapshot *p, const struct state *s, int n_ranks, struct err *err)
{
    ASSERT(!backend_queues(s->backend));
    return snapshot_take_part(p, s, n_ranks, 1, err);
}

void snapshot_take_rest(struct snapshot *p)
{
    const struct state *s = p->state;

    for (int k = 0; k < s->n_slots; k++)
        if (slot_is_saved(s->slot[k].def) && snapshot_can_wait(&s->slot[k]))
            memcpy(p->bytes + snapshot_place_of(s, k), s->slot[k].data,
                   snapshot_copied(s, &s->slot[k]));
}

int snapshot_borrow(struct snapshot *p, const struct state *s, int n_ranks, struct err *err)
{
    if (backend_queues(s->backend)) /* its memory is a device's */
        return snapshot_take(p, s, n_ranks, err);
    ASSERT(p->state == s);
    ASSERT(!s->shards || s->shards->now.size == 1); /* this rank holds all of it */
    point_tensors(p, 1);
    return contents_set_state(&p->contents, s, n_ranks, err);
}

int snapshot_save(const struct snapshot *p, const char *run_dir, int keep,
                  const struct ckpt_told *told, char **path, struct err *err)
{
    const int rc = ckpt_check_run_dir(run_dir, err);
    struct ckpt_content files = p->contents.files;

    ASSERT(files.state.n_ranks > 0); /* one was taken */
    files.told = *told;
    return rc < 0 ? rc : ckpt_save(run_dir, &files, keep, path, err);
}

/* ---- reading ---- */

/* A file that slots are taken from. */
struct source {
    const struct st_file *file;
    const char *path; /* for messages */
};

/* Find f's tensor `name`, which must have the type and the shape that the slot wants. */
static int find_tensor(const struct source *f, const char *name, const struct slot_def *d,
                       const struct slot_tensor *want, const struct st_tensor **out,
                       struct err *err)
{
    const struct st_tensor *t = f->file ? st_find(f->file, name) : NULL;
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];

    if (!t)
        return err_set(err, ERR_CONFIG, "%s: no tensor \"%s\", which this model has", f->path,
                       name);
    if (t->dtype != d->dtype || !shape_equal(&t->shape, &want->shape))
        return err_set(err, ERR_CONFIG, "%s: tensor \"%s\" is %s %s, this model wants %s %s",
                       f->path, name, dtype_name(t->dtype), shape_text(&t->shape, seen),
                       dtype_name(d->dtype), shape_text(&want->shape, wanted));
    *out = t;
    return 0;
}

/* Copy n_bytes of the file's tensor to `to`, which is the backend's memory: block by block, so that
 * a large tensor needs no second copy of itself. */
static int copy_tensor(struct state *s, const struct st_file *f, const struct st_tensor *t,
                       char *to, size_t n_bytes, struct err *err)
{
    enum { BLOCK = 1 << 20 };
    char *block = xmalloc(BLOCK);
    int rc = 0;

    for (size_t at = 0; at < n_bytes && rc == 0; at += BLOCK) {
        size_t n = n_bytes - at < BLOCK ? n_bytes - at : BLOCK;

        rc = st_read(f, t, at, block, n, err);
        if (rc == 0)
            rc = backend_copy_in(s->backend, to + at, block, n, err);
    }
    free(block);
    return rc;
}

/* 1: the file lacks the slot, and may do so. */
static int snapshot_is_missing(const struct state *s, const struct slot_def *d,
                               const struct st_file *f)
{
    char *name;
    int is;

    if (!d->may_be_missing || slot_n_tensors(s->layout, d) == 0)
        return 0;
    name = contents_name(d, slot_tensor(s->layout, d, 0).base);
    is = !f || !st_find(f, name);
    free(name);
    return is;
}

/* Check the slot's tensors; with `copies`, take them. */
static int snapshot_take_slot(struct state *s, const struct slot *slot, const struct source *f,
                              int copies, struct err *err)
{
    int rc = 0;

    ASSERT(!copies || slot->data ||
           !slot->n_bytes); /* a rank that loads holds the whole of each slot */
    if (snapshot_is_missing(s, slot->def, f->file))
        return copies ? backend_zero(s->backend, slot->data, slot->n_bytes, err) : 0;
    for (int i = 0; i < slot_n_tensors(s->layout, slot->def) && rc == 0; i++) {
        const struct slot_tensor want = slot_tensor(s->layout, slot->def, i);
        char *name = contents_name(slot->def, want.base);
        const struct st_tensor *t = NULL;

        rc = find_tensor(f, name, slot->def, &want, &t, err);
        if (rc == 0 && copies)
            rc = copy_tensor(s, f->file, t, (char *)slot->data + want.at, want.n_bytes, err);
        free(name);
    }
    return rc;
}

static int take_slots(struct state *s, enum slot_file file, const struct source *f, int copies,
                      struct err *err)
{
    int rc = 0;

    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (slot_is_saved(s->slot[k].def) && s->slot[k].def->file == file)
            rc = snapshot_take_slot(s, &s->slot[k], f, copies, err);
    return rc;
}

static int is_name_of(const struct slot_tensor *t, const char *suffix, const char *name)
{
    const size_t n = strlen(t->base);

    return !strncmp(name, t->base, n) && !strcmp(name + n, suffix);
}

/* "bn1.num_batches_tracked" of the running mean `t`. */
static int is_count_of(const struct slot_tensor *t, const char *name)
{
    const size_t n = contents_tracked(t->base);

    return n && !strncmp(name, t->base, n) && !strcmp(name + n, contents_count);
}

/* A tensor of the imported network's state dict. */
static int is_of_network(const struct import_network *n, const char *name)
{
    for (int i = 0; n && i < n->n_tensors; i++)
        if (n->tensor[i].role != IMPORT_CONSTANT && !strcmp(n->tensor[i].name, name))
            return 1;
    return 0;
}

int state_knows(const struct state *s, const char *name)
{
    if (is_of_network(s->network, name))
        return 1;
    for (int k = 0; k < s->n_slots; k++) {
        const struct slot_def *d = s->slot[k].def;
        const int is_of_model = d->file == SLOT_IN_MODEL || d->file == SLOT_IN_BASE;

        for (int i = 0; is_of_model && i < slot_n_tensors(s->layout, d); i++) {
            const struct slot_tensor t = slot_tensor(s->layout, d, i);

            if (is_name_of(&t, d->suffix, name) || is_count_of(&t, name))
                return 1;
        }
    }
    return 0;
}

/* Refuse a file with a tensor that the model does not have: it probably is the wrong file. */
static int refuse_strangers(const struct state *s, const struct source *f, struct err *err)
{
    for (int i = 0; i < st_count(f->file); i++)
        if (!state_knows(s, st_at(f->file, i)->name))
            return err_set(err, ERR_CONFIG, "%s: tensor \"%s\" is not part of this model", f->path,
                           st_at(f->file, i)->name);
    return 0;
}

/* Take the slots of the model's file; `path` names it in messages. */
static int load_model(struct state *s, const struct st_file *file, const char *path,
                      struct err *err)
{
    const struct source f = {file, path};
    int rc = refuse_strangers(s, &f, err);

    if (rc == 0)
        rc = take_slots(s, SLOT_IN_MODEL, &f, 0, err);
    return rc == 0 ? take_slots(s, SLOT_IN_MODEL, &f, 1, err) : rc;
}

int state_load(struct state *s, const struct ckpt *c, struct err *err)
{
    const struct source optimizer = {c->optimizer, "optimizer.safetensors"};
    const struct source average = {c->average, "model_average.safetensors"};
    int rc = take_slots(s, SLOT_IN_OPTIMIZER, &optimizer, 0, err);

    if (rc == 0)
        rc = take_slots(s, SLOT_IN_AVERAGE, &average, 0, err);
    if (rc == 0)
        rc = load_model(s, c->model, "model.safetensors", err);
    if (rc == 0)
        rc = take_slots(s, SLOT_IN_OPTIMIZER, &optimizer, 1, err);
    if (rc == 0)
        rc = take_slots(s, SLOT_IN_AVERAGE, &average, 1, err);
    if (rc == 0)
        s->at = c->state;
    return rc < 0 ? err_wrap(err, "%s", c->path) : 0;
}

/* ---- what another strategy left ---- */

/* The end of a tensor's name that tells its slot: ".exp_avg"; the whole name if it has no dot. */
static const char *snapshot_kind_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot : name;
}

static int snapshot_has_kind(const struct state *s, const char *kind)
{
    for (int k = 0; k < s->n_slots; k++)
        if (s->slot[k].def->file == SLOT_IN_OPTIMIZER && !strcmp(s->slot[k].def->suffix, kind))
            return 1;
    return 0;
}

static void snapshot_append(struct buf *list, const char *name)
{
    buf_printf(list, "%s%s", list->len ? ", " : "", name);
}

void state_list_dropped(const struct state *s, const struct ckpt *c, struct buf *names)
{
    const char *told[STATE_MAX_SLOTS];
    int n = 0;

    for (int i = 0; i < st_count(c->optimizer) && n < STATE_MAX_SLOTS; i++) {
        const char *kind = snapshot_kind_of(st_at(c->optimizer, i)->name);
        int k = 0;

        while (k < n && strcmp(told[k], kind) != 0)
            k++;
        if (k < n || snapshot_has_kind(s, kind))
            continue;
        told[n++] = kind;
        snapshot_append(names, kind + (*kind == '.'));
    }
}

/* 1: the file has one of the slots that may be missing.  Then it is a file of the present strategy,
 * and slots that it lacks are younger than the version that wrote it. */
static int has_some(const struct state *s, const struct st_file *f)
{
    int k = 0;

    while (k < s->n_slots &&
           (!s->slot[k].def->may_be_missing || snapshot_is_missing(s, s->slot[k].def, f)))
        k++;
    return k < s->n_slots;
}

void state_list_begun(const struct state *s, const struct ckpt *c, struct buf *names)
{
    if (has_some(s, c->optimizer))
        return;
    for (int k = 0; k < s->n_slots; k++)
        if (snapshot_is_missing(s, s->slot[k].def, c->optimizer))
            snapshot_append(names, s->slot[k].def->name);
}

int state_load_weights(struct state *s, const struct ckpt *c, int averaged, struct err *err)
{
    const struct source average = {c->average, "model_average.safetensors"};
    int rc;

    if (averaged && !c->average)
        return err_set(err, ERR_CONFIG,
                       "%s: it has no averaged weights, because its run had no train.average; want "
                       "--weights trained",
                       c->path);
    rc = averaged ? load_model(s, c->average, average.path, err)
                  : load_model(s, c->model, "model.safetensors", err);
    if (rc == 0)
        rc = take_slots(s, SLOT_IN_AVERAGE, &average, 1, err);
    return rc < 0 ? err_wrap(err, "%s", c->path) : 0;
}
