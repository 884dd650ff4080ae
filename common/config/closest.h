/* closest - how far one word is from another, to name the word that was probably meant.
 *
 * Threads: pure. */
#ifndef CONFIG_CLOSEST_H
#define CONFIG_CLOSEST_H

/* The number of insertions, deletions, replacements and swaps of neighbours that turn a into b
 * (optimal string alignment).  Only the first 48 characters of each word count. */
int closest_distance(const char *a, const char *b);

#endif
