/* part - cuts the tensors of a checkpoint into the pieces that one rank writes.
 *
 * A tensor's elements lie in the flat space of parameters, which is cut into buckets and these into
 * one span for each rank.  So a tensor has a piece for each span that it overlaps. */
#include "state/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "state/shards.h"
#include "strategy/cut.h"

static void part_add(struct part *p, struct draft_piece piece, struct part_source from)
{
    struct draft_piece *all = (struct draft_piece *)p->files.piece;
    const int n = p->files.n++;

    ASSERT(piece.n_bytes > 0 && piece.at >= 0);
    if ((n & (n - 1)) == 0) { /* at each power of two the room doubles */
        all = xrealloc(all, sizeof *all * 2 * ((size_t)n + 1));
        p->source = xrealloc(p->source, sizeof *p->source * 2 * ((size_t)n + 1));
    }
    all[n] = piece;
    p->source[n] = from;
    p->files.piece = all;
    p->n_bytes += piece.n_bytes;
}

/* The ranks write the tensor together: it is of a divided slot, or one of trained parameters. */
static int is_cut(const struct state *s, const struct contents_source *from)
{
    const struct slot_def *d;

    if (from->slot < 0)
        return 0;
    d = s->slot[from->slot].def;
    if (s->slot[from->slot].is_divided)
        return 1;
    return (d->scope == SLOT_PER_PARAMETER || d->scope == SLOT_PER_TRAINED) &&
           from->at < dtype_size(d->dtype) * (size_t)s->layout->n_trained;
}

/* Add the pieces of a tensor that lie in the rank's spans.  `all`: the whole tensor. */
static void add_spans(struct part *p, const struct state *s, const struct contents_source *from,
                      struct draft_piece all, int size, int rank)
{
    const int64_t e = (int64_t)dtype_size(s->slot[from->slot].def->dtype);
    const int64_t begin = (int64_t)from->at / e, end = begin + all.n_bytes / e;

    for (int b = 0; b < shard_n_buckets(s, from->slot); b++) {
        const struct coll_span span = cut_span(s->layout, b, size, rank);
        const int64_t at = s->layout->bucket[b].offset + span.at;
        const int64_t first = max_i64(begin, at), last = min_i64(end, at + span.n);

        if (first < last)
            part_add(
                p, (struct draft_piece){all.file, all.at + e * (first - begin), e * (last - first)},
                (struct part_source){from->slot, b, (size_t)(e * first), NULL});
    }
}

void part_init(struct part *p, const struct contents *c, const struct state *s, int size, int rank)
{
    ASSERT(size >= 1 && rank >= 0 && rank < size);
    *p = (struct part){0};
    for (int f = 0; f < CONTENTS_FILES; f++) {
        int64_t at = 0;

        for (int i = 0; i < c->n[f]; i++) {
            const struct contents_source *from = &c->source[f][i];
            const struct draft_piece all = {f, at, (int64_t)st_bytes(&c->tensor[f][i])};

            if (is_cut(s, from))
                add_spans(p, s, from, all, size, rank);
            else if (rank == 0 && all.n_bytes > 0)
                part_add(p, all, (struct part_source){from->slot, -1, from->at, from->kept});
            at += all.n_bytes;
        }
    }
}

void part_fini(struct part *p)
{
    free((void *)p->files.piece);
    free(p->source);
    *p = (struct part){0};
}

/* The address of the piece in the backend's memory. */
static const char *part_address(const struct state *s, const struct part_source *from)
{
    const struct shard_set *set = &s->shards->now;
    int64_t span;

    if (!s->slot[from->slot].is_divided) {
        ASSERT(s->slot[from->slot].data && from->at < s->slot[from->slot].n_bytes);
        return (const char *)s->slot[from->slot].data + from->at;
    }
    ASSERT(from->bucket >= 0 && from->bucket < shard_n_buckets(s, from->slot));
    ASSERT(set->size > 0 && set->data[from->slot][SHARD_OWN]);
    span = s->layout->bucket[from->bucket].offset +
           cut_span(s->layout, from->bucket, set->size, set->rank).at;
    return (const char *)set->data[from->slot][SHARD_OWN] +
           shard_offset(s, from->slot, set->size, set->rank, from->bucket) + from->at -
           dtype_size(s->slot[from->slot].def->dtype) * (size_t)span;
}

int part_copy(const struct part *p, const struct contents *c, const struct state *s, char *to,
              struct err *err)
{
    const char *const begin = to;
    int rc = 0;

    for (int i = 0; i < p->files.n && rc == 0; to += p->files.piece[i++].n_bytes)
        if (p->source[i].slot == CONTENTS_COUNT)
            memcpy(to, &c->files.state.n_updates, sizeof c->files.state.n_updates);
        else if (p->source[i].slot == CONTENTS_KEPT)
            memcpy(to, p->source[i].kept, (size_t)p->files.piece[i].n_bytes);
        else
            rc = backend_copy_out(s->backend, to, part_address(s, &p->source[i]),
                                  (size_t)p->files.piece[i].n_bytes, err);
    ASSERT(rc < 0 || to - begin == p->n_bytes);
    return rc;
}
