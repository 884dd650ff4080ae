/* cases - joins the rows of the files cases_FAMILY.c to one table.
 * op/coverage wants a row for each operator of op_list.h. */
#include "cases.h"

#include "base/util.h"

static const struct op_case_family *const families[] = {
    &cases_layers, &cases_pixels,    &cases_norms,  &cases_general,
    &cases_tokens, &cases_recurrent, &cases_losses, &cases_updates,
};

const struct op_case *op_case_at(int i)
{
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        if (i < families[f]->n)
            return &families[f]->row[i];
        i -= families[f]->n;
    }
    return NULL;
}
