/* Turns commands, reports, heartbeats and rings into messages, and back.
 *
 * The rows of wire/fields.h are combined with the offsets of members in our structs; wire/copy.h
 * copies by them. */
#include "session/convert.h"

#include <stdlib.h>

#include "base/util.h"
#include "wire/copy.h"
#include "wire/fields.h"

/* ---- rows ---- */

#define SIZE(member) sizeof(((OURS *)0)->member)

/* 1: the member is an array of char.  Its size alone does not tell: it may be that of a pointer. */
#define IS_CHARS(member) _Generic(&((OURS *)0)->member, char(*)[SIZE(member)] : 1, default : 0)

#define ITEM(field, member, rule) {offsetof(OURS, member), SIZE(member), 0, IS_CHARS(member)},
#define LIST(field, member, count, rule) \
    {offsetof(OURS, member), SIZE(member), offsetof(OURS, count), 0},
#define ONLY(field, rule) {0, 0, 0, 0},

#define MEMBERS(name, NAME) \
    static const struct copy_member name##_members[] = {NAME##_FIELDS(ITEM, LIST, ONLY)};
#define MEMBERS_OF_KIND(name, NAME, kind) MEMBERS(name, NAME)

#define OURS struct cmd
MESSAGE_COMMANDS(MEMBERS_OF_KIND)
#undef OURS
#define OURS struct report
MESSAGE_REPORTS(MEMBERS_OF_KIND)
#undef OURS
#define OURS struct progress
MEMBERS(heartbeat, HEARTBEAT)
#undef OURS
#define OURS struct tensor_hash
MEMBERS(tensor_hash, TENSOR_HASH)
#undef OURS
#define OURS struct collective
MEMBERS(collective, COLLECTIVE)
#undef OURS
#define OURS struct span_name
MEMBERS(span_name, SPAN_NAME)
#undef OURS
#define OURS struct trace_span
MEMBERS(span, SPAN)
#undef OURS
#define OURS struct ring_answer
MEMBERS(ring, RING)
#undef OURS

#define ROWS(name, ours)                                                                      \
    static const struct copy_rows name##_rows = {&wire__##name##__descriptor, name##_members, \
                                                 sizeof(ours)};
ROWS(heartbeat, struct progress)
ROWS(tensor_hash, struct tensor_hash)
ROWS(collective, struct collective)
ROWS(span_name, struct span_name)
ROWS(span, struct trace_span)
ROWS(ring, struct ring_answer)

static const struct copy_rows *convert_elements(const ProtobufCMessageDescriptor *message)
{
    static const struct copy_rows *const elements[] = {&tensor_hash_rows, &collective_rows,
                                                       &span_name_rows, &span_rows};

    for (size_t i = 0; i < ARRAY_LEN(elements); i++)
        if (elements[i]->message == message)
            return elements[i];
    ASSERT(!"a repeated message without rows");
}

struct body { /* a body of a Control that is a command or a report */
    Wire__Control__BodyCase body_case;
    int kind; /* enum cmd_kind or enum report_kind */
    struct copy_rows rows;
};

#define BODY(name, NAME, kind) \
    {WIRE__CONTROL__BODY_##NAME, kind, {&wire__##name##__descriptor, name##_members, 0}},

static const struct body commands[] = {MESSAGE_COMMANDS(BODY)};
static const struct body reports[] = {MESSAGE_REPORTS(BODY)};

static const struct body *by_kind(const struct body *b, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++)
        if (b[i].kind == kind)
            return &b[i];
    return NULL;
}

static const struct body *by_case(const struct body *b, size_t n, Wire__Control__BodyCase c)
{
    for (size_t i = 0; i < n; i++)
        if (b[i].body_case == c)
            return &b[i];
    return NULL;
}

/* ---- commands and reports ---- */

/* protobuf-c keeps the pointer to the body in the same place, whatever the body is. */
static const ProtobufCMessage *body_of(const Wire__Control *m)
{
    return (const ProtobufCMessage *)m->hello;
}

