/* libcurl, and what is asked of each cloud.
 *
 * No header of libcurl's is needed for the build: the few functions, options and their numbers,
 * which its ABI keeps, are written out here (curl.h of libcurl 7.32 to 8). */
#include "daemon/metadata.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/util.h"
#include "daemon/metadata_read.h"

enum { METADATA_MS = 5000, METADATA_BYTES = 64 << 10, TOKEN_USED_S = 3600 };

#define ADDRESS "http://169.254.169.254/"

/* ---- libcurl ---- */

enum { /* CURLOPT_ and CURLINFO_ */
       OPT_NOPROGRESS = 43,
       OPT_NOSIGNAL = 99,
       OPT_TIMEOUT_MS = 155,
       OPT_WRITEDATA = 10001,
       OPT_URL = 10002,
       OPT_ERRORBUFFER = 10010,
       OPT_HTTPHEADER = 10023,
       OPT_CUSTOMREQUEST = 10036,
       OPT_XFERINFODATA = 10057,
       OPT_NOPROXY = 10177,
       OPT_WRITEFUNCTION = 20011,
       OPT_XFERINFOFUNCTION = 20219,
       INFO_RESPONSE_CODE = 0x200002,
       ERROR_SIZE = 256
};

/* X(member, name in the library, result, arguments) */
#define CURL_FUNCTIONS(X)                                                        \
    X(global_init, "curl_global_init", int, (long flags))                        \
    X(init, "curl_easy_init", void *, (void))                                    \
    X(reset, "curl_easy_reset", void, (void *curl))                              \
    X(setopt, "curl_easy_setopt", int, (void *curl, int option, ...))            \
    X(perform, "curl_easy_perform", int, (void *curl))                           \
    X(getinfo, "curl_easy_getinfo", int, (void *curl, int info, ...))            \
    X(cleanup, "curl_easy_cleanup", void, (void *curl))                          \
    X(strerror, "curl_easy_strerror", const char *, (int code))                  \
    X(slist_append, "curl_slist_append", void *, (void *list, const char *text)) \
    X(slist_free, "curl_slist_free_all", void, (void *list))

#define X(member, name, result, arguments) typedef result curl_##member##_fn arguments;
CURL_FUNCTIONS(X)
#undef X

struct metadata {
    enum metadata_cloud cloud;
    void *library, *curl;
#define X(member, name, result, arguments) curl_##member##_fn *member;
    CURL_FUNCTIONS(X)
#undef X
    struct buf body;
    int stop_fd;
    char *token; /* AWS's; NULL: none yet */
    int64_t token_ns;
    char *vm; /* Azure's name of this machine; NULL: not known yet */
};

/* A pointer to a function cannot be converted to one to an object, but their bytes are equal. */
static int curl_find(struct metadata *m, const char *name, void *out, struct err *err)
{
    void *found = dlsym(m->library, name);

    if (!found)
        return err_set(err, ERR_UNSUPPORTED, "libcurl has no function %s", name);
    memcpy(out, &found, sizeof found);
    return 0;
}

static int load_curl(struct metadata *m, struct err *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(names) && !m->library; i++)
        m->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!m->library)
        return err_set(err, ERR_UNSUPPORTED,
                       "this machine is of %s, whose notices are read by libcurl, and that cannot "
                       "be loaded: %s; install it (Debian's libcurl4), or say cluster.notice: none",
                       metadata_name(m->cloud), dlerror());
#define X(member, name, result, arguments) \
    if (rc == 0)                           \
        rc = curl_find(m, name, &m->member, err);
    CURL_FUNCTIONS(X)
#undef X
    if (rc < 0)
        return rc;
    m->curl = m->global_init(0) == 0 ? m->init() : NULL;
    return m->curl ? 0 : err_set(err, ERR_UNSUPPORTED, "libcurl cannot be started");
}

/* An answer that is too long breaks the request off. */
static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct metadata *m = arg;

    if (m->body.len + size * n > METADATA_BYTES)
        return 0;
    buf_append(&m->body, data, size * n);
    return size * n;
}

