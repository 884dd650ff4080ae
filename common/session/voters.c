/* The count of votes that decides which driver leads (voters.h), and the order of formations: a
 * higher term is newer, and within a term a higher generation is newer. */
#include "session/voters.h"

#include <stdio.h>

struct voters voters_of(int64_t term, int64_t generation, int n_ranks, const char *standby)
{
    struct voters v = {.term = term, .generation = generation, .n_ranks = n_ranks};
    snprintf(v.standby, sizeof v.standby, "%s", standby ? standby : "");
    return v;
}

int voters_are_equal(const struct voters *a, const struct voters *b)
{
    return a->term == b->term && a->generation == b->generation;
}

int voters_are_newer(const struct voters *a, const struct voters *b)
{
    return a->term != b->term ? a->term > b->term : a->generation > b->generation;
}

int voters_let_standby_lead(const struct voters *v, int n_followers)
{
    int n_voters = v->n_ranks + 1, n_for = n_followers + 1;
    return n_followers > 0 && 2 * n_for >= n_voters;
}
