/* network - the memory of a foreign network, and the arguments of its nodes, which are found by the
 * names of their schemas. */
#include "import/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

struct import_network *import_network_new(const char *path)
{
    struct import_network *n = xcalloc(1, sizeof *n);

    arena_init(&n->arena);
    n->path = arena_strdup(&n->arena, path);
    n->writer = "";
    return n;
}

void import_network_free(struct import_network *n)
{
    if (!n)
        return;
    arena_fini(&n->arena);
    free(n);
}

static const struct {
    size_t size;
    const char *name;
} network_types[] = {
#define X(name, n_bytes, text) {n_bytes, text},
    IMPORT_TYPE_LIST(X)
#undef X
};

size_t import_type_size(enum import_type t) { return network_types[t].size; }
const char *import_type_name(enum import_type t) { return network_types[t].name; }

const struct import_arg *import_arg_find(const struct import_node *n, const char *name, int place)
{
    for (int i = 0; i < n->n_args; i++)
        if (n->arg[i].name && !strcmp(n->arg[i].name, name))
            return &n->arg[i];
    if (place >= n->n_args || n->arg[place].is_keyword)
        return NULL;
    return n->arg[place].name && n->arg[place].name[0] ? NULL : &n->arg[place];
}

void import_slice_ends(int64_t n, int64_t *start, int64_t *stop)
{
    *start = max_i64(min_i64(*start < 0 ? *start + n : *start, n), 0);
    *stop = max_i64(min_i64(*stop < 0 ? *stop + n : *stop, n), *start);
}
