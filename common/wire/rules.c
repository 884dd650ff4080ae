#include "wire/rules.h"

#include "base/util.h"
#include "control.pb-c.h"
#include "inject/inject.h"
#include "wire/msg.h"

/* clang-format off */
#define MANY   ((int64_t)1 << 62)  /* counts, steps, times: no sum of two overflows */
#define RANK   0, MSG_MAX_RANKS - 1
#define RANKS  1, MSG_MAX_RANKS
#define HASH   MSG_HASH, MSG_HASH

static const struct rule gpu[] = {
    { "uuid",       RULE_TEXT, 1, 64 },
    { "name",       RULE_TEXT, 0, 128 },
    { "memory_mib", RULE_INT,  0, MANY },
    { "index",      RULE_INT,  0, 999 },
    { "bus",        RULE_TEXT, 0, 32 },
};
static const struct rule hello[] = {
    { "protocol",  RULE_INT,     1, UINT32_MAX },
    { "version",   RULE_TEXT,    0, 64 },
    { "rank",      RULE_INT,    -1, INT32_MAX }, /* too large a rank is refused with its reason */
    { "host",      RULE_TEXT,    1, MSG_MAX_NAME },
    { "host_id",   RULE_TEXT,    1, 64 },
    { "pid",       RULE_INT,     0, INT32_MAX },
    { "device",    RULE_TEXT,    1, 64 },
    { "gpus",      RULE_MESSAGE, 0, 0, 64 },
    { "backends",  RULE_TEXT,    1, 64, 16 },
    { "token",     RULE_BYTES,   0, MSG_MAX_TOKEN },
    { "advertise", RULE_TEXT,    0, 64 },
    { "no_gpu",    RULE_TEXT,    0, MSG_MAX_TEXT },
};
static const struct rule welcome[] = {
    { "job",                  RULE_BYTES, 1, FRAME_MAX },
    { "rank",                 RULE_INT,   RANK },
    { "n_ranks",              RULE_INT,   RANKS },
    { "device",               RULE_TEXT,  1, 64 },
    { "token",                RULE_BYTES, 0, MSG_MAX_TOKEN },
    { "host",                 RULE_TEXT,  1, MSG_MAX_NAME },
    { "heartbeat_ms",         RULE_INT,   10, 3600 * 1000 },
    { "heartbeat_timeout_ms", RULE_INT,   20, 24 * 3600 * 1000 },
    { "spare",                RULE_BOOL,  0, 0 },
    { "inject",               RULE_INJECT, 0, INJECTION_MAX_TEXT - 1 },
};
static const struct rule refused[] = {
    { "reason", RULE_ENUM, 1, 0 },
    { "text",   RULE_TEXT, 1, MSG_MAX_TEXT },
    { "holder", RULE_TEXT, 0, MSG_MAX_TEXT },
};
static const struct rule tensor_hash[] = {
    { "name", RULE_TEXT,  1, MSG_MAX_NAME },
    { "hash", RULE_BYTES, HASH },
};
static const struct rule ready[] = {
    { "layout",          RULE_BYTES,   HASH },
    { "tensors",         RULE_MESSAGE, 0, 0, MSG_MAX_TENSORS },
    { "n_train",         RULE_INT,     0, MANY },
    { "n_validation",    RULE_INT,     0, MANY },
    { "data",            RULE_BYTES,   HASH },
    { "step",            RULE_INT,     0, MANY },
    { "n_parameters",    RULE_INT,     0, MANY },
    { "steps_per_epoch", RULE_INT,     0, MANY },
};
static const struct rule prepare[] = {
    { "rank",    RULE_INT,  RANK },
    { "n_ranks", RULE_INT,  RANKS },
    { "local",   RULE_INT,  RANK },
    { "n_local", RULE_INT,  RANKS },
    { "address", RULE_TEXT, 1, 64 },
    { "inject",  RULE_INJECT, 0, INJECTION_MAX_TEXT - 1 },
};
static const struct rule endpoints[] = {
    { "endpoint", RULE_BYTES, 0, MSG_MAX_ENDPOINT },
    { "step",     RULE_INT,   0, MANY },
    { "library",  RULE_TEXT,  0, 64 },
};
static const struct rule form[] = {
    { "endpoints", RULE_BYTES, 0, MSG_MAX_ENDPOINT, MSG_MAX_RANKS },
    { "source",    RULE_INT,   RANK },
    { "ids",       RULE_BYTES, MSG_ID, MSG_ID, MSG_MAX_RANKS / MSG_RANKS_PER_ID },
};
static const struct rule formed[] = {
    { "step", RULE_INT, 0, MANY },
};
static const struct rule train[] = {
    { "epoch", RULE_INT, 1, MANY },
};
static const struct rule epoch_done[] = {
    { "epoch",                  RULE_INT,     1, MANY },
    { "step",                   RULE_INT,     0, MANY },
    { "end",                    RULE_ENUM,    1, 0 },
    { "train_loss",             RULE_REAL,    0, 0 },
    { "train_accuracy",         RULE_REAL,    0, 0 },
    { "n_samples",              RULE_INT,     0, MANY },
    { "train_seconds",          RULE_AMOUNT,  0, 0 },
    { "samples_per_second",     RULE_AMOUNT,  0, 0 },
    { "step_ms_median",         RULE_AMOUNT,  0, 0 },
    { "comm_exposed_ms_median", RULE_AMOUNT,  0, 0 },
    { "replica",                RULE_BYTES,   HASH },
    { "tensors",                RULE_MESSAGE, 0, 0, MSG_MAX_TENSORS },
    { "rss_mib",                RULE_AMOUNT,  0, 0 },
    { "peak_rss_mib",           RULE_AMOUNT,  0, 0 },
    { "n_skipped",              RULE_INT,     0, MANY },
    { "note",                   RULE_TEXT,    0, MSG_MAX_TEXT },
};
static const struct rule validate[] = {
    { "epoch", RULE_INT, 1, MANY },
};
static const struct rule validate_done[] = {
    { "epoch",     RULE_INT,  1, MANY },
    { "loss_sum",  RULE_REAL, 0, 0 },
    { "n_correct", RULE_INT,  0, MANY },
    { "n_samples", RULE_INT,  0, MANY },
    { "n_nonfinite", RULE_INT, 0, MANY },
};
static const struct rule checkpoint[] = {
    { "step", RULE_INT, 0, MANY },
};
static const struct rule checkpoint_done[] = {
    { "step",    RULE_INT,    0, MANY },
    { "seconds", RULE_AMOUNT, 0, 0 },
    { "path",    RULE_TEXT,   0, MSG_MAX_TEXT },
    { "error",   RULE_TEXT,   0, MSG_MAX_TEXT },
};
static const struct rule heartbeat[] = {
    { "epoch",      RULE_INT,    0, MANY },
    { "step",       RULE_INT,    0, MANY },
    { "phase",      RULE_ENUM,   0, 0 },
    { "bucket",     RULE_INT,   -1, MANY },
    { "phase_ms",   RULE_INT,    0, MANY },
    { "first_step", RULE_BOOL,   0, 0 },
    { "rss_mib",    RULE_AMOUNT, 0, 0 },
    { "n_handed",   RULE_INT,    0, MANY },
    { "n_ended",    RULE_INT,    0, MANY },
    { "at_step",    RULE_INT,    0, MANY },
    { "at_bucket",  RULE_INT,   -2, MANY },
    { "at_bytes",   RULE_INT,    0, MANY },
    { "n_steps",    RULE_INT,    0, MANY },
    { "wall_us",    RULE_INT,    0, MANY / 1000 },
    { "busy_us",    RULE_INT,    0, MANY / 1000 },
};
static const struct rule fault[] = {
    { "code",           RULE_INT,  INT32_MIN, -1 },
    { "phase",          RULE_ENUM, 0, 0 },
    { "step",           RULE_INT,  0, MANY },
    { "text",           RULE_TEXT, 1, MSG_MAX_TEXT },
    { "is_consequence", RULE_BOOL, 0, 0 },
};
static const struct rule abort_[] = {
    { "rank",    RULE_INT, -1, MSG_MAX_RANKS - 1 },
    { "host",    RULE_TEXT, 0, MSG_MAX_NAME },
    { "phase",   RULE_ENUM, 0, 0 },
    { "step",    RULE_INT, -1, MANY },
    { "text",    RULE_TEXT, 1, MSG_MAX_TEXT },
    { "recover", RULE_BOOL, 0, 0 },
};
static const struct rule stop[] = {
    { "outcome", RULE_ENUM, 1, 0 },
    { "text",    RULE_TEXT, 0, MSG_MAX_TEXT },
};
static const struct rule drain[] = {
    { "taken_back", RULE_BOOL, 0, 0 },
};
static const struct rule injected[] = {
    { "spec",  RULE_INJECT, 1, INJECTION_TEXT - 1 },
    { "text",  RULE_TEXT, 1, MSG_MAX_TEXT },
    { "phase", RULE_ENUM, 0, 0 },
    { "step",  RULE_INT,  0, MANY },
};
static const struct rule goodbye[] = {
    { "text",   RULE_TEXT, 0, MSG_MAX_TEXT },
    { "polite", RULE_BOOL, 0, 0 },
};
static const struct rule inspect[] = {
    { "incident", RULE_INT, 1, MANY },
};
static const struct rule collective[] = {
    { "generation", RULE_INT,  0, MANY },
    { "number",     RULE_INT,  1, MANY },
    { "step",       RULE_INT,  0, MANY },
    { "bucket",     RULE_INT, -2, MANY },
    { "n_bytes",    RULE_INT,  0, MANY },
    { "phase",      RULE_ENUM, 0, 0 },
    { "handed_us",  RULE_INT,  0, MANY / 1000 },
    { "began_us",   RULE_INT,  0, MANY / 1000 },
    { "ended_us",   RULE_INT,  0, MANY / 1000 },
    { "is_failed",  RULE_BOOL, 0, 0 },
};
static const struct rule ring[] = {
    { "incident",    RULE_INT,     1, MANY },
    { "collectives", RULE_MESSAGE, 0, 0, MSG_MAX_COLLECTIVES },
};
static const struct rule control[] = {
    { "generation",      RULE_INT, 0, MANY },
    { "hello",           RULE_MESSAGE },
    { "welcome",         RULE_MESSAGE },
    { "refused",         RULE_MESSAGE },
    { "ready",           RULE_MESSAGE },
    { "prepare",         RULE_MESSAGE },
    { "endpoints",       RULE_MESSAGE },
    { "form",            RULE_MESSAGE },
    { "formed",          RULE_MESSAGE },
    { "train",           RULE_MESSAGE },
    { "epoch_done",      RULE_MESSAGE },
    { "validate",        RULE_MESSAGE },
    { "validate_done",   RULE_MESSAGE },
    { "checkpoint",      RULE_MESSAGE },
    { "checkpoint_done", RULE_MESSAGE },
    { "heartbeat",       RULE_MESSAGE },
    { "fault",           RULE_MESSAGE },
    { "abort",           RULE_MESSAGE },
    { "stop",            RULE_MESSAGE },
    { "goodbye",         RULE_MESSAGE },
    { "injected",        RULE_MESSAGE },
    { "inspect",         RULE_MESSAGE },
    { "ring",            RULE_MESSAGE },
    { "drain",           RULE_MESSAGE },
};

