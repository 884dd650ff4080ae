#include "session/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

static const char *name_of(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n && names[i] ? names[i] : "?";
}

const char *phase_name(enum phase p)
{
    static const char *const names[PHASE_COUNT] = {
        [PHASE_IDLE] = "idle",
        [PHASE_OPEN] = "open",
        [PHASE_PREPARE] = "prepare",
        [PHASE_FORM] = "form",
        [PHASE_LOAD] = "load",
        [PHASE_FORWARD] = "forward",
        [PHASE_BACKWARD] = "backward",
        [PHASE_REDUCE] = "reduce",
        [PHASE_UPDATE] = "update",
        [PHASE_VALIDATE] = "validate",
        [PHASE_CHECKPOINT] = "checkpoint",
        [PHASE_STEP] = "step",
    };
    return name_of(names, ARRAY_LEN(names), (int)p);
}

const char *cmd_name(enum cmd_kind kind)
{
    static const char *const names[] = {
        [CMD_OPEN] = "open",   [CMD_PREPARE] = "prepare",   [CMD_FORM] = "form",
        [CMD_TRAIN] = "train", [CMD_VALIDATE] = "validate", [CMD_CHECKPOINT] = "checkpoint",
        [CMD_STOP] = "stop",
    };
    return name_of(names, ARRAY_LEN(names), (int)kind);
}

const char *report_name(enum report_kind kind)
{
    static const char *const names[] = {
        [REPORT_OPENED] = "opened",         [REPORT_PREPARED] = "prepared",
        [REPORT_FORMED] = "formed",         [REPORT_STEP] = "step",
        [REPORT_EPOCH] = "epoch",           [REPORT_VALIDATED] = "validated",
        [REPORT_CHECKPOINT] = "checkpoint", [REPORT_STOPPED] = "stopped",
        [REPORT_FAULT] = "fault",           [REPORT_WARNING] = "warning",
        [REPORT_INJECT] = "inject",
    };
    return name_of(names, ARRAY_LEN(names), (int)kind);
}

const char *epoch_end_name(enum epoch_end end)
{
    static const char *const names[] = {
        [EPOCH_WHOLE] = "whole",         [EPOCH_STOPPED] = "stopped",
        [EPOCH_MAX_STEPS] = "max_steps", [EPOCH_NONFINITE] = "nonfinite",
        [EPOCH_REGROUP] = "regroup",
    };
    return name_of(names, ARRAY_LEN(names), (int)end);
}

struct blob blob_of(const void *data, size_t len)
{
    struct blob b = {NULL, len};
    if (len) {
        b.data = xmalloc(len);
        memcpy(b.data, data, len);
    }
    return b;
}

struct cmd *cmd_new(enum cmd_kind kind, int64_t generation)
{
    struct cmd *c = xcalloc(1, sizeof(*c));
    c->kind = kind;
    c->generation = generation;
    return c;
}

void cmd_free(struct cmd *c)
{
    if (!c)
        return;
    if (c->kind == CMD_OPEN) {
        free(c->open.job.data);
        free(c->open.data_dir);
        free(c->open.resume);
        free(c->open.inject);
    } else if (c->kind == CMD_PREPARE) {
        free(c->prepare.address);
        free(c->prepare.inject);
    } else if (c->kind == CMD_FORM) {
        for (int i = 0; c->form.endpoint && i < c->form.n_endpoints; i++)
            free(c->form.endpoint[i].data);
        free(c->form.endpoint);
        free(c->form.ids.data);
    }
    free(c);
}

struct report *report_new(enum report_kind kind, int64_t generation)
{
    struct report *r = xcalloc(1, sizeof(*r));
    r->kind = kind;
    r->generation = generation;
    return r;
}

static void free_tensors(struct tensor_hash *t, int n)
{
    for (int i = 0; t && i < n; i++)
        free(t[i].name);
    free(t);
}

void report_drop_tensors(struct report *r)
{
    int is_opened = r->kind == REPORT_OPENED;
    struct tensor_hash **t = is_opened ? &r->opened.tensor : &r->epoch.tensor;
    int *n = is_opened ? &r->opened.n_tensors : &r->epoch.n_tensors;

    ASSERT(is_opened || r->kind == REPORT_EPOCH);
    free_tensors(*t, *n);
    *t = NULL;
    *n = 0;
}

void report_free(struct report *r)
{
    if (!r)
        return;
    if (r->kind == REPORT_OPENED) {
        free_tensors(r->opened.tensor, r->opened.n_tensors);
    } else if (r->kind == REPORT_PREPARED) {
        free(r->prepared.endpoint.data);
        free(r->prepared.ids.data);
        free(r->prepared.library);
    } else if (r->kind == REPORT_EPOCH) {
        free_tensors(r->epoch.tensor, r->epoch.n_tensors);
        free(r->epoch.note);
    } else if (r->kind == REPORT_CHECKPOINT) {
        free(r->checkpoint.path);
        free(r->checkpoint.error);
    } else if (r->kind == REPORT_WARNING) {
        free(r->warning.text);
    } else if (r->kind == REPORT_INJECT) {
        free(r->inject.text);
    }
    free(r);
}
