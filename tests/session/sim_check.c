/* The invariants at the end of a plain run, when nothing more happens.
 * Each kind of fault has its own. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "sim_impl.h"

static int is_in(const char *part, const char *text) { return text && strstr(text, part); }

static int was_gathering(const struct sim *s) { return s->fired_stage <= STAGE_GATHER; }

/* 1: the follower's own link or process broke, so it cannot know what the others know. */
static int is_cut_off(const struct sim *s, int k)
{
    switch (s->inject) {
    case INJECT_KILL:
    case INJECT_DROP:
    case INJECT_SILENCE:
    case INJECT_SILENCE_IN:
    case INJECT_SILENCE_OUT:
    case INJECT_FREEZE:
    case INJECT_GARBAGE:
    case INJECT_LEAVE:
    case INJECT_DRAIN:
    case INJECT_CLOCK_STALL:
        return s->has_fired && k == s->victim;
    case INJECT_FAULT: /* in open the follower leaves by itself */
        return s->has_fired && k == s->victim && s->nodes[k].status == STATUS_USAGE;
    case INJECT_KILL_DRIVER:
    case INJECT_FREEZE_DRIVER:
        return s->has_fired;
    default:
        return 0;
    }
}

void sim_check_ended(struct sim *s)
{
    for (int k = 0; k < s->n_nodes; k++) {
        const struct node *n = &s->nodes[k];
        if (n->is_alive && !n->is_finished && n->thaw != NEVER)
            sim_fail(s, "node %d never ends", k);
        int may_be_stuck = s->inject == INJECT_STOP_TWICE || (s->struck[k] >> INJECT_HANG & 1);
        if (n->is_finished && n->is_engine_stuck && !may_be_stuck)
            sim_fail(s, "node %d left its engine stuck", k);
    }
}

static int is_joined(const struct sim *s, int k)
{
    const struct node *n = &s->nodes[k];
    return k < s->n && n->is_finished && n->rank >= 1;
}

/* Every rank that could hear the driver ends with the driver's text and status. */
static void check_one_cause(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    for (int k = 1; d->is_finished && k < s->n; k++) {
        const struct node *n = &s->nodes[k];
        if (!is_joined(s, k) || is_cut_off(s, k))
            continue;
        int status = d->status == STATUS_USAGE ? STATUS_FAILED : d->status;
        if (s->inject == INJECT_STOP_TWICE && n->status == STATUS_FAILED)
            status = STATUS_FAILED; /* Abort, by the operator */
        if (strcmp(n->text, d->text))
            sim_fail(s, "node %d ends with \"%s\", the driver with \"%s\"", k, n->text, d->text);
        else if (n->status != status || n->retry == n->is_engine_stuck)
            sim_fail(s, "node %d ends with status %d (retry %d), the driver with %d", k, n->status,
                     n->retry, d->status);
    }
}

static void check_success(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (!d->is_finished || d->status != STATUS_OK)
        sim_fail(s, "the job should have succeeded: status %d: %s", d->status, d->text);
    else if (s->n_epoch_events != s->n_epochs || s->n_done != 1 ||
             s->n_checkpoints != s->n_epochs || s->n_joins != s->n - 1 || s->n_forms != 1 ||
             s->n_first != 1)
        sim_fail(s, "%d epochs, %d done, %d checkpoints, %d joins, %d forms, %d first steps",
                 s->n_epoch_events, s->n_done, s->n_checkpoints, s->n_joins, s->n_forms,
                 s->n_first);
    else if (s->n_errors || s->n_lost)
        sim_fail(s, "%d errors and %d losses in a job that succeeded", s->n_errors, s->n_lost);
}

static void check_gather_failed(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (d->status != STATUS_FAILED ||
        (!is_in("gather took longer", d->text) && !is_in("ready took longer", d->text)))
        sim_fail(s, "a rank is missing for ever, but the driver ends with %d: %s", d->status,
                 d->text);
}

/* The job failed, and its error names the victim and what happened to it. */
static void check_named(struct sim *s, const char *what)
{
    const struct node *d = &s->nodes[0];
    char host[16];
    snprintf(host, sizeof(host), "(host%d", s->victim);
    if (d->status != STATUS_FAILED)
        sim_fail(s, "the job should have failed: status %d: %s", d->status, d->text);
    else if (!is_in(host, d->text) || !is_in(what, d->text))
        sim_fail(s, "the cause is %s at host%d, not: %s", sim_inject_name(s->inject), s->victim,
                 d->text);
    else if (s->n_errors != 1)
        sim_fail(s, "%d error events, want 1", s->n_errors);
}

