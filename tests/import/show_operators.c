/* show_operators - prints docs/operating/operators.md: the operators of foreign networks, from the
 * tables by which they are read.  The test import/operators compares the page with it; after a
 * change of a table write it anew:
 *
 *     build/tests/import/show_operators > docs/operating/operators.md */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/fold_impl.h"
#include "import/lower_impl.h"
#include "import/onnx_impl.h"

enum { WIDEST = 100 };

struct names {
    const char **name;
    int n;
};

static void names_add(struct names *l, const char *name)
{
    l->name = xrealloc(l->name, sizeof *l->name * (size_t)(l->n + 1));
    l->name[l->n++] = name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each name once, in alphabetical order, on lines of at most WIDEST columns. */
static void names_print(struct names *l)
{
    int column = 0;

    qsort(l->name, (size_t)l->n, sizeof *l->name, by_name);
    for (int i = 0; i < l->n; i++) {
        const int is_last = i == l->n - 1, width = (int)strlen(l->name[i]) + 2 + !is_last;

        if (i > 0 && !strcmp(l->name[i], l->name[i - 1]))
            continue;
        if (column > 0)
            column += printf("%s", column + 1 + width > WIDEST ? "\n" : " ");
        column = column + width > WIDEST ? 0 : column;
        column += printf("`%s`%s", l->name[i], is_last ? "" : ",");
    }
    printf("\n");
    free(l->name);
}

static void show_onnx(void)
{
    struct names l = {0};

    for (int t = 0; onnx_tables[t]; t++)
        for (const struct onnx_op *op = onnx_tables[t]; op->name; op++)
            names_add(&l, op->name);
    names_print(&l);
}

static void show_layers(void)
{
    struct names l = {0};

    for (int t = 0; import_tables[t]; t++)
        for (const struct import_builder *b = import_tables[t]; b->target; b++)
            names_add(&l, b->target);
    names_print(&l);
}

static void show_folds(void)
{
    const struct fold_row *const tables[] = {fold_made, fold_views, fold_math, fold_one,
                                             fold_parts};
    struct names l = {0};

    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct fold_row *row = tables[t]; row->target; row++)
            names_add(&l, row->target);
    names_print(&l);
}

int main(void)
{
    puts("# Operators of imported networks\n\n"
         "[Imported networks](import.md) may have these operators. Some forms of an operator are\n"
         "refused nevertheless, by name and with the reason; `dpdriver --check` tells before\n"
         "training.\n\n"
         "## PyTorch's, as `torch.export` names them\n");
    show_layers();
    puts("\nOf constants, which are computed once:\n");
    show_folds();
    puts("\n## ONNX's\n");
    show_onnx();
    return 0;
}
