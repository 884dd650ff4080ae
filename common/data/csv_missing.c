/* csv_missing - the words of data.missing_values, each with the number of its cells: a word that no
 * cell has is a slip of the pen, which the user is told of. */
#include "data/csv_missing.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/csv_table.h"

void csv_missing_init(struct csv_missing_words *m, const char *list)
{
    struct csv_cell item;

    *m = (struct csv_missing_words){.has_usual = csv_list_has_name(list, CSV_USUAL)};
    if (!strcmp(list, CSV_USUAL) || !strcmp(list, CSV_EMPTY))
        return;
    m->list = list;
    m->word = xcalloc(strlen(list) + 1, sizeof *m->word);
    while (csv_list_next(&list, &item)) {
        struct csv_missing_word *w = &m->word[m->n_words];

        if (csv_is(&item, CSV_USUAL))
            continue;
        w->text = item;
        w->is_number = csv_number(&item, &w->number);
        m->has_numbers |= w->is_number;
        m->n_words++;
    }
}

static int csv_missing_has_word(struct csv_missing_words *m, const struct csv_cell *cell,
                                int by_value)
{
    double v;
    const int is_number = by_value && m->has_numbers && csv_number(cell, &v);

    for (int i = 0; i < m->n_words; i++) {
        struct csv_missing_word *w = &m->word[i];

        if (is_number && w->is_number
                ? v == w->number
                : cell->len == w->text.len && !memcmp(cell->text, w->text.text, cell->len)) {
            w->n++;
            return 1;
        }
    }
    if (!m->list || !csv_is(cell, m->list))
        return 0;
    m->n_whole++;
    return 1;
}

int csv_missing_has(struct csv_missing_words *m, const struct csv_cell *cell, int by_value)
{
    return cell->len == 0 || csv_missing_has_word(m, cell, by_value) ||
           (m->has_usual && csv_is_usual_missing(cell));
}

void csv_missing_tell(const struct csv_missing_words *m, struct buf *out)
{
    enum { MOST_NAMED = 8 };
    char text[64];
    int n = 0;

    for (int i = 0; i < m->n_words && m->n_whole == 0; i++)
        if (m->word[i].n == 0 && n++ < MOST_NAMED)
            buf_printf(out, "%s%s", n > 1 ? ", " : "", csv_show(&m->word[i].text, text));
    if (n > MOST_NAMED)
        buf_printf(out, " and %d more", n - MOST_NAMED);
}

void csv_missing_fini(struct csv_missing_words *m)
{
    free(m->word);
    *m = (struct csv_missing_words){0};
}