static void check_lost(struct sim *s, const char *what)
{
    const struct node *d = &s->nodes[0];
    if (d->status == STATUS_OK && s->lost_stage >= STAGE_ENDING)
        return; /* too late to matter */
    if (was_gathering(s) && !is_in("was lost", d->text)) {
        if (s->nodes[s->victim].is_restarted)
            check_success(s);
        else
            check_gather_failed(s);
        return;
    }
    check_named(s, what);
    if (s->n_lost != 1)
        sim_fail(s, "%d lost events, want 1", s->n_lost);
}

static void check_driver_gone(struct sim *s)
{
    if (s->inject == INJECT_FREEZE_DRIVER && s->nodes[0].status == STATUS_OK)
        return; /* while the driver was frozen, all ranks had answered or had not come yet */
    for (int k = 1; k < s->n; k++) {
        const struct node *n = &s->nodes[k];
        if (!n->is_finished || (s->fired_stage >= STAGE_ENDING && n->status == STATUS_OK))
            continue;
        int want = n->rank < 0 ? STATUS_REFUSED : STATUS_FAILED;
        if (n->status != want && !(s->inject == INJECT_FREEZE_DRIVER && n->status == STATUS_FAILED))
            sim_fail(s, "node %d ends with %d without its driver: %s", k, n->status, n->text);
        else if (s->inject == INJECT_KILL_DRIVER && n->rank >= 1 &&
                 !is_in("lost the driver", n->text))
            sim_fail(s, "node %d does not say that the driver was lost: %s", k, n->text);
    }
    /* Status 0: all ranks had answered when the driver froze. */
    if (s->inject == INJECT_FREEZE_DRIVER && s->nodes[0].status > STATUS_FAILED)
        sim_fail(s, "the driver lost all and ends with %d", s->nodes[0].status);
}

static void check_stopped(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (d->status == STATUS_OK)
        check_success(s);
    else if (d->status != STATUS_STOPPED || !is_in("by SIGTERM", d->text))
        sim_fail(s, "stopped by the operator, ends with %d: %s", d->status, d->text);
    else if (s->inject == INJECT_STOP && s->fired_stage >= STAGE_TRAIN && s->n_checkpoints == 0)
        sim_fail(s, "stopped without a checkpoint");
}

static void check_nonfinite(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (!s->was_nonfinite)
        check_success(s);
    else if (d->status != STATUS_FAILED || !is_in("loss is nan; the state before", d->text) ||
             s->n_checkpoints == 0)
        sim_fail(s, "not finite, ends with %d and %d checkpoints: %s", d->status, s->n_checkpoints,
                 d->text);
}

static void check_replica(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (!s->was_different)
        check_success(s);
    else if (s->n > 2)
        check_named(s, "replicas differ");
    else if (d->status != STATUS_FAILED || !is_in("in conv1.weight", d->text))
        sim_fail(s, "replicas differ, ends with %d: %s", d->status, d->text);
}

static void check_disk(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    if (d->status == STATUS_OK)
        check_success(s);
    else if (d->status != STATUS_FAILED || !is_in("could not be written: disk full", d->text) ||
             s->n_errors == 0 || s->n_epoch_events != s->n_epochs)
        sim_fail(s, "disk full, ends with %d after %d epochs: %s", d->status, s->n_epoch_events,
                 d->text);
}

static void check_hang(struct sim *s)
{
    int was_forming = s->fired_stage == STAGE_FORM || s->fired_stage == STAGE_PREPARE;
    check_named(s, is_in("hangs in", s->nodes[0].text) ? " hangs in " : "cluster.deadlines");
    if (s->n_warnings == 0 && !was_gathering(s) &&
        !was_forming) /* while gathering, log lines tell which rank is missing */
        sim_fail(s, "no warning came before: %s", s->nodes[0].text);
}

/* Where all ranks wait for all, the driver cannot know which ranks cannot reach each other, but its
 * error says that they made no progress.  Where the two wait for each other alone, it names them.
 */
static void check_partition(struct sim *s)
{
    const struct node *d = &s->nodes[0];
    int is_named = s->n_errors == 1 && s->error_node >= 0 && sim_is_cut_off(s, s->error_node);
    if (d->status == STATUS_FAILED && is_named && is_in("cluster.deadlines.step", d->text))
        return;
    if (d->status != STATUS_OK &&
        (d->status != STATUS_FAILED || !is_in("given up after", d->text) ||
         !is_in("cluster.deadlines", d->text)))
        sim_fail(s, "two ranks are cut off, ends with %d: %s", d->status, d->text);
    if (s->n_lost)
        sim_fail(s, "%d losses, and every rank was there", s->n_lost);
}

