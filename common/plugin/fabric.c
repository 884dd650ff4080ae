/* fabric - dptrain-fabric.so: libfabric's side of coll/fabric/port.h, and its one symbol.
 *
 * libfabric is found by its soname as the loader finds libraries, so that a site's own one, with
 * the providers of its network, is used.  Each port has a domain of its own, which one thread at a
 * time uses: then no provider needs locks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "base/alloc.h"
#include "coll/fabric/port.h"

enum { QUEUE = 1024 }; /* messages whose end a completion queue can hold */

struct fabric_port {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr **mr; /* [n_mr] */
    size_t n_mr;
    int fd; /* the queue's; -1: the provider has none */
    uint8_t address[FABRIC_ADDRESS];
    size_t len;
};

static int port_failed(long rc, const char *what, struct err *err)
{
    return err_set(err, ERR_DEVICE, "libfabric: %s: %s", what, fi_strerror((int)-rc));
}

/* ---- choosing ---- */

static struct fi_info *port_hints(const char *provider)
{
    struct fi_info *h = fi_allocinfo();

    if (!h)
        return NULL;
    h->ep_attr->type = FI_EP_RDM;
    h->caps = FI_MSG;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->tx_attr->msg_order = FI_ORDER_SAS;
    h->rx_attr->msg_order = FI_ORDER_SAS;
    h->domain_attr->threading = FI_THREAD_DOMAIN;
    h->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    h->domain_attr->resource_mgmt = FI_RM_ENABLED;
    h->fabric_attr->prov_name = strdup(provider); /* the library frees it */
    return h;
}

static int has_ip(const struct fi_info *i)
{
    return i->addr_format == FI_SOCKADDR || i->addr_format == FI_SOCKADDR_IN ||
           i->addr_format == FI_SOCKADDR_IN6;
}

/* A provider of IP addresses would choose one of this machine's itself, so it is told ours.  0, or
 * the library's error. */
static int port_ask(const char *provider, const char *ip, struct fi_info **out)
{
    struct fi_info *hints = port_hints(provider);
    int rc = hints ? fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, out) : -FI_ENOMEM;

    if (rc == 0 && has_ip(*out)) {
        fi_freeinfo(*out);
        rc = fi_getinfo(FI_VERSION(1, 17), ip, NULL, FI_SOURCE, hints, out);
    }
    if (hints)
        fi_freeinfo(hints);
    return rc;
}

/* A provider of connections alone, such as verbs, does this by another one on top of it. */
static int port_choose(const char *provider, const char *ip, struct fi_info **out, struct err *err)
{
    char *layered = xasprintf("%s;ofi_rxm", provider);
    int rc = port_ask(provider, ip, out);

    if (rc != 0 && !strchr(provider, ';'))
        rc = port_ask(layered, ip, out);
    free(layered);
    if (rc == 0 && strlen((*out)->fabric_attr->prov_name) < FABRIC_NAME)
        return 0;
    if (rc == 0)
        fi_freeinfo(*out);
    return err_set(err, ERR_UNSUPPORTED,
                   "libfabric has no provider \"%.48s\" here for messages without connections at "
                   "%.48s (%s): fi_info -t FI_EP_RDM lists those that it has",
                   provider, ip, fi_strerror(rc ? -rc : FI_EINVAL));
}

/* ---- life ---- */

