/* words - a list of words with their values, written once.
 *
 * The owner of an enum writes one list, and both the enum and its names follow from it:
 *
 *   #define LOSS_LIST(X) X(LOSS_CROSS_ENTROPY, "cross_entropy") X(LOSS_MSE, "mse")
 *   enum loss { LOSS_LIST(WORD_VALUE) };
 *   static const char *const losses[] = {LOSS_LIST(WORD_NAME) NULL};
 *
 * The names are indexed by the enum's values and end with NULL, as an option of type OPT_CHOICE
 * wants them.
 *
 * Threads: any; these are macros. */
#ifndef CONFIG_WORDS_H
#define CONFIG_WORDS_H

#define WORD_VALUE(value, name) value,
#define WORD_NAME(value, name)  [value] = name,

#endif
