/* Commands and reports: names by the lists of command.h, making, freeing.
 * Members that travel are freed by their rows (wire/fields.h), the others here. */
#include "session/command.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/convert.h"

static const char *command_name_of(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n ? names[i] : "?";
}

#define X(KIND, name, ANSWER, deadline) #name,
static const char *const cmd_names[] = {CMD_LIST(X)};
#undef X

#define X(KIND, name) #name,
static const char *const report_names[] = {REPORT_LIST(X)};
static const char *const phase_names[] = {PHASE_LIST(X)};
static const char *const epoch_end_names[] = {EPOCH_END_LIST(X)};
#undef X
#define X(WHAT, name) #name,
static const char *const corruption_names[] = {CORRUPTION_LIST(X)};
#undef X

#define X(KIND, name, ANSWER, deadline) REPORT_##ANSWER,
static const enum report_kind answers[] = {CMD_LIST(X)};
#undef X

const char *phase_name(enum phase p) { return command_name_of(phase_names, PHASE_COUNT, (int)p); }

const char *cmd_name(enum cmd_kind kind)
{
    return command_name_of(cmd_names, ARRAY_LEN(cmd_names), (int)kind - 1);
}

const char *report_name(enum report_kind kind)
{
    return command_name_of(report_names, ARRAY_LEN(report_names), (int)kind - 1);
}

const char *corruption_name(enum corruption what)
{
    return command_name_of(corruption_names, CORRUPTION_COUNT, (int)what);
}

const char *epoch_end_name(enum epoch_end end)
{
    return command_name_of(epoch_end_names, ARRAY_LEN(epoch_end_names), (int)end - 1);
}

enum report_kind cmd_answer(enum cmd_kind kind)
{
    ASSERT(kind >= CMD_OPEN && (size_t)kind <= ARRAY_LEN(answers));
    return answers[kind - 1];
}

enum cmd_kind report_answers(enum report_kind kind)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        if (answers[i] == kind)
            return (enum cmd_kind)(i + 1);
    return (enum cmd_kind)0;
}

struct cmd *cmd_new(enum cmd_kind kind, int64_t generation)
{
    struct cmd *c = xcalloc(1, sizeof *c);
    ASSERT(kind >= CMD_OPEN && kind <= CMD_STOP && generation >= 0);
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
        free(c->open.evaluate);
        free(c->open.predict);
    }
    convert_free_command(c);
    free(c);
}

struct report *report_new(enum report_kind kind, int64_t generation)
{
    struct report *r = xcalloc(1, sizeof *r);
    ASSERT(kind >= REPORT_OPENED && kind <= REPORT_SPANS);
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

void spans_piece_fini(struct spans_piece *p)
{
    free(p->name);
    free(p->span);
    *p = (struct spans_piece){0};
}

void report_free(struct report *r)
{
    if (!r)
        return;
    if (r->kind == REPORT_OPENED) {
        free(r->opened.fields);
    } else if (r->kind == REPORT_PREPARED) {
        free(r->prepared.ids.data);
    } else if (r->kind == REPORT_CHECKPOINT) {
        free(r->checkpoint.path);
        free(r->checkpoint.error);
    } else if (r->kind == REPORT_REBALANCE) {
        free(r->rebalance.share);
    } else if (r->kind == REPORT_CORRUPTION) {
        free(r->corruption.tensor);
    } else if (r->kind == REPORT_WARNING) {
        free(r->warning.text);
    } else if (r->kind == REPORT_VALIDATED) {
        free(r->validated.figures);
    }
    convert_free_report(r);
    free(r);
}
