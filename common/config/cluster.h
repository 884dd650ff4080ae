/* cluster - how many ranks a job wants, what it does when they come and go, and its deadlines.
 *
 * A key of `cluster` in the job file is one line of the lists below and its user: the struct, the
 * rows of the table, --help-job and job.yaml follow from the line.
 *
 * Threads: constant. */
#ifndef CONFIG_CLUSTER_H
#define CONFIG_CLUSTER_H

#include "config/option.h"
#include "config/words.h"

enum { CLUSTER_MAX_RANKS = 131072 };

#define CLUSTER_ENCRYPT_LIST(X) \
    X(CLUSTER_ENCRYPT_AUTO, "auto") X(CLUSTER_ENCRYPT_ON, "on") X(CLUSTER_ENCRYPT_OFF, "off")
enum cluster_encrypt { CLUSTER_ENCRYPT_LIST(WORD_VALUE) };

#define CLUSTER_SHARED_MEMORY_LIST(X) \
    X(CLUSTER_SHARED_MEMORY_AUTO, "auto") X(CLUSTER_SHARED_MEMORY_OFF, "off")
enum cluster_shared_memory { CLUSTER_SHARED_MEMORY_LIST(WORD_VALUE) };

#define CLUSTER_ON_DIVERGENCE_LIST(X) \
    X(CLUSTER_ON_DIVERGENCE_STOP, "stop") X(CLUSTER_ON_DIVERGENCE_HEAL, "heal")
enum cluster_on_divergence { CLUSTER_ON_DIVERGENCE_LIST(WORD_VALUE) };

/* INT      int64_t field:     name, default, least, most, unit, help
 * BOOL     int field:         name, default, help
 * REAL     double field:      name, default, least, most, help
 * SECONDS  int64_t field_ms:  name, default, least, most (both in seconds), help
 * CHOICE   enum cluster_NAME: name, default, its list of words, help
 * STRING   const char *field: name, default, help */
