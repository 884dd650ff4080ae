/* An option in argv is known by its name, which may be abbreviated; its value stands behind "=" or
 * is the next word. */
#include "driver/command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"

static void put_quoted(struct buf *b, const char *word)
{
    int is_plain = *word != '\0';

    for (const char *c = word; *c; c++)
        is_plain = is_plain && (isalnum((unsigned char)*c) || strchr("-_./=:,+@%", *c));
    buf_printf(b, "%s", b->len ? " " : "");
    if (is_plain) {
        buf_printf(b, "%s", word);
        return;
    }
    buf_printf(b, "'");
    for (const char *c = word; *c; c++)
        buf_printf(b, *c == '\'' ? "'\\''" : "%c", *c);
    buf_printf(b, "'");
}

/* 1: argv's `word` is --name, or an abbreviation of it, also with "=...". */
static int is_option(const char *word, const char *name)
{
    size_t n = strcspn(word, "=");

    return n > 2 && strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, n - 2) == 0;
}

/* 1: this --set is of one of the keys.  A key that ends in '.' stands for all keys that begin with
 * it. */
static int is_of_keys(const char *setting, const char *const *keys)
{
    for (; setting && *keys; keys++) {
        size_t n = strcspn(*keys, "=");

        if (strncmp(setting, *keys, n) == 0 && ((*keys)[n - 1] == '.' || setting[n] == '='))
            return 1;
    }
    return 0;
}

/* Append argv without --run-dir, --resume and --inject, and without the settings of `keys` (NULL at
 * the end). */
static void put_command(struct buf *b, int argc, char **argv, const char *const *keys)
{
    for (int i = 0; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int is_set = i > 0 && is_option(argv[i], "set"), n = is_set && !equals ? 2 : 1;

        if (i > 0 && is_option(argv[i], "resume"))
            continue;
        if (i > 0 && (is_option(argv[i], "run-dir") || is_option(argv[i], "inject"))) {
            i += !equals;
            continue;
        }
        if (!is_set || !is_of_keys(equals ? equals + 1 : argv[i + 1], keys))
            for (int k = 0; k < n && i + k < argc; k++)
                put_quoted(b, argv[i + k]);
        i += n - 1;
    }
}

char **command_of_driver(int argc, char **argv, int64_t n_ranks, int *out_argc)
{
    static const char *const own[] = {"standby", "root", "wait"};
    char **out = xcalloc((size_t)argc + 2, sizeof *out);
    int n = 0;

    for (int i = 0; i < argc; i++) {
        int is_own = -1;

        for (int k = 0; i > 0 && k < (int)ARRAY_LEN(own); k++)
            if (is_option(argv[i], own[k]))
                is_own = k;
        if (is_own < 0)
            out[n++] = argv[i];
        else if (is_own > 0 && !strchr(argv[i], '='))
            i++;
    }
    out[n++] = xasprintf("--nranks=%lld", (long long)n_ranks);
    *out_argc = n;
    return out;
}

/* The command that started this driver's job, if that was a batch script; else NULL.  It takes
 * options of dpdriver at its end, resumes by itself, and makes a secret of its own, since the one
 * of argv is gone once the script has ended. */
static const char *script_command(void)
{
    const char *text = getenv("DPTRAIN_COMMAND");

    return text && *text ? text : NULL;
}

static void put_sets(struct buf *b, const char *const *sets)
{
    for (; *sets; sets++) {
        put_quoted(b, "--set");
        put_quoted(b, *sets);
    }
}

static char *take_text(struct buf *b)
{
    char *text = xstrdup(buf_cstr(b));

    buf_fini(b);
    return text;
}

char *command_longer(int argc, char **argv, const char *run_dir, const char *const *sets)
{
    const char *script = script_command();
    struct buf b = {0};

    if (script) {
        buf_printf(&b, "%s", script);
    } else {
        put_command(&b, argc, argv, sets);
        put_quoted(&b, "--resume");
        put_quoted(&b, "--run-dir");
        put_quoted(&b, run_dir);
    }
    put_sets(&b, sets);
    return take_text(&b);
}

char *command_resume(int argc, char **argv, const char *run_dir)
{
    static const char *const no_sets[] = {NULL};

    return command_longer(argc, argv, run_dir, no_sets);
}

/* By a batch script, which resumes what it finds, a new run needs a folder of its own. */
static char *new_by_script(const char *script, const char *const *sets)
{
    struct buf b = {0};

    buf_printf(&b, "%s --run-dir NEW_FOLDER", script);
    put_sets(&b, sets);
    return take_text(&b);
}

char *command_new(int argc, char **argv, const char *run_dir, const char *const *sets)
{
    if (script_command())
        return new_by_script(script_command(), sets);

    char *job = run_dir ? xasprintf("%s/job.yaml", run_dir) : NULL;
    struct buf b = {0};

    put_command(&b, argc, argv, sets);
    if (job) {
        put_quoted(&b, "--job");
        put_quoted(&b, job);
    }
    put_sets(&b, sets);
    free(job);
    return take_text(&b);
}

char *command_data(int argc, char **argv)
{
    static const char *const drawn[] = {"data.", NULL};
    static const char *const own[] = {"data.format=mnist", "data.path=FOLDER",
                                      "data.validation=t10k", NULL};
    struct buf b = {0};

    put_command(&b, argc, argv, drawn);
    put_sets(&b, own);
    return take_text(&b);
}
