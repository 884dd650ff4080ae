/* msg: every message survives a round trip; damaged ones are refused or harmless; each rule of each
 * field is enforced. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "samples.h"
#include "wire/rules.h"

static struct frame *sample_frame(int i, Wire__Control *m, struct arena *a)
{
    struct err err;
    if (!sample_make(a, i, m))
        return NULL;
    struct frame *f = msg_frame(m, &err);
    assert_non_null(f);
    return f;
}

static void every_message_survives_a_round_trip(void **state)
{
    struct arena a;
    Wire__Control m, *back;
    struct err err;
    struct frame *f;
    uint32_t seen = 0;
    (void)state;
    arena_init(&a);
    for (int i = 0; (f = sample_frame(i, &m, &a)); i++) {
        assert_int_equal(msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &back, &err), 0);
        assert_int_equal(back->generation, m.generation);
        assert_string_equal(msg_name(back), msg_name(&m));
        struct frame *g = msg_frame(back, &err); /* all fields are set, so equal bytes suffice */
        assert_int_equal(g->len, f->len);
        assert_memory_equal(g->data, f->data, f->len);
        seen |= 1u << m.body_case;
        frame_unref(g);
        frame_unref(f);
        msg_free(back);
    }
    for (unsigned i = 1; i < wire__control__descriptor.n_fields; i++) /* 0 is generation */
        assert_true(seen & 1u << wire__control__descriptor.fields[i].id);
    arena_fini(&a);
}

/* The n-th allocation fails, for each n: the error says so, and no memory is kept. */
static void memory_runs_out(void **state)
{
    struct arena a;
    Wire__Control m, *back;
    struct err err;
    struct frame *f;
    (void)state;
    arena_init(&a);
    for (int i = 0; (f = sample_frame(i, &m, &a)); i++) {
        int n = 0, rc;
        do {
            alloc_fail_at((uint64_t)++n);
            rc = msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &back, &err);
            alloc_fail_at(0);
            if (rc < 0) {
                assert_int_equal(err.code, ERR_NOMEM);
                assert_non_null(strstr(err.msg, "no memory for a message of "));
            }
        } while (rc < 0);
        assert_true(n >= 3); /* a Control and its body at least */
        assert_int_equal(back->body_case, m.body_case);
        msg_free(back);
        frame_unref(f);
    }
    arena_fini(&a);
}

/* A damaged message is refused with ERR_PROTO, or is valid and can be packed again. */
static int try_damaged(const uint8_t *data, size_t len)
{
    Wire__Control *m;
    struct err err;
    uint8_t *exact = malloc(len ? len : 1); /* a sanitizer sees a read past its end */
    memcpy(exact, data, len);
    int rc = msg_unpack(exact, len, &m, &err);
    free(exact);
    if (rc == 0) {
        struct frame *f = msg_frame(m, &err);
        assert_non_null(f);
        frame_unref(f);
        msg_free(m);
    } else {
        assert_int_equal(rc, ERR_PROTO);
        assert_true(strlen(err.msg) > 10);
    }
    return rc == 0;
}

static void every_truncation_is_harmless(void **state)
{
    struct arena a;
    Wire__Control m;
    struct frame *f;
    (void)state;
    arena_init(&a);
    for (int i = 0; (f = sample_frame(i, &m, &a)); i++) {
        for (size_t len = 0; len < f->len - FRAME_HEADER; len++)
            try_damaged(f->data + FRAME_HEADER, len);
        frame_unref(f);
    }
    arena_fini(&a);
}

