/* driver_watch: which rank keeps the others waiting.  Ranks are described by what they say in
 * heartbeats. */
#include "rig.h"

#include "session/convert.h"
#include "session/driver_impl.h"
#include "word.h"

static const struct word waits = {PHASE_REDUCE, 118, 3, 12, 10, 3, .bytes = 4096};
static const struct word steps = {PHASE_STEP, 118, -1, 10, 8, 0, .bytes = 4096};
static const struct word fills = {PHASE_BACKWARD, 118, 3, 10, 10};

/* Let this time pass without progress.  All ranks but `silent` are heard. */
static void stand_still(struct rig *r, const struct word *w, int n, int64_t ms, int silent)
{
    for (int64_t t = 0; t < ms && !rig_count(r, EVENT_ERROR); t += 500) {
        for (int k = 0; k < n; k++) {
            struct word now = w[k];
            now.for_ms = w[k].for_ms + t;
            if (k != silent || t == 0)
                say(r, k, &now);
        }
        rig_wait(r, 500);
    }
}

/* ---- links ---- */

/* Ranks 1 and 2 hear the driver and do not reach each other: the pair is named once, with the
 * address that the higher one tries. */
static void ranks_that_do_not_reach_each_other(void **state)
{
    static const struct word lacks_2 = {PHASE_FORM, 0, -1, .unlinked = 1 + 2},
                             lacks_1 = {PHASE_FORM, 0, -1, .unlinked = 1 + 1},
                             shares = {PHASE_FORM, 0, -1, 1, 0, RING_STATE};
    const struct word both[4] = {shares, lacks_2, lacks_1, shares};
    const struct word one[4] = {shares, lacks_2, shares, shares};
    static const char pair[] = "; rank 2 (h2, pid 102) does not reach rank 1 (h1, pid 101) at ";
    struct driver_options o = rig_options(4);
    struct rig r;
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig_driver(&r, &o);
        rig_go_to(&r, 4, CMD_FORM);
        stand_still(&r, i ? one : both, 4, 22500, -1);
        const char *text = strstr(buf_cstr(&r.log), "form took longer than"), *at;
        assert_non_null(text);
        at = strstr(text, pair);
        assert_non_null(at);
        text = r.d->watch.incident->text;
        at = strstr(text, pair);
        assert_non_null(at);
        assert_has(at + strlen(pair), form_address(r.d, 1));
        assert_null(strstr(at + strlen(pair), "does not reach"));
        rig_free(&r);
    }
}

/* The driver hears of strangers at a follower's data port by its heartbeat. */
static void strangers_at_a_data_port_are_told_once(void **state)
{
    struct driver_options o = rig_options(2);
    struct rig r;
    struct word w = waits;
    (void)state;
    start_training(&r, &o);
    say(&r, 1, &w);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 0);
    for (w.n_strangers = 4; w.n_strangers < 7; w.n_strangers++)
        say(&r, 1, &w);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 1);
    assert_int_equal(rig_event(&r, EVENT_WARNING)->rank, 1);
    assert_has(rig_event(&r, EVENT_WARNING)->text,
               "4 connections to the data port of rank 1 (h1) came to nothing: they did not prove");
    w.n_strangers = 9;
    say(&r, 0, &w); /* its engine says so itself */
    assert_int_equal(rig_count(&r, EVENT_WARNING), 1);
    rig_free(&r);
}

/* ---- the line ---- */

