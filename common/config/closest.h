/* closest - how far one word is from another, to name what was probably meant. */
#ifndef CONFIG_CLOSEST_H
#define CONFIG_CLOSEST_H

/* Insertions, deletions, replacements and swaps of neighbours that make b of a (optimal string
 * alignment); of each only the first 48 characters count. */
int closest_distance(const char *a, const char *b);

#endif
