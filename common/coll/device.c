/* device - the functions of device.h.  They check their arguments and the order of a coll's life.
 * Then they call the function in the plugin's table. */
#include "coll/device.h"

#include "backend/plugin.h"
#include "base/util.h"
#include "coll/impl.h"

int coll_device_of(const struct plugin *p, const struct coll_device_ops **out, struct err *err)
{
    const struct coll_device_ops *ops = p->coll;

    if (!ops)
        return err_set(err, ERR_UNSUPPORTED, "this plugin has no collectives");
    if (ops->version != COLL_DEVICE_VERSION || ops->layout != (uint32_t)COLL_DEVICE_LAYOUT)
        return err_set(err, ERR_UNSUPPORTED,
                       "the plugin's collectives have interface %u (layout %x), this program wants "
                       "%u (%x): build the two together",
                       ops->version, ops->layout, COLL_DEVICE_VERSION,
                       (uint32_t)COLL_DEVICE_LAYOUT);
    *out = ops;
    return 0;
}

int coll_device_n_ids(int size)
{
    return (int)min_i64(ceil_div_i64(size, COLL_RANKS_PER_ID), COLL_MAX_IDS);
}

int coll_device_make_ids(const struct coll_device_ops *ops, int size, uint8_t *ids, struct err *err)
{
    for (int i = 0; i < coll_device_n_ids(size); i++)
        if (ops->make_id(ids + (size_t)i * COLL_ID_BYTES, err) < 0)
            return err_wrap(err, "making the ids of %d ranks", size);
    return 0;
}

int coll_device_new(const struct coll_device_ops *ops, struct backend *b,
                    const struct coll_device_options *o, struct coll **out, struct err *err)
{
    int rc;

    if (o->size < 2 || o->rank < 0 || o->rank >= o->size)
        return err_set(err, ERR_ARG, "rank %d of %d, want one of two or more", o->rank, o->size);
    ASSERT(o->stuck && o->stop_ms > 0);
    rc = ops->make(b, o, out, err);
    ASSERT(rc < 0 || ((*out)->device == ops && (*out)->ops->poll));
    return rc < 0 ? err_wrap(err, "preparing %s", ops->name) : 0;
}

int coll_device_connect(struct coll *c, const uint8_t *ids, size_t n_bytes, int64_t deadline_ms,
                        struct err *err)
{
    const int n = coll_device_n_ids(c->size);

    ASSERT(c->device);
    if (n_bytes != (size_t)n * COLL_ID_BYTES)
        return err_set(err, ERR_PROTO, "%zu bytes of %s's ids, want %d of %d bytes for %d ranks",
                       n_bytes, c->kind, n, COLL_ID_BYTES, c->size);
    if (c->device->connect(c, ids, n, deadline_ms, err) < 0)
        return err_wrap(err, "connecting rank %d of %d by %s", c->rank, c->size, c->kind);
    return 0;
}

int coll_device_alloc(const struct coll_device_ops *ops, struct backend *b, size_t n_bytes,
                      const char *what, void **out, struct err *err)
{
    return ops->alloc(b, n_bytes, what, out, err);
}

void coll_device_free(const struct coll_device_ops *ops, struct backend *b, void *p)
{
    if (p)
        ops->free(b, p);
}

int coll_device_register(struct coll *c, void *x, size_t n_bytes, struct err *err)
{
    ASSERT(c->device);
    return n_bytes ? c->device->enroll(c, x, n_bytes, err) : 0;
}

int coll_device_latch(struct coll *c, float *veto, struct err *err)
{
    ASSERT(c->device && veto);
    return c->device->latch(c, veto, err);
}

int coll_device_passed(struct coll *c, int64_t ticket, struct err *err)
{
    ASSERT(c->device);
    if (coll_number_of(ticket) < 1)
        return err_set(err, ERR_ARG, "asking for ticket %lld", (long long)ticket);
    return c->device->passed(c, ticket, err);
}

int coll_device_quiesce(struct coll *c, int64_t deadline_ms, struct err *err)
{
    ASSERT(c->device);
    return c->device->quiesce(c, deadline_ms, err);
}