static void who_is_behind_is_named(void **state)
{
    const struct {
        struct word w[4];
        int rank;
        const char *line;
    } cases[] = {
        {{waits, waits, fills, waits},
         2,
         "rank 2 (h2, pid 102) is in backward of step 118, bucket 3, for 23.0 s; ranks 0 1 3 wait "
         "for it in bucket 3"},
        /* Two ranks are behind, and one of them is further behind. */
        {{waits, {PHASE_BACKWARD, 118, 2, 9, 9}, fills, waits},
         1,
         "rank 1 (h1, pid 101) is in backward of step 118, bucket 2, for 23.0 s, rank 2 likewise; "
         "ranks 0 3 wait for them in bucket 3"},
        /* The rank still applies the last step, and has not begun this one. */
        {{waits, waits, waits, {PHASE_UPDATE, 117, -1, 8, 8}},
         3,
         "rank 3 (h3, pid 103) is in update of step 117 for 23.0 s; ranks 0-2 wait for it in "
         "bucket 3 of step 118"},
        /* Rank 0 itself is behind. */
        {{{PHASE_LOAD, 118, -1, 8, 8}, waits, waits, waits},
         0,
         "rank 0 (h0, pid 100) is in load of step 118 for 23.0 s; ranks 1-3 wait for it in "
         "bucket 3"},
        /* Rank 1 handed over the collective that the others wait in, so rank 2 is behind, not
         * rank 1. */
        {{waits, {PHASE_BACKWARD, 118, 4, 11, 10, 3, .bytes = 4096}, fills, waits},
         2,
         "ranks 0 1 3 wait for it in bucket 3"},
        /* Rank 2 stopped in the middle of bucket 2: rank 1 still waits for rank 2's part of it. */
        {{waits, {PHASE_REDUCE, 118, 2, 10, 9, 2, .bytes = 4096}, fills, waits},
         2,
         "rank 2 (h2, pid 102) is in backward of step 118, bucket 3, for 23.0 s; ranks 0 1 3 wait "
         "for it in bucket 3"},
        /* Rank 1's part of bucket 2 never comes back, and no other rank is behind. */
        {{waits, {PHASE_REDUCE, 118, 2, 10, 9, 2, .bytes = 4096}, waits, waits},
         1,
         "rank 1 (h1, pid 101) is in reduce of step 118, bucket 2, for 23.0 s; ranks 0 2 3 wait "
         "for it in bucket 3"},
        /* GPUs do not say whether they compute or wait: rank 2 cannot load the step of which the
         * others have handed over everything. */
        {{steps, steps, {PHASE_LOAD, 118, -1, 8, 8}, steps},
         2,
         "rank 2 (h2, pid 102) is in load of step 118 for 23.0 s; ranks 0 1 3 wait for it in "
         "bucket 0"},
        {{steps, {PHASE_STEP, 117, -1, 8, 6, 2, .bytes = 4096}, steps, steps},
         1,
         "rank 1 (h1, pid 101) is in step 117 for 23.0 s; ranks 0 2 3 wait for it in bucket "
         "0 of step 118"},
        /* All ranks are in the same collective. */
        {{waits, waits, waits, waits},
         -1,
         "all that have not finished wait for each other in bucket 3 of step 118, and none is "
         "behind: look at the network between them"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(4);
        start_training(&r, &o);
        stand_still(&r, cases[i].w, 4, 24000, -1);
        if (cases[i].rank < 0) { /* no rank is to blame: all form again */
            assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
            assert_has(buf_cstr(&r.log), cases[i].line);
            assert_int_equal(r.command->kind, CMD_PREPARE);
            rig_free(&r);
            continue;
        }
        const struct session_event *e = rig_event(&r, EVENT_ERROR);
        assert_has(e->text, "no progress for 23 s (cluster.deadlines.step): ");
        assert_has(e->text, cases[i].line);
        assert_int_equal(e->rank, cases[i].rank);
        assert_string_equal(r.sent[1]->abort->text, e->text); /* every rank is told the same */
        rig_free(&r);
    }
}

/* A silent rank took part in all steps before the one that others wait in. */
static void a_silent_rank_is_as_far_as_the_others_show(void **state)
{
    const struct word w[4] = {waits, waits, {PHASE_BACKWARD, 117, 1, 8, 8}, waits};
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    start_training(&r, &o);
    stand_still(&r, w, 4, 24000, 2);
    assert_has(
        rig_event(&r, EVENT_ERROR)->text,
        "rank 2 (h2, pid 102) is in step 118, silent for 23.0 s (before, in backward of step "
        "117); ranks 0 1 3 wait for it in bucket 3");
    rig_free(&r);
}

/* A rank that will be lost soon is not accused of being late: its loss says more. */
static void a_deadline_waits_for_a_loss_that_is_near(void **state)
{
    const struct word w[3] = {waits, waits, fills};
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 25000;
    start_training(&r, &o);
    stand_still(&r, w, 3, 24500, 2);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0); /* 23 s have passed */
    stand_still(&r, w, 2, 1500, -1);                 /* rank 2 stays silent */
    assert_has(rig_event(&r, EVENT_ERROR)->text, "rank 2 (h2) was lost");
    rig_free(&r);
}

