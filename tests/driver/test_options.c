/* Tests of dpdriver's options and verbs: the help of a verb shows the options that the verb takes,
 * and no others. */
#include "../test.h"

#include <unistd.h>

#include "driver/options.h"
#include "net/secret.h"

enum { MOST_WORDS = 12, MOST_OPTIONS = 100, TEXT = 64 };

/* The words behind each verb with which it can be run. */
static const char *const verbs[VERB_COUNT][4] = {
    [VERB_TRAIN] = {"train", "--nranks=2"},
    [VERB_FIND_LR] = {"find-lr", "--nranks=2"},
    [VERB_EVALUATE] = {"evaluate"},
    [VERB_PREDICT] = {"predict", "--predict=out.npy"},
    [VERB_EXPORT] = {"export", "--export=net.onnx"},
    [VERB_STANDBY] = {"standby", "--root=node1:7000"},
    [VERB_DRAIN] = {"drain", "--drain=1"},
    [VERB_MERGE] = {"merge", "--merge=m.safetensors"},
    [VERB_SAMPLE] = {"sample", "--sample=text"},
    [VERB_STATUS] = {"status"},
    [VERB_TRACE] = {"trace", "--trace=1"},
    [VERB_SET_LIVE] = {"set-live", "--set-live=optimizer.lr=1"},
    [VERB_CHECKPOINT_NOW] = {"checkpoint-now"},
    [VERB_PAUSE] = {"pause"},
    [VERB_GO] = {"go"},
    [VERB_REPORT] = {"report", "--report=demo"},
    [VERB_COMPARE] = {"compare", "--compare=demo"},
    [VERB_REPLAY] = {"replay", "--replay=demo", "--step=1"},
    [VERB_VERIFY] = {"verify", "--verify=1,2"},
    [VERB_SECRET] = {"secret", "--make-secret=new"},
    [VERB_INIT] = {"init", "--init=folder"},
    [VERB_KEYS] = {"keys"},
    [VERB_HELP] = {"help"},
};

/* The options that take more than the value 1, and those that need another one beside them. */
static const struct {
    const char *name, *value, *also;
} values[] = {
    {"bind", "none", "--ranks=2"},
    {"device", "cpu", NULL},
    {"dump", "gradients.safetensors", NULL},
    {"export", "net.onnx", NULL},
    {"help", NULL, NULL},
    {"host", "127.0.0.1", NULL},
    {"hosts", "hosts", "--insecure"},
    {"iface", "lo", NULL},
    {"inject", "kill:rank0@step1", NULL},
    {"log-format", "json", NULL},
    {"merge", "m.safetensors", NULL},
    {"sample", "text", NULL},
    {"root", "node1:7000", NULL},
    {"secret-file", "secret", NULL},
    {"weights", "average", NULL},
    {"set-live", "optimizer.lr=1", NULL},
};

static char folder[] = "/tmp/dptrain_options_XXXXXX";

struct shown {
    char name[MOST_OPTIONS][TEXT];
    int takes_value[MOST_OPTIONS];
    int n;
};

/* The options that a help text shows: lines that begin with "  --NAME VALUE". */
static struct shown read_help(const struct wish *wish)
{
    struct options o = {.wish = *wish};
    struct shown s = {.n = 0};
    char *text = NULL, *rest, *line;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    options_help(&o, f);
    fclose(f);
    for (rest = text; (line = strsep(&rest, "\n"));) {
        if (strncmp(line, "  --", 4) != 0)
            continue;
        assert_true(s.n < MOST_OPTIONS);
        len = strcspn(line + 4, " ");
        snprintf(s.name[s.n], TEXT, "%.*s", (int)len, line + 4);
        s.takes_value[s.n++] = line[4 + len] == ' ' && line[5 + len] != ' ';
    }
    free(text);
    return s;
}

static int has(const struct shown *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return 1;
    return 0;
}

