/* Copying between messages and structs of ours, one field after another.
 * A function for each direction (pack, unpack, free), and one for lists. */
#include "wire/copy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "wire/msg.h"
#include "wire/rules.h"

/* One field on its way. */
struct item {
    const struct copier *copier;
    const ProtobufCFieldDescriptor *field;
    const struct rule *rule;
    const struct copy_member *member;
};

static struct item item_of(const struct copier *c, const struct rule_set *set, unsigned i)
{
    return (struct item){c, &c->rows->message->fields[i], &set->rules[i], &c->rows->member[i]};
}

static struct copier copy_elements_of(const struct item *it)
{
    const struct copier *c = it->copier;

    return (struct copier){c->elements(it->field->descriptor), c->elements};
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

/* ---- values ---- */

static int64_t load_int(const void *at, size_t size)
{
    ASSERT(size == 4 || size == 8);
    return size == 4 ? *(const int32_t *)at : *(const int64_t *)at;
}

static void store_int(void *at, size_t size, int64_t v)
{
    ASSERT(size == 4 || size == 8);
    if (size == 4)
        *(int32_t *)at = (int32_t)v;
    else
        *(int64_t *)at = v;
}

/* The number of bytes in which protobuf-c stores an integer, an enum value or a bool. */
static size_t wire_size(const ProtobufCFieldDescriptor *f)
{
    int is_long = f->type == PROTOBUF_C_TYPE_INT64 || f->type == PROTOBUF_C_TYPE_SINT64;

    return is_long ? 8 : 4;
}

static const char *copy_text_at(const struct item *it, const void *at)
{
    return it->member->is_chars ? at : *(char *const *)at;
}

static char *pack_text(const struct item *it, const void *ours, struct arena *a)
{
    char *text = msg_text(a, copy_text_at(it, ours), (size_t)it->rule->max);

    return *text || it->rule->min == 0 ? text : arena_strdup(a, "?");
}

static void unpack_text(const struct item *it, const char *text, void *ours)
{
    if (it->member->is_chars)
        snprintf(ours, it->member->size, "%s", text);
    else
        *(char **)ours = *text ? xstrdup(text) : NULL;
}

static ProtobufCBinaryData pack_hash(const struct hash128 *h, struct arena *a)
{
    uint8_t *bytes = arena_alloc(a, MSG_HASH);

    msg_hash_put(*h, bytes);
    return (ProtobufCBinaryData){MSG_HASH, bytes};
}

static ProtobufCBinaryData pack_blob(const struct blob *b)
{
    return (ProtobufCBinaryData){b->len, b->data};
}

static void pack_value(const struct item *it, const void *ours, void *out, struct arena *a)
{
    const struct rule *r = it->rule;
    double x;

    switch (r->kind) {
    case RULE_INT:
        store_int(out, wire_size(it->field),
                  max_i64(r->min, min_i64(r->max, load_int(ours, it->member->size))));
        return;
    case RULE_ENUM:
    case RULE_BOOL:
        store_int(out, sizeof(int), load_int(ours, it->member->size));
        return;
    case RULE_REAL:
        *(double *)out = *(const double *)ours;
        return;
    case RULE_AMOUNT:
        x = *(const double *)ours;
        *(double *)out = isfinite(x) && x > 0 ? x : 0;
        return;
    case RULE_TEXT:
    case RULE_INJECT:
        *(char **)out = pack_text(it, ours, a);
        return;
    case RULE_HASH:
        *(ProtobufCBinaryData *)out = pack_hash(ours, a);
        return;
    case RULE_BYTES:
        *(ProtobufCBinaryData *)out = pack_blob(ours);
        return;
    case RULE_MESSAGE:
        break;
    }
    ASSERT(!"a single message lands nowhere");
}

static void unpack_value(const struct item *it, const void *in, void *ours)
{
    switch (it->rule->kind) {
    case RULE_INT:
    case RULE_ENUM:
    case RULE_BOOL:
        store_int(ours, it->member->size, load_int(in, wire_size(it->field)));
        return;
    case RULE_REAL:
    case RULE_AMOUNT:
        *(double *)ours = *(const double *)in;
        return;
    case RULE_TEXT:
    case RULE_INJECT:
        unpack_text(it, *(char *const *)in, ours);
        return;
    case RULE_HASH:
        *(struct hash128 *)ours = msg_hash_get(*(const ProtobufCBinaryData *)in);
        return;
    case RULE_BYTES:
        *(struct blob *)ours = blob_of(((const ProtobufCBinaryData *)in)->data,
                                       ((const ProtobufCBinaryData *)in)->len);
        return;
    case RULE_MESSAGE:
        break;
    }
    ASSERT(!"a single message lands nowhere");
}

static void free_value(const struct item *it, void *ours)
{
    enum rule_kind kind = it->rule->kind;

    if (kind == RULE_BYTES)
        free(((struct blob *)ours)->data);
    else if ((kind == RULE_TEXT || kind == RULE_INJECT) && !it->member->is_chars)
        free(*(char **)ours);
}

/* ---- lists ---- */

static int is_message(const struct item *it) { return it->rule->kind == RULE_MESSAGE; }

static void *pack_messages(const struct item *it, const char *ours, int n, struct arena *a)
{
    const struct copier each = copy_elements_of(it);
    ProtobufCMessage **list = arena_alloc(a, ((size_t)n + 1) * sizeof *list);

    for (int i = 0; i < n; i++)
        list[i] = copy_pack(&each, ours + (size_t)i * each.rows->size, a);
    return list;
}

static void *pack_blobs(const struct blob *ours, int n, struct arena *a)
{
    ProtobufCBinaryData *list = arena_alloc(a, ((size_t)n + 1) * sizeof *list);

    for (int i = 0; i < n; i++)
        list[i] = pack_blob(&ours[i]);
    return list;
}

static void *unpack_messages(const struct item *it, ProtobufCMessage *const *list, size_t n)
{
    const struct copier each = copy_elements_of(it);
    char *ours = xcalloc(n + 1, each.rows->size);

    for (size_t i = 0; i < n; i++)
        copy_unpack(&each, list[i], ours + i * each.rows->size);
    return ours;
}

static void *unpack_blobs(const ProtobufCBinaryData *list, size_t n)
{
    struct blob *ours = xcalloc(n + 1, sizeof *ours);

    for (size_t i = 0; i < n; i++)
        ours[i] = blob_of(list[i].data, list[i].len);
    return ours;
}

static void free_messages(const struct item *it, char *ours, int n)
{
    const struct copier each = copy_elements_of(it);

    for (int i = 0; i < n; i++)
        copy_free(&each, ours + (size_t)i * each.rows->size);
}

static void free_list(const struct item *it, void *ours, int n)
{
    if (is_message(it))
        free_messages(it, ours, n);
    for (int i = 0; !is_message(it) && i < n; i++)
        free(((struct blob *)ours)[i].data);
    free(ours);
}

/* ---- whole messages ---- */

static int is_list(const struct item *it) { return it->rule->max_count > 0; }

static void pack_item(const struct item *it, const char *ours, char *m, struct arena *a)
{
    const void *at = ours + it->member->at;

    if (!is_list(it)) {
        pack_value(it, at, m + it->field->offset, a);
        return;
    }
    int n = *(const int *)(ours + it->member->count_at);
    *(size_t *)(m + it->field->quantifier_offset) = (size_t)n;
    *(void **)(m + it->field->offset) = is_message(it)
                                            ? pack_messages(it, *(char *const *)at, n, a)
                                            : pack_blobs(*(struct blob *const *)at, n, a);
}

static void unpack_item(const struct item *it, const char *m, char *ours)
{
    const void *in = m + it->field->offset;
    void *at = ours + it->member->at;

    if (!is_list(it)) {
        unpack_value(it, in, at);
        return;
    }
    size_t n = *(const size_t *)(m + it->field->quantifier_offset);
    *(int *)(ours + it->member->count_at) = (int)n;
    *(void **)at = is_message(it) ? unpack_messages(it, *(ProtobufCMessage * *const *)in, n)
                                  : unpack_blobs(*(ProtobufCBinaryData *const *)in, n);
}

ProtobufCMessage *copy_pack(const struct copier *c, const void *ours, struct arena *a)
{
    const ProtobufCMessageDescriptor *d = c->rows->message;
    const struct rule_set *set = rules_for(d);
    ProtobufCMessage *m = arena_alloc(a, d->sizeof_message);

    protobuf_c_message_init(d, m);
    for (unsigned i = 0; i < d->n_fields; i++) {
        struct item it = item_of(c, set, i);
        if (it.member->size)
            pack_item(&it, ours, (char *)m, a);
    }
    return m;
}

void copy_unpack(const struct copier *c, const ProtobufCMessage *m, void *ours)
{
    const struct rule_set *set = rules_for(c->rows->message);

    ASSERT(m->descriptor == c->rows->message);
    for (unsigned i = 0; i < c->rows->message->n_fields; i++) {
        struct item it = item_of(c, set, i);
        if (it.member->size)
            unpack_item(&it, (const char *)m, ours);
    }
}

void copy_free(const struct copier *c, void *ours)
{
    const struct rule_set *set = rules_for(c->rows->message);

    for (unsigned i = 0; i < c->rows->message->n_fields; i++) {
        struct item it = item_of(c, set, i);
        char *at = (char *)ours + it.member->at;
        if (it.member->size && is_list(&it))
            free_list(&it, *(void **)at, *(int *)((char *)ours + it.member->count_at));
        else if (it.member->size)
            free_value(&it, at);
    }
}
