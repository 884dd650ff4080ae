/* shape - number of elements, comparison, and a shape as text for messages ("[64,28,28,1]").
 * Nothing here depends on what the dimensions mean. */
#include "tensor/shape.h"

#include <stdio.h>

int64_t shape_elements(const struct shape *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->n; i++)
        n *= s->dim[i];
    return n;
}

int shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->n != b->n)
        return 0;
    for (int i = 0; i < a->n; i++)
        if (a->dim[i] != b->dim[i])
            return 0;
    return 1;
}

const char *shape_text(const struct shape *s, char out[SHAPE_TEXT_LEN])
{
    int len = snprintf(out, SHAPE_TEXT_LEN, "[");

    for (int i = 0; i < s->n; i++)
        len += snprintf(out + len, SHAPE_TEXT_LEN - (size_t)len, "%s%lld", i ? "," : "",
                        (long long)s->dim[i]);
    snprintf(out + len, SHAPE_TEXT_LEN - (size_t)len, "]");
    return out;
}
