/* Tests of args: command lines are read into a struct, or refused with a message that names the
 * option; the help lists all options. */
#include "../test.h"

#include "daemon/args.h"

struct values {
    int64_t count, size;
    const char *text;
    int flag, choice;
    struct arg_list list;
};

static const char *const colours[] = {"red", "green", NULL};

#define AT(field) offsetof(struct values, field)

static const struct arg args[] = {
    {{"count", OPT_INT, AT(count), NULL, 1, 10, .help = "how many"}, "N"},
    {{"text", OPT_STRING, AT(text), .help = "what"}, "TEXT"},
    {{"flag", OPT_BOOL, AT(flag), .help = "whether"}, NULL},
    {{"flavour", OPT_STRING, AT(text), .help = "which, beginning as another does"}, "F"},
    {{"colour", OPT_CHOICE, AT(choice), .choices = colours, .help = "which"}, "red|green"},
    {{"size", OPT_INT, AT(size), "4", 0, 1e12, .unit = "bytes", .help = "This size."}, "S"},
    {{"item", OPT_STRING, AT(list), .flags = OPT_MANY,
      .help = "one of several words, so that this line is longer "
              "than what fits beside the option"},
     "I"},
};

/* The values of text and count may be bare words. */
static const char *const operands[] = {"text", "count", NULL};

static int parse_into(struct values *v, struct args *out, struct err *err, const char *line)
{
    struct arg_group g = {"Options", args, ARRAY_LEN(args), v};
    static char text[256]; /* v->text points into it */
    char *argv[32] = {(char *)"prog"}, *rest = text, *word;
    int argc = 1;

    snprintf(text, sizeof text, "%s", line);
    while ((word = strsep(&rest, " ")))
        if (*word)
            argv[argc++] = strcmp(word, "''") == 0 ? (char *)"" : word;
    *v = (struct values){.count = 7};
    return args_parse(&g, 1, argc, argv, out, err);
}

static int parse(struct values *v, struct err *err, const char *line)
{
    return parse_into(v, NULL, err, line);
}

static void test_good(void **state)
{
    struct values v;
    struct err err;

    (void)state;
    assert_int_equal(parse(&v, &err, ""), 0);
    assert_int_equal(v.count, 7); /* the struct's default, and the row's */
    assert_int_equal(v.size, 4);
    assert_int_equal(
        parse(&v, &err, "--count 3 --text=a=b --flag --colour green --item x --item y"), 0);
    assert_int_equal(v.count, 3);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(v.flag, 1);
    assert_int_equal(v.choice, 1);
    assert_int_equal(v.list.n, 2);
    assert_string_equal(v.list.item[1], "y");
    assert_int_equal(parse(&v, &err, "--cou 10 --count 2 --size 5"), 0);
    assert_int_equal(v.count, 2);
    assert_int_equal(v.size, 5);
    assert_int_equal(parse(&v, &err, "--count +008 --size 00"), 0);
    assert_int_equal(v.count, 8);
    assert_int_equal(v.size, 0);
}

static void test_bad(void **state)
{
    static const struct {
        const char *line, *message;
        int code;
    } cases[] = {
        {"--count 0", "--count is 0, want an integer from 1 to 10", ERR_ARG},
        {"--size 1234567890123", "want an integer from 0 to 1000000000000 bytes", ERR_ARG},
        {"--size ''", "--size is empty, want S", ERR_ARG},
        {"--count 11", "want an integer from 1 to 10", ERR_ARG},
        {"--count ten", "--count is \"ten\"", ERR_ARG},
        {"--count 3x", "--count is \"3x\", want an integer from 1 to 10", ERR_ARG},
        {"--count", "--count needs a value: N", ERR_ARG},
        {"--count ''", "--count is empty", ERR_ARG},
        {"--text ''", "--text is empty, want TEXT", ERR_ARG},
        {"--flag=1", "--flag takes no value", ERR_ARG},
        {"--colour blue", "--colour is \"blue\", want red or green", ERR_ARG},
        {"--conut 3", "unknown option --conut; did you mean --count?", ERR_ARG},
        {"--itme=3", "did you mean --item?", ERR_ARG},
        {"--quite-different", "unknown option --quite-different; --help", ERR_ARG},
        {"--fla", "is the beginning of several", ERR_ARG},
        {"-c 3", "unknown option -c", ERR_ARG},
        {"--flag word", "\"word\" is no option", ERR_ARG},
        {"word --flag", "\"word\" is no option", ERR_ARG},
        {"--item a=1 b=2", "--item takes one I at a time; write --item b=2", ERR_ARG},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct values v;
        struct err err = {0};

        assert_int_equal(parse(&v, &err, cases[i].line), cases[i].code);
        if (!strstr(err.msg, cases[i].message))
            fail_msg("%s: \"%s\" is not in: %s", cases[i].line, cases[i].message, err.msg);
    }
}

/* The given options are told in their order, by whole names; bare words go to the operands in turn.
 */
