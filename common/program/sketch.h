/* sketch - a small graph whose values lie at given addresses, made into a program of its own.
 *
 * The work around the layers is made of such programs: the update of the parameters, and the
 * strategies' compression.  So it runs on every backend, and a device records it as it records any
 * kernel.
 *
 * Life:    sketch_begin -> sketch_place, sketch_node ... -> sketch_end -> program_bind ->
 *          sketch_run ... -> program_free.
 * Threads: one at a time.
 * Errors:  the first failure is kept: after it nothing is appended, and sketch_end returns it. */
#ifndef PROGRAM_SKETCH_H
#define PROGRAM_SKETCH_H

#include "op/op.h"
#include "program/program.h"

enum { SKETCH_MAX_PLACES = 64 };

struct sketch {
    struct graph *g;
    struct {
        int value;
        void *address;
    } place[SKETCH_MAX_PLACES];
    int n;
    int rc; /* 0, or the first failure */
    struct err *err;
};

struct sketch sketch_begin(struct err *err); /* borrows err until sketch_end */

/* A value of this type and shape at `address`, in the backend's memory, which must stay there as
 * long as the program lives. */
int sketch_place(struct sketch *s, enum dtype dtype, struct shape shape, void *address,
                 const char *name);

/* Append a node, as graph_node does; out: existing values, or NODE_NEW_OUT. */
void sketch_node(struct sketch *s, enum op op, const union node_attr *attr, const int *in, int n_in,
                 int *out, const char *name);

/* kind(a, b), of one shape, into the existing value `out`, which may be a; or into a new one, if it
 * is NODE_NEW_OUT.  Returns where it is. */
int sketch_elementwise(struct sketch *s, enum elementwise kind, int a, int b, int out);
int sketch_scale(struct sketch *s, int a, double factor, int out); /* likewise factor * a */

/* Make a program of the sketch, whose graph this takes, on failure, too.  `layout` as in
 * program_new. */
int sketch_end(struct sketch *s, struct backend *b, const struct layout *layout,
               struct program **out);

/* Make the program that rounds n elements of F32 at `from` to another type, at `to`.  With n 0
 * nothing is made. */
int sketch_cast(struct backend *b, int64_t n, const float *from, void *to, enum dtype type,
                struct program **out, struct err *err);

/* Give n programs (NULL: none) their addresses, in one arena for all of them, which becomes *arena,
 * for backend_free; on failure, too. */
int sketch_bind(struct program *const *p, int n, struct backend *b, void **arena, struct err *err);

/* Run all of the program.  NULL: there is nothing to do. */
int sketch_run(struct program *p, struct err *err);

#endif
