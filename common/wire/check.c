/* The checks of a received message: each field is compared with its rule (wire/rules.h).
 * One function for each kind of rule; an error names message, field, value seen and value wanted.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "inject/inject.h"
#include "wire/msg.h"
#include "wire/rules.h"
#include "wire/text.h"

/* The field that is being checked. */
struct place {
    const ProtobufCMessageDescriptor *message;
    const ProtobufCFieldDescriptor *field;
    const struct rule *rule;
};

static int wire_check_message(const ProtobufCMessage *m, struct err *err);

#define BAD(p, err, fmt, ...) \
    err_set(err, ERR_PROTO, "%s.%s " fmt, (p)->message->short_name, (p)->field->name, __VA_ARGS__)

static int64_t read_int(const ProtobufCFieldDescriptor *f, const void *at)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
        return *(const int32_t *)at;
    case PROTOBUF_C_TYPE_UINT32:
        return *(const uint32_t *)at;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
        return *(const int64_t *)at;
    default:
        ASSERT(!"a rule for integers on another type");
    }
}

static int check_int(const struct place *p, const void *at, struct err *err)
{
    int64_t v = read_int(p->field, at);
    if (v < p->rule->min || v > p->rule->max)
        return BAD(p, err, "is %lld, want %lld to %lld", (long long)v, (long long)p->rule->min,
                   (long long)p->rule->max);
    return 0;
}

static int check_amount(const struct place *p, const void *at, struct err *err)
{
    ASSERT(p->field->type == PROTOBUF_C_TYPE_DOUBLE);
    double v = *(const double *)at;
    if (!isfinite(v) || v < 0)
        return BAD(p, err, "is %g, want a finite number from 0", v);
    return 0;
}

static int check_enum(const struct place *p, const void *at, struct err *err)
{
    ASSERT(p->field->type == PROTOBUF_C_TYPE_ENUM);
    const ProtobufCEnumDescriptor *e = p->field->descriptor;
    int v = *(const int *)at;
    if (v < p->rule->min || !protobuf_c_enum_descriptor_get_value(e, v))
        return BAD(p, err, "is %d, want a %s", v, e->short_name);
    return 0;
}

static int wire_check_length(const struct place *p, size_t len, struct err *err)
{
    if (len < (size_t)p->rule->min || len > (size_t)p->rule->max)
        return BAD(p, err, "has %zu bytes, want %lld to %lld", len, (long long)p->rule->min,
                   (long long)p->rule->max);
    return 0;
}

static int check_text(const struct place *p, const void *at, struct err *err)
{
    ASSERT(p->field->type == PROTOBUF_C_TYPE_STRING);
    const char *s = *(char *const *)at;
    int rc = wire_check_length(p, strlen(s), err);
    if (rc < 0)
        return rc;
    for (size_t i = 0, n; s[i]; i += n) {
        n = text_clean_char(s + i);
        if (n == 0)
            return BAD(p, err, "has byte %02x at %zu, want UTF-8 without control characters",
                       (unsigned char)s[i], i);
    }
    return 0;
}

static int check_inject(const struct place *p, const void *at, struct err *err)
{
    struct injection_list l = {.n = 0};
    const char *s = *(char *const *)at;
    int rc = check_text(p, at, err);
    if (rc == 0 && *s && inject_parse(s, &l, err) < 0) {
        err->code = ERR_PROTO;
        rc = err_wrap(err, "%s.%s", p->message->short_name, p->field->name);
    }
    return rc;
}

static int check_bytes(const struct place *p, const void *at, struct err *err)
{
    ASSERT(p->field->type == PROTOBUF_C_TYPE_BYTES);
    return wire_check_length(p, ((const ProtobufCBinaryData *)at)->len, err);
}

static int check_value(const struct place *p, const void *at, struct err *err)
{
    switch (p->rule->kind) {
    case RULE_INT:
        return check_int(p, at, err);
    case RULE_REAL:
        ASSERT(p->field->type == PROTOBUF_C_TYPE_DOUBLE);
        return 0;
    case RULE_AMOUNT:
        return check_amount(p, at, err);
    case RULE_BOOL:
        ASSERT(p->field->type == PROTOBUF_C_TYPE_BOOL);
        return 0;
    case RULE_ENUM:
        return check_enum(p, at, err);
    case RULE_TEXT:
        return check_text(p, at, err);
    case RULE_INJECT:
        return check_inject(p, at, err);
    case RULE_HASH:
    case RULE_BYTES:
        return check_bytes(p, at, err);
    case RULE_MESSAGE:
        ASSERT(p->field->type == PROTOBUF_C_TYPE_MESSAGE);
        return wire_check_message(*(ProtobufCMessage *const *)at, err);
    }
    ASSERT(!"a kind of rule without its check");
}

static size_t element_size(const struct place *p)
{
    switch (p->rule->kind) {
    case RULE_INT:
        ASSERT(p->field->type == PROTOBUF_C_TYPE_INT64);
        return sizeof(int64_t);
    case RULE_TEXT:
        return sizeof(char *);
    case RULE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case RULE_MESSAGE:
        return sizeof(ProtobufCMessage *);
    default:
        ASSERT(!"a repeated field of a kind that needs a line here");
    }
}

static int wire_check_list(const struct place *p, const char *elements, size_t n, struct err *err)
{
    if (n > (size_t)p->rule->max_count)
        return BAD(p, err, "has %zu elements, want at most %lld", n, (long long)p->rule->max_count);
    for (size_t i = 0; i < n; i++)
        if (check_value(p, elements + i * element_size(p), err) < 0)
            return err_wrap(err, "%s.%s[%zu]", p->message->short_name, p->field->name, i);
    return 0;
}

/* tests/wire compares the names of fields and rules, which takes too long for each message. */
static int check_field(const struct place *p, const char *m, struct err *err)
{
    const ProtobufCFieldDescriptor *f = p->field;
    const char *at = m + f->offset;
    const char *quantifier = m + f->quantifier_offset;

    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return wire_check_list(p, *(char *const *)at, *(const size_t *)quantifier, err);
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF && *(const uint32_t *)quantifier != f->id)
        return 0;
    return check_value(p, at, err);
}

static int wire_check_message(const ProtobufCMessage *m, struct err *err)
{
    const struct rule_set *set = rules_for(m->descriptor);
    ASSERT(set->n_rules == m->descriptor->n_fields);
    for (unsigned i = 0; i < set->n_rules; i++) {
        struct place p = {m->descriptor, &m->descriptor->fields[i], &set->rules[i]};
        int rc = check_field(&p, (const char *)m, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int msg_check(const Wire__Control *m, struct err *err)
{
    if (m->body_case == WIRE__CONTROL__BODY__NOT_SET)
        return err_set(err, ERR_PROTO, "Control.body is empty, or newer than protocol %d",
                       MSG_PROTOCOL);
    return wire_check_message(&m->base, err);
}