static void every_flipped_bit_is_harmless(void **state)
{
    struct arena a;
    Wire__Control m;
    struct frame *f;
    int n_bad = 0, n = 0;
    (void)state;
    arena_init(&a);
    for (int i = 0; (f = sample_frame(i, &m, &a)); i++) {
        for (size_t bit = 8 * FRAME_HEADER; bit < 8 * f->len; bit++, n++) {
            f->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            n_bad += !try_damaged(f->data + FRAME_HEADER, f->len - FRAME_HEADER);
            f->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        frame_unref(f);
    }
    assert_true(n_bad > n / 10 && n_bad < n);
    arena_fini(&a);
}

static void random_bytes_are_harmless(void **state)
{
    struct rng_stream r;
    uint8_t data[200];
    (void)state;
    rng_stream_init(&r, 1, RNG_TEST, 0);
    for (int i = 0; i < 20000; i++) {
        size_t len = rng_next_below(&r, sizeof(data));
        for (size_t k = 0; k < len; k++)
            data[k] = (uint8_t)rng_next_u32(&r);
        try_damaged(data, len);
    }
}

static void empty_elements_do_not_fill_memory(void **state)
{
    size_t len = 0;
    uint8_t *data = malloc(4 << 20);
    Wire__Control *m;
    struct err err;
    (void)state;
    /* Ready (field 5) with half a million empty tensors (field 2, length 0) */
    size_t n = 500000, inner = 2 * n;
    data[len++] = 5 << 3 | 2;
    for (size_t v = inner; v; v >>= 7)
        data[len++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
    for (size_t i = 0; i < n; i++) {
        data[len++] = 2 << 3 | 2;
        data[len++] = 0;
    }
    assert_int_equal(msg_unpack(data, len, &m, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "unpacks to more than"));
    free(data);
}

/* ---- the rules ---- */

static void every_field_has_its_rule(void **state)
{
    unsigned n;
    const struct rule_set *sets = rules_all(&n);
    (void)state;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(sets[i].n_rules, sets[i].message->n_fields);
        for (unsigned k = 0; k < sets[i].n_rules; k++)
            assert_string_equal(sets[i].rules[k].field, sets[i].message->fields[k].name);
    }
    /* Control, TensorHash, Gpu, Collective, SpanName, Span; one field of Control is no message */
    assert_int_equal(n, wire__control__descriptor.n_fields + 5);
}

/* Break the rule of one field of *m in place; 0: this kind of rule cannot be broken so. */
static int break_field(struct arena *a, char *m, const ProtobufCFieldDescriptor *f,
                       const struct rule *r, int how)
{
    char *at = m + f->offset;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return 0;
    switch (r->kind) {
    case RULE_INT:
        if (how == 0 && f->type != PROTOBUF_C_TYPE_UINT32 && r->min > INT32_MIN)
            return f->type == PROTOBUF_C_TYPE_INT64 ? (*(int64_t *)at = r->min - 1, 1)
                                                    : (*(int32_t *)at = (int32_t)(r->min - 1), 1);
        if (how == 1 && f->type == PROTOBUF_C_TYPE_INT64 && r->max < INT64_MAX)
            return *(int64_t *)at = r->max + 1, 1;
        if (how == 1 && f->type == PROTOBUF_C_TYPE_INT32 && r->max < INT32_MAX)
            return *(int32_t *)at = (int32_t)(r->max + 1), 1;
        return 0;
    case RULE_AMOUNT:
        return *(double *)at = how ? NAN : -1.0, 1;
    case RULE_ENUM:
        return *(int *)at = how ? 99 : (int)r->min - 1, 1;
    case RULE_TEXT:
        *(char **)at = arena_alloc(a, (size_t)r->max + 2);
        memset(*(char **)at, 'x', how ? (size_t)r->max + 1 : 1);
        if (!how)
            **(char **)at = '\x1b';
        return 1;
    case RULE_HASH:
    case RULE_BYTES:
        if (how && r->min == 0)
            return 0;
        ((ProtobufCBinaryData *)at)->len = how ? (size_t)r->min - 1 : (size_t)r->max + 1;
        return 1;
    default:
        return 0;
    }
}

static int check_breaks(int sample, unsigned field, int how)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    int did;
    arena_init(&a);
    assert_true(sample_make(&a, sample, &m));
    ProtobufCMessage *body = (ProtobufCMessage *)m.hello; /* the union's member, of any kind */
    const struct rule_set *set = rules_for(body->descriptor);
    const ProtobufCFieldDescriptor *f = &body->descriptor->fields[field];
    assert_int_equal(msg_check(&m, &err), 0);
    did = break_field(&a, (char *)body, f, &set->rules[field], how);
    if (did) {
        assert_int_equal(msg_check(&m, &err), ERR_PROTO);
        if (!strstr(err.msg, f->name) || !strstr(err.msg, body->descriptor->short_name) ||
            !strstr(err.msg, "want"))
            fail_msg("%s.%s: %s", body->descriptor->short_name, f->name, err.msg);
    }
    arena_fini(&a);
    return did;
}

