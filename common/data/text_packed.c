/* text_packed - samples of whole documents out of a file of tokens, which says where they begin,
 * and which of their tokens are learnt. */
#include "data/text_packed.h"

#include "base/util.h"
#include "data/sequence.h"

int text_packed_find(struct packing *p, int64_t context, const struct token_file *f,
                     const struct text_packed_part *part, struct err *err)
{
    packing_init(p, context);
    for (int64_t i = part->number; i < part->end; i++) {
        int64_t first, n, end;

        if (token_file_document(f, i, &first, &n, err) < 0)
            return err->code;
        end = min_i64(first + (part->most > 0 ? min_i64(n, part->most) : n), part->to);
        first = max_i64(first, part->from);
        if (packing_add(p, first, end - first, err) < 0)
            return err->code;
    }
    return 0;
}

int text_packed_row(const struct packing *p, const struct token_file *f, int64_t i, int field,
                    int32_t *to, uint8_t *unlearnt, struct err *err)
{
    const int is_target = field == SEQUENCE_TARGETS;
    int64_t n = 0;

    if (field == SEQUENCE_STARTS) {
        packing_starts(p, i, to);
        return 0;
    }
    for (const struct packing_piece *k = packing_first(p, i); k; k = packing_next(p, k)) {
        if (token_file_read(f, k->at + is_target, k->n, to + n, unlearnt, err) < 0)
            return err->code;
        for (int64_t j = 0; j < k->n && is_target; j++)
            to[n + j] = unlearnt[j] ? SAMPLE_IGNORED : to[n + j];
        n += k->n;
    }
    for (; n < p->context; n++)
        to[n] = is_target ? SAMPLE_IGNORED : 0;
    return 0;
}
