/* The table of options drives getopt_long, the checks of values, and the help.
 * A word that is no option is answered with the option that resembles it most. */
#include "daemon/args.h"

/* getopt's struct option has the name of another struct here. */
#define option long_option
#include <getopt.h>
#undef option

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "config/closest.h"

enum { HELP_COLUMN = 26, HELP_WIDTH = 80, CODE_BASE = 1000, GROUP_SIZE = 100, MOST_OPTIONS = 300 };

/* ---- finding options ---- */

static const struct arg *arg_of(const struct arg_group *groups, int code)
{
    return &groups[(code - CODE_BASE) / GROUP_SIZE].args[(code - CODE_BASE) % GROUP_SIZE];
}

/* getopt's table; arg_of turns its codes back into options. */
static struct long_option *long_options(const struct arg_group *groups, size_t n_groups)
{
    struct long_option *o;
    size_t n = 0, k = 0;

    for (size_t g = 0; g < n_groups; g++)
        n += groups[g].n;
    o = xcalloc(n + 1, sizeof *o);
    for (size_t g = 0; g < n_groups; g++) {
        ASSERT(groups[g].n < GROUP_SIZE);
        for (size_t i = 0; i < groups[g].n; i++)
            o[k++] = (struct long_option){.name = groups[g].args[i].row.key,
                                          .has_arg = groups[g].args[i].value ? required_argument
                                                                             : no_argument,
                                          .val = (int)(CODE_BASE + g * GROUP_SIZE + i)};
    }
    return o;
}

const char *args_closest(const char *const *words, const char *word)
{
    char name[64];
    const char *best = NULL;
    int best_distance = 0;

    word += strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (; *words; words++) {
        int d = closest_distance(name, *words);

        if (!best || d < best_distance) {
            best = *words;
            best_distance = d;
        }
    }
    return best_distance <= (int)strlen(name) / 2 && best_distance <= 4 ? best : NULL;
}

/* The option that `word` ("--nrank=3") most resembles, or NULL when none is near. */
static const char *args_closest_option(const struct long_option *o, const char *word)
{
    const char *names[MOST_OPTIONS + 1] = {NULL};

    for (int n = 0; o[n].name && n < MOST_OPTIONS; n++)
        names[n] = o[n].name;
    return args_closest(names, word);
}

static int args_unknown(const struct long_option *o, const char *word, struct err *err)
{
    const char *near = args_closest_option(o, word);
    size_t n = strcspn(word, "=");
    int n_begin = 0;

    for (const struct long_option *i = o; i->name; i++)
        n_begin += n > 2 && !strncmp(word + 2, i->name, n - 2);
    if (n_begin > 1)
        return err_set(err, ERR_ARG, "option %s is the beginning of several; --help lists them",
                       word);
    if (near)
        return err_set(err, ERR_ARG, "unknown option %s; did you mean --%s?  --help lists them",
                       word, near);
    return err_set(err, ERR_ARG, "unknown option %s; --help lists them", word);
}

/* ---- values ---- */

/* As a job file's, with the name as the user wrote it in the message.  A plus, and zeros, as
 * scripts count, may stand in front of a number. */
static int set_parsed(const struct arg *a, const char *text, void *field, struct err *err)
{
    struct option row = a->row;
    char key[64];

    snprintf(key, sizeof key, "--%s", a->row.key);
    row.key = key;
    text += row.type == OPT_INT && text[0] == '+';
    while (row.type == OPT_INT && text[0] == '0' && isdigit((unsigned char)text[1]))
        text++;
    if (option_parse(&row, field, NULL, text, strlen(text), 0, err) == 0)
        return 0;
    if (a->remedy) {
        const struct err why = *err;

        err_set(err, ERR_ARG, "%s: %s", why.msg, a->remedy);
    }
    return err->code = ERR_ARG;
}

static int args_is_list(const struct arg *a) { return a->row.flags & OPT_MANY; }

static int add_to_list(const struct arg *a, const char *text, struct arg_list *l, struct err *err)
{
    if (l->n == ARG_MAX_LIST)
        return err_set(err, ERR_ARG, "--%s is given more than %d times", a->row.key, ARG_MAX_LIST);
    l->item[l->n++] = text;
    return 0;
}

