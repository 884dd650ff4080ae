/* context - the switch between stacks, in the assembly of x86-64 or by the C library. */
#include "context.hh"

#ifdef __x86_64__

/* Stores the stack pointer in *from, and goes on where `to` was stored. */
extern "C" void cudasim_switch(void **from, void *to);

__asm__(".text\n"
        ".p2align 4\n"
        ".hidden cudasim_switch\n"
        ".globl cudasim_switch\n"
        ".type cudasim_switch, @function\n"
        "cudasim_switch:\n"
        "    endbr64\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size cudasim_switch, . - cudasim_switch\n");

void context_make(context *c, char *stack, size_t n_bytes, void (*entry)(void))
{
    enum { REGISTERS = 6 }; /* that cudasim_switch pops */
    void **sp = (void **)(void *)(stack + n_bytes);

    *--sp = NULL; /* the return address of entry */
    *--sp = (void *)entry;
    for (int i = 0; i < REGISTERS; i++)
        *--sp = NULL;
    *c = sp;
}

void context_switch(context *from, const context *to) { cudasim_switch(from, *to); }

#else

void context_make(context *c, char *stack, size_t n_bytes, void (*entry)(void))
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = n_bytes;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
}

void context_switch(context *from, const context *to) { swapcontext(from, to); }

#endif