/* clang-format off: one line, one key */
#define CLUSTER_LIST(INT, BOOL, REAL, SECONDS, CHOICE, STRING)                                     \
    INT(min_ranks, "0", 0, CLUSTER_MAX_RANKS, "ranks",                                             \
        "The job goes on with as few ranks as these if lost ones are not replaced in "             \
        "time; 0 stands for --nranks.")                                                            \
    INT(max_ranks, "0", 0, CLUSTER_MAX_RANKS, "ranks",                                             \
        "Followers that come while the job runs join it, until it has this many ranks; "           \
        "0 stands for --nranks.")                                                                  \
    INT(spares, "0", 0, CLUSTER_MAX_RANKS, "ranks",                                                \
        "The number of followers beyond --nranks that are let in as spares. A spare "              \
        "waits, ready to replace a lost rank at once. Spares are kept before any "                 \
        "follower joins beyond --nranks.")                                                         \
    SECONDS(replace_timeout, "60", 0, 86400,                                                       \
            "The time to wait for a follower that takes a lost rank's place. With 0 the "          \
            "job ends at once, unless a spare is ready or cluster.min_ranks lets it go on.")       \
    SECONDS(join_interval, "60", 0, 86400,                                                         \
            "Followers that come while the job runs are taken in at most this often: each time "   \
            "costs all ranks a formation.")                                                        \
    SECONDS(                                                                                       \
        heartbeat_timeout, "5", 2, 3600,                                                           \
        "A rank is lost after this much silence. Heartbeats come every second, or four times in "  \
        "this time; beyond 1,000 ranks every so many seconds as there are thousands of ranks, "    \
        "and the silence is at least three of them.")                                              \
    SECONDS(driver_timeout, "60", 0, 86400,                                                        \
            "Followers that lose their driver keep their state for this time and look for "        \
            "it, or for one that goes on with the run. With 0 they end at once.")                  \
    REAL(straggler_factor, "1.5", 0, 1000,                                                         \
         "A rank is reported if it is busy for this many times the median of the ranks, "          \
         "without the time in which it waits for others; with 0 none is.")                         \
    SECONDS(straggler_window, "30", 1, 86400, "The time over which ranks are compared for that.")  \
    BOOL(rebalance, "false",                                                                       \
         "Each rank computes as much of the global batch as its speed allows, up to twice an "     \
         "equal share: a step then waits less for slow ranks. The sums stay exact.")               \
    CHOICE(on_divergence, "stop", CLUSTER_ON_DIVERGENCE_LIST,                                      \
           "This decides what follows if ranks hold different states. stop: the job ends, and "    \
           "names the rank that differs. heal: a rank that differs takes the state of most "       \
           "ranks, and the job goes on; without a majority, as with two ranks, it ends.")          \
    CHOICE(encrypt, "auto", CLUSTER_ENCRYPT_LIST,                                                  \
           "Encrypt the links between CPU ranks, by TLS. auto: if there is a secret, and not all " \
           "ranks are on this machine's loopback; on: always, which needs a secret; off: never. "  \
           "Ranks prove to each other that they belong to the job, in any case.")                  \
    CHOICE(shared_memory, "auto", CLUSTER_SHARED_MEMORY_LIST,                                      \
           "CPU ranks of one machine exchange gradients through shared memory. auto: if they are " \
           "in one network namespace, and cluster.encrypt is not on; off: by TCP, as ranks of "    \
           "different machines do. Either way the order of machines counts: sums go from one to "  \
           "the next where the ranks of each machine have consecutive numbers.")                   \
    STRING(fabric, "tcp",                                                                          \
           "CPU ranks of different machines exchange gradients by this. tcp: by TCP; auto: by "    \
           "the fastest network of Slingshot, EFA, Omni-Path and InfiniBand, if all ranks have "   \
           "it and libfabric, else by TCP; anything else is a provider of libfabric, such as "     \
           "verbs, which all ranks must have. Ranks connect by TCP in any case.")                  \
    STRING(notice, "auto",                                                                         \
           "Leave a machine that is about to go away before it does. The news comes, with auto, "  \
           "by the metadata service of AWS, Google Cloud or Azure, on their machines alone; with " \
           "none, not at all; anything else is a command, which sh runs every 5 s on each rank's " \
           "machine: status 0 says that the machine goes away, in as many seconds as the first "   \
           "word of its output says, and 1 says that it stays.")

/* The longest that a phase may take: name, default in seconds, what the phase is. */
#define CLUSTER_DEADLINE_LIST(X)                                    \
    X(gather, "600", "waiting for all ranks to connect")            \
    X(ready, "120", "opening the data and building the graph")      \
    X(prepare, "300", "preparing programs and communication")       \
    X(form, "60", "forming the communicator and sharing the state") \
    X(step, "60", "one training step")                              \
    X(validate, "600", "one validation")                            \
    X(checkpoint, "120", "writing a checkpoint")
/* clang-format on */

struct cluster_options {
#define INTEGER(name, ...) int64_t name;
#define BOOL(name, ...)    int name;
#define REAL(name, ...)    double name;
#define SECONDS(name, ...) int64_t name##_ms;
#define CHOICE(name, ...)  enum cluster_##name name;
#define STRING(name, ...)  const char *name;
    CLUSTER_LIST(INTEGER, BOOL, REAL, SECONDS, CHOICE, STRING)
#undef BOOL
#undef CHOICE
#undef INTEGER
#undef REAL
#undef SECONDS
#undef STRING
    struct cluster_deadlines {
#define DEADLINE(name, ...) int64_t name##_ms;
        CLUSTER_DEADLINE_LIST(DEADLINE)
#undef DEADLINE
    } deadlines;
};

#define COUNT(...) +1
enum {
    CLUSTER_N_ROWS =
        0 CLUSTER_LIST(COUNT, COUNT, COUNT, COUNT, COUNT, COUNT) CLUSTER_DEADLINE_LIST(COUNT)
};
#undef COUNT

extern const struct option cluster_rows[CLUSTER_N_ROWS]; /* offsets into struct cluster_options */

#endif
