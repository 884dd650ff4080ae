/* The options for people: --help-job prints each with its default, its help, its range and the
 * choice that it depends on. */
#include "config/table.h"

#include <string.h>

#include "base/util.h"

/* Print the words of `text`, broken before column 80, each line indented by 4. */
static void print_wrapped(FILE *f, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t n = strcspn(text, " ");

        if (column && column + 1 + n > 79)
            column = 0 * fprintf(f, "\n");
        column += (size_t)fprintf(f, "%s%.*s", column ? " " : "    ", (int)n, text);
        text += n + strspn(text + n, " ");
    }
    fprintf(f, "\n");
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

/* "an integer from 1 to 9 epochs; only if model.arch is mlp; a resumed run may change it" */
static void describe(const struct option_list *l, const struct option_ref *ref, struct buf *out)
{
    option_want(ref->o, out);
    if (is_conditional(l, ref)) {
        buf_printf(out, "; only if %s is ", table_selector(ref));
        table_when(l, ref, 1, out);
    }
    if (ref->o->flags & OPT_RESUME)
        buf_printf(out, "; a resumed run may change it");
}

/* The help of a row, and of the entries that may be chosen: "The network. mlp: ...; lenet: ..." */
static void append_help(const struct option *o, struct buf *out)
{
    buf_printf(out, "%s", o->help);
    for (int i = 0; o->type == OPT_ENTRY && o->registry->entry[i]; i++)
        buf_printf(out, "%s %s: %s%s", i ? ";" : "", o->registry->entry[i]->name,
                   o->registry->entry[i]->help, o->registry->entry[i + 1] ? "" : ".");
}

/* Has an earlier entry's row said the same? */
static int is_told(const struct option_list *l, const struct option_ref *ref)
{
    for (const struct option_ref *r = &l->ref[ref->first]; r < ref; r++)
        if (table_alike(r, ref))
            return 1;
    return 0;
}

void table_help(const struct option_list *l, FILE *f)
{
    struct buf text = {0};

    for (size_t i = 0; i < l->n; i++) {
        const struct option_ref *ref = &l->ref[i];

        if (is_told(l, ref))
            continue;
        fprintf(f, ref->o->def ? "\n%s: %s\n" : "\n%s: (%s)\n", ref->o->key,
                option_default_text(ref->o));
        buf_clear(&text);
        append_help(ref->o, &text);
        print_wrapped(f, buf_cstr(&text));
        buf_clear(&text);
        buf_printf(&text, "Is ");
        describe(l, ref, &text);
        buf_printf(&text, ".");
        print_wrapped(f, buf_cstr(&text));
    }
    buf_fini(&text);
}
