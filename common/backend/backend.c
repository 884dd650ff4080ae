/* backend - the calls of backend.h.  Each checks its arguments, the same for all backends, and
 * calls the backend's table.  If the table has no device functions, the work is done here, on the
 * host. */
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "backend/adding.h"
#include "base/alloc.h"
#include "base/util.h"

static int backend_is_whole(const struct backend_device_ops *d)
{
    return d->host_alloc && d->host_free && d->room && d->zero && d->copy && d->put && d->mark &&
           d->follow && d->passed;
}

void backend_init(struct backend *b, const struct backend_ops *ops)
{
    ASSERT(ops->name && ops->alloc && ops->free && ops->copy_in && ops->copy_out && ops->can_fuse &&
           ops->make_kernel && ops->close);
    ASSERT(!ops->record_begin == !ops->record_end && !ops->record_begin == !ops->launch &&
           !ops->record_begin == !ops->recording_free && !ops->record_begin == !ops->poll);
    ASSERT(!ops->device || (ops->sync && ops->poll && backend_is_whole(ops->device)));
    b->ops = ops;
}

int backend_usual_fusion(const struct node *n, enum fusion f, enum activation act)
{
    const int forward = n->op == OP_conv2d || n->op == OP_linear;
    const int grad_w = n->op == OP_conv2d_grad_w || n->op == OP_linear_grad_w;

    switch (f) {
    case FUSE_BIAS:
        return forward || grad_w;
    case FUSE_ACTIVATION:
        return forward;
    case FUSE_FLATTEN:
        return n->op == OP_linear || n->op == OP_linear_grad_x || n->op == OP_linear_grad_w;
    case FUSE_POOL_GRAD_ACT:
        return n->op == OP_pool2d_grad &&
               (act == ACT_RELU || act == ACT_TANH || act == ACT_SIGMOID);
    case FUSE_LOSS_GRAD:
        return n->op == OP_softmax_xent;
    case FUSE_NORM:
        return act == ACT_NONE || act == ACT_RELU;
    case FUSE_LINEAR_GRAD_ACT:
    case FUSE_ADDS:
    case FUSE_FOLD:
    case FUSE_UNPACK:
        return 0;
    }
    return 0;
}

int backend_alloc(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err)
{
    return b->ops->alloc(b, n_bytes, what, out, err);
}

void backend_free(struct backend *b, void *p)
{
    if (p)
        b->ops->free(b, p);
}

int backend_copy_in(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    return n_bytes ? b->ops->copy_in(b, to, from, n_bytes, err) : 0;
}

int backend_copy_out(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    return n_bytes ? b->ops->copy_out(b, to, from, n_bytes, err) : 0;
}

int backend_can_fuse(struct backend *b, const struct graph *g, const struct node *n, enum fusion f,
                     enum activation act)
{
    return b->ops->can_fuse(b, g, n, f, act);
}

int backend_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    ASSERT(!(op_get(n->op)->flags & (OP_ALIAS | OP_ENGINE)));
    if (n->adds && !backend_can_fuse(b, g, n, FUSE_ADDS, ACT_NONE))
        return adding_new(b, g, n, out, err);
    if (b->ops->make_kernel(b, g, n, out, err) < 0)
        return err_wrap(err, "%s (%s) on %s", n->name, op_get(n->op)->name, b->ops->name);
    ASSERT((*out)->ops->bind && (*out)->ops->run && (*out)->ops->free);
    return 0;
}

int backend_sync(struct backend *b, struct err *err)
{
    return b->ops->sync ? b->ops->sync(b, err) : 0;
}

int backend_can_record(const struct backend *b) { return b->ops->record_begin != NULL; }

int backend_record_begin(struct backend *b, struct err *err)
{
    return b->ops->record_begin(b, err);
}

int backend_record_end(struct backend *b, struct recording **out, struct err *err)
{
    return b->ops->record_end(b, out, err);
}

int backend_launch(struct backend *b, struct recording *r, struct err *err)
{
    return b->ops->launch(b, r, err);
}

void backend_recording_free(struct backend *b, struct recording *r)
{
    if (r)
        b->ops->recording_free(b, r);
}

int backend_poll(struct backend *b, struct err *err)
{
    return b->ops->poll ? b->ops->poll(b, err) : 0;
}

void backend_set_threads(struct backend *b, int n_threads)
{
    ASSERT(n_threads >= 1);
    if (b->ops->set_threads)
        b->ops->set_threads(b, n_threads);
}

void backend_close(struct backend *b)
{
    if (b)
        b->ops->close(b);
}

int backend_queues(const struct backend *b) { return b->ops->device != NULL; }
int backend_is_apart(const struct backend *b) { return b->ops->device != NULL; }

int backend_host_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                       struct err *err)
{
    return b->ops->device ? b->ops->device->host_alloc(b, n_bytes, what, out, err)
                          : try_alloc(out, n_bytes, what, err);
}

void backend_host_free(struct backend *b, void *p)
{
    if (p && b->ops->device)
        b->ops->device->host_free(b, p);
    else
        free(p);
}

int backend_room(struct backend *b, size_t *n_bytes, struct err *err)
{
    return b->ops->device->room(b, n_bytes, err);
}

int backend_zero(struct backend *b, void *p, size_t n_bytes, struct err *err)
{
    if (n_bytes && b->ops->device)
        return b->ops->device->zero(b, p, n_bytes, err);
    memset(p, 0, n_bytes);
    return 0;
}

int backend_zero_start(struct backend *b, void *p, size_t n_bytes, struct err *err)
{
    if (b->ops->device)
        return backend_zero(b, p, n_bytes, err);
    alloc_clear(p, n_bytes);
    return 0;
}

/* Both addresses are in host memory. */
static int copy_now(void *to, const void *from, size_t n_bytes)
{
    if (n_bytes)
        memcpy(to, from, n_bytes);
    return 0;
}

int backend_copy(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    return n_bytes && b->ops->device ? b->ops->device->copy(b, to, from, n_bytes, err)
                                     : copy_now(to, from, n_bytes);
}

int backend_put(struct backend *b, enum backend_lane lane, void *to, const void *from,
                size_t n_bytes, struct err *err)
{
    return n_bytes && b->ops->device ? b->ops->device->put(b, lane, to, from, n_bytes, err)
                                     : copy_now(to, from, n_bytes);
}

int backend_mark(struct backend *b, enum backend_lane lane, int mark, struct err *err)
{
    ASSERT(mark >= 0 && mark < BACKEND_MARKS);
    return b->ops->device ? b->ops->device->mark(b, lane, mark, err) : 0;
}

int backend_follow(struct backend *b, enum backend_lane lane, int mark, struct err *err)
{
    ASSERT(mark >= 0 && mark < BACKEND_MARKS);
    return b->ops->device ? b->ops->device->follow(b, lane, mark, err) : 0;
}

int backend_passed(struct backend *b, int mark, struct err *err)
{
    ASSERT(mark >= 0 && mark < BACKEND_MARKS);
    return b->ops->device ? b->ops->device->passed(b, mark, err) : 0;
}

int backend_stopwatch(struct backend *b, int64_t watch[2], int stops, struct err *err)
{
    ASSERT(b->ops->device);
    return b->ops->device->stopwatch(b, watch, stops, err);
}
