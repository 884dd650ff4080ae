/* listing - ranks gather lines and numbers in the order of their samples.  The lines say how many
 * numbers each tensor has. */
#include "train/listing.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "ckpt/safetensors.h"
#include "train/dump.h"
#include "train/trainer_impl.h"

int listing_rests(const struct trainer *t, int64_t n_steps)
{
    const int64_t due = t->job->report.operators;

    return due > 0 && (n_steps == due || n_steps + 1 == due);
}

/* ---- gathering ---- */

/* Bytes of each rank, of which the longest has `room`. */
struct parts {
    int64_t *n; /* [n_ranks] */
    char *data; /* [n_ranks * room] */
    size_t room;
};

static int parts_gather(struct trainer *t, const struct buf *mine, struct parts *p, struct err *err)
{
    const int64_t n = (int64_t)mine->len;
    char *padded = NULL;
    int rc;

    p->n = xcalloc((size_t)t->n_ranks, sizeof *p->n);
    rc = step_allgather(&t->step, PHASE_UPDATE, &n, sizeof n, p->n, err);
    for (int r = 0; r < t->n_ranks && rc == 0; r++)
        p->room = (size_t)max_i64((int64_t)p->room, p->n[r]);
    if (rc < 0 || p->room == 0)
        return rc;
    rc = try_alloc((void **)&padded, p->room, "tensors of operators", err);
    if (rc == 0)
        rc =
            try_alloc((void **)&p->data, p->room * (size_t)t->n_ranks, "tensors of operators", err);
    if (rc == 0) {
        memset(padded, 0, p->room);
        memcpy(padded, mine->data, mine->len);
        rc = step_allgather(&t->step, PHASE_UPDATE, padded, p->room, p->data, err);
    }
    free(padded);
    return rc;
}

/* Put what all ranks have in the place of what this one has. */
static int listing_gather(struct trainer *t, struct buf *mine, struct err *err)
{
    struct parts p = {NULL};
    int rc = 0;

    if (t->n_ranks == 1)
        return 0;
    rc = parts_gather(t, mine, &p, err);
    if (rc == 0)
        buf_clear(mine);
    for (int r = 0; r < t->n_ranks && rc == 0 && p.room > 0; r++)
        rc = buf_try_append(mine, p.data + p.room * (size_t)r, (size_t)p.n[r],
                            "tensors of operators", err);
    free(p.n);
    free(p.data);
    return rc;
}

/* ---- writing ---- */

static int listing_write_lines(const char *path, void *arg, struct err *err)
{
    const struct sights *l = arg;
    int fd, rc = file_create(path, &fd, err);

    if (rc < 0)
        return rc;
    rc = file_put(fd, path, l->lines.data, l->lines.len, err);
    if (rc == 0)
        return file_finish(fd, path, err);
    close(fd);
    return rc;
}

/* The tensors that report.tensor names; their names are the numbers of their first samples. */
struct kept {
    struct st_tensor *tensor;
    int n;
};

/* at: the offset of the next tensor's numbers.  The line may be another rank's. */
static int kept_add(struct kept *k, const json_t *line, const struct sights *l, size_t *at,
                    struct err *err)
{
    const json_t *shape = json_object_get(line, "shape");
    struct st_tensor t = {.dtype = DTYPE_F32, .shape = {.n = (int)json_array_size(shape)}};
    int is_whole = t.shape.n <= SHAPE_MAX_DIMS;

    for (int i = 0; is_whole && i < t.shape.n; i++) {
        t.shape.dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
        is_whole = t.shape.dim[i] >= 0 && t.shape.dim[i] <= (int64_t)l->values.len;
    }
    if (!is_whole || st_bytes(&t) > l->values.len - *at)
        return err_set(err, ERR_PEER, "a rank sent %zu bytes of tensors, and its list has more",
                       l->values.len);
    t.name = xasprintf("%lld", (long long)json_integer_value(json_object_get(line, "first")));
    t.data = l->values.data + *at;
    *at += st_bytes(&t);
    k->tensor = xrealloc(k->tensor, (size_t)(k->n + 1) * sizeof *k->tensor);
    k->tensor[k->n++] = t;
    return 0;
}

static void kept_fini(struct kept *k)
{
    for (int i = 0; i < k->n; i++)
        free((char *)k->tensor[i].name);
    free(k->tensor);
}

static int listing_write_tensor(const char *path, void *arg, struct err *err)
{
    const struct trainer *t = arg;
    const struct sights *l = &t->step.sights;
    const char *text = (const char *)l->lines.data, *end = text + l->lines.len;
    struct kept kept = {NULL};
    struct hash128 hash;
    size_t at = 0;
    int rc = 0;

    while (text < end && rc == 0) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        json_t *line = json_loadb(text, (size_t)((stop ? stop : end) - text), 0, NULL);

        if (json_integer_value(json_object_get(line, "number")) == t->job->report.tensor)
            rc = kept_add(&kept, line, l, &at, err);
        json_decref(line);
        text = stop ? stop + 1 : end;
    }
    if (rc == 0 && kept.n > 0)
        rc = st_write(path, kept.tensor, kept.n, NULL, &hash, err);
    else if (rc == 0)
        rc = err_set(err, ERR_CONFIG,
                     "report.tensor is %lld, want the number of a tensor that "
                     "operators-%08lld.jsonl lists",
                     (long long)t->job->report.tensor, (long long)t->job->report.operators);
    kept_fini(&kept);
    return rc;
}

static void listing_warn(struct trainer *t, int64_t n_steps, const char *failed,
                         const struct err *why)
{
    char *text = xasprintf("the tensors of step %lld could not be %s: %s", (long long)n_steps,
                           failed, why->msg);

    trainer_warn_at(t, n_steps, text);
    free(text);
}

static void listing_write(struct trainer *t, int64_t n_steps)
{
    char *lines = xasprintf("operators-%08lld.jsonl", (long long)n_steps);
    char *tensor = xasprintf("tensor-%08lld.safetensors", (long long)n_steps);
    struct err err;
    int rc = dump_file(t, lines, listing_write_lines, &t->step.sights, &err);

    if (rc == 0 && t->job->report.tensor > 0)
        rc = dump_file(t, tensor, listing_write_tensor, t, &err);
    if (rc < 0)
        listing_warn(t, n_steps, "written", &err);
    free(tensor);
    free(lines);
}

int listing_tell(struct trainer *t, int64_t n_steps, struct err *err)
{
    struct sights *l = &t->step.sights;
    int rc;

    if (t->job->report.operators != n_steps)
        return 0;
    rc = listing_gather(t, &l->lines, err);
    if (rc == 0 && t->job->report.tensor > 0)
        rc = listing_gather(t, &l->values, err);
    if (rc < 0 && t->rank == 0)
        listing_warn(t, n_steps, "gathered, so they could not be written", err);
    else if (rc == 0 && t->rank == 0 && t->o.run_dir)
        listing_write(t, n_steps);
    sights_fini(l);
    return rc < 0 ? err_wrap(err, "tensors of step %lld", (long long)n_steps) : 0;
}
