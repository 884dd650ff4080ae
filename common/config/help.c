/* The table for people: --help-job and the Markdown listing. */
#include "config/option.h"

#include <string.h>

#include "base/util.h"

/* Words of `text`, broken before column 80, each line indented by 4. */
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

/* "an integer from 1 to 9 epochs; only if model.arch is mlp; a resumed run may change it" */
static void describe(const struct option *o, struct buf *out)
{
    option_want(o, out);
    if (o->only) {
        buf_printf(out, "; only if %s is ", o->only);
        option_when(o, out);
    }
    if (o->flags & OPT_RESUME)
        buf_printf(out, "; a resumed run may change it");
}

static const char *default_text(const struct option *o)
{
    return o->def ? o->def : o->flags & OPT_REQUIRED ? "(must be given)" : "(none)";
}

void job_help(FILE *f)
{
    struct buf text = {0};

    fprintf(f, "A job file is YAML or JSON.  Each key is shown with its default; dots stand for "
               "nesting,\nso train.epochs: 1 is written train: {epochs: 1}, or --set "
               "train.epochs=1.\n");
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];

        fprintf(f, "\n%s: %s\n", o->key, default_text(o));
        print_wrapped(f, o->help);
        buf_clear(&text);
        buf_printf(&text, "Is ");
        describe(o, &text);
        buf_printf(&text, ".");
        print_wrapped(f, buf_cstr(&text));
    }
    buf_fini(&text);
}
