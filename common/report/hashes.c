/* hashes - the columns of hashes.csv, and how a row is written.  A state that is not known is an
 * empty field. */
#include "report/hashes.h"

#include "session/command.h"

static void hashes_put_row(struct buf *out, const void *arg)
{
    const struct hashes_row *row = arg;

    buf_printf(out, "%lld,", (long long)row->step);
    if (row->has_state)
        buf_printf(out, "%016llx", (unsigned long long)row->state);
    buf_printf(out, ",");
    series_put_number(out, row->loss, ',');
    buf_printf(out, "%016llx\n", (unsigned long long)row->samples);
}

const struct series_kind hashes_series = {
    .name = "hashes.csv",
    .header = "step,state,loss,samples\n",
    .row_bytes = sizeof(struct hashes_row),
    .put = hashes_put_row,
};

_Static_assert(offsetof(struct hashes_row, step) == 0, "as struct series_kind wants it");
