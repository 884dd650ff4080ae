/* Fuzz target: the input is the record.json of a run that a stranger gave.  It is refused with a
 * message, or what is read of it is written as a text that is read alike. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "report/attest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {.msg = ""};
    struct attest a, b;
    char *text, *again;

    if (attest_parse((const char *)data, size, &a, &err) < 0) {
        ASSERT(err.code == ERR_CORRUPT && err.msg[0]);
        return 0;
    }
    text = attest_text(&a);
    ASSERT(attest_parse(text, strlen(text), &b, &err) == 0);
    again = attest_text(&b);
    ASSERT(!strcmp(text, again));
    attest_fini(&a);
    attest_fini(&b);
    free(text);
    free(again);
    return 0;
}
