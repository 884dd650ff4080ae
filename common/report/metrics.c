/* metrics - the columns of metrics.csv, and how a row is written.  Numbers that are not known are
 * nan. */
#include "report/metrics.h"

#include "session/command.h"

static void metrics_put_row(struct buf *out, const void *arg)
{
    const struct metrics_row *row = arg;

    buf_printf(out, "%lld,%lld,", (long long)row->step, (long long)row->epoch);
    series_put_number(out, row->loss, ',');
    series_put_number(out, row->learning_rate, ',');
    series_put_number(out, row->grad_norm, ',');
    series_put_number(out, row->samples_per_second, '\n');
}

const struct series_kind metrics_series = {
    .name = "metrics.csv",
    .header = "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n",
    .row_bytes = sizeof(struct metrics_row),
    .put = metrics_put_row,
};

_Static_assert(offsetof(struct metrics_row, step) == 0, "as struct series_kind wants it");