static void every_rule_is_enforced(void **state)
{
    struct arena a;
    Wire__Control m;
    int n = 0;
    (void)state;
    arena_init(&a);
    for (int i = 0; sample_make(&a, i, &m); i++) {
        const ProtobufCMessage *body = (const ProtobufCMessage *)m.hello;
        for (unsigned k = 0; k < body->descriptor->n_fields; k++)
            n += check_breaks(i, k, 0) + check_breaks(i, k, 1);
    }
    assert_true(n > 120);
    arena_fini(&a);
}

/* Four such times have a sum: a timeline adds and subtracts the clocks of two ranks, and the length
 * of a span. */
#define LATEST_NS (INT64_MAX / 8 + 1)

/* The status tells it in bytes. */
#define MOST_KIB (INT64_MAX / 2 / 1024)

/* Limits that the program relies on, stated here apart from the rules themselves: an interval of
 * 0 would send heartbeats without end. */
static void what_would_do_harm_is_refused(void **state)
{
    static const struct {
        int sample;
        const char *field;
        int64_t worst, best; /* refused, taken */
    } cases[] = {
        {10, "heartbeat_ms", 9, 10},
        {10, "heartbeat_ms", 0, 3600000},
        {10, "heartbeat_timeout_ms", 19, 20},
        {10, "n_ranks", 0, 1},
        {10, "rank", -1, 65535},
        {12, "n_local", 0, 131072},
        {12, "n_container", 131073, 131072},
        {12, "n_container", -1, 0},
        {12, "n_ranks", 131073, 131072},
        {14, "epoch", 0, 1},
        {4, "clock_ns", LATEST_NS + 1, LATEST_NS},
        {4, "echo_ns", LATEST_NS + 1, LATEST_NS},
        {4, "held_ns", INT64_MAX, LATEST_NS},
        {4, "resident_kib", INT64_MAX / 1024 + 1, MOST_KIB},
        {4, "gpu_memory_kib", INT64_MAX / 1024 + 1, MOST_KIB},
    };
    struct arena a;
    Wire__Control m;
    struct err err;
    (void)state;
    arena_init(&a);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sample_make(&a, cases[i].sample, &m);
        const ProtobufCMessage *body = (const ProtobufCMessage *)m.hello;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(body->descriptor, cases[i].field);
        char *at = (char *)(uintptr_t)body + f->offset;
        for (int is_best = 0; is_best < 2; is_best++) {
            int64_t v = is_best ? cases[i].best : cases[i].worst;
            if (f->type == PROTOBUF_C_TYPE_INT64)
                *(int64_t *)at = v;
            else
                *(int32_t *)at = (int32_t)v;
            if (msg_check(&m, &err) != (is_best ? 0 : ERR_PROTO))
                fail_msg("%s = %lld", f->name, (long long)v);
        }
    }
    arena_fini(&a);
}

static void nested_fields_are_checked(void **state)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    (void)state;
    arena_init(&a);
    sample_make(&a, 1, &m);
    m.ready->tensors[2]->hash.len = 15;
    assert_int_equal(msg_check(&m, &err), ERR_PROTO);
    assert_string_equal(err.msg, "Ready.tensors[2]: TensorHash.hash has 15 bytes, want 16 to 16");
    sample_make(&a, 0, &m);
    m.hello->n_gpus = 65;
    m.hello->gpus = arena_alloc(&a, 65 * sizeof(*m.hello->gpus));
    assert_int_equal(msg_check(&m, &err), ERR_PROTO);
    assert_string_equal(err.msg, "Hello.gpus has 65 elements, want at most 64");
    m.body_case = WIRE__CONTROL__BODY__NOT_SET;
    assert_int_equal(msg_check(&m, &err), ERR_PROTO);
    assert_string_equal(msg_name(&m), "an empty message");
    arena_fini(&a);
}