/* 1 breaks the request off.  libcurl calls this at least once a second. */
static int on_progress(void *arg, int64_t n_down, int64_t got, int64_t n_up, int64_t sent)
{
    struct pollfd p = {.fd = ((struct metadata *)arg)->stop_fd, .events = POLLIN};

    (void)n_down;
    (void)got;
    (void)n_up;
    (void)sent;
    return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Make the request, whose answer comes into m->body.  Returns the status (200, 404, ...). */
static int metadata_get(struct metadata *m, const char *method, const char *path,
                        const char *header, struct err *err)
{
    char *url = xasprintf(ADDRESS "%s", path), why[ERROR_SIZE] = "";
    void *headers = m->slist_append(NULL, header);
    long status = 0;
    int rc;

    buf_clear(&m->body);
    m->reset(m->curl);
    m->setopt(m->curl, OPT_URL, url);
    m->setopt(m->curl, OPT_NOPROXY, "*");
    m->setopt(m->curl, OPT_NOSIGNAL, 1L);
    m->setopt(m->curl, OPT_TIMEOUT_MS, (long)METADATA_MS);
    m->setopt(m->curl, OPT_CUSTOMREQUEST, method);
    m->setopt(m->curl, OPT_HTTPHEADER, headers);
    m->setopt(m->curl, OPT_ERRORBUFFER, why);
    m->setopt(m->curl, OPT_WRITEFUNCTION, on_body);
    m->setopt(m->curl, OPT_WRITEDATA, m);
    m->setopt(m->curl, OPT_NOPROGRESS, 0L);
    m->setopt(m->curl, OPT_XFERINFOFUNCTION, on_progress);
    m->setopt(m->curl, OPT_XFERINFODATA, m);
    rc = m->perform(m->curl);
    if (rc == 0)
        m->getinfo(m->curl, INFO_RESPONSE_CODE, &status);
    m->slist_free(headers);
    free(url);
    if (rc != 0)
        return err_set(err, ERR_IO, "%s", why[0] ? why : m->strerror(rc));
    return (int)status;
}

static int bad_status(struct err *err, int status)
{
    return err_set(err, ERR_IO, "it answers with status %d, want 200", status);
}

/* ---- the clouds ---- */

/* Another token each hour: each is good for six. */
static int aws_token(struct metadata *m, struct err *err)
{
    int status;

    if (m->token && clock_since_s(m->token_ns) < TOKEN_USED_S)
        return 0;
    free(m->token);
    m->token = NULL;
    status = metadata_get(m, "PUT", "latest/api/token",
                          "X-aws-ec2-metadata-token-ttl-seconds: 21600", err);
    if (status != 200)
        return status < 0 ? status : bad_status(err, status);
    m->token = xasprintf("X-aws-ec2-metadata-token: %s", buf_cstr(&m->body));
    m->token[strcspn(m->token, "\r\n")] = '\0';
    m->token_ns = clock_mono_ns();
    return 0;
}

static int ask_aws(struct metadata *m, struct notice *out, struct err *err)
{
    int rc = aws_token(m, err), status;

    if (rc < 0)
        return rc;
    status = metadata_get(m, "GET", "latest/meta-data/spot/instance-action", m->token, err);
    if (status == 404 || status < 0) /* there is no action, or no answer */
        return status == 404 ? 0 : status;
    if (status == 200)
        return metadata_read_aws((char *)m->body.data, m->body.len, (int64_t)time(NULL), out, err);
    free(m->token); /* it may have become void */
    m->token = NULL;
    return bad_status(err, status);
}

static int ask_gcp(struct metadata *m, struct notice *out, struct err *err)
{
    static const char *const paths[] = {"computeMetadata/v1/instance/preempted",
                                        "computeMetadata/v1/instance/maintenance-event"};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(paths) && rc == 0; i++) {
        int status = metadata_get(m, "GET", paths[i], "Metadata-Flavor: Google", err);

        if (status != 200)
            return status < 0 ? status : bad_status(err, status);
        rc = metadata_read_gcp((char *)m->body.data, m->body.len, out, err);
    }
    return rc;
}

