/* csv_words - the different words of one column of a table, each with a number.
 *
 * While words are added their numbers are in the order of their first places; csv_words_sort gives
 * the final ones, which depend on the words alone: by bytes, or by value if all are numbers.
 *
 * Life:    zeroes -> csv_words_add ... -> csv_words_sort -> csv_words_find -> csv_words_fini.
 * Threads: one while words are added; then any. */
#ifndef DATA_CSV_WORDS_H
#define DATA_CSV_WORDS_H

#include "base/arena.h"
#include "data/csv_file.h"

struct csv_word {
    const char *raw; /* as csv_cell has it */
    size_t len;
    const char *name; /* the same without quotes written twice */
    double number;
    int is_number;
    int32_t was; /* its number before csv_words_sort */
};

struct csv_words {
    int32_t n;
    struct csv_word *word; /* [n] */
    int32_t *slot;         /* [n_slots] 1 + the number of a word, 0: free; by the word's hash */
    int32_t n_slots;       /* a power of two */
};

/* The number of a word, which is -1 if there is no such word. */
int32_t csv_words_find(const struct csv_words *w, const struct csv_cell *c);

/* The same; a new word is copied into the arena. */
int32_t csv_words_add(struct csv_words *w, struct arena *arena, const struct csv_cell *c);

/* to[i] becomes the final number of the word that had number i; to has room for all. */
void csv_words_sort(struct csv_words *w, int32_t *to);

void csv_words_fini(struct csv_words *w);

/* The text of a cell without quotes written twice. */
const char *csv_name(struct arena *arena, const struct csv_cell *c);

#endif