/* Rank 1 has left some collectives out, and is done.  The driver knows that as soon as rank 1 is
 * heard again. Rank 0, which all are compared with, is found at the deadline. */
static void who_is_done_too_early_is_named(void **state)
{
    static const struct {
        int rank, n_left_out;
        const char *text;
    } cases[] = {
        {1, 1,
         "rank 1 (h1, pid 101) is done with 1 collective fewer than the others, so that they did "
         "not reduce the same; ranks 0 2 wait for it in bucket 3 of step 118"},
        {1, 2,
         "rank 1 (h1, pid 101) is done with 2 collectives fewer than the others, so that they did "
         "not reduce the same; ranks 0 2 wait for it in bucket 3 of step 118"},
        {0, 1,
         "no progress for 23 s (cluster.deadlines.step): rank 0 (h0, pid 100) is done with 1 "
         "collective fewer than the others, so that they did not reduce the same; ranks 1 2 wait "
         "for it in bucket 3 of step 118"},
        {1, 0, NULL}, /* it handed over the collective that they are in: the network is to blame */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int rank = cases[i].rank, n = 11 - cases[i].n_left_out;
        struct word w[3] = {waits, waits, waits};
        struct rig r;
        struct driver_options o = rig_options(3);
        w[rank] = (struct word){PHASE_IDLE, 119, -1, n, n};
        start_training(&r, &o);
        say(&r, rank, &(struct word){PHASE_REDUCE, 118, 3, 9, 8, 2, .bytes = 4096});
        rig_report(&r, rank, rig_answer(r.command));
        stand_still(&r, w, 3, 24000, -1);
        if (cases[i].text) {
            assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, rank);
            assert_string_equal(rig_event(&r, EVENT_ERROR)->text, cases[i].text);
        } else {
            assert_has(buf_cstr(&r.log), "look at the network between them");
            assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        }
        rig_free(&r);
    }
}

static void a_warning_comes_first_and_once(void **state)
{
    const struct word w[4] = {waits, waits, fills, waits};
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    start_training(&r, &o);
    stand_still(&r, w, 4, 11000, -1);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 0);
    stand_still(&r, w, 4, 6000, -1);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 1);
    assert_int_equal(rig_event(&r, EVENT_WARNING)->rank, 2);
    assert_int_equal(rig_event(&r, EVENT_WARNING)->step, 118);
    assert_has(rig_event(&r, EVENT_WARNING)->text,
               "rank 2 (h2, pid 102) is in backward of step 118, bucket 3, for ");
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    for (int k = 0; k < 4; k++) /* it goes on, and then stops again */
        say(&r, k, &(struct word){PHASE_LOAD, 119, -1, 14, 14});
    rig_wait(&r, 500);
    stand_still(&r, w, 4, 12500, -1);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 2);
    rig_free(&r);
}