static void check_fault(struct sim *s)
{
    if (was_gathering(s) && s->victim > 0 && s->nodes[s->victim].status == STATUS_USAGE)
        check_gather_failed(s);
    else
        check_named(s, "kernel failed");
}

static void check_outcome(struct sim *s)
{
    if (s->has_fired && s->inject == INJECT_KILL_DRIVER) {
        check_driver_gone(s);
        return;
    }
    if (!s->has_fired || (s->fired_stage >= STAGE_ENDING && s->nodes[0].status == STATUS_OK)) {
        check_success(s);
        return;
    }
    switch (s->inject) {
    case INJECT_NONE:
    case INJECT_FREEZE_SHORT:
    case INJECT_CLOCK_LEAP:
    case INJECT_FLIP: /* plain schedules have none */
    case INJECT_COUNT:
        check_success(s);
        break;
    case INJECT_CLOCK_STALL:
        if (s->victim == 0 || !s->is_forever)
            check_success(s);
        else if (s->nodes[0].status != STATUS_OK)
            check_lost(s, "no sign of life for 5");
        break;
    case INJECT_DRAIN: /* once there is a formation, no other rank could take the drained rank's
                          place */
        if (was_gathering(s))
            check_gather_failed(s);
        else
            check_success(s);
        break;
    case INJECT_PARTITION:
        check_partition(s);
        break;
    case INJECT_KILL:
    case INJECT_DROP:
        check_lost(s, "it closed the connection");
        break;
    case INJECT_SILENCE:
    case INJECT_SILENCE_OUT:
    case INJECT_FREEZE:
        if (s->nodes[0].status != STATUS_OK) /* otherwise the driver's last word had been heard */
            check_lost(s, "no sign of life for 5");
        break;
    case INJECT_SILENCE_IN:
        if (s->nodes[0].status != STATUS_OK)
            check_lost(s, "it had heard nothing from this driver for 5");
        break;
    case INJECT_LEAVE:
        check_lost(s, "stopped by SIGTERM");
        break;
    case INJECT_GARBAGE:
        check_lost(s, "a message of 0 bytes");
        break;
    case INJECT_KILL_DRIVER: /* handled first */
    case INJECT_FREEZE_DRIVER:
        check_driver_gone(s);
        break;
    case INJECT_FAULT:
        check_fault(s);
        break;
    case INJECT_HANG:
        check_hang(s);
        break;
    case INJECT_STOP:
    case INJECT_STOP_TWICE:
        check_stopped(s);
        break;
    case INJECT_REPLICA:
        check_replica(s);
        break;
    case INJECT_NONFINITE:
        check_nonfinite(s);
        break;
    case INJECT_DISK:
        check_disk(s);
        break;
    }
}

/* The seconds after the injection within which every rank must have ended; 0: no promise. */
static double promised_seconds(const struct sim *s)
{
    if (!s->has_fired || was_gathering(s) || s->fired_stage >= STAGE_ENDING)
        return 0;
    switch (s->inject) {
    case INJECT_KILL:
    case INJECT_KILL_DRIVER:
    case INJECT_DROP:
    case INJECT_LEAVE:
    case INJECT_GARBAGE:
    case INJECT_FAULT:
        return 2.5;
    case INJECT_SILENCE:
    case INJECT_SILENCE_OUT:
    case INJECT_FREEZE:
        return 6.6; /* 5 s of silence, less than 1 s to end, and the network's delays */
    case INJECT_SILENCE_IN:
        return 12; /* the follower hears nothing for 5 s and leaves; then the driver hears nothing
                      for 5 s */
    case INJECT_STOP_TWICE:
        return 3;
    default:
        return 0;
    }
}

static void check_speed(struct sim *s)
{
    int64_t last = s->fired_ns;
    for (int k = 0; k < s->n; k++)
        if (s->nodes[k].is_finished && !(k == s->victim && s->inject == INJECT_FREEZE))
            last = max_i64(last, s->nodes[k].finished_ns);
    s->r->end_seconds = s->has_fired ? 1e-9 * (double)(last - s->fired_ns) : 0;
    double want = promised_seconds(s);
    if (want > 0 && s->r->end_seconds > want)
        sim_fail(s, "the last rank ended after %.2f s, want %.2f", s->r->end_seconds, want);
    if (want > 0)
        return;
    s->r->end_seconds = 0;
}

static void check_intruder(struct sim *s)
{
    const struct node *n = &s->nodes[s->n];
    if (s->n_nodes > s->n && n->is_finished && n->status != STATUS_REFUSED)
        sim_fail(s, "the intruder ends with %d: %s", n->status, n->text);
}

void sim_check(struct sim *s)
{
    sim_check_ended(s);
    check_one_cause(s);
    check_outcome(s);
    check_intruder(s);
    check_speed(s);
}