static void test_given(void **state)
{
    static const struct {
        const char *line, *given; /* given: as it is told, or a part of the error */
        int code;
    } cases[] = {
        {"", "", 0},
        {"--cou 3 --flag --item=x --item y", "count=3 flag item=x item=y", 0},
        {"word", "text=word", 0},
        {"--flag word 5", "flag text=word count=5", 0},
        {"word --flag 5 --item x", "text=word flag count=5 item=x", 0},
        {"--text t 5", "text=t count=5", 0},
        {"word 11", "--count is 11, want an integer from 1 to 10", ERR_ARG},
        {"a 1 b", "\"b\" is no option", ERR_ARG},
        {"--item a=1 b=2", "--item takes one I at a time; write --item b=2", ERR_ARG},
        {"--flag -- -a 2", "flag text=-a count=2", 0},
        {"-- a 1 b", "\"b\" is no option", ERR_ARG},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct args seen = {.operands = operands};
        struct err err = {0};
        struct values v;
        char told[128] = "";

        assert_int_equal(parse_into(&v, &seen, &err, cases[i].line), cases[i].code);
        for (int k = 0; k < seen.n_given; k++)
            snprintf(told + strlen(told), sizeof told - strlen(told), "%s%s%s%s", k ? " " : "",
                     seen.given[k].arg->row.key, seen.given[k].value ? "=" : "",
                     seen.given[k].value ? seen.given[k].value : "");
        if (cases[i].code ? !strstr(err.msg, cases[i].given) : strcmp(told, cases[i].given) != 0)
            fail_msg("%s: %s, %s", cases[i].line, told, err.msg);
        args_fini(&seen);
    }
}

/* An option that may be repeated takes all bare words. */
static void test_list_of_operands(void **state)
{
    static const char *const list[] = {"item", NULL}, *const want[] = {"a", "b", "c", "d"};
    struct args seen = {.operands = list};
    struct values v;
    struct err err;

    (void)state;
    assert_int_equal(parse_into(&v, &seen, &err, "a b --flag c --item d"), 0);
    assert_int_equal(v.list.n, ARRAY_LEN(want));
    for (size_t i = 0; i < v.list.n; i++)
        assert_string_equal(v.list.item[i], want[i]);
    args_fini(&seen);
    assert_int_equal(parse_into(&v, &seen, &err, "a ''"), ERR_ARG);
    assert_non_null(strstr(err.msg, "the word for I is empty"));
    args_fini(&seen);
}

/* An option is of the uses of its row, or of all.  A summary is its first sentence, and leaves rare
 * ones out. */
static void test_uses(void **state)
{
    static const struct arg mixed[] = {
        {{"both", OPT_BOOL, AT(flag), .help = "First. Second."}, NULL, .of = 3},
        {{"second", OPT_BOOL, AT(flag), .help = "Only. Once."}, NULL, .of = 2},
        {{"all", OPT_BOOL, AT(flag), .help = "By every use."}, NULL},
        {{"high", OPT_BOOL, AT(flag), .help = "By the first."}, NULL, .of = 1u << 16},
        {{"rare", OPT_BOOL, AT(flag), .help = "By the second."}, NULL, .of = 2, .is_rare = 1},
    };
    struct arg_group g = {"Options", mixed, ARRAY_LEN(mixed), NULL};
    static const unsigned uses[3] = {1u | 1u << 16, 2u, 0};
    static const int takes[3][5] = {{1, 0, 1, 1, 0}, {1, 1, 1, 0, 1}, {1, 1, 1, 1, 1}};

    (void)state;
    for (size_t u = 0; u < ARRAY_LEN(uses); u++) {
        char *text, name[16];
        size_t len;
        FILE *f = open_memstream(&text, &len);

        assert_int_equal(args_summary(&g, 1, uses[u], f), takes[u][4]);
        fclose(f);
        for (size_t i = 0; i < ARRAY_LEN(mixed); i++) {
            snprintf(name, sizeof name, "--%s ", mixed[i].row.key);
            assert_int_equal(args_take(&mixed[i], uses[u]), takes[u][i]);
            assert_int_equal(strstr(text, name) != NULL, takes[u][i] && !mixed[i].is_rare);
        }
        assert_non_null(strstr(text, "First.\n"));
        assert_null(strstr(text, "Second."));
        free(text);
    }
}

static void test_list_is_bounded(void **state)
{
    struct arg_group g = {"Options", args, ARRAY_LEN(args), NULL};
    struct values v = {0};
    char *argv[ARG_MAX_LIST + 3] = {(char *)"prog"};
    struct err err;

    (void)state;
    g.into = &v;
    for (int i = 1; i <= ARG_MAX_LIST + 1; i++)
        argv[i] = (char *)"--item=x";
    assert_int_equal(args_parse(&g, 1, ARG_MAX_LIST + 1, argv, NULL, &err), 0);
    v.list.n = 0;
    assert_int_equal(args_parse(&g, 1, ARG_MAX_LIST + 2, argv, NULL, &err), ERR_ARG);
}

static void test_help(void **state)
{
    struct arg_group g = {"Options", args, ARRAY_LEN(args), NULL};
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    (void)state;
    args_help(&g, 1, 0, f);
    fclose(f);
    assert_non_null(strstr(text, "  --count N               how many\n"));
    assert_non_null(strstr(text, "  --colour red|green      which\n"));
    assert_non_null(strstr(text, "  --size S                This size. The default is 4.\n"));
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        assert_true(strlen(line) <= 80);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),  cmocka_unit_test(test_bad),
        cmocka_unit_test(test_given), cmocka_unit_test(test_list_of_operands),
        cmocka_unit_test(test_uses),  cmocka_unit_test(test_list_is_bounded),
        cmocka_unit_test(test_help),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
