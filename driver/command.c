/* The commands are made of the options that were given (struct args), by their whole names, so the
 * form of the words in argv does not matter. */
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

/* 1: this --set is of one of the keys.  A key that ends in '.' stands for all keys that begin with
 * it. */
static int is_of_keys(const char *setting, const char *const *keys)
{
    for (; setting && *keys; keys++) {
        size_t n = strcspn(*keys, "=");

        if (!strncmp(setting, *keys, n) && ((*keys)[n - 1] == '.' || setting[n] == '='))
            return 1;
    }
    return 0;
}

/* Append the program and its options without --run-dir, --resume and --inject, and without the
 * settings of `keys` (NULL at the end). */
static void put_command(struct buf *b, const struct options *o, const char *const *keys)
{
    static const char *const left_out[] = {"run-dir", "resume", "inject"};

    put_quoted(b, o->program);
    for (int i = 0; i < o->args.n_given; i++) {
        const struct arg_given *g = &o->args.given[i];
        int is_left_out = !strcmp(g->arg->row.key, "set") && is_of_keys(g->value, keys);

        for (size_t k = 0; k < ARRAY_LEN(left_out); k++)
            is_left_out |= !strcmp(g->arg->row.key, left_out[k]);
        if (is_left_out)
            continue;
        buf_printf(b, " --%s", g->arg->row.key);
        if (g->value)
            put_quoted(b, g->value);
    }
}

/* The command that started this driver's job, if that was a batch script; else NULL.  It takes
 * options of dpdriver at its end, resumes by itself, and makes a secret of its own, since the one
 * of this command is gone once the script has ended. */
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

static char *command_take_text(struct buf *b)
{
    char *text = xstrdup(buf_cstr(b));

    buf_fini(b);
    return text;
}

char *command_longer(const struct options *o, const char *run_dir, const char *const *sets)
{
    const char *script = script_command();
    struct buf b = {0};

    if (script) {
        buf_printf(&b, "%s", script);
    } else {
        put_command(&b, o, sets);
        put_quoted(&b, "--resume");
        put_quoted(&b, "--run-dir");
        put_quoted(&b, run_dir);
    }
    put_sets(&b, sets);
    return command_take_text(&b);
}

char *command_resume(const struct options *o, const char *run_dir)
{
    static const char *const no_sets[] = {NULL};

    return command_longer(o, run_dir, no_sets);
}

char *command_past_stop(const struct options *o, const char *run_dir)
{
    static const char *const no_stop[] = {"train.stop_after=0", NULL};

    return command_longer(o, run_dir, no_stop);
}

/* By a batch script, which resumes what it finds, a new run needs a folder of its own. */
static char *new_by_script(const char *script, const char *const *sets)
{
    struct buf b = {0};

    buf_printf(&b, "%s --run-dir NEW_FOLDER", script);
    put_sets(&b, sets);
    return command_take_text(&b);
}

char *command_new(const struct options *o, const char *run_dir, const char *const *sets)
{
    if (script_command())
        return new_by_script(script_command(), sets);

    char *job = run_dir ? xasprintf("%s/job.yaml", run_dir) : NULL;
    struct buf b = {0};

    put_command(&b, o, sets);
    if (job) {
        put_quoted(&b, "--job");
        put_quoted(&b, job);
    }
    put_sets(&b, sets);
    free(job);
    return command_take_text(&b);
}

char *command_data(const struct options *o, const char *const *sets)
{
    static const char *const drawn[] = {"data.", NULL};
    struct buf b = {0};

    put_command(&b, o, drawn);
    put_sets(&b, sets);
    return command_take_text(&b);
}