static int azure_name(struct metadata *m, struct err *err)
{
    int status;

    if (m->vm)
        return 0;
    status =
        metadata_get(m, "GET", "metadata/instance/compute/name?api-version=2021-02-01&format=text",
                     "Metadata: true", err);
    if (status != 200)
        return status < 0 ? status : bad_status(err, status);
    m->vm = xstrdup(buf_cstr(&m->body));
    m->vm[strcspn(m->vm, "\r\n")] = '\0';
    return 0;
}

static int ask_azure(struct metadata *m, struct notice *out, struct err *err)
{
    int rc = azure_name(m, err), status;

    if (rc < 0)
        return rc;
    status = metadata_get(m, "GET", "metadata/scheduledevents?api-version=2020-07-01",
                          "Metadata: true", err);
    if (status != 200)
        return status < 0 ? status : bad_status(err, status);
    return metadata_read_azure((char *)m->body.data, m->body.len, m->vm, (int64_t)time(NULL), out,
                               err);
}

static const struct cloud {
    const char *name;
    int (*ask)(struct metadata *m, struct notice *out, struct err *err);
} clouds[] = {[METADATA_AWS] = {"aws", ask_aws},
              [METADATA_GCP] = {"gcp", ask_gcp},
              [METADATA_AZURE] = {"azure", ask_azure}};

const char *metadata_name(enum metadata_cloud cloud) { return clouds[cloud].name; }

int metadata_ask(struct metadata *m, int stop_fd, struct notice *out, struct err *err)
{
    int rc;

    m->stop_fd = stop_fd;
    rc = clouds[m->cloud].ask(m, out, err);
    return rc < 0 ? err_wrap(err, "the metadata service of %s at 169.254.169.254",
                             metadata_name(m->cloud))
                  : rc;
}

/* ---- the machine ---- */

/* The maker's word of this name, or "". */
static void read_maker_word(const char *dmi, const char *name, char out[128])
{
    char *path = xasprintf("%s/%s", dmi, name);
    FILE *f = fopen(path, "re");

    out[0] = '\0';
    if (f && !fgets(out, 128, f))
        out[0] = '\0';
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
    free(path);
}

/* The tag is that of every machine of Azure, which Hyper-V elsewhere does not have. */
enum metadata_cloud metadata_find(const char *dmi)
{
    char vendor[128], product[128], tag[128], bios[128];

    dmi = dmi ? dmi : getenv(METADATA_VARIABLE);
    dmi = dmi ? dmi : "/sys/class/dmi/id";
    read_maker_word(dmi, "sys_vendor", vendor);
    read_maker_word(dmi, "product_name", product);
    read_maker_word(dmi, "chassis_asset_tag", tag);
    read_maker_word(dmi, "bios_version", bios);
    if (!strcmp(vendor, "Amazon EC2") || strstr(bios, "amazon")) /* the latter under Xen */
        return METADATA_AWS;
    if (!strcmp(product, "Google Compute Engine"))
        return METADATA_GCP;
    if (!strcmp(vendor, "Microsoft Corporation") &&
        !strcmp(tag, "7783-7084-3265-9085-8269-3286-77"))
        return METADATA_AZURE;
    return METADATA_NONE;
}

int metadata_open(enum metadata_cloud cloud, struct metadata **out, struct err *err)
{
    struct metadata *m = xcalloc(1, sizeof *m);

    ASSERT(cloud != METADATA_NONE);
    m->cloud = cloud;
    if (load_curl(m, err) < 0) {
        metadata_close(m);
        return err->code;
    }
    *out = m;
    return 0;
}

/* The library stays loaded: it may have started things of its own. */
void metadata_close(struct metadata *m)
{
    if (!m)
        return;
    if (m->curl)
        m->cleanup(m->curl);
    buf_fini(&m->body);
    free(m->token);
    free(m->vm);
    free(m);
}
