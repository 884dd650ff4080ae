/* table - all options of a job file, in their order.
 *
 * A table is a list of parts: rows that fill one struct within the job, and the rows that the
 * entries of a registry bring.  Two entries may have rows with the same key (`weight_decay`), each
 * with a default and range of its own; the row of the chosen entry holds.
 *
 * The flat view of it, struct option_list, is made where it is needed and freed there.
 *
 * Life:    table_init -> table_find, table_field ... -> table_fini.
 * Threads: any may read one list; there is no state beside it. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "config/option.h"

/* Either rows or entries. */
struct option_part {
    const struct option *row; /* NULL: the rows of the entries that `selector` names */
    size_t n_rows;
    size_t base;                   /* offset, in the job, of the struct that the rows fill */
    const struct option *selector; /* an OPT_ENTRY row of an earlier part, with the same base */
};

struct option_table {
    const struct option_part *part;
    size_t n_parts;
};

/* A row in its place. */
struct option_ref {
    const struct option *o;
    const struct option_part *part;
    const struct option_group *group; /* the entry that brings the row; NULL: the job itself */
    size_t first;                     /* index of the first row with this key: its own or lower */
    uint32_t hash;                    /* of the key */
    size_t next;                      /* first rows alone: the next one in its chain, as below */
};

enum { OPTION_CHAINS = 256 };

struct option_list {
    struct option_ref *ref;
    size_t n;
    size_t chain[OPTION_CHAINS]; /* by hash: 1 + the index of the first row of a key; 0: none */
};

void table_init(struct option_list *l, const struct option_table *t);
void table_fini(struct option_list *l);

/* The first row with this key, or NULL. */
const struct option_ref *table_find(const struct option_list *l, const char *key);

/* The row with ref's key that holds in `job`, as far as this is filled in; NULL: none does. */
const struct option_ref *table_holding(const struct option_list *l, const struct option_ref *ref,
                                       const void *job);

/* The first row whose key starts with "group.", or NULL. */
const struct option_ref *table_first_of(const struct option_list *l, const char *group);

/* The row that a single word in place of the mapping `group` is for (OPT_SHORT), or NULL. */
const struct option_ref *table_short_of(const struct option_list *l, const char *group);

/* Does the row hold in `job`: is its entry chosen, and its selector (`only`) as it wants? */
int table_hold(const struct option_list *l, const struct option_ref *ref, const void *job);

/* The row's field in `job`; NULL if its entry is not the chosen one. */
void *table_field(const struct option_ref *ref, const void *job);

/* The chosen entry of an OPT_ENTRY row; NULL: none yet. */
const struct option_group *table_chosen(const struct option_ref *ref, const void *job);

/* Its options struct; NULL: it has none. */
const void *table_chosen_options(const struct option_ref *ref, const void *job);

/* Choose this entry; its options struct, zeroed, is made in `arena`. */
void table_choose(const struct option_ref *ref, void *job, const struct option_group *g,
                  struct arena *arena);

/* The key of the choice that decides whether the row holds; NULL: it always does. */
const char *table_selector(const struct option_ref *ref);

/* May a resumed run change the key (OPT_RESUME)? */
int table_may_change(const struct option_ref *ref);

/* Append the choices with which ref's key exists: "cosine or linear".  `alike`: only those whose
 * row says the same as ref's. */
void table_when(const struct option_list *l, const struct option_ref *ref, int alike,
                struct buf *out);

/* Do two rows of one key say the same of it? */
int table_alike(const struct option_ref *a, const struct option_ref *b);

/* The words of a message where table_closest finds nothing. */
#define TABLE_NONE_CLOSE "no known key is like it, --help-job lists all"

/* The option or group of keys ("train") that `key` most resembles; NULL if it resembles none.
 * Static storage or `group`, which has room for 64 bytes. */
const char *table_closest(const struct option_list *l, const char *key, char group[64]);

/* Every option that has `word` in its key, its help, or what it may be (NULL: every option), for a
 * terminal: the text after the introduction of --help-job.  Upper and lower case are alike.
 * Returns the number of options. */
int table_help(const struct option_list *l, const char *word, FILE *f);

/* Append what may stand there: "It is an integer from 1 to 9 epochs, and applies only if model.arch
 * is mlp." */
void table_describe(const struct option_list *l, const struct option_ref *ref, struct buf *out);

/* Has an earlier entry's row said the same of this key? */
int table_is_told(const struct option_list *l, const struct option_ref *ref);

#endif
