/* gpu_count - preloaded into a daemon, it counts whether a training step allocates or waits.
 *
 * It watches the thread that launches recorded steps, from launch FIRST to launch LAST.  It counts
 * the heap allocations of our own code (the program's and the plugin's) and every call of the CUDA
 * runtime that allocates, frees or blocks.  Then it writes the counts as JSON to
 * $GPU_COUNT_FILE.PID, with the callers ("file+offset": how often).  A process that launched
 * recorded steps, but too few, says so on stderr as it ends.  The daemon loads the plugin with
 * local symbols, yet a preloaded library's functions come before those that the plugin would
 * call. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST = 50, LAST = 250 };

/* The calls that block, allocate or free: name, parameters, and arguments to pass on. */
#define CALLS(X)                                                           \
    X(cudaMalloc, (void **p, size_t n), (p, n))                            \
    X(cudaMallocHost, (void **p, size_t n), (p, n))                        \
    X(cudaHostAlloc, (void **p, size_t n, unsigned f), (p, n, f))          \
    X(cudaMallocAsync, (void **p, size_t n, void *s), (p, n, s))           \
    X(cudaFree, (void *p), (p))                                            \
    X(cudaFreeHost, (void *p), (p))                                        \
    X(cudaMemcpy, (void *d, const void *s, size_t n, int k), (d, s, n, k)) \
    X(cudaDeviceSynchronize, (void), ())                                   \
    X(cudaStreamSynchronize, (void *s), (s))                               \
    X(cudaEventSynchronize, (void *e), (e))

enum call {
#define X(name, parameters, arguments) CALL_##name,
    CALLS(X)
#undef X
        CALL_COUNT
};

static const char *const names[] = {
#define X(name, parameters, arguments) #name,
    CALLS(X)
#undef X
};

static _Thread_local int n_launches; /* by this thread */
static long n_heap, n_calls[CALL_COUNT];

enum { MOST_CALLERS = 32 };

static struct {
    const void *at;
    long n;
} callers[MOST_CALLERS]; /* the first callers; later ones are not noted */

static void note_caller(const void *at)
{
    for (int i = 0; i < MOST_CALLERS; i++)
        if (!callers[i].at || callers[i].at == at) {
            callers[i].at = at;
            callers[i].n++;
            return;
        }
}

static int is_counting(void) { return n_launches >= FIRST && n_launches < LAST; }

static void *real(const char *name)
{
    void *cudart = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
    void *fn = cudart ? dlsym(cudart, name) : NULL;

    if (!fn) {
        fprintf(stderr, "gpu_count: no %s\n", name);
        abort();
    }
    return fn;
}

#define X(name, parameters, arguments)                          \
    __attribute__((visibility("default"))) int name parameters; \
    int name parameters                                         \
    {                                                           \
        static _Atomic(void *) found;                           \
        void *fn = atomic_load(&found);                         \
                                                                \
        if (!fn)                                                \
            atomic_store(&found, fn = real(#name));             \
        if (is_counting()) {                                    \
            n_calls[CALL_##name]++;                             \
            note_caller(__builtin_return_address(0));           \
        }                                                       \
        return ((int(*) parameters)(size_t)fn)arguments;        \
    }
CALLS(X)
#undef X

/* ---- the heap ---- */

static struct {
    uintptr_t from, to;
} ours[2];

static int note_ours(struct dl_phdr_info *info, size_t size, void *arg)
{
    const int is_plugin = strstr(info->dlpi_name, "dptrain-cuda.so") != NULL;

    (void)size, (void)arg;
    for (int i = 0; i < info->dlpi_phnum && (is_plugin || !*info->dlpi_name); i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_LOAD && h->p_flags & PF_X) {
            ours[is_plugin].from = info->dlpi_addr + h->p_vaddr;
            ours[is_plugin].to = ours[is_plugin].from + h->p_memsz;
        }
    }
    return 0;
}

static int is_ours(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;

    return (at >= ours[0].from && at < ours[0].to) || (at >= ours[1].from && at < ours[1].to);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

#define SHOWN __attribute__((visibility("default")))

static void count_heap(const void *caller)
{
    if (!is_counting() || !is_ours(caller))
        return;
    n_heap++;
    note_caller(caller);
}

SHOWN void *malloc(size_t n)
{
    count_heap(__builtin_return_address(0));
    return __libc_malloc(n);
}

SHOWN void *calloc(size_t n, size_t size)
{
    count_heap(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

SHOWN void *realloc(void *p, size_t n)
{
    count_heap(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

/* ---- the steps ---- */

static long most_launches; /* by one thread */

__attribute__((destructor)) static void say_too_few(void)
{
    if (most_launches > 0 && most_launches < LAST)
        fprintf(stderr, "gpu_count: %ld recorded steps were launched, want %d\n", most_launches,
                LAST);
}

static void write_callers(FILE *f)
{
    fprintf(f, ", \"callers\": {");
    for (int i = 0; i < MOST_CALLERS && callers[i].at; i++) {
        Dl_info in = {0};
        const int found = dladdr(callers[i].at, &in);
        const char *name = found && in.dli_fname ? strrchr(in.dli_fname, '/') : NULL;

        fprintf(f, "%s\"%s+0x%lx\": %ld", i ? ", " : "", name ? name + 1 : "program",
                (unsigned long)((const char *)callers[i].at - (const char *)in.dli_fbase),
                callers[i].n);
    }
    fprintf(f, "}");
}

static void write_counts(void)
{
    const char *to = getenv("GPU_COUNT_FILE");
    char path[4096];
    FILE *f;

    if (!to)
        return;
    snprintf(path, sizeof path, "%s.%ld", to, (long)getpid());
    f = fopen(path, "w");
    if (!f) {
        perror(path);
        return;
    }
    fprintf(f, "{\"steps\": %d, \"heap\": %ld", LAST - FIRST, n_heap);
    for (int i = 0; i < CALL_COUNT; i++)
        fprintf(f, ", \"%s\": %ld", names[i], n_calls[i]);
    write_callers(f);
    fprintf(f, "}\n");
    fclose(f);
}

SHOWN int cudaGraphLaunch(void *exec, void *stream);

int cudaGraphLaunch(void *exec, void *stream)
{
    static _Atomic(void *) found;
    void *fn = atomic_load(&found);

    if (!fn)
        atomic_store(&found, fn = real("cudaGraphLaunch"));
    if (++n_launches == FIRST)
        dl_iterate_phdr(note_ours, NULL);
    most_launches = n_launches > most_launches ? n_launches : most_launches;
    if (n_launches == LAST)
        write_counts();
    return ((int (*)(void *, void *))(size_t)fn)(exec, stream);
}
