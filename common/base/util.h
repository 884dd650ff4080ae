/* util - the few macros and integer helpers that every room uses.
 *
 * A new macro needs a reason (docs/style.md).
 *
 * Threads: any; no state. */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Checks for a bug of ours, in every build: logs the place and aborts.  Bytes that a peer, a file
 * or a user sent are never asserted; they give an err. */
#define ASSERT(cond) ((cond) ? (void)0 : assert_failed(#cond, __FILE__, __LINE__))

void assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div_i64(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up_i64(int64_t a, int64_t b) { return ceil_div_i64(a, b) * b; }

#endif