/* Run "dpdriver VERB ... --NAME=VALUE". */
static int parse(enum verb v, const char *name, int takes_value, struct err *err)
{
    const char *value = takes_value ? "1" : NULL, *also = NULL;
    char word[2 * TEXT];
    const char *argv[MOST_WORDS] = {"dpdriver"};
    struct options o;
    int argc = 1, rc;

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (strcmp(values[i].name, name) == 0) {
            value = values[i].value;
            also = values[i].also;
        }
    for (int i = 0; verbs[v][i]; i++)
        argv[argc++] = verbs[v][i];
    snprintf(word, sizeof word, "--%s%s%s", name, value ? "=" : "", value ? value : "");
    argv[argc++] = word;
    if (also)
        argv[argc++] = also;
    err->msg[0] = '\0';
    rc = options_parse(argc, (char **)argv, &o, err);
    options_fini(&o);
    return rc;
}

static void check_verb(enum verb v, const struct shown *all, const struct shown *own)
{
    struct err err;
    char words[2 * TEXT];

    for (int i = 0; i < all->n; i++) {
        const int rc = parse(v, all->name[i], all->takes_value[i], &err);

        if (has(own, all->name[i])) {
            if (rc < 0)
                fail_msg("%s shows --%s: %s", verbs[v][0], all->name[i], err.msg);
            continue;
        }
        snprintf(words, sizeof words, "\"dpdriver %s\" takes no --%s, which belongs to ",
                 verbs[v][0], all->name[i]);
        if (rc != ERR_ARG || !strstr(err.msg, words))
            fail_msg("%s does not show --%s: %d %s", verbs[v][0], all->name[i], rc, err.msg);
    }
}

/* "dpdriver help help" is about all verbs, so help's own options are those that all others have. */
static void test_help_is_what_is_taken(void **state)
{
    const struct wish everything = {VERB_TRAIN, 0, VERB_HELP};
    struct shown all = read_help(&everything), common = all;

    (void)state;
    assert_true(all.n > 30);
    for (enum verb v = 0; v < VERB_HELP; v++) {
        const struct wish help = {VERB_HELP, 1, v}, summary = {v, 1, VERB_HELP};
        struct shown own = read_help(&help), daily = read_help(&summary);
        int n = 0;

        assert_true(daily.n > 0 && own.n > daily.n);
        for (int i = 0; i < daily.n; i++)
            assert_true(has(&own, daily.name[i]));
        check_verb(v, &all, &own);
        for (int i = 0; i < common.n; i++)
            if (has(&own, common.name[i]))
                memmove(common.name[n++], common.name[i], TEXT);
        common.n = n;
    }
    check_verb(VERB_HELP, &all, &common);
}

/* By its option a verb refuses what it refuses by its word, with a remedy. */
static void test_standby_by_its_option(void **state)
{
    static const char *const refused[] = {"--ranks=2", "--bind=none", "--nranks=2", "--check"};
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const char *argv[] = {"dpdriver", "--standby", "--root=h:1", refused[i], NULL};
        struct options o;
        char words[TEXT];

        assert_int_equal(options_parse(4, (char **)argv, &o, &err), ERR_ARG);
        snprintf(words, sizeof words, "leave %.*s out", (int)strcspn(refused[i], "="), refused[i]);
        if (!strstr(err.msg, words))
            fail_msg("%s: %s", refused[i], err.msg);
        options_fini(&o);
    }
}

static int make_files(void **state)
{
    struct err err;
    FILE *f;

    (void)state;
    if (!mkdtemp(folder) || chdir(folder) < 0 || !(f = fopen("hosts", "w")))
        return -1;
    fprintf(f, "node7 slots=1\n");
    return fclose(f) == 0 ? secret_make("secret", &err) : -1;
}

static int remove_files(void **state)
{
    (void)state;
    unlink("hosts");
    unlink("secret");
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_is_what_is_taken),
        cmocka_unit_test(test_standby_by_its_option),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