static struct frame *to_frame(Wire__Control__BodyCase body_case, const struct copy_rows *rows,
                              const void *ours, int64_t generation, struct err *err)
{
    const struct copier c = {rows, convert_elements};
    Wire__Control m = WIRE__CONTROL__INIT;
    struct arena a;

    arena_init(&a);
    m.generation = generation;
    m.body_case = body_case;
    m.hello = (Wire__Hello *)copy_pack(&c, ours, &a);
    struct frame *f = msg_frame(&m, err);
    arena_fini(&a);
    return f;
}

struct frame *convert_command(const struct cmd *c, struct err *err)
{
    const struct body *b = by_kind(commands, ARRAY_LEN(commands), (int)c->kind);

    ASSERT(b);
    return to_frame(b->body_case, &b->rows, c, c->generation, err);
}

struct cmd *convert_to_command(const Wire__Control *m)
{
    const struct body *b = by_case(commands, ARRAY_LEN(commands), m->body_case);

    if (!b)
        return NULL;
    struct cmd *c = cmd_new((enum cmd_kind)b->kind, m->generation);
    copy_unpack(&(struct copier){&b->rows, convert_elements}, body_of(m), c);
    return c;
}

void convert_free_command(struct cmd *c)
{
    const struct body *b = by_kind(commands, ARRAY_LEN(commands), (int)c->kind);

    if (b)
        copy_free(&(struct copier){&b->rows, convert_elements}, c);
}

struct frame *convert_report(const struct report *r, struct err *err)
{
    const struct body *b = by_kind(reports, ARRAY_LEN(reports), (int)r->kind);

    ASSERT(b);
    return to_frame(b->body_case, &b->rows, r, r->generation, err);
}

struct report *convert_to_report(const Wire__Control *m)
{
    const struct body *b = by_case(reports, ARRAY_LEN(reports), m->body_case);

    if (!b)
        return NULL;
    struct report *r = report_new((enum report_kind)b->kind, m->generation);
    copy_unpack(&(struct copier){&b->rows, convert_elements}, body_of(m), r);
    return r;
}

void convert_free_report(struct report *r)
{
    const struct body *b = by_kind(reports, ARRAY_LEN(reports), (int)r->kind);

    if (b)
        copy_free(&(struct copier){&b->rows, convert_elements}, r);
}

/* ---- heartbeats ---- */

Wire__Heartbeat *convert_beat(const struct progress *p, int64_t generation, struct arena *a)
{
    struct progress told = *p;

    if (told.head.generation != generation)
        told.head = (struct ring_head){0};
    if (told.head.at.number == 0)
        told.head.at = (struct collective){0};
    return (Wire__Heartbeat *)copy_pack(&(struct copier){&heartbeat_rows, convert_elements}, &told,
                                        a);
}

/* The number of the collective under way does not travel: all collectives before it have ended. */
void convert_from_beat(const Wire__Heartbeat *h, int64_t generation, struct progress *p)
{
    *p = (struct progress){.generation = generation};
    copy_unpack(&(struct copier){&heartbeat_rows, convert_elements}, &h->base, p);
    p->head.generation = generation;
    if (p->head.n_handed <= p->head.n_ended) {
        p->head.at = (struct collective){0};
        return;
    }
    p->head.at.generation = generation;
    p->head.at.number = p->head.n_ended + 1;
}

/* ---- rings ---- */

_Static_assert((int)RING_LEN <= (int)MSG_MAX_COLLECTIVES, "a whole ring fits in a message");

struct frame *convert_ring(const struct ring_answer *r, int64_t generation, struct err *err)
{
    ASSERT(r->n >= 0 && r->n <= RING_LEN);
    return to_frame(WIRE__CONTROL__BODY_RING, &ring_rows, r, generation, err);
}

void convert_to_ring(const Wire__Ring *m, struct ring_answer *out)
{
    copy_unpack(&(struct copier){&ring_rows, convert_elements}, &m->base, out);
}
