/* Messages: unpacking within a bound of memory, checking, packing, texts and hashes.
 * The checks themselves are in check.c. */
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "wire/text.h"

/* An honest message takes at most about 7 times its packed bytes when unpacked (many tensors
 * with one-letter names); lists of empty elements would take 60 times. */
enum { BUDGET_FIXED = 64 << 10, BUDGET_FACTOR = 12 };

struct budget {
    size_t left; /* bytes that may yet be allocated */
    int is_spent, is_out;
};

static void *budget_alloc(void *arg, size_t size)
{
    struct budget *b = arg;
    if (size > b->left) {
        b->is_spent = 1;
        return NULL;
    }
    b->left -= size;
    void *p = NULL;
    struct err err;
    b->is_out |= try_realloc(&p, size, "a message", &err) < 0;
    return p;
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

int msg_unpack(const uint8_t *body, size_t len, Wire__Control **out, struct err *err)
{
    struct budget budget = {.left = BUDGET_FIXED + BUDGET_FACTOR * len};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    Wire__Control *m = wire__control__unpack(&allocator, len, body);
    if (!m && budget.is_out)
        return err_set(err, ERR_NOMEM, "no memory for a message of %zu bytes", len);
    if (!m && budget.is_spent)
        return err_set(err, ERR_PROTO, "a message of %zu bytes unpacks to more than %d times that",
                       len, BUDGET_FACTOR);
    if (!m)
        return err_set(err, ERR_PROTO, "%zu bytes that are no Control message", len);
    int rc = msg_check(m, err);
    if (rc < 0) {
        msg_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void msg_free(Wire__Control *m)
{
    if (m)
        wire__control__free_unpacked(m, NULL); /* its allocator frees with free() too */
}

struct frame *msg_frame(const Wire__Control *m, struct err *err)
{
    struct err ours;
    if (msg_check(m, &ours) < 0) {
        log_error("sending %s: %s", msg_name(m), ours.msg);
        ASSERT(!"a message of ours breaks wire/rules.c");
    }
    size_t len = wire__control__get_packed_size(m);
    if (len > FRAME_MAX) {
        err_set(err, ERR_ARG, "%s has %zu bytes, want at most %d", msg_name(m), len, FRAME_MAX);
        return NULL;
    }
    struct frame *f = frame_new(len);
    wire__control__pack(m, f->data + FRAME_HEADER);
    return f;
}

int msg_n_ids(int n_ranks)
{
    return (int)min_i64(ceil_div_i64(n_ranks, MSG_RANKS_PER_ID), MSG_MAX_IDS);
}

const char *msg_name(const Wire__Control *m)
{
    for (unsigned i = 0; i < wire__control__descriptor.n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &wire__control__descriptor.fields[i];
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->id == (uint32_t)m->body_case)
            return ((const ProtobufCMessageDescriptor *)f->descriptor)->short_name;
    }
    return "an empty message";
}

char *msg_text(struct arena *a, const char *s, size_t max)
{
    size_t len = s ? strlen(s) : 0;
    char *out = arena_alloc(a, (len < max ? len : max) + 1);
    size_t used = 0;
    for (size_t i = 0, n; i < len; i += n) {
        size_t clean = text_clean_char(s + i);
        n = clean ? clean : 1;
        if (used + n > max)
            break;
        if (clean)
            memcpy(out + used, s + i, n);
        else
            out[used] = s[i] == '\n' || s[i] == '\t' ? ' ' : '?';
        used += n;
    }
    out[used] = '\0';
    return out;
}

void msg_refuse(Wire__Control *m, Wire__Refused *r, struct arena *a, Wire__Reason reason,
                const char *text, const char *run)
{
    *m = (Wire__Control)WIRE__CONTROL__INIT;
    *r = (Wire__Refused)WIRE__REFUSED__INIT;
    r->reason = reason;
    r->text = msg_text(a, text, MSG_MAX_TEXT);
    r->run = arena_strdup(a, run ? run : "");
    m->body_case = WIRE__CONTROL__BODY_REFUSED;
    m->refused = r;
}

void msg_hash_put(struct hash128 h, uint8_t out[MSG_HASH])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(h.lo >> 8 * i);
        out[8 + i] = (uint8_t)(h.hi >> 8 * i);
    }
}

struct hash128 msg_hash_get(ProtobufCBinaryData b)
{
    struct hash128 h = {0, 0};
    ASSERT(b.len == MSG_HASH);
    for (int i = 0; i < 8; i++) {
        h.lo |= (uint64_t)b.data[i] << 8 * i;
        h.hi |= (uint64_t)b.data[8 + i] << 8 * i;
    }
    return h;
}
