/* Many seeded schedules (sim.h), or one of them in detail.
 *
 *     session_sim [--seed FIRST] [--seeds N] [--verbose]
 *                 [--plain | --elastic | --leaders | --standby | --audit]
 *     session_sim --show SEED [--plain | --elastic | --leaders | --standby | --audit]
 *
 * --show prints the course of one schedule, a line an event, with a legend.  One seed with
 * --verbose prints all that happens in it.  Exit 1 when a schedule breaks an invariant. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sim.h"
#include "sim_show.h"

struct tally {
    int n, n_fired;
    double slowest; /* from the injection to the last rank's end */
};

static void print_tally(const struct tally *t, int64_t n_messages)
{
    printf("%-14s %9s %7s  %s\n", "what goes wrong", "schedules", "did",
           "slowest end of all ranks");
    for (int i = 0; i < INJECT_COUNT; i++) {
        printf("%-15s %9d %7d", sim_inject_name((enum inject)i), t[i].n, t[i].n_fired);
        if (t[i].slowest > 0)
            printf("  %.2f s", t[i].slowest);
        printf("\n");
    }
    printf("%lld messages\n", (long long)n_messages);
}

static int run_many(uint64_t first, uint64_t count)
{
    struct tally t[INJECT_COUNT] = {0};
    int64_t n_messages = 0;
    int n_bad = 0, n_warnings = 0, n_incidents = 0, n_rings = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct sim_result r;
        sim_run(seed, SIM_PLAIN, SIM_SILENT, &r);
        t[r.inject].n++;
        t[r.inject].n_fired += r.has_fired;
        if (r.end_seconds > t[r.inject].slowest)
            t[r.inject].slowest = r.end_seconds;
        n_messages += r.n_messages;
        n_warnings += r.n_warnings;
        n_incidents += r.n_incidents;
        n_rings += r.n_rings;
        if (!r.is_ok && ++n_bad <= 20)
            printf("seed %llu (%s, %d ranks): %s\n  see it: session_sim --seed %llu --verbose\n",
                   (unsigned long long)seed, sim_inject_name(r.inject), r.n_ranks, r.why,
                   (unsigned long long)seed);
    }
    print_tally(t, n_messages);
    printf("%d warnings of a rank that keeps the others waiting, %d incidents with %d rings\n",
           n_warnings, n_incidents, n_rings);
    printf("%llu schedules, %d failed\n", (unsigned long long)count, n_bad);
    return n_bad > 0;
}

/* SIM_AUDIT: sums over all schedules. */
static void add_audit(struct sim_result *sum, const struct sim_result *r)
{
    for (int i = 0; i < FLIP_PLACES; i++) {
        sum->n_flips[i] += r->n_flips[i];
        sum->n_found[i] += r->n_found[i];
    }
    sum->n_verdicts += r->n_verdicts;
    sum->n_broken += r->n_broken;
    sum->n_differed += r->n_differed;
    sum->n_healed += r->n_healed;
    sum->n_spread += r->n_spread;
    sum->n_halved += r->n_halved;
    sum->n_calm += r->n_calm;
}

/* A schedule fails if a comparison misses a flip.  The flips of the state that no verdict names
 * went with their ranks, were replaced when the ranks formed again, or came as the job ended. */
static void print_audit(const struct sim_result *sum)
{
    static const char *const places[] = {"gradients", "samples",    "sums",
                                         "updates",   "parameters", "optimizer slots"};

    printf("  wrong answers, %s: %d, %s: %d; steps in which they were found: %d\n",
           places[FLIP_GRADIENT], sum->n_flips[FLIP_GRADIENT], places[FLIP_BATCH],
           sum->n_flips[FLIP_BATCH], sum->n_verdicts);
    for (int i = FLIP_SUM; i < FLIP_PLACES; i++)
        printf("  flips in %s: %d, named in a verdict: %d\n", places[i], sum->n_flips[i],
               sum->n_found[i]);
    printf("  verdicts on replicas: %d, mended: %d; votes broken off: %d; formations that took "
           "flips not compared yet: %d\n",
           sum->n_differed, sum->n_healed, sum->n_broken, sum->n_spread);
    printf("  jobs that lost their driver and ended as one of two followers was wrong: %d\n",
           sum->n_halved);
    printf("  looks at a step without a wrong bit, and no event of any: %d\n", sum->n_calm);
}

