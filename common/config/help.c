/* The options for people: --help-job prints each with its default, its help, its range and the
 * choice that it depends on. */
#include "config/table.h"

#include <string.h>

enum { INDENT = 4 };

/* Print the words of `text`, broken before column 80.  The first line goes on at `column`, and the
 * other lines are indented by `indent`. */
static void print_wrapped(FILE *f, const char *text, size_t column, int indent)
{
    int is_first = 1; /* in its line */

    while (*text) {
        size_t n = strcspn(text, " ");

        if (!is_first && column + 1 + n > 79) {
            column = (size_t)fprintf(f, "\n%*s", indent, "") - 1;
            is_first = 1;
        }
        column += (size_t)fprintf(f, "%s%.*s", is_first ? "" : " ", (int)n, text);
        is_first = 0;
        text += n + strspn(text + n, " ");
    }
    fprintf(f, "\n");
}

static void print_paragraph(FILE *f, const char *text)
{
    print_wrapped(f, text, (size_t)fprintf(f, "%*s", INDENT, ""), INDENT);
}

/* Does the key depend on a choice?  It does not where all entries have it, and all rows say the
 * same of it. */
static int is_conditional(const struct option_list *l, const struct option_ref *ref)
{
    const struct option_group *const *entry;
    size_t n_alike = 0, n = 0;

    if (ref->o->only || !ref->group)
        return ref->o->only != NULL;
    for (size_t i = ref->first; i < l->n; i++)
        n_alike += (size_t)table_alike(&l->ref[i], ref);
    for (entry = ref->part->selector->registry->entry; entry[n];)
        n++;
    return n_alike < n;
}

void table_describe(const struct option_list *l, const struct option_ref *ref, struct buf *out)
{
    buf_printf(out, "It is ");
    option_want(ref->o, out);
    if (is_conditional(l, ref)) {
        buf_printf(out, ", and applies only if %s is ", table_selector(ref));
        table_when(l, ref, 1, out);
    }
    buf_printf(out, ".");
    if (table_may_change(ref))
        buf_printf(out, " A resumed run may change it.");
}

/* The entries that may be chosen, each with its help. */
static void print_entries(FILE *f, const struct option_registry *r)
{
    size_t widest = 0;

    for (int i = 0; r->entry[i]; i++)
        widest = strlen(r->entry[i]->name) > widest ? strlen(r->entry[i]->name) : widest;
    for (int i = 0; r->entry[i]; i++) {
        const int column =
            fprintf(f, "%*s%-*s", INDENT + 2, "", (int)widest + 2, r->entry[i]->name);

        print_wrapped(f, r->entry[i]->help, (size_t)column, column);
    }
}

int table_is_told(const struct option_list *l, const struct option_ref *ref)
{
    for (const struct option_ref *r = &l->ref[ref->first]; r < ref; r++)
        if (table_alike(r, ref))
            return 1;
    return 0;
}

static int help_contains(const char *text, const char *word)
{
    return text && strcasestr(text, word) != NULL;
}

/* Is `word` in one of the words that the option may be, or in their help? */
static int help_may_be(const struct option *o, const char *word)
{
    for (int i = o->first; o->choices && o->choices[i]; i++)
        if (help_contains(o->choices[i], word))
            return 1;
    for (int i = 0; o->registry && o->registry->entry[i]; i++)
        if (help_contains(o->registry->entry[i]->name, word) ||
            help_contains(o->registry->entry[i]->help, word))
            return 1;
    return 0;
}

static int help_is_about(const struct option *o, const char *word)
{
    return !word || help_contains(o->key, word) || help_contains(o->help, word) ||
           help_contains(o->also, word) || help_may_be(o, word);
}

int table_help(const struct option_list *l, const char *word, FILE *f)
{
    struct buf text = {0};
    int n = 0;

    for (size_t i = 0; i < l->n; i++) {
        const struct option_ref *ref = &l->ref[i];

        if (table_is_told(l, ref) || !help_is_about(ref->o, word))
            continue;
        fprintf(f, "%s", n++ || !word ? "\n" : "");
        fprintf(f, ref->o->def ? "%s: %s\n" : "%s: (%s)\n", ref->o->key,
                option_default_text(ref->o));
        print_paragraph(f, ref->o->help);
        if (ref->o->type == OPT_ENTRY)
            print_entries(f, ref->o->registry);
        buf_clear(&text);
        table_describe(l, ref, &text);
        if (ref->o->type != OPT_ENTRY || table_may_change(ref))
            print_paragraph(f, buf_cstr(&text));
    }
    buf_fini(&text);
    return n;
}
