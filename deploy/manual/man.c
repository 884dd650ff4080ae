/* Man pages, in the macros of man(7) that groff and mandoc share. */
#include "deploy/manual/manual.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

/* Is `c` part of a word, so that a '-' beside it is a hyphen? */
static int is_in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* `len` bytes of text.  A '-' that is no hyphen between letters is what a user types; at the
 * beginning of a line '.' and '\'' would begin a request. */
static void man_put(FILE *f, const char *text, size_t len, int at_start)
{
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];

        if (at_start && (c == '.' || c == '\''))
            fprintf(f, "\\&");
        if (c == '\\')
            fprintf(f, "\\e");
        else if (c == '-' &&
                 !(i > 0 && is_in_word(text[i - 1]) && i + 1 < len && is_in_word(text[i + 1])))
            fprintf(f, "\\-");
        else
            fputc(c, f);
        at_start = c == '\n';
    }
}

static void man_text(FILE *f, const char *text) { man_put(f, text, strlen(text), 1); }

/* A paragraph of running text, a sentence a line, as man pages are written. */
static void man_sentences(FILE *f, const char *text)
{
    while (*text) {
        const char *end = strstr(text, ". ");
        const size_t n = end ? (size_t)(end - text) + 1 : strlen(text);

        man_put(f, text, n, 1);
        fputc('\n', f);
        text += n;
        text += strspn(text, " ");
    }
}

static int is_blank(const char *line) { return *line == '\n'; }

/* Lines as a terminal's help has them: those that are indented keep their form, and others flow. */
static void man_lines(FILE *f, const char *text)
{
    int is_kept = 0, was_blank = 0;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        if (is_blank(text)) {
            was_blank = 1;
            continue;
        }
        if (is_kept != (*text == ' ')) {
            is_kept = *text == ' ';
            fprintf(f, is_kept ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n.PP\n");
        } else if (was_blank) {
            fprintf(f, ".PP\n");
        }
        was_blank = 0;
        man_put(f, text + strspn(text, " "), strcspn(text, "\n") - strspn(text, " "), 1);
        fputc('\n', f);
    }
    if (is_kept)
        fprintf(f, ".RE\n.fi\n");
}

static void man_head(FILE *f, const char *title, int section, const char *name, const char *line)
{
    fprintf(f, ".\\\" Made by deploy/manual from the program's own tables.\n");
    fprintf(f, ".TH %s %d \"\" \"dptrain %s\" \"dptrain\"\n", title, section, DPTRAIN_VERSION);
    fprintf(f, ".SH NAME\n%s \\- %s\n", name, line);
}

/* The verbs that take an option: "Of: train, evaluate." */
static void man_takers(FILE *f, const struct manual_program *p, const struct arg *a)
{
    int n = 0;

    if (p->n_verbs == 0 || !a->of)
        return;
    for (int v = 0; v < p->n_verbs; v++)
        if (args_take(a, p->verb[v].uses))
            fprintf(f, "%s%s", n++ ? ", " : "Belongs to: ", p->verb[v].name);
    fprintf(f, ".\n");
}

static void man_option(FILE *f, const struct manual_program *p, const struct arg *a)
{
    fprintf(f, ".TP\n.B ");
    fprintf(f, "\\-\\-");
    man_put(f, a->row.key, strlen(a->row.key), 0);
    if (a->value) {
        fprintf(f, " \\fI");
        man_put(f, a->value, strlen(a->value), 0);
        fprintf(f, "\\fR");
    }
    fputc('\n', f);
    man_sentences(f, a->row.help);
    if (a->row.def) {
        fprintf(f, "The default is ");
        man_put(f, a->row.def, strlen(a->row.def), 0);
        fprintf(f, ".\n");
    }
    man_takers(f, p, a);
}

static void man_verbs(FILE *f, const struct manual_program *p)
{
    fprintf(f, ".SH VERBS\n");
    for (int v = 0; v < p->n_verbs; v++) {
        const struct manual_verb *m = &p->verb[v];

        fprintf(f, ".SS \"%s %s%s", p->name, m->name, *m->usage ? " " : "");
        man_put(f, m->usage, strlen(m->usage), 0);
        fprintf(f, "\"\n");
        man_lines(f, m->text);
    }
}