static int set_value(const struct arg *a, const char *text, void *into, struct err *err)
{
    void *field = (char *)into + a->row.offset;

    if (text && !*text)
        return err_set(err, ERR_ARG, "--%s is empty, want %s", a->row.key, a->value);
    if (a->row.type == OPT_BOOL)
        *(int *)field = 1;
    else if (args_is_list(a))
        return add_to_list(a, text, field, err);
    else if (a->row.type == OPT_STRING)
        *(const char **)field = text;
    else
        return set_parsed(a, text, field, err);
    return 0;
}

/* `word` stands where an option is wanted.  last: the option before it; NULL: there is none. */
static int not_an_option(const struct arg *last, const char *word, struct err *err)
{
    if (last && args_is_list(last))
        return err_set(err, ERR_ARG,
                       "\"%s\" is no option: --%s takes one %s at a time; write --%s %s", word,
                       last->row.key, last->value, last->row.key, word);
    return err_set(err, ERR_ARG,
                   "\"%s\" is no option, nor the value of one; --help lists the options", word);
}

/* The code of the first operand that was not given so far; 0: there is none. */
static int operand_code(const struct long_option *options, const struct args *seen)
{
    for (const char *const *o = seen->operands; o && *o; o++) {
        int is_given = 0;

        for (int i = 0; i < seen->n_given; i++)
            is_given |=
                !strcmp(seen->given[i].arg->row.key, *o) && !args_is_list(seen->given[i].arg);
        for (; !is_given && options->name; options++)
            if (!strcmp(options->name, *o))
                return options->val;
    }
    return 0;
}

/* An operand has one value.  (Of an option that is given twice the last value counts.) */
static int check_operand(const struct args *seen, const struct arg_given *now, struct err *err)
{
    for (int i = 0; i < seen->n_given; i++) {
        const struct arg_given *before = &seen->given[i];

        if (before->arg == now->arg && before->is_operand && !args_is_list(now->arg))
            return err_set(err, ERR_ARG, "%s is given twice: %s, and --%s %s; leave one out",
                           now->arg->value, before->value, now->arg->row.key, now->value);
    }
    if (now->is_operand && !*now->value)
        return err_set(err, ERR_ARG, "the word for %s is empty; write one, or leave it out",
                       now->arg->value);
    return 0;
}

static int args_take_value(const struct arg_group *groups, int code, const char *value,
                           int is_operand, struct args *seen, struct err *err)
{
    const struct arg *a = arg_of(groups, code);
    const struct arg_given now = {a, value, is_operand};

    if (check_operand(seen, &now, err) < 0)
        return err->code;
    seen->given[seen->n_given++] = now;
    return set_value(a, value, groups[(code - CODE_BASE) / GROUP_SIZE].into, err);
}

static int args_refuse(const struct arg_group *groups, const struct long_option *options, int code,
                       const char *word, struct err *err)
{
    if (code == ':')
        return err_set(err, ERR_ARG, "--%s needs a value: %s", arg_of(groups, optopt)->row.key,
                       arg_of(groups, optopt)->value);
    if (optopt >= CODE_BASE)
        return err_set(err, ERR_ARG, "--%s takes no value, but was given one: %s",
                       arg_of(groups, optopt)->row.key, word);
    return args_unknown(options, word, err);
}

/* A bare word: the value of the next operand.  last: the option before it, or NULL. */
static int take_operand(const struct arg_group *groups, const struct long_option *options,
                        const struct arg *last, const char *word, struct args *seen,
                        struct err *err)
{
    const int is_of_list = last && args_is_list(last) && strchr(word, '=');
    const int code = is_of_list ? 0 : operand_code(options, seen);

    return code ? args_take_value(groups, code, word, 1, seen, err)
                : not_an_option(last, word, err);
}

