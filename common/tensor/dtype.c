/* dtype - sizes and names of the element types, from the one list in dtype.h.  Nothing here
 * depends on a backend. */
#include "tensor/dtype.h"

#include <string.h>

#include "base/util.h"

static const struct {
    size_t n_bytes;
    const char *text;
} table[DTYPE_COUNT] = {
#define X(name, n_bytes, text) [name] = {n_bytes, text},
    DTYPE_LIST(X)
#undef X
};

size_t dtype_size(enum dtype d)
{
    ASSERT((unsigned)d < DTYPE_COUNT);
    return table[d].n_bytes;
}

const char *dtype_name(enum dtype d)
{
    ASSERT((unsigned)d < DTYPE_COUNT);
    return table[d].text;
}

int dtype_from_name(const char *text)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (!strcmp(table[d].text, text))
            return d;
    return -1;
}
