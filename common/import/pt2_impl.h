/* pt2_impl - the parts of the reader of .pt2 files.
 *
 * A reading has one struct pt2.  Tables by name are objects of jansson, which are hash tables: the
 * name of a value in the file, to its index.
 *
 * Threads: one at a time, for each struct. */
#ifndef IMPORT_PT2_IMPL_H
#define IMPORT_PT2_IMPL_H

#include <jansson.h>

#include "import/network.h"
#include "import/zip.h"

enum { PT2_MAX_NESTED = 16, PT2_MAX_CONTENT = 256 << 20 };

struct pt2 {
    const struct zip *zip;
    struct import_network *net;
    struct err *err;
    int is_state;       /* 1: the two tables alone are read */
    const char *folder; /* of all members, with its '/' */
    const char *model;  /* name of models/NAME.json */
    json_t *root;
    json_t *weights, *constants; /* the two tables "config" of the archive */
    json_t *symbols;             /* expression -> index */
    json_t *tensors;             /* name -> index of the tensor */
    json_t *checked;             /* members whose checksums are right */
    json_t *storages;            /* place, shape and strides -> index of the first such tensor */
    int room_values, room_nodes, room_tensors, room_symbols;
    int *value_of;        /* [tensors]: the first value that is it, -1: none; for the outputs */
    size_t content_bytes; /* of the constants and buffers that were read */
};

/* The names of a graph's values; nested graphs have their own. */
struct pt2_scope {
    json_t *graph;
    json_t *names; /* name -> value */
    int no_gradient, depth;
};

/* Fail with ERR_CONFIG, or where the file breaks its own format with ERR_CORRUPT. */
int pt2_refuse(struct pt2 *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int pt2_damaged(struct pt2 *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A string's copy in the network's arena; "" if j is none. */
const char *pt2_text(struct pt2 *p, const json_t *j);
/* "add.Tensor" -> the name by which this operator is known here. */
const char *pt2_synonym(struct arena *a, const char *target);
/* The only member of a union's object: its key, and *what is its value; NULL: it is none. */
const char *pt2_union(const json_t *j, json_t **what);
/* The element type of a code of PyTorch's schema; -1: none that is read here. */
int pt2_type(json_int_t code);

/* pt2_sizes.c: a size ({"as_int": n} or {"as_expr": ...}): its number at export and its symbol. */
int pt2_size(struct pt2 *p, json_t *size, int64_t *number, int *symbol);
/* A tensor's type and shape. */
int pt2_meta(struct pt2 *p, json_t *meta, const char *name, struct import_value *v);

/* pt2_tensors.c: the tensor of this name in the archive.  Returns its index.  `key` is its name in
 * the table. */
int pt2_tensor(struct pt2 *p, const char *key, enum import_role role);
int pt2_rest_of_state(struct pt2 *p); /* the parameters that the network does not use */
int pt2_refuse_overlaps(struct pt2 *p);
int pt2_read_contents(struct pt2 *p); /* constants and buffers */

/* pt2_graph.c */
int pt2_value_add(struct pt2 *p, struct pt2_scope *s, const char *name); /* its index */
int pt2_value_find(struct pt2 *p, const struct pt2_scope *s, json_t *name);
int pt2_nodes(struct pt2 *p, struct pt2_scope *s);
/* Append the node copy_.default that writes value `from` to value `to`. */
int pt2_copy_to(struct pt2 *p, int to, int from);

/* pt2_names.c: the names of the leaves of the network's call, an array of strings; NULL: the file
 * does not say them. */
json_t *pt2_input_names(struct pt2 *p);
json_t *pt2_output_names(struct pt2 *p);

/* Room for one more element in an array of the network that grows. */
int pt2_grow(struct pt2 *p, void **array, size_t size, int n, int *room, int most,
             const char *what);

#endif
