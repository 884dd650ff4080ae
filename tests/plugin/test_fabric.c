/* plugin/fabric: what dptrain-fabric.so asks of libfabric for the memory of messages.  The library
 * is a fake: a provider that wants memory to belong to an endpoint needs its own network. */
#include "../test.h"

#include <stdlib.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "coll/fabric/port.h"

fabric_fn dptrain_fabric;

/* ---- a fake libfabric ---- */

static uint64_t mr_mode;   /* the provider's */
static const char *breaks; /* the word of a step that fails; "": none does */
static char seen[128];     /* a word for each step with memory */

static int step(const char *word)
{
    strcat(strcat(seen, word), " ");
    return !strcmp(word, breaks) ? -FI_ENOSYS : 0;
}

static int fake_close(struct fid *fid) { return fid->fclass == FI_CLASS_MR ? step("close") : 0; }

static int fake_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
    (void)flags;
    if (fid->fclass != FI_CLASS_MR)
        return 0;
    assert_int_equal(to->fclass, FI_CLASS_EP);
    return step("bind");
}

static int fake_control(struct fid *fid, int command, void *arg)
{
    (void)arg;
    if (fid->fclass != FI_CLASS_MR)
        return command == FI_ENABLE ? 0 : -FI_ENOSYS;
    assert_int_equal(command, FI_ENABLE);
    return step("enable");
}

static struct fi_ops all = {
    .size = sizeof all, .close = fake_close, .bind = fake_bind, .control = fake_control};

static int fake_getname(struct fid *fid, void *at, size_t *len)
{
    (void)fid, (void)at;
    *len = 1;
    return 0;
}

static int fake_reg(struct fid *fid, const void *at, size_t len, uint64_t access, uint64_t offset,
                    uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
    static struct fid_mr mr = {.fid = {.fclass = FI_CLASS_MR, .ops = &all}, .mem_desc = seen};

    (void)fid, (void)at, (void)len, (void)access, (void)offset, (void)key, (void)flags;
    (void)context;
    *out = &mr;
    return step("reg");
}

static int fake_av(struct fid_domain *d, struct fi_av_attr *a, struct fid_av **out, void *context)
{
    static struct fid_av av = {.fid = {.fclass = FI_CLASS_AV, .ops = &all}};

    (void)d, (void)a, (void)context;
    *out = &av;
    return 0;
}

static int fake_cq(struct fid_domain *d, struct fi_cq_attr *a, struct fid_cq **out, void *context)
{
    static struct fid_cq cq = {.fid = {.fclass = FI_CLASS_CQ, .ops = &all}};

    (void)d, (void)a, (void)context;
    *out = &cq;
    return 0;
}

static int fake_ep(struct fid_domain *d, struct fi_info *i, struct fid_ep **out, void *context)
{
    static struct fi_ops_cm cm = {.size = sizeof cm, .getname = fake_getname};
    static struct fid_ep ep = {.fid = {.fclass = FI_CLASS_EP, .ops = &all}, .cm = &cm};

    (void)d, (void)i, (void)context;
    *out = &ep;
    return 0;
}

static int fake_domain(struct fid_fabric *f, struct fi_info *i, struct fid_domain **out,
                       void *context)
{
    static struct fi_ops_domain ops = {
        .size = sizeof ops, .av_open = fake_av, .cq_open = fake_cq, .endpoint = fake_ep};
    static struct fi_ops_mr mr = {.size = sizeof mr, .reg = fake_reg};
    static struct fid_domain domain = {
        .fid = {.fclass = FI_CLASS_DOMAIN, .ops = &all}, .ops = &ops, .mr = &mr};

    (void)f, (void)i, (void)context;
    *out = &domain;
    return 0;
}

int fi_fabric(struct fi_fabric_attr *a, struct fid_fabric **out, void *context)
{
    static struct fi_ops_fabric ops = {.size = sizeof ops, .domain = fake_domain};
    static struct fid_fabric fabric = {.fid = {.fclass = FI_CLASS_FABRIC, .ops = &all},
                                       .ops = &ops};

    (void)a, (void)context;
    *out = &fabric;
    return 0;
}

struct fi_info *fi_dupinfo(const struct fi_info *from)
{
    struct all_of {
        struct fi_info info;
        struct fi_ep_attr ep;
        struct fi_tx_attr tx;
        struct fi_rx_attr rx;
        struct fi_domain_attr domain;
        struct fi_fabric_attr fabric;
    } *i = calloc(1, sizeof *i);

    assert_non_null(i);
    assert_null(from);
    i->info.ep_attr = &i->ep;
    i->info.tx_attr = &i->tx;
    i->info.rx_attr = &i->rx;
    i->info.domain_attr = &i->domain;
    i->info.fabric_attr = &i->fabric;
    return &i->info;
}

void fi_freeinfo(struct fi_info *i)
{
    free(i->fabric_attr->prov_name);
    free(i);
}

/* Like the library, refuse whoever does not know what the provider wants. */
int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **out)
{
    (void)version, (void)node, (void)service, (void)flags;
    if (mr_mode & ~(uint64_t)hints->domain_attr->mr_mode)
        return -FI_ENODATA;
    *out = fi_allocinfo();
    (*out)->addr_format = FI_ADDR_STR;
    (*out)->ep_attr->max_msg_size = 1000;
    (*out)->domain_attr->mr_mode = (int)mr_mode;
    (*out)->fabric_attr->prov_name = strdup("fake");
    return 0;
}

const char *fi_strerror(int n) { return n == FI_ENOSYS ? "it is broken" : "?"; }

/* ---- memory ---- */

static const struct row {
    uint64_t mr_mode;
    const char *breaks, *seen;
} rows[] = {
    {0, "", ""},
    {FI_MR_ENDPOINT, "", ""},
    {FI_MR_LOCAL, "", "reg close "},
    {FI_MR_LOCAL | FI_MR_ENDPOINT, "", "reg bind enable close "},
    {FI_MR_LOCAL | FI_MR_ENDPOINT, "reg", "reg "},
    {FI_MR_LOCAL | FI_MR_ENDPOINT, "bind", "reg bind close "},
    {FI_MR_LOCAL | FI_MR_ENDPOINT, "enable", "reg bind enable close "},
};

static void test_memory(void **state)
{
    const struct fabric_ops *f = dptrain_fabric();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        struct fabric_port *p;
        struct err err = {0};
        char bytes[100];
        void *handle;

        mr_mode = r->mr_mode;
        breaks = r->breaks;
        *seen = 0;
        assert_int_equal(f->open("fake", "127.0.0.1", 1000, &p, &err), 0);
        assert_int_equal(f->memory(p, bytes, sizeof bytes, &handle, &err),
                         *r->breaks ? ERR_DEVICE : 0);
        if (*r->breaks)
            assert_non_null(strstr(err.msg, "it is broken"));
        else
            assert_ptr_equal(handle, r->mr_mode & FI_MR_LOCAL ? seen : NULL);
        f->close(p);
        assert_string_equal(seen, r->seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
