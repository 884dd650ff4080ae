/* fake_memory - the memory of the stand-ins for the CUDA runtime and NCCL: devices' memory, host
 * memory that is pinned or mapped, and memory that NCCL shares between ranks. */
#include "fake_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct memory {
    char *at;
    size_t n_bytes;
    int device, is_pinned, is_mapped, is_shared, n_registered;
};

static struct memory memory[MAX_THINGS];
static int n_memory;
static size_t room = SIZE_MAX;

void fake_room(size_t n_bytes) { room = n_bytes; }

void fake_memory_reset(void)
{
    room = SIZE_MAX;
    for (int i = 0; i < n_memory; i++)
        free(memory[i].at);
    n_memory = 0;
}

int fake_memory_open(void) { return n_memory; }

static cudaError_t allocate(void **p, size_t n_bytes, int is_pinned, int is_mapped)
{
    ASSERT(n_memory < MAX_THINGS);
    *p = malloc(n_bytes);
    memset(*p, 0xee, n_bytes);
    memory[n_memory++] = (struct memory){*p, n_bytes, fake_device(), is_pinned, is_mapped};
    return fake_leave(cudaSuccess);
}

static struct memory *shared_at(const void *p)
{
    for (int i = 0; i < n_memory; i++)
        if (memory[i].at == p && memory[i].is_shared)
            return &memory[i];
    ASSERT(!"memory that ncclMemAlloc has not made");
}

static void release(const void *p, int is_pinned)
{
    for (int i = 0; i < n_memory; i++)
        if (memory[i].at == p && memory[i].is_pinned == is_pinned) {
            ASSERT(!memory[i].n_registered);
            free(memory[i].at);
            memory[i] = memory[--n_memory];
            return;
        }
    ASSERT(!"memory that is not there is freed");
}

static const struct memory *memory_of(const void *p, size_t n_bytes)
{
    for (int i = 0; i < n_memory; i++)
        if (memory[i].at <= (const char *)p &&
            (const char *)p + n_bytes <= memory[i].at + memory[i].n_bytes)
            return &memory[i];
    return NULL;
}

int fake_is_memory(const void *p, size_t n_bytes)
{
    const struct memory *m = memory_of(p, n_bytes);

    return m && !m->is_pinned;
}

void *fake_share(size_t n_bytes)
{
    void *p;

    if ((n_bytes + FAKE_PIECE - 1) / FAKE_PIECE * FAKE_PIECE > room)
        return NULL;
    p = xmalloc(n_bytes);
    ASSERT(n_memory < MAX_THINGS);
    memset(p, 0xee, n_bytes);
    memory[n_memory++] =
        (struct memory){.at = p, .n_bytes = n_bytes, .device = fake_device(), .is_shared = 1};
    return p;
}

void fake_unshare(void *p)
{
    ASSERT(shared_at(p));
    release(p, 0);
}

void fake_register(const void *p, int by) { shared_at(p)->n_registered += by; }

int fake_is_poisoned(int device)
{
    for (int i = 0; i < n_memory; i++)
        if (memory[i].is_mapped && memory[i].device == device)
            return __atomic_load_n((uint32_t *)(void *)memory[i].at, __ATOMIC_SEQ_CST) != 0;
    return 0;
}

cudaError_t cudaMalloc(void **p, size_t n_bytes)
{
    RUNTIME_CALL;
    return allocate(p, n_bytes, 0, 0);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    RUNTIME_CALL;
    *free_bytes = room;
    *total_bytes = (size_t)256 << 20;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaFree(void *p)
{
    RUNTIME_FREE;
    for (int i = 0; i < n_memory; i++)
        ASSERT(memory[i].at != p || !memory[i].is_shared);
    release(p, 0);
    return fake_leave(result);
}

cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned flags)
{
    RUNTIME_CALL;
    return allocate(p, n_bytes, 1, (flags & cudaHostAllocMapped) != 0);
}

cudaError_t cudaFreeHost(void *p)
{
    RUNTIME_FREE;
    release(p, 1);
    return fake_leave(result);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags)
{
    RUNTIME_CALL;
    ASSERT(flags == 0 && memory_of(p, 1)->is_mapped);
    *out = p;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    const struct memory *m;

    RUNTIME_CALL;
    m = memory_of(p, 1);
    memset(a, 0, sizeof *a);
    a->type = !m             ? cudaMemoryTypeUnregistered
              : m->is_pinned ? cudaMemoryTypeHost
                             : cudaMemoryTypeDevice;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind)
{
    RUNTIME_CALL;
    ASSERT(kind == cudaMemcpyDefault);
    memcpy(to, from, n_bytes);
    return fake_leave(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    RUNTIME_CALL;
    ASSERT(fake_is_memory(to, n_bytes) == (kind != cudaMemcpyDeviceToHost));
    ASSERT(fake_is_memory(from, n_bytes) == (kind != cudaMemcpyHostToDevice));
    ASSERT(memory_of(to, n_bytes) && memory_of(from, n_bytes)); /* pinned: else a copy waits */
    fake_put(s, (struct work){.kind = WORK_COPY, .to = to, .from = from, .n_bytes = n_bytes});
    return fake_leave(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n_bytes, cudaStream_t s)
{
    RUNTIME_CALL;
    ASSERT(fake_is_memory(p, n_bytes));
    fake_put(s, (struct work){.kind = WORK_SET, .to = p, .value = value, .n_bytes = n_bytes});
    return fake_leave(cudaSuccess);
}
