/* processor: which processors are of one kind, by what Linux says of them. */
#include "../test.h"

#include "base/processor.h"

#define X86(vendor, family, model, stepping, flags)                                        \
    "processor\t: 0\nvendor_id\t: " vendor "\ncpu family\t: " family "\nmodel\t\t: " model \
    "\nmodel name\t: EPYC " model "\nstepping\t: " stepping "\nmicrocode\t: 0x" stepping   \
    "\ncpu MHz\t\t: 26" stepping "0.0\nflags\t\t: " flags "\nbogomips\t: 5" stepping       \
    "\n\nprocessor\t: 1\nvendor_id\t: Other " stepping "\n"
#define ARM(part, features)                                     \
    "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: " features \
    "\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: " part "\nCPU revision\t: 1\n\n"

static const char plain[] = X86("AuthenticAMD", "26", "2", "1", "fpu sse2 avx2 fma avx512f");
static const char arm[] = ARM("0xd0c", "fp asimd sve");

static struct hash128 kind_of(const char *text, int *is_known, char name[32])
{
    FILE *f = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
    struct hasher *h = hasher_new();
    struct hash128 kind;

    assert_non_null(f);
    *is_known = processor_add(f, h, name, 32);
    kind = hasher_end(h);
    hasher_free(h);
    fclose(f);
    return kind;
}

static int is_like(const char *a, const char *b)
{
    char name[32];
    int known[2];
    const struct hash128 kinds[] = {kind_of(a, &known[0], name), kind_of(b, &known[1], name)};

    assert_true(known[0] && known[1]);
    return hash_equal(kinds[0], kinds[1]);
}

/* Another kernel, hypervisor or microcode, and another machine's second processor. */
static void test_equal_processors_are_of_one_kind(void **state)
{
    (void)state;
    assert_true(is_like(plain, plain));
    assert_true(is_like(plain, X86("AuthenticAMD", "26", "2", "3",
                                   "fpu vme sse2 ibrs md_clear avx2 fma hypervisor avx512f")));
    assert_true(is_like(arm, arm));
}

static void test_other_instructions_are_another_kind(void **state)
{
    static const char *const others[] = {
        X86("AuthenticAMD", "26", "2", "1", "fpu sse2 avx2 fma"),
        X86("AuthenticAMD", "26", "2", "1", "fpu sse2 avx2 fma avx512f avx512_bf16"),
        X86("AuthenticAMD", "26", "2", "1", "fpu sse2 avx2 fma avx512f amx_tile"),
        X86("AuthenticAMD", "26", "17", "1", "fpu sse2 avx2 fma avx512f"),
        X86("AuthenticAMD", "25", "2", "1", "fpu sse2 avx2 fma avx512f"),
        X86("GenuineIntel", "26", "2", "1", "fpu sse2 avx2 fma avx512f"),
        ARM("0xd0c", "fp asimd sve"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_like(plain, others[i]))
            fail_msg("of one kind: %s", others[i]);
    assert_false(is_like(arm, ARM("0xd0c", "fp asimd sve sve2")));
    assert_false(is_like(arm, ARM("0xd40", "fp asimd sve")));
}

static void test_the_name(void **state)
{
    char name[32] = "nobody's";
    int is_known;

    (void)state;
    kind_of("processor\t: 0\nbogomips\t: 1\n", &is_known, name);
    assert_false(is_known);
    assert_string_equal(name, "nobody's");
    kind_of(plain, &is_known, name);
    assert_string_equal(name, "EPYC 2");
    kind_of(arm, &is_known, name);
    assert_true(is_known);
    assert_string_equal(name, "part 0xd0c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_processors_are_of_one_kind),
        cmocka_unit_test(test_other_instructions_are_another_kind),
        cmocka_unit_test(test_the_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
