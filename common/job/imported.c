/* imported - model.import in the reading of a job, and the network's way from the file or the run's
 * folder to the job, and from there to other processes. */
#include "job/imported.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/arch.h"
#include "import/folder.h"
#include "import/lower.h"
#include "import/onnx.h"
#include "import/pack.h"
#include "import/pt2.h"

enum { IMPORTED_MOST_BYTES = 60 << 20 }; /* a frame of the control plane holds so much */

/* ---- the job's text ---- */

static struct given *imported_given(const struct reader *r, const char *key)
{
    const struct option_ref *ref = table_find(r->list, key);

    ASSERT(ref);
    return &r->given[ref->first];
}

static int imported_give(struct reader *r, const char *key, struct given value, const char *text,
                         struct err *err)
{
    value.text = text;
    value.len = strlen(text);
    value.is_quoted = value.is_list = value.is_none = 0;
    return read_give(r, table_find(r->list, key), &value, NULL, err);
}

/* Without data.tokenizer, texts have the tokens of the network's own tokenizer. */
static int imported_fill_tokenizer(struct reader *r, const struct given *folder, struct err *err)
{
    char *path;
    int rc = 0;

    if (imported_given(r, "data.tokenizer")->text)
        return 0;
    path = xasprintf("%.*s/tokenizer.json", (int)folder->len, folder->text);
    if (access(path, F_OK) == 0)
        rc = imported_give(r, "data.tokenizer", (struct given){.from = FROM_DEFAULT}, path, err);
    free(path);
    return rc;
}

int imported_fill(struct reader *r, struct err *err)
{
    const struct given *file = imported_given(r, "model.import"),
                       *arch = imported_given(r, "model.arch"),
                       *init = imported_given(r, "model.init.name");
    const char *const name = arch_import.group.name;
    int rc = 0;

    if (!file->text || file->is_none)
        return 0;
    if (arch->text && strcmp(arch->text, name) != 0) {
        if (arch->from == FROM_SET && file->from == FROM_FILE)
            return err_set(err, ERR_CONFIG,
                           "--set: model.arch is %.40s, and the job file has model.import; want "
                           "--set model.import=none beside it",
                           arch->text);
        if (arch->from == file->from)
            return err_set(err, ERR_CONFIG,
                           "%s: model.arch is %.40s, and model.import is given, too; want one of "
                           "them: a network of dptrain, or one that PyTorch exported",
                           r->origin, arch->text);
    }
    if (!arch->text || strcmp(arch->text, name) != 0)
        rc = imported_give(r, "model.arch", *file, name, err);
    if (rc == 0 && !init->text)
        rc = imported_give(r, "model.init.name", (struct given){.from = FROM_DEFAULT}, "import",
                           err);
    return rc == 0 ? imported_fill_tokenizer(r, file, err) : rc;
}

/* ---- the network ---- */

static struct import_options *imported_options(struct job *job)
{
    const struct import_options *o = import_options_of(&job->model);

    return (struct import_options *)(uintptr_t)o; /* in the job's own arena */
}

/* Append the whole file.  > 0: there is none. */
static int imported_load(const char *path, struct buf *out, struct err *err)
{
    FILE *f = fopen(path, "rbe");
    struct stat st;
    int rc = 0;

    if (!f)
        return errno == ENOENT ? 1 : err_sys(err, errno, "%s", path);
    if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > IMPORTED_MOST_BYTES)
        rc = err_set(err, ERR_CORRUPT, "%s is no packed network (want a file of at most %d bytes)",
                     path, IMPORTED_MOST_BYTES);
    if (rc == 0) {
        uint8_t *to = buf_reserve(out, (size_t)st.st_size + 1);

        out->len += fread(to, 1, (size_t)st.st_size, f);
        if (ferror(f) || out->len != (size_t)st.st_size)
            rc = err_sys(err, errno, "%s", path);
    }
    fclose(f);
    return rc;
}

/* Read the file of model.import, with the remedy where it cannot be read. */
static int imported_read_file(const struct import_options *o, struct import_network **out,
                              struct err *err)
{
    struct stat st;

    int rc;

    if (stat(o->path, &st) < 0)
        return err_sys(err, errno,
                       "model.import: %s (torch.export.save and torch.onnx.export write such "
                       "files, and save_pretrained such folders; "
                       "paths are relative to the job file)",
                       o->path);
    if (folder_is(o->path))
        rc = folder_read(o->path, o->context, out, err);
    else if (o->context)
        rc = err_set(err, ERR_CONFIG,
                     "model.context is of networks that a folder describes; %s is a file, whose "
                     "network has its own number of tokens: leave it out",
                     o->path);
    else
        rc = onnx_is_name(o->path) ? onnx_read(o->path, out, err) : pt2_read(o->path, out, err);
    return rc < 0 ? err_wrap(err, "model.import") : 0;
}

/* The job's network is `n`, which becomes the job's, in these bytes. */
static void imported_set(struct job *job, struct import_network *n, const void *packed, size_t len)
{
    struct import_options *o = imported_options(job);
    void *copy = arena_alloc(&job->arena, len + 1);

    memcpy(copy, packed, len);
    o->network = n;
    o->packed = copy;
    o->n_packed = len;
}

/* 1: the networks are equal but for the names of their file and of its writer, and the elements of
 * parameters.  Those of n are changed. */