static void spans_have_times(void **state)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    int at = 0;
    (void)state;
    arena_init(&a);
    while (sample_make(&a, at, &m) && m.body_case != WIRE__CONTROL__BODY_SPANS)
        at++;
    assert_int_equal(m.body_case, WIRE__CONTROL__BODY_SPANS);
    m.spans->spans[1]->begin_ns = m.spans->spans[1]->took_ns = LATEST_NS;
    assert_int_equal(msg_check(&m, &err), 0);
    m.spans->spans[1]->begin_ns++;
    assert_int_equal(msg_check(&m, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "Spans.spans[1]: Span.begin_ns"));
    m.spans->spans[1]->begin_ns--;
    m.spans->spans[1]->took_ns++;
    assert_int_equal(msg_check(&m, &err), ERR_PROTO);
    arena_fini(&a);
}

static void unknown_fields_are_skipped(void **state)
{
    /* Control { goodbye { text "x", field 99: 5 }, field 77 "abc" } */
    static const uint8_t data[] = {0xa2, 0x01, 0x06, 0x0a, 0x01, 'x', 0x98, 0x06,
                                   0x05, 0xea, 0x04, 0x03, 'a',  'b', 'c'};
    Wire__Control *m;
    struct err err;
    (void)state;
    assert_int_equal(msg_unpack(data, sizeof(data), &m, &err), 0);
    assert_string_equal(m->goodbye->text, "x");
    msg_free(m);
}

static void texts_are_made_fit(void **state)
{
    static const struct {
        const char *in;
        size_t max;
        const char *want;
    } cases[] = {
        {NULL, 10, ""},
        {"plain", 10, "plain"},
        {"a\nb\tc", 10, "a b c"},
        {"\x1b[31mred", 20, "?[31mred"},
        {"\xc3\xa4\xff", 10, "\xc3\xa4?"},
        {"\xc2\x9b"
         "31m",
         10, "??31m"},
        {"a\xc2\xa0z", 10, "a\xc2\xa0z"}, /* a space that does not break: the first after C1 */
        {"a\xc2\x9fz", 10, "a??z"},
        {"\xe2\x80\xae"
         "abc",
         10, "???abc"},
        {"\xe2\x81\xa6"
         "abc",
         10, "???abc"},
        {"abc\xc3\xa4", 4, "abc"},
        {"abcdef", 3, "abc"},
    };
    struct arena a;
    (void)state;
    arena_init(&a);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(msg_text(&a, cases[i].in, cases[i].max), cases[i].want);
    arena_fini(&a);
}

static void too_large_is_an_error_not_a_crash(void **state)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    (void)state;
    arena_init(&a);
    sample_make(&a, 10, &m);
    assert_int_equal(m.body_case, WIRE__CONTROL__BODY_WELCOME);
    m.welcome->job.data = xcalloc(1, FRAME_MAX);
    m.welcome->job.len = FRAME_MAX;
    assert_null(msg_frame(&m, &err));
    assert_int_equal(err.code, ERR_ARG);
    free(m.welcome->job.data);
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_survives_a_round_trip),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(every_truncation_is_harmless),
        cmocka_unit_test(every_flipped_bit_is_harmless),
        cmocka_unit_test(random_bytes_are_harmless),
        cmocka_unit_test(empty_elements_do_not_fill_memory),
        cmocka_unit_test(every_field_has_its_rule),
        cmocka_unit_test(every_rule_is_enforced),
        cmocka_unit_test(what_would_do_harm_is_refused),
        cmocka_unit_test(nested_fields_are_checked),
        cmocka_unit_test(spans_have_times),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(texts_are_made_fit),
        cmocka_unit_test(too_large_is_an_error_not_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
