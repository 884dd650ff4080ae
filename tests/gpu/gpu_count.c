/* gpu_count - preloaded into a daemon: whether a training step allocates or waits.
 *
 * Counts, on the thread that launches recorded steps, from its launch FIRST to launch LAST: what it
 * asks of the heap, and every call of the CUDA runtime that allocates, frees or blocks; then writes
 * them as JSON to $GPU_COUNT_FILE.  The plugin is loaded with its symbols local, but what is
 * preloaded comes before it all the same. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST = 50, LAST = 250 };

/* What blocks or allocates: name, its parameters, and how they are passed on. */
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
        n_calls[CALL_##name] += is_counting();                  \
        return ((int(*) parameters)(size_t)fn)arguments;        \
    }
CALLS(X)
#undef X

/* ---- the heap ---- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

#define SHOWN __attribute__((visibility("default")))

SHOWN void *malloc(size_t n)
{
    n_heap += is_counting();
    return __libc_malloc(n);
}

SHOWN void *calloc(size_t n, size_t size)
{
    n_heap += is_counting();
    return __libc_calloc(n, size);
}

SHOWN void *realloc(void *p, size_t n)
{
    n_heap += is_counting();
    return __libc_realloc(p, n);
}

/* ---- the steps ---- */

static void write_counts(void)
{
    const char *path = getenv("GPU_COUNT_FILE");
    FILE *f = path ? fopen(path, "w") : NULL;

    if (!f)
        return;
    fprintf(f, "{\"steps\": %d, \"heap\": %ld", LAST - FIRST, n_heap);
    for (int i = 0; i < CALL_COUNT; i++)
        fprintf(f, ", \"%s\": %ld", names[i], n_calls[i]);
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
    if (++n_launches == LAST)
        write_counts();
    return ((int (*)(void *, void *))(size_t)fn)(exec, stream);
}
