/* Packed documents: what goes into which sample, and the fields of samples that the format tokens
 * makes of files whose documents end with a token. */
#include "../test.h"

#include "base/rng.h"
#include "data/packing.h"
#include "data/sequence.h"
#include "idx_file.h"
#include "sequence_set.h"

enum { END = 2 };

/* ---- packing ---- */

/* Documents of these numbers of tokens, one behind another. */
static void pack(struct packing *p, int64_t context, const int *n, int n_documents)
{
    struct err err = {0};
    int64_t at = 0;

    packing_init(p, context);
    for (int i = 0; i < n_documents; i++) {
        assert_int_equal(packing_add(p, at, n[i], &err), 0);
        at += n[i];
    }
}

static void check_piece(const struct packing_piece *k, int64_t at, int n)
{
    assert_non_null(k);
    assert_int_equal(k->at, at);
    assert_int_equal(k->n, n);
}

/* 7 places and 3 places of 10; the next one has 5, so that it opens a sample. */
static void pieces_go_where_they_fit(void **state)
{
    static const int n[] = {8, 6, 1, 4, 2};
    static const int32_t starts[2][10] = {{0, 0, 0, 0, 0, 0, 0, 7, 7, 7},
                                          {0, 0, 0, 0, 0, 5, 6, 7, 8, 9}};
    const struct packing_piece *k;
    struct packing p;
    int32_t to[10];

    (void)state;
    pack(&p, 10, n, ARRAY_LEN(n));
    assert_int_equal(p.n_samples, 2);
    assert_int_equal(p.n_places, 7 + 5 + 3 + 1);
    k = packing_first(&p, 0);
    check_piece(k, 0, 7);
    k = packing_next(&p, k);
    check_piece(k, 8 + 6 + 1, 3);
    assert_null(packing_next(&p, k));
    k = packing_first(&p, 1);
    check_piece(k, 8, 5);
    check_piece(packing_next(&p, k), 8 + 6 + 1 + 4, 1);
    for (int i = 0; i < 2; i++) {
        packing_starts(&p, i, to);
        assert_memory_equal(to, starts[i], sizeof to);
    }
    packing_fini(&p);
}

/* 25 tokens have 24 targets: two whole samples of 10, and 4 places of a third one. */
static void long_documents_are_cut(void **state)
{
    struct packing p;

    (void)state;
    pack(&p, 10, (const int[]){25, 7}, 2);
    assert_int_equal(p.n_samples, 3);
    check_piece(packing_first(&p, 0), 0, 10);
    check_piece(packing_first(&p, 1), 10, 10);
    check_piece(packing_first(&p, 2), 20, 4);
    check_piece(packing_next(&p, packing_first(&p, 2)), 25, 6);
    packing_fini(&p);
}

/* Of many documents each token with a target has one place, no sample is too full, and few places
 * are padding. */
static void every_token_has_one_place(void **state)
{
    enum { N = 3000, CONTEXT = 128 };
    int n[N], n_tokens = 0, n_places = 0;
    struct rng_stream s;
    struct packing p;
    char *seen;

    (void)state;
    rng_stream_init(&s, 1, RNG_DROPOUT, 0);
    for (int i = 0; i < N; i++) {
        n[i] = 1 + (int)rng_next_below(&s, i % 10 ? 100 : 400);
        n_tokens += n[i];
        n_places += n[i] - 1;
    }
    seen = calloc(1, (size_t)n_tokens);
    pack(&p, CONTEXT, n, N);
    assert_int_equal(p.n_places, n_places);
    for (int64_t i = 0; i < p.n_samples; i++) {
        int used = 0;

        for (const struct packing_piece *k = packing_first(&p, i); k; k = packing_next(&p, k)) {
            for (int64_t at = k->at; at < k->at + k->n; at++)
                assert_int_equal(seen[at]++, 0);
            used += k->n;
        }
        assert_in_range(used, 1, CONTEXT);
    }
    for (int i = 0, at = 0; i < N; at += n[i++])
        assert_int_equal(seen[at + n[i] - 1], 0); /* the last one is a target alone */
    assert_true((double)p.n_places > 0.98 * (double)(p.n_samples * CONTEXT));
    packing_fini(&p);
    free(seen);
}

/* ---- the format tokens ---- */

