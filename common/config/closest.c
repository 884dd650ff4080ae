/* The distance between two words, and the known key that is nearest to an unknown one.  A key
 * counts as near, too, if only its group is wrong or if others call it so. */
#include "config/closest.h"

#include <string.h>

#include "base/util.h"
#include "config/table.h"

enum { LONGEST = 48 }; /* beyond it, the rest of a key does not count */

int closest_distance(const char *a, const char *b)
{
    int d[LONGEST + 1][LONGEST + 1];
    int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);

    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            int64_t best = i == 0 || j == 0 ? i + j : d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            if (i > 0 && j > 0)
                best = min_i64(best, min_i64(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = min_i64(best, d[i - 2][j - 2] + 1);
            d[i][j] = (int)best;
        }
    return d[n][m];
}

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot ? dot + 1 : key;
}

/* A single letter counts as no beginning. */
static int is_beginning(const char *key, const char *known)
{
    enum { LEAST_BEGINNING = 2 };

    return strlen(key) >= LEAST_BEGINNING && !strncmp(key, known, strlen(key));
}

/* The distance in half points.  One half point is for a key that is right but stands in another
 * group, or that others call differently (`also`); of these at least half of the letters agree. */
static int closest_score(const char *key, const char *known, const char *also)
{
    int64_t whole, elsewhere;

    if (is_beginning(key, known))
        return strcmp(key, known) != 0; /* its beginning */
    whole = 2 * closest_distance(key, known);
    elsewhere = 2 * closest_distance(last_part(key), last_part(known)) + 1;
    if (also)
        elsewhere = min_i64(elsewhere, 2 * closest_distance(last_part(key), also) + 1);
    return (int)(elsewhere <= (int64_t)strlen(last_part(key)) ? min_i64(whole, elsewhere) : whole);
}

const char *table_closest(const struct option_list *l, const char *key, char group[64])
{
    const char *best = NULL;
    int best_score = 0;

    for (size_t i = 0; i < l->n; i++) {
        const char *known = l->ref[i].o->key;
        int s = closest_score(key, known, l->ref[i].o->also);

        if (!best || s < best_score ||
            (s == best_score && is_beginning(key, known) && !is_beginning(key, best))) {
            best = known;
            best_score = s;
        }
        for (const char *dot = strchr(known, '.'); dot; dot = strchr(dot + 1, '.')) {
            char prefix[64];

            snprintf(prefix, sizeof prefix, "%.*s", (int)(dot - known), known);
            s = closest_score(key, prefix, NULL);
            if (s < best_score) {
                best = strcpy(group, prefix);
                best_score = s;
            }
        }
    }
    return best_score <= (int)strlen(key) ? best : NULL;
}