#define SET(descriptor, rows) { &wire__##descriptor##__descriptor, rows, ARRAY_LEN(rows) }

static const struct rule_set sets[] = {
    SET(control, control), /* the first two are looked up for every message */
    SET(heartbeat, heartbeat),
    SET(tensor_hash, tensor_hash),
    SET(gpu, gpu),
    SET(hello, hello),
    SET(welcome, welcome),
    SET(refused, refused),
    SET(ready, ready),
    SET(prepare, prepare),
    SET(endpoints, endpoints),
    SET(form, form),
    SET(formed, formed),
    SET(train, train),
    SET(epoch_done, epoch_done),
    SET(validate, validate),
    SET(validate_done, validate_done),
    SET(checkpoint, checkpoint),
    SET(checkpoint_done, checkpoint_done),
    SET(fault, fault),
    SET(abort, abort_),
    SET(stop, stop),
    SET(drain, drain),
    SET(goodbye, goodbye),
    SET(injected, injected),
    SET(inspect, inspect),
    SET(collective, collective),
    SET(ring, ring),
};
/* clang-format on */

const struct rule_set *rules_for(const ProtobufCMessageDescriptor *message)
{
    for (unsigned i = 0; i < ARRAY_LEN(sets); i++)
        if (sets[i].message == message)
            return &sets[i];
    ASSERT(!"a message without rules");
}

const struct rule_set *rules_all(unsigned *n)
{
    *n = ARRAY_LEN(sets);
    return sets;
}