static void man_statuses(FILE *f, const struct manual_program *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    const char *rest;

    ASSERT(memory);
    p->put_statuses(memory);
    fclose(memory);
    rest = strstr(text, "Exit status:\n");
    ASSERT(rest);
    fprintf(f, ".SH EXIT STATUS\n");
    man_lines(f, rest + strlen("Exit status:\n"));
    free(text);
}

void manual_page(const struct manual_program *p, FILE *f)
{
    char title[32];

    snprintf(title, sizeof title, "%s", p->name);
    for (char *c = title; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    man_head(f, title, 1, p->name, p->line);
    fprintf(f, ".SH SYNOPSIS\n.B %s\n", p->name);
    man_text(f, p->usage);
    fprintf(f, "\n.SH DESCRIPTION\n");
    man_lines(f, p->text);
    if (p->n_verbs)
        man_verbs(f, p);
    fprintf(f, ".SH OPTIONS\n"
               "An unambiguous beginning of an option is enough.\n");
    for (size_t g = 0; g < p->n_groups; g++) {
        fprintf(f, ".SS %s\n", p->group[g].title);
        for (size_t i = 0; i < p->group[g].n; i++)
            man_option(f, p, &p->group[g].args[i]);
    }
    man_statuses(f, p);
    fprintf(f, ".SH SEE ALSO\n.BR dpdriver (1),\n.BR dpfollower (1),\n.BR dptrain.yaml (5)\n");
}

/* The entries that may be chosen. */
static void man_entries(FILE *f, const struct option_registry *r)
{
    fprintf(f, ".RS\n");
    for (int i = 0; r->entry[i]; i++) {
        fprintf(f, ".TP\n.B ");
        man_put(f, r->entry[i]->name, strlen(r->entry[i]->name), 0);
        fputc('\n', f);
        man_sentences(f, r->entry[i]->help);
    }
    fprintf(f, ".RE\n");
}

static void man_key(FILE *f, const struct option_list *keys, const struct option_ref *ref)
{
    struct buf text = {0};

    fprintf(f, ".TP\n.BR ");
    man_put(f, ref->o->key, strlen(ref->o->key), 0);
    fprintf(f, " \": ");
    if (!ref->o->def)
        fputc('(', f);
    for (const char *c = option_default_text(ref->o); *c; c++)
        fprintf(f, *c == '"' ? "\\(dq" : *c == '-' ? "\\-" : "%c", *c);
    fprintf(f, "%s\"\n", ref->o->def ? "" : ")");
    man_sentences(f, ref->o->help);
    if (ref->o->type == OPT_ENTRY) {
        man_entries(f, ref->o->registry);
    } else {
        table_describe(keys, ref, &text);
        man_sentences(f, buf_cstr(&text));
    }
    buf_fini(&text);
}

void manual_job(const struct option_list *keys, FILE *f)
{
    const char *section = "";

    man_head(f, "DPTRAIN.YAML", 5, "dptrain.yaml", "the job file of dpdriver");
    fprintf(f, ".SH DESCRIPTION\n"
               "A job file says what\n"
               ".BR dpdriver (1)\n"
               "trains, on which data, and how. It is YAML or JSON. Each key is shown with its\n"
               "default; dots stand for nesting, so train.epochs: 1 is written\n"
               ".PP\n.nf\n.RS 4\ntrain:\n  epochs: 1\n.RE\n.fi\n.PP\n"
               "and\n.B \\-\\-set train.epochs=1\noverrides it.\n"
               ".SH KEYS\n");
    for (size_t i = 0; i < keys->n; i++) {
        const struct option_ref *ref = &keys->ref[i];
        const size_t n = strcspn(ref->o->key, ".");

        if (table_is_told(keys, ref))
            continue;
        if (strncmp(section, ref->o->key, n) != 0 || section[n] != ref->o->key[n])
            fprintf(f, ".SS %.*s\n", (int)n, ref->o->key);
        section = ref->o->key;
        man_key(f, keys, ref);
    }
    fprintf(f, ".SH SEE ALSO\n.BR dpdriver (1),\n.BR dpfollower (1)\n");
}