static int imported_is_same(struct import_network *n, const struct import_options *o)
{
    const char *const path = n->path, *const writer = n->writer;
    const struct import_network *own = o->network;
    struct buf other = {0};
    struct err ignored;
    int same;

    n->path = own->path;
    n->writer = own->writer;
    for (int i = 0; i < n->n_tensors && n->n_tensors == own->n_tensors; i++) {
        n->tensor[i].is_even = own->tensor[i].is_even;
        n->tensor[i].even = own->tensor[i].even;
    }
    same = import_pack(n, &other, &ignored) == 0 && other.len == o->n_packed &&
           !memcmp(other.data, o->packed, other.len);
    n->path = path;
    n->writer = writer;
    buf_fini(&other);
    return same;
}

/* The run goes on with its own network; the file's is compared with it. */
static void imported_doubt(const struct import_options *o, char **doubt)
{
    struct import_network *now = NULL;
    struct err why;

    if (imported_read_file(o, &now, &why) < 0)
        *doubt = xasprintf("%s; the run goes on with the network that its folder has", why.msg);
    else if (!imported_is_same(now, o))
        *doubt = xasprintf("model.import: %s holds another network now than when the run began; "
                           "the run goes on with the one in its folder (a new run takes the new "
                           "one)",
                           o->path);
    import_network_free(now);
}

/* > 0: the run has kept no network. */
static int imported_of_run(struct job *job, const char *run, char **doubt, struct err *err)
{
    struct import_network *n;
    char *path = xasprintf("%s/" IMPORTED_FILE, run);
    struct buf packed = {0};
    int rc = imported_load(path, &packed, err);

    if (rc == 0 && import_unpack(packed.data, packed.len, &n, err) < 0)
        rc = err_wrap(err, "%s", path);
    if (rc == 0) {
        imported_set(job, n, packed.data, packed.len);
        imported_doubt(imported_options(job), doubt);
    }
    buf_fini(&packed);
    free(path);
    return rc;
}

static int imported_of_file(struct job *job, struct err *err)
{
    struct import_network *n = NULL;
    struct buf packed = {0};
    int rc = imported_read_file(imported_options(job), &n, err);

    if (rc == 0)
        rc = import_pack(n, &packed, err);
    if (rc == 0 && packed.len > IMPORTED_MOST_BYTES)
        rc = err_set(err, ERR_CONFIG,
                     "%s: the network has %zu bytes with its constants, want at most %d", n->path,
                     packed.len, IMPORTED_MOST_BYTES);
    if (rc == 0)
        imported_set(job, n, packed.data, packed.len);
    else
        import_network_free(n);
    buf_fini(&packed);
    return rc;
}

/* Name all operators that are missing at once. */
static int imported_check(const struct import_network *n, struct err *err)
{
    struct buf missing = {0};
    const int kinds = import_check(n, &missing);
    int rc = 0;

    for (size_t i = 0; i < missing.len; i++) /* lines become a list */
        if (missing.data[i] == '\n')
            missing.data[i] = i + 1 < missing.len ? ';' : 0;
    if (kinds > 0)
        rc = err_set(
            err, ERR_UNSUPPORTED, "model.import: %s has %d operator%s that dptrain lacks: %s%s",
            n->path, kinds, kinds > 1 ? "s" : "", buf_cstr(&missing),
            onnx_is_name(n->path)
                ? ""
                : "; torch.export.export(...).run_decompositions() may write it in others");
    buf_fini(&missing);
    return rc;
}

char *imported_mode(const struct job *job)
{
    const struct import_options *o = import_options_of(&job->model);

    if (o && o->network && o->network->doubt)
        return xasprintf("model.import: %s", o->network->doubt);
    if (!o || !o->network || !o->network->is_eval)
        return NULL;
    return xasprintf("model.import: %s was exported in evaluation mode; its modules train all the "
                     "same, but dropout by functions may be gone from the file (export the network "
                     "after net.train())",
                     o->path);
}

int imported_read(struct job *job, const char *run, char **doubt, struct err *err)
{
    struct import_options *o = imported_options(job);
    int rc = 1;

    *doubt = NULL;
    if (!o || o->network)
        return 0;
    if (run)
        rc = imported_of_run(job, run, doubt, err);
    if (rc > 0)
        rc = imported_of_file(job, err);
    return rc == 0 ? imported_check(o->network, err) : rc;
}

void imported_pack(const struct job *job, struct buf *out)
{
    const struct import_options *o = import_options_of(&job->model);

    if (o && o->n_packed)
        buf_append(out, o->packed, o->n_packed);
}

void job_pack(const struct job *job, struct buf *out)
{
    job_write(job, out);
    if (!import_options_of(&job->model))
        return;
    buf_append(out, "", 1);
    imported_pack(job, out);
}

int job_unpack(const void *data, size_t len, const char *origin, struct job **out, struct err *err)
{
    const char *text = data, *end = len ? memchr(text, 0, len) : NULL;
    const size_t n = end ? (size_t)(end - text) : len;
    const struct import_options *o;
    struct import_network *network;
    struct job *job;
    int rc = job_parse(text, n, origin, NULL, &job, err);

    if (rc < 0)
        return rc;
    o = import_options_of(&job->model);
    if (!o && end)
        rc = err_set(err, ERR_CORRUPT, "%s: %zu bytes behind a job that imports no network", origin,
                     len - n);
    else if (o && (!end || len - n < 2))
        rc = err_set(err, ERR_CORRUPT, "%s imports a network, which is not behind it", origin);
    else if (o && import_unpack(end + 1, len - n - 1, &network, err) < 0)
        rc = err_wrap(err, "%s: the network of model.import", origin);
    else if (o)
        imported_set(job, network, end + 1, len - n - 1);
    if (rc < 0)
        job_free(job);
    else
        *out = job;
    return rc;
}
