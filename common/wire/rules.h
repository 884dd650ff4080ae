/* rules - what each field of each message may hold, as arrays for a descriptor's fields.
 *
 * msg_check walks a message by protobuf-c's descriptors beside these rules.  They are made from the
 * rows of wire/fields.h.  A field without a rule, or a rule without a field, is a bug that a test
 * and the check itself find.
 *
 * Threads: any; the rules are constant. */
#ifndef WIRE_RULES_H
#define WIRE_RULES_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum rule_kind {
    RULE_INT,     /* min .. max */
    RULE_REAL,    /* any double: a loss may be infinite or not a number */
    RULE_AMOUNT,  /* finite, >= 0 */
    RULE_BOOL,    /* either value */
    RULE_ENUM,    /* a value of the enum, not below min */
    RULE_TEXT,    /* min .. max bytes of clean UTF-8 */
    RULE_INJECT,  /* min .. max bytes that inject_parse reads */
    RULE_HASH,    /* MSG_HASH bytes */
    RULE_BYTES,   /* min .. max bytes */
    RULE_MESSAGE, /* the rules of that message */
};

struct rule {
    const char *field;
    enum rule_kind kind;
    int64_t min, max;
    int64_t max_count; /* most elements of a repeated field; 0: the field is not repeated */
};

struct rule_set {
    const ProtobufCMessageDescriptor *message;
    const struct rule *rules; /* [message->n_fields] */
    unsigned n_rules;
};

/* The rules of a message; asserted to exist. */
const struct rule_set *rules_for(const ProtobufCMessageDescriptor *message);

/* All sets, for tests. */
const struct rule_set *rules_all(unsigned *n);

#endif
