/* tree - a value of the job file that is lists and mappings within each other, such as a list of
 * layers.
 *
 * The text is in YAML's flow style.  Each node remembers where in the text it begins, so that a
 * message can name the line and column of the job file (OPT_TREE in config/option.h).
 *
 * Threads: pure. */
#ifndef CONFIG_TREE_H
#define CONFIG_TREE_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

enum tree_kind { TREE_WORD, TREE_LIST, TREE_MAP };

/* A job file has 16 levels, and the tree stands some levels below its root. */
enum { TREE_MAX_NODES = 4096, TREE_MAX_DEPTH = 12 };

struct tree {
    enum tree_kind kind;
    const char *text; /* TREE_WORD: the word, `len` bytes and a NUL; else "" */
    size_t len;
    int is_quoted;             /* TREE_WORD */
    size_t at;                 /* where it begins, in bytes of the text */
    int n;                     /* TREE_LIST: items; TREE_MAP: pairs */
    const struct tree **child; /* [n] the items, or the pairs' values */
    const struct tree **key;   /* TREE_MAP: [n], words */
};

/* Read `len` bytes of text, with a NUL somewhere after them.  The tree lives in `arena`.  Fails
 * with ERR_CONFIG if the text is not YAML, a key is not a word, or there are too many nodes or
 * levels; *at is then where. */
int tree_parse(const char *text, size_t len, struct arena *arena, const struct tree **out,
               size_t *at, struct err *err);

#endif