static void silence_is_told_before_the_rank_is_lost(void **state)
{
    const struct word w[4] = {waits, waits, fills, waits};
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    start_training(&r, &o);
    stand_still(&r, w, 4, 3500, 2);
    assert_int_equal(rig_count(&r, EVENT_WARNING), 1);
    assert_has(rig_event(&r, EVENT_WARNING)->text,
               "rank 2 (h2, pid 102) is in backward of step 118, "
               "bucket 3, for 2.5 s, silent for 2.5 s; ranks 0 "
               "1 3 wait for it in bucket 3");
    stand_still(&r, w, 4, 3000, 2); /* it is heard once more, at the beginning */
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 4; k++)
            if (k != 2)
                say(&r, k, &w[k]);
        rig_wait(&r, 500);
    }
    assert_int_equal(rig_event(&r, EVENT_LOST)->rank, 2);
    assert_has(rig_event(&r, EVENT_LOST)->text,
               "no sign of life for 5.0 s; ranks 0 1 3 wait for it in bucket 3");
    rig_free(&r);
}

/* The rank's control connection is dead, but the rank still trains. */
static void who_trains_on_keeps_nobody_waiting(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    start_training(&r, &o);
    for (int i = 0; i < 9; i++) {
        struct word w = {PHASE_BACKWARD, i, 0, 2 * i, 2 * i};
        for (int k = 0; k < 3; k++)
            if (k != 2 || i == 0)
                say(&r, k, &w);
        rig_wait(&r, 400);
    }
    assert_has(rig_event(&r, EVENT_WARNING)->text, "silent for 2.5 s; training goes on");
    rig_free(&r);
}

/* Rank 2 has finished the epoch: its silence keeps nobody waiting. */
static void a_silent_rank_that_has_finished_is_no_news(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    start_training(&r, &o);
    rig_report(&r, 2, rig_answer(r.command));
    for (int i = 0; i < 9; i++) {
        for (int k = 0; k < 2; k++)
            say(&r, k, &(struct word){PHASE_LOAD, i, -1});
        rig_wait(&r, 500);
    }
    assert_int_equal(rig_count(&r, EVENT_WARNING), 0);
    rig_free(&r);
}

/* ---- what counts as progress ---- */

/* A large model's backward may take longer than a step's deadline: each bucket is progress. */
static void a_new_bucket_is_progress(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.cluster.heartbeat_timeout_ms = 100000;
    start_training(&r, &o);
    for (int bucket = 0; bucket < 8; bucket++) {
        for (int k = 0; k < 2; k++)
            say(&r, k, &(struct word){PHASE_BACKWARD, 0, bucket});
        rig_wait(&r, 10000);
    }
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* The ranks vote several times within a step, and each heartbeat of rank 1 finds it in the same
 * phase.  It is not late, as it hands over one collective after another. */
static void a_new_collective_is_progress(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    start_training(&r, &o);
    for (int i = 1; i < 50; i++) {
        say(&r, 0, &(struct word){PHASE_LOAD, i, -1, i, i});
        say(&r, 1, &(struct word){PHASE_REDUCE, 118, -1, i, i});
        rig_wait(&r, 500);
    }
    assert_int_equal(rig_count(&r, EVENT_WARNING), 0);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_free(&r);
}

/* Rank 1 hangs, and what it had handed over ends, one after another, as the others come to it. */
static void what_others_end_is_no_progress(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    start_training(&r, &o);
    for (int i = 1; i < 50 && !rig_count(&r, EVENT_ERROR); i++) {
        const int n_ended = i < 30 ? i : 30;
        say(&r, 0, &(struct word){PHASE_LOAD, i, -1, 31, 31});
        say(&r, 1, &(struct word){PHASE_BACKWARD, 0, -1, 30, n_ended, .bytes = 4096});
        rig_wait(&r, 500);
    }
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 1);
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no progress for 23 s (cluster.deadlines.step)");
    rig_free(&r);
}

/* Rank 0 goes on, and rank 1, heard at the same moments, does not. */
static void who_stands_still_is_late_although_another_moves(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    start_training(&r, &o);
    for (int i = 0; i < 60 && !rig_count(&r, EVENT_ERROR); i++) {
        say(&r, 0, &(struct word){PHASE_LOAD, i, -1});
        say(&r, 1, &(struct word){PHASE_FORWARD, 0, -1});
        rig_wait(&r, 500);
    }
    assert_has(rig_event(&r, EVENT_ERROR)->text, "no progress for 23 s (cluster.deadlines.step)");
    rig_free(&r);
}

