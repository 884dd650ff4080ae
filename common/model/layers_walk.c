/* layers_walk - walks a list of layers.
 *
 * An item of the list is a layer: a word, "relu", or a mapping from the word to the layer's keys,
 * {conv: {channels: 20, kernel: 3}}, or to the first key's value, {linear: 10}.  Parameters are
 * named as torch.nn.Sequential names them, by the place of the item in its list: "0.weight".
 *
 *     save: NAME       gives the value so far a name, by itself or beside a layer
 *     from: NAME       goes on from the value with this name, by itself or beside a layer
 *     input: FIELD     goes on from an input of the network; the word alone is the first one
 *     residual: [..]   computes x + (these)(x); their names are "3.0.weight".  The layers of a
 *                      shortcut, which x goes through first, stand under "3.shortcut"
 *     repeat: 4        with layers: [..] the same layers so many times, each with its own
 *                      parameters, "3.0.1.weight": item 3, first time, layer 1
 *
 * A name is seen from where it is saved to the end of the list, also in the lists within; one that
 * is saved within `repeat` ends with its turn.  A residual is a block for train.recompute, and so
 * is a turn of `repeat`.
 *
 * The check of the job file and the building walk the list alike; only the first has no network. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "model/layers_impl.h"

enum { MOST_NAMES = 256, MOST_LAYERS = 4096, MOST_TURNS = 1000 };

/* A value with a name. */
struct saved {
    const char *name;
    const struct tree *by; /* where it was saved */
    int value;             /* h, and its length, of the network */
    int64_t length;
    int is_used;
};

struct walk {
    struct reading r;
    struct net *m;       /* NULL: the list is only checked */
    struct buf *outline; /* gets a line for each layer; NULL: none is wanted */
    struct saved *saved; /* [MOST_NAMES] */
    int n_saved, n_shown;
    int64_t turns, n_layers; /* of the lists around; layers so far, each as often as it is built */
};

/* An item's parts, by their words; NULL: absent. */
struct item {
    const struct tree *word, *args; /* the layer */
    const struct tree *save, *from, *input, *residual, *shortcut, *repeat, *layers;
};

static int walk_list(struct walk *w, const struct tree *list, const char *prefix);

static const char *layers_name_of(const struct walk *w, const char *prefix, const char *name)
{
    return arena_printf(w->r.arena, "%s%s", prefix, name);
}

/* ---- names ---- */

static struct saved *find_saved(const struct walk *w, const char *name)
{
    for (int i = w->n_saved - 1; i >= 0; i--)
        if (!strcmp(w->saved[i].name, name))
            return &w->saved[i];
    return NULL;
}

static int save_as(struct walk *w, const struct tree *by, const char *name, int value,
                   int64_t length)
{
    if (find_saved(w, name))
        return layers_fail(&w->r, by, "\"%s\" is saved twice; want another name", name);
    if (w->n_saved == MOST_NAMES)
        return layers_fail(&w->r, by, "more than %d saved values", MOST_NAMES);
    w->saved[w->n_saved++] = (struct saved){name, by, value, length, 0};
    return 0;
}

/* The value `name`, which is read here. */
static int use_saved(struct walk *w, const struct tree *at, const char *name, struct saved **out)
{
    struct buf known = {0};
    int rc;

    *out = find_saved(w, name);
    if (*out) {
        (*out)->is_used = 1;
        return 0;
    }
    for (int i = 0; i < w->n_saved; i++)
        buf_printf(&known, "%s%s", i ? ", " : "", w->saved[i].name);
    rc = layers_fail(&w->r, at, "no value \"%s\" is saved before this layer, want %s%s", name,
                     w->n_saved ? "one of " : "save: NAME before it",
                     w->n_saved ? buf_cstr(&known) : "");
    buf_fini(&known);
    return rc;
}

/* The names from number n on end here. */
static int end_names(struct walk *w, int n)
{
    for (int i = n; i < w->n_saved; i++)
        if (!w->saved[i].is_used)
            return layers_fail(&w->r, w->saved[i].by,
                               "no layer reads \"%s\", which is saved here; leave it out",
                               w->saved[i].name);
    w->n_saved = n;
    return 0;
}

static void go_on_from(struct net *m, int value, int64_t length)
{
    m->h = value;
    m->length = length;
}

/* h as sequences, not as rows, of the saved value. */
static int whole_value(struct net *m, const char *name, const struct saved *s)
{
    const int h = m->h;
    const int64_t length = m->length;
    int whole;

    go_on_from(m, s->value, s->length);
    net_unfold(m, layers_name_of(&(struct walk){.r.arena = &m->g->arena}, name, ".saved"));
    whole = m->h;
    go_on_from(m, h, length);
    return whole;
}

