/* The rules as arrays, made from the rows of wire/fields.h.
 * The macros give a rule's kind and limits the form of struct rule. */
#include "wire/rules.h"

#include "base/spans.h"
#include "base/util.h"
#include "control.pb-c.h"
#include "inject/inject.h"
#include "wire/fields.h"
#include "wire/msg.h"

#define MANY  (INT64_MAX / 2)    /* counts, steps, times: the sum of two does not overflow */
#define KIB   (MANY / 1024)      /* KiB: as bytes they are many at most */
#define CLOCK (INT64_C(1) << 60) /* ns since a machine began, 36 years: any four have a sum */
#define RANK  0, MSG_MAX_RANKS - 1
#define RANKS 1, MSG_MAX_RANKS

/* clang-format off */
#define INT(...)               RULE_INT, __VA_ARGS__, 0
#define INTS(least, most, n)   RULE_INT, least, most, n
#define REAL                   RULE_REAL, 0, 0, 0
#define AMOUNT                 RULE_AMOUNT, 0, 0, 0
#define BOOL                   RULE_BOOL, 0, 0, 0
#define ENUM(least)            RULE_ENUM, least, 0, 0
#define TEXT(least, most)      RULE_TEXT, least, most, 0
#define TEXTS(least, most, n)  RULE_TEXT, least, most, n
#define INJECT(least, most)    RULE_INJECT, least, most, 0
#define HASH                   RULE_HASH, MSG_HASH, MSG_HASH, 0
#define BYTES(least, most)     RULE_BYTES, least, most, 0
#define BYTES_LIST(least, most, n) RULE_BYTES, least, most, n
#define MESSAGES(n)            RULE_MESSAGE, 0, 0, n
/* clang-format on */

#define ITEM(field, member, ...)        {#field, __VA_ARGS__},
#define LIST(field, member, count, ...) {#field, __VA_ARGS__},
#define ONLY(field, ...)                {#field, __VA_ARGS__},

#define RULES(name, NAME) \
    static const struct rule name##_rules[] = {NAME##_FIELDS(ITEM, LIST, ONLY)};
MESSAGE_BODIES(RULES)
MESSAGE_ELEMENTS(RULES)

#define BODY(name, NAME) {#name, RULE_MESSAGE, 0, 0, 0},
static const struct rule control_rules[] = {{"generation", INT(0, MANY)}, MESSAGE_BODIES(BODY)};

#define SET(name, NAME) {&wire__##name##__descriptor, name##_rules, ARRAY_LEN(name##_rules)},

static const struct rule_set sets[] = {SET(control, CONTROL) MESSAGE_ELEMENTS(SET)
                                           MESSAGE_BODIES(SET)};

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