/* ---- ranks that differ ---- */

static void ranks_that_differ_are_told(void **state)
{
    static const struct {
        struct word odd;
        const char *line;
    } cases[] = {
        {{PHASE_REDUCE, 118, 2, 12, 10, 2, .bytes = 4096}, "rank 2 (h2, pid 102) in bucket 2 of"},
        {{PHASE_REDUCE, 117, 3, 12, 10, 3, .bytes = 4096}, "in bucket 3 of step 117 (4096 bytes)"},
        {{PHASE_REDUCE, 118, 3, 12, 10, 3, .bytes = 4100}, "in bucket 3 of step 118 (4100 bytes)"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(4);
        start_training(&r, &o);
        say(&r, 0, &waits);
        say(&r, 1, &waits);
        say(&r, 3, &waits);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        say(&r, 2, &cases[i].odd);
        const struct session_event *e = rig_event(&r, EVENT_ERROR);
        assert_int_equal(e->rank, 2);
        assert_has(e->text, "the ranks differ in what they reduce next: ");
        assert_has(e->text, cases[i].line);
        assert_has(e->text, "which 3 agree on");
        rig_free(&r);
    }
}

/* ---- the last collectives of all ranks ---- */

static void answer_inspect(struct rig *r, int rank, int64_t incident)
{
    struct collective c[2] = {
        {.generation = 1, .number = 9, .step = 117, .bucket = rank, .handed_ns = -5 * MS},
        {.generation = 1, .number = 10, .step = 118, .bucket = 0, .handed_ns = -2 * MS}};
    struct err err;
    struct frame *f = convert_ring(&(struct ring_answer){incident, c, 2}, 1, &err);
    Wire__Control *m;
    assert_int_equal(msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err), 0);
    rig_message(r, rank, m);
    msg_free(m);
    frame_unref(f);
}

/* A follower that was told to leave answers before it does; a frozen one does not. */
static void rings_are_collected(void **state)
{
    const struct word w[4] = {waits, waits, fills, waits};
    struct collective own = {.generation = 1, .number = 10, .step = 118, .bucket = 0};
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    start_training(&r, &o);
    stand_still(&r, w, 4, 6500, 2);
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 2); /* silent */
    assert_int_equal(r.n_rings, 1);
    own.handed_ns = r.now - 3 * MS;
    driver_ring(r.d, r.now, &own, 1);
    answer_inspect(&r, 1, 1);
    answer_inspect(&r, 1, 1); /* once is enough */
    answer_inspect(&r, 3, 2); /* there was no such incident */
    assert_null(r.incident);
    rig_wait(&r, 790); /* by then all are gone */
    assert_non_null(r.incident);
    assert_int_equal(r.incident->number, 1);
    assert_has(r.incident->text, "rank 2 (h2): no sign of life for 5.0 s; ranks 0 1 3 wait for it");
    assert_int_equal(r.incident->n, 4);
    assert_int_equal(r.incident->rank[0].rank, 2); /* the rank that is behind comes first */
    assert_true(r.incident->rank[0].is_behind);
    assert_false(r.incident->rank[0].has_answered);
    assert_int_equal(r.incident->rank[1].rank, 0);
    assert_int_equal(r.incident->rank[1].n_ring, 1);
    assert_int_equal(r.incident->rank[1].ring[0].handed_ns, -3 * MS);
    assert_int_equal(r.incident->rank[2].n_ring, 2);
    assert_int_equal(r.incident->rank[2].ring[0].bucket, 1);
    assert_int_equal(r.incident->rank[2].ring[0].handed_ns, -5 * MS);
    assert_int_equal(r.incident->rank[2].ring[1].began_ns, 0);
    assert_int_equal(r.incident->rank[3].has_answered, 0);
    rig_free(&r);
}