static void write_numbers(const char *folder, const char *name, const int *v, int n)
{
    struct buf b = {0};

    for (int i = 0; i < n; i++)
        buf_append(&b, (const uint8_t[]){(uint8_t)v[i], (uint8_t)(v[i] >> 8)}, 2);
    write_file(folder, name, &b);
    buf_fini(&b);
}

static struct dataset_request packed_request(void)
{
    return (struct dataset_request){.purpose = DATASET_TRAIN, .context = 6, .vocab = 50};
}

#define SETTINGS(folder)                                                             \
    {                                                                                \
        {"data.path", folder}, {"data.train", "a.bin,b.bin"}, {"data.pack", "true"}, \
            {"data.end_token", "2"},                                                 \
        {                                                                            \
            NULL                                                                     \
        }                                                                            \
    }

/* Two files; the end of the first one ends a document, too. */
static void documents_of_files_are_packed(void **state)
{
    static const int a[] = {11, 12, 13, END, 21, END, END, 31, 32}, b[] = {41, 42, END};
    static const int32_t want[2][3][6] = {
        {{11, 12, 13, 21, 31, 0}, {12, 13, END, END, 32, SAMPLE_IGNORED}, {0, 0, 0, 3, 4, 5}},
        {{41, 42, 0, 0, 0, 0},
         {42, END, SAMPLE_IGNORED, SAMPLE_IGNORED, SAMPLE_IGNORED, SAMPLE_IGNORED},
         {0, 0, 2, 3, 4, 5}}};
    const struct setting settings[] = SETTINGS(*state);
    struct dataset *ds;
    struct err err;

    write_numbers(*state, "a.bin", a, ARRAY_LEN(a));
    write_numbers(*state, "b.bin", b, ARRAY_LEN(b));
    ds = open_ok(&format_tokens, settings, packed_request());
    assert_int_equal(ds->n_samples, 2);
    assert_int_equal(ds->spec.n_fields, 3);
    assert_int_equal(sample_target(&ds->spec), SEQUENCE_TARGETS);
    assert_int_equal(sample_starts(&ds->spec), SEQUENCE_STARTS);
    assert_int_equal(sample_n_inputs(&ds->spec), 1);
    for (int64_t i = 0; i < 2; i++) {
        int32_t to[3][6];

        assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){to[0], to[1], to[2]}, &err), 0);
        assert_memory_equal(to, want[i], sizeof to);
    }
    dataset_close(ds);
}

static const struct bad_packed {
    int v[6], n;
    const char *want; /* @ is the folder */
} bad[] = {
    {{7, 8, 9, 7, 8, 9},
     6,
     "tokens: @/b.bin: none of its 6 tokens is 2, which ends a document (data.end_token); want the "
     "end token of the file's tokenizer, or set data.pack false"},
    {{0},
     0,
     "tokens: @/b.bin: none of its 0 tokens is 2, which ends a document (data.end_token); want the "
     "end token of the file's tokenizer, or set data.pack false"},
    {{7, 8, 2, 70, 2},
     5,
     "tokens: @/b.bin: offset 6: token 3 is 70, want below 50, the vocabulary's size; set "
     "model.vocab, or is data.dtype uint16 wrong?"},
};

static void files_without_documents_are_refused(void **state)
{
    static const int a[] = {2, 2, 2, 2};
    const struct setting settings[] = SETTINGS(*state);
    const struct dataset_request r = packed_request();
    char want[1024];

    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        const int is_last = i == ARRAY_LEN(bad);
        struct dataset *ds = NULL;
        struct err err = {0};

        write_numbers(*state, "a.bin", a, ARRAY_LEN(a));
        write_numbers(*state, "b.bin", is_last ? a : bad[i].v, is_last ? 1 : bad[i].n);
        assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), ERR_CORRUPT);
        assert_string_equal(
            err.msg,
            fill_in(want, sizeof want,
                    is_last ? "tokens: @/a.bin: its documents have one token each, want one with "
                              "two at least, of which the second is the target of the first; is "
                              "data.end_token wrong?"
                            : bad[i].want,
                    *state));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_go_where_they_fit),     cmocka_unit_test(long_documents_are_cut),
        cmocka_unit_test(every_token_has_one_place),    IN_FOLDER(documents_of_files_are_packed),
        IN_FOLDER(files_without_documents_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
