/* pt2_synonyms - operators of PyTorch that another one is, with the same arguments.
 *
 * torch.export keeps the name by which a module called an operator: torch.clip is no clamp. Readers
 * after this one know one name of each. */
#include <string.h>

#include "base/util.h"
#include "import/pt2_impl.h"

/* Names before the dot; an operator in place has the same with an underscore. */
static const char *const stems[][2] = {
    {"absolute", "abs"},
    {"clip", "clamp"},
    {"concat", "cat"},
    {"concatenate", "cat"},
    {"divide", "div"},
    {"fix", "trunc"},
    {"greater", "gt"},
    {"greater_equal", "ge"},
    {"less", "lt"},
    {"less_equal", "le"},
    {"multiply", "mul"},
    {"negative", "neg"},
    {"not_equal", "ne"},
    {"special_erf", "erf"},
    {"special_expit", "sigmoid"},
    {"special_expm1", "expm1"},
    {"special_log1p", "log1p"},
    {"special_log_softmax", "log_softmax"},
    {"special_logsumexp", "logsumexp"},
    {"special_softmax", "softmax"},
    {"subtract", "sub"},
    {"true_divide", "div"},
};

/* Whole names, with the overload. */
static const char *const wholes[][2] = {
    {"broadcast_to.default", "expand.default"}, {"max.other", "maximum.default"},
    {"min.other", "minimum.default"},           {"moveaxis.int", "movedim.int"},
    {"moveaxis.intlist", "movedim.intlist"},    {"swapdims.default", "transpose.int"},
};

const char *pt2_synonym(struct arena *a, const char *target)
{
    for (size_t i = 0; i < ARRAY_LEN(wholes); i++)
        if (!strcmp(target, wholes[i][0]))
            return wholes[i][1];
    for (size_t i = 0; i < ARRAY_LEN(stems); i++) {
        const size_t n = strlen(stems[i][0]);

        if (!strncmp(target, stems[i][0], n) && (target[n] == '.' || !strncmp(target + n, "_.", 2)))
            return arena_printf(a, "%s%s", stems[i][1], target + n);
    }
    return target;
}
