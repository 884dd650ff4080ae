/* fold_impl - what the operators of constants are made of.
 *
 * An operator reads its arguments by fold_tensor and its like, and makes f->out: a view, or the new
 * tensor of fold_new.  After a failure all functions do nothing and give harmless values; f->rc
 * says so.
 *
 * Threads: as fold.h. */
#ifndef IMPORT_FOLD_IMPL_H
#define IMPORT_FOLD_IMPL_H

#include "import/fold.h"

struct fold {
    struct arena *a;
    int64_t *n_bytes; /* of the network's constants so far */
    const struct import_network *net;
    const struct import_node *node;
    struct host_tensor *const *value;
    struct host_tensor out;
    int which; /* the number of the output that is made */
    struct err *err;
    int rc, kind;
};

struct fold_row {
    const char *target;
    void (*fold)(struct fold *f);
    int kind; /* handed over in f->kind */
};
/* Tables, each ended by a target of NULL. */
extern const struct fold_row fold_made[], fold_views[], fold_math[], fold_one[], fold_parts[];

/* Element number `at` from t->data on; fold_put takes a number of type `from`. */
struct fold_num fold_get(const struct host_tensor *t, int64_t at);
void fold_put(const struct host_tensor *t, int64_t at, struct fold_num v, enum import_type from);
int64_t fold_place(const struct host_tensor *t, int64_t i); /* of element i, row by row */
struct fold_num fold_element(const struct host_tensor *t, int64_t i);
/* Runs of elements, whose places are counted once.  n <= FOLD_RUN elements from number i on. */
void fold_places(const struct host_tensor *t, int64_t i, int n, int64_t *to);
void fold_load(const struct host_tensor *t, const int64_t *at, int n, struct fold_num *to);
void fold_write(const struct host_tensor *t, int64_t i, int n, const struct fold_num *from,
                enum import_type type);
/* Likewise read, as numbers of the type `type`. */
void fold_read_as(const struct host_tensor *x, int64_t i, int n, enum import_type type,
                  struct fold_num *to);
/* All elements of `from`, row by row, as those of `to`, which has as many. */
void fold_fill(const struct host_tensor *to, const struct host_tensor *from);

#define fold_fail(f, ...) \
    ((void)((f)->rc < 0 || ((f)->rc = err_set((f)->err, ERR_UNSUPPORTED, __VA_ARGS__))))

/* A new tensor of zeros as the output.  0: it failed. */
int fold_new(struct fold *f, enum import_type type, int n_dims, const int64_t *dim);
struct host_tensor fold_copy(struct fold *f, const struct host_tensor *t); /* dense */

/* ---- the export's word about the output ---- */

enum import_type fold_type(const struct fold *f);
const struct import_value *fold_says(const struct fold *f);

/* ---- arguments ---- */

const struct import_arg *fold_arg(const struct fold *f, const char *name, int place);
/* A number; one that follows from the batch is refused, since elements would depend on it. */
int64_t fold_int(struct fold *f, const char *name, int place, int64_t def);
/* Likewise, but a size, which may follow from the batch: what it has at export. */
int64_t fold_size(struct fold *f, const char *name, int place, int64_t def);
int fold_ints(struct fold *f, const char *name, int place, int64_t *to); /* sizes or dimensions */
double fold_real(struct fold *f, const char *name, int place, double def);
/* The argument as a tensor; a number becomes one without dimensions, *is_scalar = 1. */
struct host_tensor fold_in(struct fold *f, const char *name, int place, int *is_scalar);
struct host_tensor fold_tensor(struct fold *f, const char *name, int place);
/* The tensors of a list, IMPORT_MAX_DIMS at most; NULL: None.  Returns their number. */
int fold_list(struct fold *f, const char *name, int place, const struct host_tensor **to, int most);
int fold_dim(struct fold *f, int64_t dim, int n);
/* Fails if dimension d of the argument is the batch's: elements would depend on each other. */
void fold_mixes(struct fold *f, const char *name, int place, int d);

/* ---- shapes ---- */

/* t seen with other extents, as broadcasting has it. */
struct host_tensor fold_expand_to(struct fold *f, struct host_tensor t, int n, const int64_t *dim);
/* The extents that x and y meet in; returns their number. */
int fold_meet(struct fold *f, const struct host_tensor *x, const struct host_tensor *y,
              int64_t *dim);
/* The extents of the elements that differ: 1 along a dimension where none of the operands, which
 * have the extents `dim`, has other elements.  The operands get these extents, too. */
void fold_narrow(struct host_tensor *const *x, int n_x, int n, const int64_t *dim, int64_t *small);
/* The output, which was made of those, has the extents `dim` again, by strides of 0. */
void fold_widen(struct fold *f, const int64_t *dim);
int64_t fold_wrap_index(struct fold *f, int64_t k, int64_t n); /* 0 <= it < n, or failed */

#endif