/* ---- inputs ---- */

static int input_is_real(const struct net *m) { return m->g->value[m->h].dtype == DTYPE_F32; }

/* h becomes the field; name NULL: the first one. */
int layers_take_input(struct net *m, const char *layer, const char *name)
{
    const int target = sample_target(m->spec);
    struct buf known = {0};

    for (int i = 0; i < m->spec->n_fields && m->rc == 0; i++) {
        if (i == target)
            continue;
        if (!name || !strcmp(name, m->spec->field[i].name)) {
            go_on_from(m, m->g->input[i], 0);
            buf_fini(&known);
            return 0;
        }
        buf_printf(&known, "%s%s", known.len ? ", " : "", m->spec->field[i].name);
    }
    if (m->rc == 0)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "model.layers: %s: the data have no input \"%s\", want one of %s", layer,
                        name, buf_cstr(&known));
    buf_fini(&known);
    return m->rc;
}

/* ---- layers ---- */

/* A line of the outline: the item's number, its word, a sample's shape and the new parameters. */
static void show_layer(struct walk *w, const char *name, const char *word)
{
    const struct graph *g = w->m->g;
    const struct shape *s = &g->value[w->m->h].shape;
    const int64_t length = w->m->length;
    struct shape sample = {0};
    char text[SHAPE_TEXT_LEN];
    int64_t n = 0;

    for (; w->n_shown < g->n_values; w->n_shown++)
        if (g->value[w->n_shown].role == VALUE_PARAM)
            n += shape_elements(&g->value[w->n_shown].shape);
    if (!w->outline)
        return;
    if (length)
        sample.dim[sample.n++] = length;
    for (int d = 1; d < s->n; d++)
        sample.dim[sample.n++] = s->dim[d];
    buf_printf(w->outline, "%-12s %-18s %-16s", name, word, shape_text(&sample, text));
    if (n)
        buf_printf(w->outline, " %12lld", (long long)n);
    buf_printf(w->outline, "\n");
}

/* Read the operands' values. */
static int take_operands(struct walk *w, const struct tree *word, const char *name,
                         struct layer_args *a)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < a->names.n; i++) {
        struct saved *s;

        rc = use_saved(w, word, a->names.v[i], &s);
        if (rc == 0 && w->m)
            a->operand[i] = (struct layer_operand){s->name, whole_value(w->m, name, s)};
    }
    return rc;
}

/* The parts of a layer become values with names; the first is h, so it may go unread. */
static int save_parts(struct walk *w, const struct tree *word, const struct layer_args *a)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < a->names.n; i++) {
        rc = save_as(w, word, a->names.v[i], a->part[i], 0);
        if (rc == 0 && i == 0)
            w->saved[w->n_saved - 1].is_used = 1;
    }
    return rc;
}

static int layers_check_input(struct net *m, const struct layer_kind *k, const char *name)
{
    char text[SHAPE_TEXT_LEN];

    if (m->rc == 0 && !input_is_real(m) && !(k->flags & KIND_INDICES))
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: %s reads %s of whole numbers, want real numbers; put embedding: "
                        "{width: 64} before it",
                        name, k->name, shape_text(&m->g->value[m->h].shape, text));
    return m->rc;
}

static int build_kind(struct walk *w, const struct layer_kind *k, const char *name,
                      const struct layer_args *a)
{
    struct net *m = w->m;

    if (layers_check_input(m, k, name) < 0)
        return m->rc;
    if (k->form == FORM_ROWS)
        net_fold(m, name);
    else if (k->form == FORM_WHOLE)
        net_unfold(m, name);
    if (m->rc == 0 && k->build)
        k->build(m, name, a);
    else
        layer_activation(m, name, k->act);
    return m->rc;
}

static int walk_plain(struct walk *w, const struct tree *word, const struct tree *args,
                      const char *name)
{
    const struct layer_kind *k = NULL;
    struct layer_args a;
    int rc = layers_find_kind(&w->r, word, &k);

    if (rc == 0)
        rc = layers_read_args(&w->r, k, word, args, &a);
    if (rc == 0 && k->flags & KIND_READS)
        rc = take_operands(w, word, name, &a);
    if (rc == 0 && k->flags & KIND_SAVES) {
        a.part = arena_alloc(w->r.arena, sizeof *a.part * (size_t)a.names.n);
        memset(a.part, 0, sizeof *a.part * (size_t)a.names.n);
    }
    if (rc == 0 && w->m)
        rc = build_kind(w, k, name, &a);
    if (rc == 0 && k->flags & KIND_SAVES)
        rc = save_parts(w, word, &a);
    if (rc == 0 && w->m)
        show_layer(w, name, k->name);
    return rc;
}