static int args_parse_words(const struct arg_group *groups, const struct long_option *options,
                            int argc, char **argv, struct args *seen, struct err *err)
{
    const struct arg *last = NULL;
    int rc = 0, code;

    opterr = 0;
    optind = 0; /* glibc: start afresh */
    while (rc == 0) {
        const char *word = argv[optind ? optind : 1];

        code = getopt_long(argc, argv, "-:", options, NULL); /* -: a bare word is code 1 */
        if (code == -1)
            break;
        if (code == 1) {
            rc = take_operand(groups, options, last, word, seen, err);
            last = NULL;
        } else if (code == ':' || code == '?') {
            rc = args_refuse(groups, options, code, word, err);
        } else {
            last = arg_of(groups, code);
            rc = args_take_value(groups, code, optarg, 0, seen, err);
        }
    }
    for (int i = optind; rc == 0 && i < argc; i++) /* behind "--" */
        rc = take_operand(groups, options, NULL, argv[i], seen, err);
    return rc;
}

static int set_defaults(const struct arg_group *groups, size_t n_groups, struct err *err)
{
    int rc = 0;

    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < groups[g].n && rc == 0; i++)
            if (groups[g].args[i].row.def)
                rc = set_value(&groups[g].args[i], groups[g].args[i].row.def, groups[g].into, err);
    return rc;
}

int args_parse(const struct arg_group *groups, size_t n_groups, int argc, char **argv,
               struct args *out, struct err *err)
{
    struct long_option *options = long_options(groups, n_groups);
    struct args seen = {.operands = out ? out->operands : NULL};
    int rc;

    seen.given = xcalloc((size_t)argc + 1, sizeof *seen.given);
    rc = set_defaults(groups, n_groups, err);
    if (rc == 0)
        rc = args_parse_words(groups, options, argc, argv, &seen, err);
    free(options);
    if (out)
        *out = seen;
    else
        args_fini(&seen);
    return rc;
}

void args_fini(struct args *a)
{
    free(a->given);
    a->given = NULL;
    a->n_given = 0;
}

int args_has(const struct args *a, const char *name)
{
    for (int i = 0; i < a->n_given; i++)
        if (!strcmp(a->given[i].arg->row.key, name))
            return 1;
    return 0;
}

int args_take(const struct arg *a, unsigned uses) { return !a->of || !uses || (a->of & uses); }

/* ---- help ---- */

/* `text` from column `at` on, broken between words. */
static void put_wrapped(FILE *f, const char *text, int at)
{
    int column = at;

    while (*text) {
        int n = (int)strcspn(text, " ");

        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            fputc(' ', f);
            column++;
        }
        fprintf(f, "%.*s", n, text);
        column += n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', f);
}

/* is_summary: 1: the first sentence alone. */
static void put_arg(FILE *f, const struct arg *a, int is_summary)
{
    const char *help = a->row.help, *end = is_summary ? strstr(help, ". ") : NULL;
    char *text = end                         ? xasprintf("%.*s", (int)(end + 1 - help), help)
                 : a->row.def && !is_summary ? xasprintf("%s The default is %s.", help, a->row.def)
                                             : xstrdup(help);
    int n = fprintf(f, "  --%s%s%s", a->row.key, a->value ? " " : "", a->value ? a->value : "");

    if (n >= HELP_COLUMN - 1)
        fprintf(f, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(f, "%*s", HELP_COLUMN - n, "");
    put_wrapped(f, text, HELP_COLUMN);
    free(text);
}

/* Returns the number of options of these uses that a summary leaves out. */
static int put_groups(const struct arg_group *groups, size_t n_groups, unsigned uses,
                      int is_summary, FILE *f)
{
    int n_titles = 0, n_rare = 0;

    for (size_t g = 0; g < n_groups; g++) {
        int n = 0;

        for (size_t i = 0; i < groups[g].n; i++) {
            const struct arg *a = &groups[g].args[i];

            if (!args_take(a, uses))
                continue;
            if (is_summary && a->is_rare) {
                n_rare++;
                continue;
            }
            if (n++ == 0)
                fprintf(f, "%s%s:\n", n_titles++ ? "\n" : "", groups[g].title);
            put_arg(f, a, is_summary);
        }
    }
    return n_rare;
}

void args_help(const struct arg_group *groups, size_t n_groups, unsigned uses, FILE *f)
{
    put_groups(groups, n_groups, uses, 0, f);
}

int args_summary(const struct arg_group *groups, size_t n_groups, unsigned uses, FILE *f)
{
    return put_groups(groups, n_groups, uses, 1, f);
}
