/* tree - from YAML's flow style to nodes.  An alias in the text may lead in a circle or multiply,
 * so levels and nodes are counted. */
#include "config/tree.h"

#include <string.h>
#include <yaml.h>

#include "base/util.h"

struct growth {
    yaml_document_t doc;
    struct arena *arena;
    int n_nodes;
    size_t *at;
    struct err *err;
};

static const struct tree *tree_grow(struct growth *g, int index, int depth);

static int tree_fail(struct growth *g, size_t at, const char *what)
{
    *g->at = at;
    return err_set(g->err, ERR_CONFIG, "%s", what);
}

static const struct tree *tree_word(struct growth *g, struct tree *t, const yaml_node_t *n)
{
    t->kind = TREE_WORD;
    t->text = arena_strdup(g->arena, (const char *)n->data.scalar.value);
    t->len = strlen(t->text);
    t->is_quoted = n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (t->len == n->data.scalar.length)
        return t;
    (void)tree_fail(g, t->at, "a text with a zero byte");
    return NULL;
}

static const struct tree *tree_list(struct growth *g, struct tree *t, const yaml_node_t *n,
                                    int depth)
{
    const yaml_node_item_t *item = n->data.sequence.items.start;

    t->kind = TREE_LIST;
    t->n = (int)(n->data.sequence.items.top - item);
    t->child = arena_alloc(g->arena, ((size_t)t->n + 1) * sizeof *t->child);
    for (int i = 0; i < t->n; i++)
        if (!(t->child[i] = tree_grow(g, item[i], depth + 1)))
            return NULL;
    return t;
}

static const struct tree *tree_map(struct growth *g, struct tree *t, const yaml_node_t *n,
                                   int depth)
{
    const yaml_node_pair_t *pair = n->data.mapping.pairs.start;

    t->kind = TREE_MAP;
    t->n = (int)(n->data.mapping.pairs.top - pair);
    t->child = arena_alloc(g->arena, ((size_t)t->n + 1) * sizeof *t->child);
    t->key = arena_alloc(g->arena, ((size_t)t->n + 1) * sizeof *t->key);
    for (int i = 0; i < t->n; i++) {
        if (!(t->key[i] = tree_grow(g, pair[i].key, depth + 1)) ||
            !(t->child[i] = tree_grow(g, pair[i].value, depth + 1)))
            return NULL;
        if (t->key[i]->kind != TREE_WORD) {
            (void)tree_fail(g, t->key[i]->at, "a key is a list or a mapping, want a word");
            return NULL;
        }
    }
    return t;
}

static const struct tree *tree_grow(struct growth *g, int index, int depth)
{
    const yaml_node_t *n = yaml_document_get_node(&g->doc, index);
    struct tree *t = arena_alloc(g->arena, sizeof *t);

    *t = (struct tree){.text = "", .at = n->start_mark.index};
    if (depth > TREE_MAX_DEPTH || ++g->n_nodes > TREE_MAX_NODES) {
        (void)tree_fail(g, t->at, depth > TREE_MAX_DEPTH ? "nested too deep" : "too many values");
        return NULL;
    }
    if (n->type == YAML_SCALAR_NODE)
        return tree_word(g, t, n);
    return n->type == YAML_SEQUENCE_NODE ? tree_list(g, t, n, depth) : tree_map(g, t, n, depth);
}

int tree_parse(const char *text, size_t len, struct arena *arena, const struct tree **out,
               size_t *at, struct err *err)
{
    struct growth g = {.arena = arena, .at = at, .err = err};
    yaml_parser_t p;
    int rc = 0;

    *at = 0;
    *out = NULL;
    ASSERT(yaml_parser_initialize(&p));
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    if (yaml_parser_load(&p, &g.doc)) {
        if (yaml_document_get_root_node(&g.doc))
            *out = tree_grow(&g, 1, 0);
        else
            rc = tree_fail(&g, 0, "empty");
        yaml_document_delete(&g.doc);
    } else {
        *at = p.problem_mark.index;
        rc = err_set(err, ERR_CONFIG, "not YAML: %s", p.problem ? p.problem : "unknown problem");
    }
    yaml_parser_delete(&p);
    return *out ? 0 : rc < 0 ? rc : err->code;
}
