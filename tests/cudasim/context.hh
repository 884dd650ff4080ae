/* context - what a fiber keeps while another one runs: its stack pointer, and on its stack the
 * registers that a function must preserve.
 *
 * swapcontext does the same, but also asks the kernel for the signal mask at each switch, which
 * takes most of the time of a kernel with barriers.  Processors other than x86-64 use it. */
#ifndef TESTS_CUDASIM_CONTEXT_HH
#define TESTS_CUDASIM_CONTEXT_HH

#include <stddef.h>

#ifdef __x86_64__

typedef void *context;

#else

#include <ucontext.h>

typedef ucontext_t context;

#endif

/* Make a context that calls entry, which never returns, on this stack; n_bytes is a multiple of 16.
 */
void context_make(context *c, char *stack, size_t n_bytes, void (*entry)(void));

/* Keep the code that runs in *from, and go on with *to. */
void context_switch(context *from, const context *to);

#endif