/* 1: enough has happened to show something. */
static int shows_audit(const struct sim_result *sum)
{
    int shows = sum->n_verdicts > 0 && sum->n_broken > 0 && sum->n_healed > 0 &&
                sum->n_differed > sum->n_healed && sum->n_halved > 0 && sum->n_calm >= 10000;

    for (int i = 0; i < FLIP_PLACES; i++)
        shows &= sum->n_flips[i] > 0 && (i < FLIP_SUM || sum->n_found[i] > 0);
    return shows;
}

/* Jobs that replace lost ranks, or whose driver is lost. */
static int run_elastic(uint64_t first, uint64_t count, enum sim_mode mode)
{
    const char *name = sim_mode_name(mode);
    static const char *const names[] = {"driver killed", "finished", "failed", "", "", "stopped"};
    int64_t n_messages = 0, n_faults = 0, n_recovered = 0, n_grown = 0, n_drained = 0, n_back = 0;
    struct sim_result audit = {0};
    int n_bad = 0, n_ends[ARRAY_LEN(names)] = {0};
    double slowest = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct sim_result r;
        sim_run(seed, mode, SIM_SILENT, &r);
        n_messages += r.n_messages;
        n_faults += r.n_faults;
        n_recovered += r.n_recovered;
        n_grown += r.n_grown;
        n_drained += r.n_drained;
        n_back += r.n_back;
        add_audit(&audit, &r);
        n_ends[r.status + 1]++;
        if (r.slowest_recovery > slowest)
            slowest = r.slowest_recovery;
        if (!r.is_ok && ++n_bad <= 20)
            printf(
                "%s seed %llu (%d ranks): %s\n  see it: session_sim --%s --seed %llu --verbose\n",
                name, (unsigned long long)seed, r.n_ranks, r.why, name, (unsigned long long)seed);
    }
    printf("%s: %lld faults, %lld recoveries (slowest %.2f s), grown %lld times, %lld ranks "
           "drained, %lld messages\n",
           name, (long long)n_faults, (long long)n_recovered, slowest, (long long)n_grown,
           (long long)n_drained, (long long)n_messages);
    if (mode == SIM_STANDBY)
        printf("  state lost with its shards: %lld times\n", (long long)n_back);
    if (mode == SIM_AUDIT)
        print_audit(&audit);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (n_ends[i])
            printf("  %-14s %d\n", names[i], n_ends[i]);
    if (mode == SIM_AUDIT && count >= 1000 && !shows_audit(&audit)) {
        printf("some flips, votes or outcomes never came: nothing is shown\n");
        n_bad++;
    }
    printf("%llu schedules, %d failed\n", (unsigned long long)count, n_bad);
    return n_bad > 0;
}

static int run_one(uint64_t seed, enum sim_mode mode, enum sim_tell tell)
{
    struct sim_result r;
    if (tell == SIM_SHOW)
        show_legend(seed, mode);
    sim_run(seed, mode, tell, &r);
    printf("seed %llu: %s\n", (unsigned long long)seed, r.is_ok ? "ok" : r.why);
    return !r.is_ok;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, count = 10000;
    int has_count = 0, only = -1;
    enum sim_tell tell = SIM_SILENT;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verbose")) {
            tell = SIM_VERBOSE;
        } else if (!strcmp(argv[i], "--show") && i + 1 < argc) {
            tell = SIM_SHOW;
            seed = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--plain")) {
            only = SIM_PLAIN;
        } else if (!strcmp(argv[i], "--elastic")) {
            only = SIM_ELASTIC;
        } else if (!strcmp(argv[i], "--leaders")) {
            only = SIM_LEADERS;
        } else if (!strcmp(argv[i], "--standby")) {
            only = SIM_STANDBY;
        } else if (!strcmp(argv[i], "--audit")) {
            only = SIM_AUDIT;
        } else if (!strcmp(argv[i], "--seeds") && i + 1 < argc) {
            count = strtoull(argv[++i], NULL, 10);
            has_count = 1;
        } else {
            fprintf(stderr, "usage: session_sim [--seed FIRST] [--seeds N] "
                            "[--plain | --elastic | --leaders | --standby | --audit] [--verbose]\n"
                            "       session_sim --show SEED [--plain | --elastic | --leaders | "
                            "--standby]\n");
            return 2;
        }
    }
    if (tell != SIM_SILENT && !has_count)
        return run_one(seed, only < 0 ? SIM_PLAIN : (enum sim_mode)only, tell);
    int rc = only < 0 || only == SIM_PLAIN ? run_many(seed, count) : 0;
    for (int mode = SIM_ELASTIC; mode <= SIM_AUDIT; mode++)
        if (only < 0 || only == mode)
            rc |= run_elastic(seed, count, (enum sim_mode)mode);
    return rc;
}
