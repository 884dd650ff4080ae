/* pieces - where the trained parameters are cut for an optimizer that updates matrices by an
 * operator of their own: each matrix is a piece, and so is each run of other parameters between
 * two. */
#include "step/pieces.h"

#include "optim/optimizer.h"

int pieces_is_matrix(const struct job *job, const struct segment *s)
{
    return optimizer_takes_matrix(&job->optimizer, s->name, s->info.kind, &s->shape);
}

static int pieces_is_trained(const struct layout *l, int i)
{
    return i < l->n_params && !l->param[i].info.frozen;
}

int pieces_params(const struct job *job, const struct layout *l, int i)
{
    int n = 1;

    while (!pieces_is_matrix(job, &l->param[i]) && pieces_is_trained(l, i + n) &&
           !pieces_is_matrix(job, &l->param[i + n]))
        n++;
    return n;
}

int pieces_count(const struct job *job, const struct layout *l)
{
    int n = 0;

    for (int i = 0; job->optimizer.kind->matrices && pieces_is_trained(l, i); n++)
        i += pieces_params(job, l, i);
    return n;
}
