/* text - a text for a test's models, in a folder of its own. */
#ifndef TESTS_TRAIN_TEXT_H
#define TESTS_TRAIN_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "../test.h"

/* Make a folder below /tmp with a file `text` of 1,500 small letters; remove_tree ends it. */
static inline void write_text(char folder[64])
{
    char path[80];
    FILE *f;

    snprintf(folder, 64, "/tmp/dptrain-text-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/text", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 1500; i++)
        fputc('a' + (i * i + i / 7) % 26, f);
    assert_int_equal(fclose(f), 0);
}

#endif
