/* The rows of `cluster`, made from the lists in cluster.h.  A resumed run may change all of them:
 * none changes what is computed, but for the rounding of other shares. */
#include "config/cluster.h"

#define INTEGER(...)
#define BOOL(...)
#define REAL(...)
#define SECONDS(...)
#define CHOICE(name, default_, list, text) \
    static const char *const words_of_##name[] = {list(WORD_NAME) NULL};
#define STRING(...)
CLUSTER_LIST(INTEGER, BOOL, REAL, SECONDS, CHOICE, STRING)
#undef INTEGER
#undef BOOL
#undef REAL
#undef SECONDS
#undef CHOICE
#undef STRING

#define INTEGER(name, default_, least, most, unit_, text) \
    {"cluster." #name,                                    \
     OPT_INT,                                             \
     offsetof(struct cluster_options, name),              \
     default_,                                            \
     least,                                               \
     most,                                                \
     .unit = unit_,                                       \
     .flags = OPT_RESUME,                                 \
     .help = text},
#define BOOL(name, default_, text)                                                       \
    {"cluster." #name,    OPT_BOOL,    offsetof(struct cluster_options, name), default_, \
     .flags = OPT_RESUME, .help = text},
#define REAL(name, default_, least, most, text) \
    {"cluster." #name,                          \
     OPT_REAL,                                  \
     offsetof(struct cluster_options, name),    \
     default_,                                  \
     least,                                     \
     most,                                      \
     .flags = OPT_RESUME,                       \
     .help = text},
#define SECONDS(name, default_, least, most, text) \
    {"cluster." #name,                             \
     OPT_SECONDS,                                  \
     offsetof(struct cluster_options, name##_ms),  \
     default_,                                     \
     least,                                        \
     most,                                         \
     .unit = "seconds",                            \
     .flags = OPT_RESUME,                          \
     .help = text},
#define CHOICE(name, default_, list, text)   \
    {"cluster." #name,                       \
     OPT_CHOICE,                             \
     offsetof(struct cluster_options, name), \
     default_,                               \
     .choices = words_of_##name,             \
     .flags = OPT_RESUME,                    \
     .help = text},
#define STRING(name, default_, text)                                                \
    {"cluster." #name, OPT_STRING,          offsetof(struct cluster_options, name), \
     default_,         .flags = OPT_RESUME, .help = text},
#define DEADLINE(name, default_, what)                      \
    {"cluster.deadlines." #name,                            \
     OPT_SECONDS,                                           \
     offsetof(struct cluster_options, deadlines.name##_ms), \
     default_,                                              \
     0.1,                                                   \
     1e6,                                                   \
     .unit = "seconds",                                     \
     .flags = OPT_RESUME,                                   \
     .help = "The longest that " what " may take."},

const struct option cluster_rows[CLUSTER_N_ROWS] = {
    CLUSTER_LIST(INTEGER, BOOL, REAL, SECONDS, CHOICE, STRING) CLUSTER_DEADLINE_LIST(DEADLINE)};