/* ---- the live table ---- */

static void the_table_has_every_rank(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct status s, head;
    struct word slow = {PHASE_BACKWARD, 7, 2, 21, 20, 1, .for_ms = 1500, .bytes = 64, .n_steps = 7};
    (void)state;
    o.cluster.spares = 1;
    rig_driver(&r, &o);
    rig_hello(&r, 1, 2);
    driver_status(r.d, r.now, &s);
    assert_string_equal(s.stage, "gather");
    assert_int_equal(s.n, 3);
    driver_summary(r.d, r.now, &head);
    assert_string_equal(head.stage, "gather");
    assert_int_equal(head.n_here, 2);
    assert_int_equal(head.n_ranks, 3);
    assert_int_equal(head.n, 0);
    assert_null(head.rank);
    assert_int_equal(s.n_here, 2);
    assert_int_equal(s.rank[1].role, STATUS_MISSING);
    assert_int_equal(s.rank[2].role, STATUS_JOINING);
    assert_int_equal(s.rank[2].phase, PHASE_OPEN);
    status_fini(&s);
    rig_free(&r);

    start_training(&r, &o);
    rig_hello(&r, 3, -1);
    slow.busy_ms = 140;
    say(&r, 0, &(struct word){PHASE_REDUCE, 7, 1, 21, 20, 1, .bytes = 64});
    say(&r, 2, &slow);
    rig_wait(&r, 2000);
    driver_status(r.d, r.now, &s);
    assert_string_equal(s.stage, "train");
    assert_int_equal(s.generation, 1);
    assert_int_equal(s.step, 7);
    assert_int_equal(s.n, 4);
    assert_string_equal(s.rank[0].device, "cpu");
    assert_int_equal(s.rank[0].pid, 100);
    assert_true(s.rank[0].heard_s == 0);
    assert_string_equal(s.rank[2].host, "h2");
    assert_string_equal(s.rank[2].device, "cpu");
    assert_int_equal(s.rank[2].role, STATUS_MEMBER);
    assert_int_equal(s.rank[2].step, 7);
    assert_int_equal(s.rank[2].bucket, 2);
    assert_int_equal(s.rank[2].generation, 1);
    assert_float_equal(s.rank[2].step_ms, 40, 1e-9);
    assert_float_equal(s.rank[2].phase_s, 3.5, 0.01);
    assert_float_equal(s.rank[2].heard_s, 2, 0.01);
    assert_int_equal(s.rank[3].role, STATUS_JOINING); /* a spare to be */
    assert_int_equal(s.rank[3].rank, -1);
    assert_int_equal(s.rank[3].spare, 1);
    status_fini(&s);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_do_not_reach_each_other),
        cmocka_unit_test(strangers_at_a_data_port_are_told_once),
        cmocka_unit_test(who_is_behind_is_named),
        cmocka_unit_test(a_silent_rank_is_as_far_as_the_others_show),
        cmocka_unit_test(a_deadline_waits_for_a_loss_that_is_near),
        cmocka_unit_test(who_is_done_too_early_is_named),
        cmocka_unit_test(a_warning_comes_first_and_once),
        cmocka_unit_test(silence_is_told_before_the_rank_is_lost),
        cmocka_unit_test(who_trains_on_keeps_nobody_waiting),
        cmocka_unit_test(ranks_that_differ_are_told),
        cmocka_unit_test(rings_are_collected),
        cmocka_unit_test(the_table_has_every_rank),
        cmocka_unit_test(a_silent_rank_that_has_finished_is_no_news),
        cmocka_unit_test(a_new_bucket_is_progress),
        cmocka_unit_test(a_new_collective_is_progress),
        cmocka_unit_test(what_others_end_is_no_progress),
        cmocka_unit_test(who_stands_still_is_late_although_another_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