/* ---- residuals and repetition ---- */

static int walk_branch(struct walk *w, const struct tree *list, const struct saved *x,
                       const char *prefix, struct saved *out)
{
    int rc;

    *out = *x;
    if (!list)
        return 0;
    if (list->kind != TREE_LIST)
        return layers_fail(&w->r, list, "residual and shortcut want a list of layers");
    if (w->m)
        go_on_from(w->m, x->value, x->length);
    rc = walk_list(w, list, prefix);
    if (w->m)
        *out = (struct saved){.value = w->m->h, .length = w->m->length};
    return rc;
}

/* y, which the residual makes of x, is added to x, or to what the shortcut makes of x. */
static int check_branches(struct net *m, const char *name, int y, int other, int has_shortcut)
{
    const struct shape *a = &m->g->value[y].shape, *b = &m->g->value[other].shape;
    char a_text[SHAPE_TEXT_LEN], b_text[SHAPE_TEXT_LEN];

    if (shape_equal(a, b))
        return 0;
    m->rc = err_set(m->err, ERR_CONFIG,
                    "model.layers: %s: the residual's layers give %s, but its %s %s; %s", name,
                    shape_text(a, a_text), has_shortcut ? "shortcut gives" : "input is",
                    shape_text(b, b_text),
                    has_shortcut ? "both must give the same shape"
                                 : "set shortcut: [layers] beside residual, whose layers give the "
                                   "input that shape");
    return m->rc;
}

static int add_branches(struct walk *w, const char *name, struct saved y, struct saved short_x,
                        int has_shortcut)
{
    struct net *m = w->m;

    if (y.length != short_x.length) {
        short_x.value = whole_value(m, layers_name_of(w, name, ".shortcut"), &short_x);
        y.value = whole_value(m, name, &y);
        y.length = 0;
    }
    if (m->rc < 0 || check_branches(m, name, y.value, short_x.value, has_shortcut) < 0)
        return m->rc;
    go_on_from(m, y.value, y.length);
    layer_add(m, layers_name_of(w, name, ".add"), short_x.value);
    return m->rc;
}

static int walk_residual(struct walk *w, const struct tree *item, const struct item *it,
                         const char *name)
{
    const struct saved x = {.value = w->m ? w->m->h : NO_VALUE, .length = w->m ? w->m->length : 0};
    struct saved y = x, short_x = x;
    int rc;

    if (!it->residual)
        return layers_fail(&w->r, item, "shortcut stands beside residual");
    if (w->m)
        layer_begin_block(w->m);
    rc = walk_branch(w, it->residual, &x, layers_name_of(w, name, "."), &y);
    if (rc == 0)
        rc = walk_branch(w, it->shortcut, &x, layers_name_of(w, name, ".shortcut."), &short_x);
    if (rc < 0 || !w->m)
        return rc;
    if (add_branches(w, name, y, short_x, it->shortcut != NULL) < 0)
        return w->m->rc;
    layer_end_block(w->m);
    show_layer(w, name, "residual");
    return 0;
}

static int walk_repeat(struct walk *w, const struct tree *item, const struct item *it,
                       const char *name)
{
    const int64_t around = w->turns;
    int64_t n = 0;
    int rc;

    if (!it->repeat || !it->layers || it->layers->kind != TREE_LIST || it->layers->n == 0)
        return layers_fail(&w->r, item,
                           "want repeat and a list of layers side by side, such as {repeat: 4, "
                           "layers: [linear: {units: 10}, relu]}");
    rc = layers_read_count(&w->r, "repeat", it->repeat, MOST_TURNS, &n);
    w->turns *= w->m ? 1 : n; /* the check walks the list once, and counts for all turns */
    if (rc == 0 && w->turns > MOST_LAYERS)
        rc = layers_fail(&w->r, it->repeat, "there are more than %d layers", MOST_LAYERS);
    for (int64_t i = 0; rc == 0 && i < (w->m ? n : 1); i++) {
        const int n_saved = w->n_saved;

        if (w->m)
            layer_begin_block(w->m);
        rc = walk_list(w, it->layers, arena_printf(w->r.arena, "%s.%lld.", name, (long long)i));
        if (rc == 0)
            rc = end_names(w, n_saved);
        if (w->m && rc == 0)
            layer_end_block(w->m);
    }
    w->turns = around;
    return rc;
}

/* ---- items ---- */

