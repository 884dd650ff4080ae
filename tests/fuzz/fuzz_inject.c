/* Fuzz target: the input is a list of faults on purpose, as a driver sends it to a rank.  It is
 * refused with a message, or each fault is in range, and all of them, written again, are the same
 * list. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "inject/inject.h"

enum { MOST_TEXT = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct injection *f)
{
    char said[INJECTION_SAY];

    ASSERT(f->rank >= 0 && f->rank <= INJECTION_MAX_RANK && f->number >= -1 && f->amount >= 0);
    ASSERT(f->what != INJECTION_DELAY || f->amount <= (int64_t)INJECTION_MAX_DELAY_S * 1000);
    ASSERT(f->point <= INJECTION_AT_STOP && !f->is_spent && strlen(f->text) < INJECTION_TEXT);
    ASSERT(inject_say(f, said)[0]);
    ASSERT(inject_is_due(f, f->point, f->number < 0 ? 7 : f->number));
}

/* A fault that has happened is not written any more. */
static void check_all(struct injection_list *l)
{
    char text[INJECTION_MAX_TEXT];
    struct injection_list again = {.n = 0};
    struct err err;

    inject_select(l, -1, INJECTION_AT_GATHER, INJECTION_AT_STOP, text);
    if (l->n == 0)
        return;
    ASSERT(inject_parse(text, &again, &err) == 0 && again.n == l->n);
    for (int i = 0; i < l->n; i++)
        ASSERT(!memcmp(&l->item[i], &again.item[i], sizeof l->item[i]));
    while (l->n > 0) {
        ASSERT(inject_spend(l, again.item[again.n - l->n].text));
        inject_select(l, -1, INJECTION_AT_GATHER, INJECTION_AT_STOP, text);
        memmove(l->item, l->item + 1, sizeof *l->item * (size_t)--l->n);
    }
    ASSERT(!text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct injection_list l;
    char text[MOST_TEXT + 1];
    struct err err = {0};

    size = size < MOST_TEXT ? size : MOST_TEXT;
    memcpy(text, data, size);
    text[size] = 0;
    memset(&l, 0, sizeof l);
    if (inject_parse(text, &l, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    if (inject_check_ranks(&l, 4, &err) < 0)
        ASSERT(err.msg[0]);
    for (int i = 0; i < l.n; i++)
        check(&l.item[i]);
    check_all(&l);
    return 0;
}
