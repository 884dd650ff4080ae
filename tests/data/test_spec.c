/* dataset: specs of all kinds, over data sets in memory. */
#include "../test.h"

#include "data/dataset.h"
#include "memory_set.h"

static struct hash128 print_of(const struct dataset *ds)
{
    struct hash128 h;
    struct err err;

    assert_int_equal(dataset_fingerprint(ds, &h, &err), 0);
    return h;
}

/* Each byte of each field of a small set counts, and so does each part of the spec. */
static void fingerprints_see_every_field(void **state)
{
    struct memory_set *sets[] = {regression_set(40), token_set(40), image_set(40)};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
        struct dataset *ds = &sets[k]->base;
        const struct hash128 right = print_of(ds);

        for (int i = 0; i < ds->spec.n_fields; i++) {
            struct sample_field *f = &ds->spec.field[i], kept = *f;

            for (size_t at = 0; at < 40 * sample_stored_bytes(f); at++) {
                sets[k]->at[i][at] ^= 1;
                assert_false(hash_equal(print_of(ds), right));
                sets[k]->at[i][at] ^= 1;
            }
            f->name = "other";
            assert_false(hash_equal(print_of(ds), right));
            *f = kept;
            f->n_classes++;
            assert_false(hash_equal(print_of(ds), right));
            *f = kept;
        }
        assert_true(hash_equal(print_of(ds), right));
        dataset_close(ds);
    }
}

/* If a set is larger than what is hashed, its first and its last sample still count. */
static void fingerprints_see_both_ends(void **state)
{
    struct memory_set *m = image_set(20000);
    const struct hash128 right = print_of(&m->base);
    const size_t last = 20000 * sample_stored_bytes(&m->base.spec.field[0]) - 1;

    (void)state;
    m->at[0][0] ^= 1;
    assert_false(hash_equal(print_of(&m->base), right));
    m->at[0][0] ^= 1;
    m->at[0][last] ^= 1;
    assert_false(hash_equal(print_of(&m->base), right));
    dataset_close(&m->base);
}

/* Fields are gathered in their own types.  Fields that are not asked for are left out. */
static void every_kind_of_field_is_gathered(void **state)
{
    struct memory_set *sets[] = {regression_set(9), token_set(9), image_set(9)};
    const int64_t index[] = {8, 0, 3, 3, 7};
    struct err err;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
        const int n = sets[k]->base.spec.n_fields;
        void *to[SAMPLE_MAX_FIELDS] = {NULL}, *one[SAMPLE_MAX_FIELDS] = {NULL};

        assert_int_equal(dataset_alloc(&sets[k]->base, 5, to, "samples", &err), 0);
        assert_int_equal(dataset_gather(&sets[k]->base, index, 5, to, &err), 0);
        for (int i = 0; i < n; i++)
            memory_set_check(sets[k], i, to[i], index, 5);
        one[n - 1] = to[n - 1];
        assert_int_equal(dataset_gather(&sets[k]->base, index + 1, 4, one, &err), 0);
        memory_set_check(sets[k], n - 1, to[n - 1], index + 1, 4);
        memory_set_check(sets[k], 0, to[0], index, 5);
        free(to[0]);
        dataset_close(&sets[k]->base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fingerprints_see_every_field),
        cmocka_unit_test(fingerprints_see_both_ends),
        cmocka_unit_test(every_kind_of_field_is_gathered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
