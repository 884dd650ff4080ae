/* The invariants at the end of a run in which ranks come and go.
 * Several faults may have happened, so each failure must be explained by one of them. */
#include <string.h>

#include "sim_impl.h"

static int is_in(const char *part, const char *text) { return text && strstr(text, part); }

/* 1: all ranks waited for each other, and for a rank that hangs or cannot be reached. */
static int is_anybodys(const struct sim *s, const char *text)
{
    return is_in("cluster.deadlines", text) &&
           (sim_was_struck(s, INJECT_HANG) || sim_was_struck(s, INJECT_PARTITION));
}

/* The ranks hold different states, so the job ends. */
static int ends_by_state(const char *text)
{
    return is_in("the job ends, and this state is not saved", text) ||
           is_in("the replicas differ after epoch", text);
}

/* The job failed: nothing could mend what happened, and the error names its beginning. */
static void check_elastic_failure(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    int k = s->n_errors ? s->last_error.rank : -1;
    int is_bounded = is_in("given up after", d->text), is_waited = is_in("no replacement", d->text);
    int is_gather = is_in("gather took", d->text) || is_in("ready took", d->text);
    int min = s->min_ranks ? s->min_ranks : s->n;
    if (is_in("perhaps ", d->text) && sim_was_struck(s, INJECT_FLIP))
        return; /* nobody knows which of two ranks is at fault */
    if (ends_by_state(d->text)) {
        if (!sim_was_struck(s, INJECT_FLIP))
            sim_fail(s, "all bits were right: %s", d->text);
        if (s->heals && s->way.kind != WAY_SHARDS)
            sim_fail(s, "most ranks were right, so it could have gone on: %s", d->text);
        return;
    }
    if (!s->n_struck && !s->has_fired)
        sim_fail(s, "nothing went wrong, and it failed: %s", d->text);
    else if (k == 0 && s->struck[0] >> INJECT_FLIP & 1 &&
             (is_in("no standby can lead", d->text) || is_in("holds a wrong state", d->text) ||
              is_in("computes wrong gradients", d->text)))
        return; /* the driver's own rank has no replacement; here, unlike in step/witness.c, another
                   rank that is wrong may fail before the driver has heard of the verdict */
    else if (k == 0 && !is_in("cluster.deadlines", d->text) && !sim_was_struck(s, INJECT_HANG))
        sim_fail(s, "rank 0 is blamed: %s", d->text);
    else if (!is_bounded && !is_waited && !is_gather && s->replace_ms > 0 && k > 0)
        sim_fail(s, "it could have waited for a replacement: %s", d->text);
    else if (is_waited && min == 1)
        sim_fail(s, "it could have gone on with one rank: %s", d->text);
    else if (s->n_errors != 1)
        sim_fail(s, "%d error events, want 1", s->n_errors);
    else if (!is_gather && !is_bounded && s->error_node > 0 && !is_anybodys(s, d->text) &&
             !sim_is_true(s, s->error_node, d->text))
        sim_fail(s, "node %d is blamed, and that is not what befell it: %s", s->error_node,
                 d->text);
}

/* A drained follower does not come back, whatever happened to it or to the driver, as long as
 * the driver's word could reach it.  If nothing happened to it, it was told that it was drained,
 * or how the job ended. */
static void check_drained(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    const unsigned drain = 1u << INJECT_DRAIN;
    const unsigned hears = drain | 1u << INJECT_HANG | 1u << INJECT_FREEZE |
                           1u << INJECT_FREEZE_SHORT | 1u << INJECT_FAULT | 1u << INJECT_LEAVE |
                           1u << INJECT_CLOCK_LEAP | 1u << INJECT_CLOCK_STALL;
    for (int k = 1; k < s->n_nodes; k++) {
        const struct node *n = &s->nodes[k];
        if (!n->drained_life || !n->is_finished || s->struck[k] & ~hears)
            continue;
        int is_told = s->struck[k] != drain || !d->text || !strcmp(n->text, d->text) ||
                      is_in("drained by the operator of the driver", n->text);
        if (n->life != n->drained_life || n->status != STATUS_STOPPED || n->retry || !is_told)
            sim_fail(s, "node %d was drained and ends with %d (retry %d): %s", k, n->status,
                     n->retry, n->text);
    }
}

/* All nodes that were there to the end hold all the steps, and end as the driver does. */
static void check_elastic_end(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    for (int k = 1; k < s->n_nodes; k++) {
        const struct node *n = &s->nodes[k];
        if (!n->is_finished || s->struck[k] || n->rank < 1 || n->is_restarted)
            continue;
        if (strcmp(n->text, d->text))
            sim_fail(s, "node %d ends with \"%s\", the driver with \"%s\"", k, n->text, d->text);
    }
}

/* A follower that nothing befell is told that the job is finished: if its driver was killed before
 * it could say so, by the driver after that one. */
static void check_told(struct sim *s)
{
    for (int k = 1; k < s->n; k++) {
        const struct node *n = &s->nodes[k];
        if (!s->struck[k] && !n->is_restarted && n->status != STATUS_OK)
            sim_fail(s, "node %d, which nothing befell, ends with %d: %s", k,
                     n->is_finished ? n->status : -1, n->text);
    }
}

/* Whatever befell the driver, the run ends as it should. */
void sim_check_leaders(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    sim_check_ended(s);
    if (d->is_finished && is_in("given up after 3 recoveries", d->text) && s->n_struck > 3)
        return; /* faults came one after another, faster than a step */
    if (d->is_finished && s->n_split > 0 && ends_by_state(d->text)) {
        s->r->n_halved++;
        return; /* one of two followers was wrong, and nobody knows which one */
    }
    if (!d->is_finished || d->status != STATUS_OK)
        sim_fail(s, "the driver ends with %d: %s", d->is_finished ? d->status : -1, d->text);
    else if (s->n_epoch_events != s->n_epochs || s->n_done < 1 || s->n_errors)
        sim_fail(s, "it succeeded with %d epochs, %d done, %d errors", s->n_epoch_events, s->n_done,
                 s->n_errors);
    check_told(s);
}

void sim_check_elastic(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    int is_driver_killed = s->struck[0] >> INJECT_KILL_DRIVER & 1;
    sim_check_ended(s);
    check_drained(s);
    if (is_driver_killed)
        return;
    if (!d->is_finished) {
        sim_fail(s, "the driver never ends");
        return;
    }
    check_elastic_end(s);
    if (d->status == STATUS_OK) {
        if (s->n_epoch_events != s->n_epochs || s->n_done != 1 || s->n_errors)
            sim_fail(s, "it succeeded with %d epochs, %d done, %d errors", s->n_epoch_events,
                     s->n_done, s->n_errors);
    } else if (d->status == STATUS_STOPPED) {
        if (!sim_was_struck(s, INJECT_STOP))
            sim_fail(s, "nobody stopped it: %s", d->text);
    } else {
        check_elastic_failure(s);
    }
}
