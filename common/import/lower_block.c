/* lower_block - the blocks of an imported network, for train.recompute.
 *
 * Networks keep their blocks in lists, so a block is a module with a number in its name, such as
 * h.0, layer1.0, features.1.0 or encoder_layer_0.  A node's block is named by its module's first
 * part that is a number, with those that follow it at once; if no part is one, by the first part
 * that ends with a digit.  Nodes of no such module belong to none, and nodes that follow each other
 * in one module are one block. */
#include <string.h>

#include "import/lower_impl.h"

static int block_is_digit(char c) { return c >= '0' && c <= '9'; }

/* The length of the block's name at the start of `module`; 0: it is in no block. */
static size_t block_name_length(const char *module)
{
    size_t found = 0;
    int has_number = 0;

    for (size_t at = 0; module[at];) {
        const size_t n = strcspn(module + at, ".");
        const int is_number = n > 0 && strspn(module + at, "0123456789") == n;

        if (has_number && !is_number)
            break;
        if (is_number || (!found && n > 0 && block_is_digit(module[at + n - 1])))
            found = at + n;
        has_number |= is_number;
        at += n + (module[at + n] == '.');
    }
    return found;
}

void lower_block(struct lower *l, const char *module)
{
    const size_t n = block_name_length(module);

    if (n == l->block_length && (n == 0 || !strncmp(module, l->block, n)))
        return;
    if (l->block_length)
        layer_end_block(l->m);
    if (n)
        layer_begin_block(l->m);
    l->block = module;
    l->block_length = n;
}