/* Put the parts of a mapping where they belong. */
static int sort_item(const struct walk *w, const struct tree *t, struct item *it)
{
    const struct {
        const char *word;
        const struct tree **at;
    } own[] = {{"save", &it->save},         {"from", &it->from},         {"input", &it->input},
               {"residual", &it->residual}, {"shortcut", &it->shortcut}, {"repeat", &it->repeat},
               {"layers", &it->layers}};

    *it = (struct item){0};
    for (int i = 0; i < t->n; i++) {
        const struct tree **at = NULL;

        for (size_t k = 0; k < ARRAY_LEN(own); k++)
            if (layers_is_word(t->key[i], own[k].word))
                at = own[k].at;
        if (at && *at)
            return layers_fail(&w->r, t->key[i], "%s is given twice", t->key[i]->text);
        if (at) {
            *at = t->child[i];
        } else if (it->word) {
            return layers_fail(&w->r, t->key[i],
                               "a second layer in one item: begin a new one with '-'");
        } else {
            it->word = t->key[i];
            it->args = t->child[i];
        }
    }
    return 0;
}

/* A residual and `repeat` stand alone, but for names. */
static int check_item(const struct walk *w, const struct item *it)
{
    const int is_residual = it->residual || it->shortcut, repeats = it->repeat || it->layers;

    if (is_residual && it->word)
        return layers_fail(&w->r, it->word,
                           "beside residual stand shortcut, save, from and input alone");
    if (repeats && (it->word || is_residual))
        return layers_fail(&w->r, it->repeat ? it->repeat : it->layers,
                           "beside repeat stand layers, save, from and input alone");
    if (it->from && it->input)
        return layers_fail(&w->r, it->from, "from and input are in one item, want one of them");
    return 0;
}

static int walk_start(struct walk *w, const struct item *it, const char *name)
{
    const char *text = NULL;
    struct saved *s;
    int rc;

    if (it->input) {
        const int is_alone = layers_is_word(it->input, "");

        rc = is_alone ? 0 : layers_read_name(&w->r, "input", it->input, &text);
        return rc == 0 && w->m ? layers_take_input(w->m, name, text) : rc;
    }
    rc = layers_read_name(&w->r, "from", it->from, &text);
    if (rc == 0)
        rc = use_saved(w, it->from, text, &s);
    if (rc == 0 && w->m)
        go_on_from(w->m, s->value, s->length);
    return rc;
}

static int walk_save(struct walk *w, const struct item *it)
{
    const char *text;
    int rc = layers_read_name(&w->r, "save", it->save, &text);

    if (rc < 0)
        return rc;
    return save_as(w, it->save, text, w->m ? w->m->h : NO_VALUE, w->m ? w->m->length : 0);
}

static int walk_item(struct walk *w, const struct tree *item, const char *name)
{
    struct item it = {0};
    int rc = 0;

    if (item->kind == TREE_LIST || (item->kind == TREE_MAP && item->n == 0))
        return layers_fail(&w->r, item,
                           "a layer is a word or a mapping, such as {linear: {units: 10}}");
    w->n_layers += w->turns;
    if (w->n_layers > MOST_LAYERS)
        return layers_fail(&w->r, item, "there are more than %d layers", MOST_LAYERS);
    if (layers_is_word(item, "input"))
        return w->m ? layers_take_input(w->m, name, NULL) : 0;
    if (item->kind == TREE_WORD)
        return walk_plain(w, item, NULL, name);
    rc = sort_item(w, item, &it);
    if (rc == 0)
        rc = check_item(w, &it);
    if (rc == 0 && (it.from || it.input))
        rc = walk_start(w, &it, name);
    if (rc == 0 && it.word)
        rc = walk_plain(w, it.word, it.args, name);
    else if (rc == 0 && (it.residual || it.shortcut))
        rc = walk_residual(w, item, &it, name);
    else if (rc == 0 && (it.repeat || it.layers))
        rc = walk_repeat(w, item, &it, name);
    if (rc == 0 && it.save)
        rc = walk_save(w, &it);
    return rc;
}

static int walk_list(struct walk *w, const struct tree *list, const char *prefix)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < list->n; i++)
        rc = walk_item(w, list->child[i], arena_printf(w->r.arena, "%s%d", prefix, i));
    return rc;
}

int layers_walk(const char *text, size_t len, const struct reading *r, struct net *m,
                struct buf *outline)
{
    struct walk w = {.r = *r, .m = m, .outline = outline, .turns = 1};
    const struct tree *list;
    int rc = tree_parse(text, len, r->arena, &list, r->at, r->err);

    if (rc < 0)
        return rc;
    w.saved = arena_alloc(r->arena, sizeof *w.saved * MOST_NAMES);
    if (list->kind != TREE_LIST || list->n == 0)
        return layers_fail(r, list,
                           "want a list of layers, such as [flatten, linear: {units: 10}]");
    rc = walk_list(&w, list, "");
    return rc < 0 ? rc : end_names(&w, 0);
}