/* A queue with a descriptor to sleep on; or, if the provider has none, without. */
static int open_queue(struct fabric_port *p)
{
    struct fi_cq_attr a = {.size = QUEUE, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    int rc = fi_cq_open(p->domain, &a, &p->cq, NULL);

    p->fd = -1;
    if (rc == 0 && fi_control(&p->cq->fid, FI_GETWAIT, &p->fd) == 0)
        return 0;
    if (rc == 0)
        fi_close(&p->cq->fid);
    p->cq = NULL;
    p->fd = -1;
    a.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(p->domain, &a, &p->cq, NULL);
}

static int open_parts(struct fabric_port *p, struct err *err)
{
    struct fi_av_attr av = {.type = p->info->domain_attr->av_type};
    const char *what = "opening the fabric";
    int rc = fi_fabric(p->info->fabric_attr, &p->fabric, NULL);

    if (rc == 0)
        what = "opening the domain", rc = fi_domain(p->fabric, p->info, &p->domain, NULL);
    if (rc == 0)
        what = "making an address vector", rc = fi_av_open(p->domain, &av, &p->av, NULL);
    if (rc == 0)
        what = "making a completion queue", rc = open_queue(p);
    if (rc == 0)
        what = "making an endpoint", rc = fi_endpoint(p->domain, p->info, &p->ep, NULL);
    if (rc == 0)
        what = "binding the addresses", rc = fi_ep_bind(p->ep, &p->av->fid, 0);
    if (rc == 0)
        what = "binding the queue", rc = fi_ep_bind(p->ep, &p->cq->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        what = "enabling the endpoint", rc = fi_enable(p->ep);
    p->len = sizeof p->address;
    if (rc == 0)
        what = "asking for its address", rc = fi_getname(&p->ep->fid, p->address, &p->len);
    return rc == 0 ? 0 : port_failed(rc, what, err);
}

/* The endpoint goes first: it returns all messages under way.  A provider in shared memory removes
 * its segment with it. */
static void port_close(struct fabric_port *p)
{
    if (p->ep)
        fi_close(&p->ep->fid);
    for (size_t i = 0; i < p->n_mr; i++)
        fi_close(&p->mr[i]->fid);
    if (p->cq)
        fi_close(&p->cq->fid);
    if (p->av)
        fi_close(&p->av->fid);
    if (p->domain)
        fi_close(&p->domain->fid);
    if (p->fabric)
        fi_close(&p->fabric->fid);
    fi_freeinfo(p->info);
    free(p->mr);
    free(p);
}

static int port_open(const char *provider, const char *ip, size_t n_bytes, struct fabric_port **out,
                     struct err *err)
{
    struct fi_info *info;
    struct fabric_port *p;
    int rc = port_choose(provider, ip, &info, err);

    if (rc < 0)
        return rc;
    p = xcalloc(1, sizeof *p);
    p->info = info;
    rc = open_parts(p, err);
    if (rc == 0 && info->ep_attr->max_msg_size < n_bytes)
        rc = err_set(err, ERR_UNSUPPORTED, "libfabric: a message holds %zu bytes, want %zu",
                     info->ep_attr->max_msg_size, n_bytes);
    if (rc < 0) {
        port_close(p);
        return err_wrap(err, "provider \"%.48s\"", provider);
    }
    *out = p;
    return 0;
}

static const char *port_provider(const struct fabric_port *p)
{
    return p->info->fabric_attr->prov_name;
}

static const void *port_address(const struct fabric_port *p, size_t *len)
{
    *len = p->len;
    return p->address;
}

/* An address from another machine may be shorter than the library's struct, so it gets room. */
static int port_add(struct fabric_port *p, const void *address, size_t len, uint64_t *to,
                    struct err *err)
{
    uint8_t room[FABRIC_ADDRESS + 1] = {0}; /* a text among them gets its end */
    fi_addr_t number = FI_ADDR_UNSPEC;

    if (len != p->len && has_ip(p->info))
        return err_set(err, ERR_PROTO, "a fabric address of %zu bytes, want %zu", len, p->len);
    memcpy(room, address, len);
    if (fi_av_insert(p->av, room, 1, &number, 0, NULL) != 1)
        return err_set(err, ERR_PROTO, "libfabric takes its fabric address for none of \"%s\"",
                       port_provider(p));
    *to = number;
    return 0;
}

/* A provider may want memory to belong to the endpoint: then it is of no use until it does. */
static int port_give_memory(struct fabric_port *p, struct fid_mr *mr)
{
    int rc;

    if (!(p->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return 0;
    rc = fi_mr_bind(mr, &p->ep->fid, 0);
    return rc == 0 ? fi_mr_enable(mr) : rc;
}

static int port_memory(struct fabric_port *p, void *at, size_t n_bytes, void **handle,
                       struct err *err)
{
    struct fid_mr *mr;
    int rc;

    *handle = NULL;
    if (!(p->info->domain_attr->mr_mode & FI_MR_LOCAL))
        return 0;
    rc = fi_mr_reg(p->domain, at, n_bytes, FI_SEND | FI_RECV, 0, p->n_mr, 0, &mr, NULL);
    if (rc < 0)
        return port_failed(rc, "registering memory", err);
    p->mr = xrealloc(p->mr, (p->n_mr + 1) * sizeof(struct fid_mr *));
    p->mr[p->n_mr++] = mr;
    rc = port_give_memory(p, mr);
    if (rc < 0)
        return port_failed(rc, "binding memory to the endpoint", err);
    *handle = fi_mr_desc(mr);
    return 0;
}

/* ---- messages ---- */

static int port_send(struct fabric_port *p, uint64_t to, struct fabric_bytes bytes,
                     struct fabric_op *op, struct err *err)
{
    const ssize_t rc = fi_send(p->ep, bytes.at, bytes.n_bytes, bytes.handle, to, op);

    if (rc == -FI_EAGAIN)
        return FABRIC_BUSY;
    if (rc == -FI_ENOMEM || rc == -FI_EINVAL || rc == -FI_EOPBADSTATE)
        return port_failed((long)rc, "sending a message", err);
    return rc == 0 ? 0 : err_set(err, ERR_PEER, "libfabric: %s", fi_strerror((int)-rc));
}

static int port_receive(struct fabric_port *p, struct fabric_bytes bytes, struct fabric_op *op,
                        struct err *err)
{
    const ssize_t rc = fi_recv(p->ep, bytes.at, bytes.n_bytes, bytes.handle, FI_ADDR_UNSPEC, op);

    if (rc == -FI_EAGAIN)
        return FABRIC_BUSY;
    return rc == 0 ? 0 : port_failed((long)rc, "posting room for a message", err);
}

/* One message that failed: 1, or 0 if there is none after all. */
static int poll_failed(struct fabric_port *p, struct fabric_done *done)
{
    struct fi_cq_err_entry e = {0};

    if (fi_cq_readerr(p->cq, &e, 0) != 1 || !e.op_context)
        return 0;
    *done = (struct fabric_done){.op = e.op_context,
                                 .outcome = e.err == FI_ETRUNC      ? FABRIC_TOO_LONG
                                            : e.err == FI_ECANCELED ? FABRIC_CANCELED
                                                                    : FABRIC_FAILED};
    return 1;
}

static int port_poll(struct fabric_port *p, struct fabric_done *done, int n, struct err *err)
{
    struct fi_cq_msg_entry e[16];
    const size_t most = sizeof e / sizeof *e;
    const ssize_t count = fi_cq_read(p->cq, e, (size_t)n < most ? (size_t)n : most);

    if (count == -FI_EAVAIL)
        return poll_failed(p, done);
    if (count == -FI_EAGAIN || count == 0)
        return 0;
    if (count < 0)
        return port_failed((long)count, "reading the completion queue", err);
    for (ssize_t i = 0; i < count; i++)
        done[i] = (struct fabric_done){.op = e[i].op_context, .n_bytes = e[i].len};
    return (int)count;
}

static int port_sleep_on(struct fabric_port *p, int *has_fd)
{
    struct fid *fid = &p->cq->fid;

    *has_fd = p->fd >= 0;
    return p->fd >= 0 && fi_trywait(p->fabric, &fid, 1) == 0 ? p->fd : -1;
}

__attribute__((visibility("default"))) const struct fabric_ops *dptrain_fabric(void);

const struct fabric_ops *dptrain_fabric(void)
{
    static const struct fabric_ops table = {
        .abi = FABRIC_ABI,
        .layout = FABRIC_LAYOUT,
        .version = DPTRAIN_VERSION,
        .open = port_open,
        .close = port_close,
        .name = port_provider,
        .address = port_address,
        .add = port_add,
        .memory = port_memory,
        .send = port_send,
        .receive = port_receive,
        .poll = port_poll,
        .sleep_on = port_sleep_on,
    };

    return &table;
}
