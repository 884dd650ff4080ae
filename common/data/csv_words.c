/* csv_words - a hash table with open addressing, over the words of a column.  A word is known by
 * its bytes in the file; one that needs quotes is always written in the same way. */
#include "data/csv_words.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"

/* The slot of a word, or the free one where it would be. */
static int32_t *csv_words_slot_of(const struct csv_words *w, const char *text, size_t len)
{
    uint64_t i = hash_of(text, len).lo;

    for (;; i++) {
        int32_t *slot = &w->slot[i & (uint64_t)(w->n_slots - 1)];
        const struct csv_word *word = *slot ? &w->word[*slot - 1] : NULL;

        if (!word || (word->len == len && !memcmp(word->raw, text, len)))
            return slot;
    }
}

int32_t csv_words_find(const struct csv_words *w, const struct csv_cell *c)
{
    return w->n_slots ? *csv_words_slot_of(w, c->text, c->len) - 1 : -1;
}

static void place_all(struct csv_words *w)
{
    memset(w->slot, 0, (size_t)w->n_slots * sizeof *w->slot);
    for (int32_t i = 0; i < w->n; i++)
        *csv_words_slot_of(w, w->word[i].raw, w->word[i].len) = i + 1;
}

/* Half of the slots stay free, so that words are found at once. */
static void csv_words_make_room(struct csv_words *w)
{
    if (2 * (w->n + 1) <= w->n_slots)
        return;
    w->n_slots = w->n_slots ? 2 * w->n_slots : 16;
    w->slot = xrealloc(w->slot, (size_t)w->n_slots * sizeof *w->slot);
    w->word = xrealloc(w->word, (size_t)w->n_slots / 2 * sizeof *w->word);
    place_all(w);
}

const char *csv_name(struct arena *arena, const struct csv_cell *c)
{
    char *name = arena_alloc(arena, c->len + 1);
    size_t n = 0;

    for (size_t i = 0; i < c->len; i++) {
        name[n++] = c->text[i];
        if (c->text[i] == '"')
            i++; /* written twice */
    }
    return name;
}

int32_t csv_words_add(struct csv_words *w, struct arena *arena, const struct csv_cell *c)
{
    int32_t *slot;
    struct csv_word *word;

    csv_words_make_room(w);
    slot = csv_words_slot_of(w, c->text, c->len);
    if (*slot)
        return *slot - 1;
    word = &w->word[w->n];
    *word = (struct csv_word){.raw = arena_copy(arena, c->text, c->len),
                              .len = c->len,
                              .name = csv_name(arena, c),
                              .was = w->n};
    word->is_number = csv_number(c, &word->number);
    *slot = ++w->n;
    return *slot - 1;
}

static int csv_words_by_name(const void *pa, const void *pb)
{
    const struct csv_word *a = pa, *b = pb;

    return strcmp(a->name, b->name);
}

static int csv_words_by_number(const void *pa, const void *pb)
{
    const struct csv_word *a = pa, *b = pb;

    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return csv_words_by_name(pa, pb);
}

void csv_words_sort(struct csv_words *w, int32_t *to)
{
    int are_numbers = 1;

    if (w->n == 0)
        return;
    for (int32_t i = 0; i < w->n; i++)
        are_numbers &= w->word[i].is_number;
    qsort(w->word, (size_t)w->n, sizeof *w->word,
          are_numbers ? csv_words_by_number : csv_words_by_name);
    for (int32_t i = 0; i < w->n; i++)
        to[w->word[i].was] = i;
    place_all(w);
}

void csv_words_fini(struct csv_words *w)
{
    free(w->word);
    free(w->slot);
    *w = (struct csv_words){0};
}
