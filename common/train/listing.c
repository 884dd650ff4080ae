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

enum { GATHERED = 1 << 16, LEAST_PIECE = 1 << 14, LISTING_SHORT = 1 };

/* Bytes travel in pieces of `size`: this rank's, and those of all ranks.  Rank 0 keeps them. */
struct pieces_gathered {
    int64_t *n; /* [n_ranks]: bytes of each rank */
    size_t size;
    char *own, *all;
    struct buf *part; /* [n_ranks]; NULL on other ranks */
};

static void gathered_fini(struct pieces_gathered *g, int n_ranks)
{
    for (int r = 0; g->part && r < n_ranks; r++)
        buf_fini(&g->part[r]);
    free(g->part);
    free(g->all);
    free(g->own);
    free(g->n);
}

/* Rank 0 adds the pieces that begin at byte `at` of each rank.  Fails with ERR_NOMEM. */
static int take_pieces(struct pieces_gathered *g, int n_ranks, int64_t at, struct err *why)
{
    int rc = 0;

    for (int r = 0; r < n_ranks && rc == 0; r++) {
        const int64_t n = min_i64(g->n[r] - at, (int64_t)g->size);

        if (n > 0)
            rc = buf_try_append(&g->part[r], g->all + g->size * (size_t)r, (size_t)n,
                                "tensors of operators", why);
    }
    return rc;
}

/* All ranks send all of their pieces, whether or not rank 0 has room for them.  LISTING_SHORT: it
 * has not, and *why says so. */
static int gather_pieces(struct trainer *t, const struct buf *mine, struct pieces_gathered *g,
                         struct err *why, struct err *err)
{
    const int64_t n = (int64_t)mine->len;
    int64_t longest = 0;
    int is_short = 0, rc = step_allgather(&t->step, PHASE_UPDATE, &n, sizeof n, g->n, err);

    for (int r = 0; r < t->n_ranks && rc == 0; r++) {
        longest = max_i64(longest, g->n[r]);
        if (g->n[r] < 0)
            rc = err_set(err, ERR_PEER, "rank %d has %lld bytes of tensors, want 0 or more", r,
                         (long long)g->n[r]);
    }
    for (int64_t at = 0; at < longest && rc == 0; at += (int64_t)g->size) {
        memset(g->own, 0, g->size);
        if (at < n)
            memcpy(g->own, mine->data + at, (size_t)min_i64(n - at, (int64_t)g->size));
        rc = step_allgather(&t->step, PHASE_UPDATE, g->own, g->size, g->all, err);
        if (rc == 0 && g->part && !is_short)
            is_short = take_pieces(g, t->n_ranks, at, why) < 0;
    }
    return rc == 0 && is_short ? LISTING_SHORT : rc;
}

/* Rank 0 puts what all ranks have in the place of what it has. */
static int listing_gather(struct trainer *t, struct buf *mine, struct err *why, struct err *err)
{
    const size_t n_ranks = (size_t)t->n_ranks;
    struct pieces_gathered g = {.size = (size_t)max_i64(GATHERED / t->n_ranks, LEAST_PIECE)};
    int rc;

    if (n_ranks == 1)
        return 0;
    g.n = xcalloc(n_ranks, sizeof *g.n);
    g.own = xcalloc(1, g.size);
    g.all = xcalloc(n_ranks, g.size);
    g.part = t->rank == 0 ? xcalloc(n_ranks, sizeof *g.part) : NULL;
    rc = gather_pieces(t, mine, &g, why, err);
    if (rc == 0 && g.part)
        buf_clear(mine);
    for (size_t r = 0; r < n_ranks && rc == 0 && g.part; r++)
        if (buf_try_append(mine, g.part[r].data, g.part[r].len, "tensors of operators", why) < 0)
            rc = LISTING_SHORT;
    gathered_fini(&g, t->n_ranks);
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

    size_t left = (l->values.len - *at) / sizeof(float);

    for (int i = 0; is_whole && i < t.shape.n; i++) {
        const int64_t n = json_integer_value(json_array_get(shape, (size_t)i));

        is_whole = n >= 0 && (size_t)n <= left;
        left /= is_whole && n > 0 ? (size_t)n : 1; /* so that no product overflows */
        t.shape.dim[i] = n;
    }
    if (!is_whole || (t.shape.n == 0 && left == 0))
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
                     "report.tensor is %lld, want the number of a tensor that " DUMP_OPERATORS
                     " lists",
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
    char *lines = xasprintf(DUMP_OPERATORS, (long long)n_steps);
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
    struct err why, ignored;
    int is_short = 0, rc;

    if (t->job->report.operators != n_steps)
        return 0;
    rc = listing_gather(t, &l->lines, &why, err);
    if (rc >= 0 && t->job->report.tensor > 0) {
        is_short = rc > 0;
        rc = listing_gather(t, &l->values, is_short ? &ignored : &why, err);
    }
    if (rc == 0 && is_short)
        rc = LISTING_SHORT;
    if (rc != 0 && t->rank == 0)
        listing_warn(t, n_steps, "gathered, so they could not be written", rc < 0 ? err : &why);
    else if (rc == 0 && t->rank == 0 && t->o.run_dir)
        listing_write(t, n_steps);
    sights_fini(l);
    return rc < 0 ? err_wrap(err, "tensors of step %lld", (long long)n_steps) : 0;
}
