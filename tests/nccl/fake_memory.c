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

enum { MAX_PIECES = 64 }; /* of one device */

static struct {
    struct memory piece[MAX_PIECES];
    int n;
} memory[MAX_DEVICES];
static int n_devices; /* the greatest number of a device that had memory, + 1 */
static size_t room = SIZE_MAX, most_filled = SIZE_MAX;

void fake_room(size_t n_bytes) { room = n_bytes; }
void fake_fill_at_most(size_t n_bytes) { most_filled = n_bytes; }

void fake_memory_reset(void)
{
    room = SIZE_MAX;
    for (int d = 0; d < n_devices; d++)
        while (memory[d].n > 0)
            free(memory[d].piece[--memory[d].n].at);
    n_devices = 0;
}

int fake_memory_open(void)
{
    int n = 0;

    for (int d = 0; d < n_devices; d++)
        n += memory[d].n;
    return n;
}

void fake_fill(void *p, int value, size_t n_bytes)
{
    memset(p, value, n_bytes < most_filled ? n_bytes : most_filled);
}

static void *add(struct memory m)
{
    const int d = m.device = fake_device();

    ASSERT(memory[d].n < MAX_PIECES);
    m.at = xmalloc(m.n_bytes);
    fake_fill(m.at, 0xee, m.n_bytes);
    memory[d].piece[memory[d].n++] = m;
    n_devices = d < n_devices ? n_devices : d + 1;
    return m.at;
}

static cudaError_t allocate(void **p, size_t n_bytes, int is_pinned, int is_mapped)
{
    *p = add((struct memory){.n_bytes = n_bytes, .is_pinned = is_pinned, .is_mapped = is_mapped});
    return fake_leave(cudaSuccess);
}

static struct memory *find_on(int device, const char *p, size_t n_bytes)
{
    for (int i = 0; i < memory[device].n; i++) {
        struct memory *m = &memory[device].piece[i];

        if (m->at <= p && p + n_bytes <= m->at + m->n_bytes)
            return m;
    }
    return NULL;
}

/* The memory that holds n_bytes at p, or NULL.  Most calls ask about their own device's. */
static struct memory *memory_of(const void *p, size_t n_bytes)
{
    struct memory *m = find_on(fake_device(), p, n_bytes);

    for (int d = 0; d < n_devices && !m; d++)
        m = find_on(d, p, n_bytes);
    return m;
}

static struct memory *shared_at(const void *p)
{
    struct memory *m = memory_of(p, 1);

    ASSERT(m && m->at == p && m->is_shared); /* else ncclMemAlloc has not made it */
    return m;
}

static void release(const void *p, int is_pinned)
{
    struct memory *m = memory_of(p, 1);
    const int d = m ? m->device : 0;

    ASSERT(m && m->at == p && m->is_pinned == is_pinned); /* else it is not there */
    ASSERT(!m->n_registered);
    free(m->at);
    *m = memory[d].piece[--memory[d].n];
}

int fake_is_memory(const void *p, size_t n_bytes)
{
    const struct memory *m = memory_of(p, n_bytes);

    return m && !m->is_pinned;
}

void *fake_share(size_t n_bytes)
{
    if ((n_bytes + FAKE_PIECE - 1) / FAKE_PIECE * FAKE_PIECE > room)
        return NULL;
    return add((struct memory){.n_bytes = n_bytes, .is_shared = 1});
}

void fake_unshare(void *p)
{
    ASSERT(shared_at(p));
    release(p, 0);
}

void fake_register(const void *p, int by) { shared_at(p)->n_registered += by; }

int fake_is_poisoned(int device)
{
    for (int i = 0; i < memory[device].n; i++) {
        const struct memory *m = &memory[device].piece[i];

        if (m->is_mapped)
            return __atomic_load_n((uint32_t *)(void *)m->at, __ATOMIC_SEQ_CST) != 0;
    }
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
    ASSERT(!memory_of(p, 1) || !memory_of(p, 1)->is_shared);
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
