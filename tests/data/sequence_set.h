/* sequence_set - opens data sets of tokens for the tests: a request with context and vocabulary,
 * and an opening that must not fail. */
#ifndef TESTS_DATA_SEQUENCE_SET_H
#define TESTS_DATA_SEQUENCE_SET_H

#include "../test.h"

#include "open_set.h"

static inline struct dataset_request request(enum dataset_purpose purpose, int64_t context,
                                             int64_t vocab)
{
    return (struct dataset_request){.purpose = purpose, .context = context, .vocab = vocab};
}

static inline struct dataset *open_ok(const struct data_format *format,
                                      const struct setting *settings, struct dataset_request r)
{
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_set(&ds, format, settings, &r, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

#endif
