/* figures - the figures of an epoch: one row for each.
 *
 * A row makes the figure a member of `struct report` (REPORT_EPOCH) and of `struct session_epoch`,
 * has the driver copy it from the one to the other (driver_run.c), writes it into the `epoch` event
 * (report/events.c), and is the figure's line in the manual (docs/operating/files.md; lint/docs
 * compares them).  The place that measures it is fill_figures of train/epoch.c.
 *
 *   X(member, type, of, key, when, text)
 *
 * type  double or int64_t.  A double that is NOT_MEASURED is left out of the event.
 * of    whose it is: enum figure_of.
 * key   its name in the event.  The unit of a time is part of the name, or else it is seconds.
 * when  enum figure_when.
 * text  its line in the manual.
 *
 * The order of rows is the order of keys in the event.  The validation's figures stand between the
 * two lists.
 *
 * These have rules of their own, so they are no rows: the number, step and end of the epoch, which
 * say what the figures are of; data_wait_rank, which the driver finds out, and data_wait_cause,
 * which is a word of the epoch's line (report/table.c); is_mean, which is a text; rss_mib, which is
 * told for each rank; and all that a validation gives (loss, accuracy, top5, best, averaged
 * weights), which is summed over ranks and told if there was one.
 *
 * A figure OF_WAITER is measured by every rank, so it is also a field of EpochDone, with a line in
 * proto/control.proto and a row in wire/fields.h.  One repeated field in the order of this list
 * would need neither, but each added row would change its meaning, so that ranks of another version
 * had to be refused (MSG_PROTOCOL).
 *
 * Threads: any; these are macros. */
#ifndef SESSION_FIGURES_H
#define SESSION_FIGURES_H

#include <stdint.h>

enum figure_of {
    OF_RANK_0, /* rank 0 alone measures it, or has the sum of all ranks; it is not sent */
    OF_WAITER, /* of the rank that waited longest for its data */
};

enum figure_when { ALWAYS, IF_ABOVE_0 };

/* clang-format off */

#define EPOCH_FIGURES_FIRST(X) \
    X(n_samples, int64_t, OF_RANK_0, "samples", ALWAYS, \
      "the samples of the applied steps, of all ranks; a whole epoch has each sample once") \
    X(train_loss, double, OF_RANK_0, "train_loss", ALWAYS, \
      "the mean training loss of the epoch, of all ranks") \
    X(train_accuracy, double, OF_RANK_0, "train_accuracy", ALWAYS, \
      "the part of the targets predicted right in training (0 to 1), if they are classes") \
    X(train_seconds, double, OF_RANK_0, "train_seconds", ALWAYS, \
      "the time of training, without the validation at the end") \
    X(samples_per_second, double, OF_RANK_0, "samples_per_second", ALWAYS, \
      "the rate of all ranks in this time") \
    X(tokens_per_second, double, OF_RANK_0, "tokens_per_second", IF_ABOVE_0, \
      "this rate in predictions, where a sample has several, such as tokens") \
    X(step_ms_median, double, OF_RANK_0, "step_ms_median", ALWAYS, \
      "the median time from the end of a step to the end of the next one") \
    X(comm_exposed_ms_median, double, OF_RANK_0, "comm_exposed_ms_median", ALWAYS, \
      "the median time in a step that is spent waiting for other ranks; it is counted apart") \
    X(comm_hidden_share, double, OF_RANK_0, "comm_hidden_share", ALWAYS, \
      "the part of the time of collectives in which rank 0 did not wait for them (0 to 1)") \
    X(data_wait_ms_median, double, OF_WAITER, "data_wait_ms_median", ALWAYS, \
      "the median time in a step in which `data_wait_rank` had nothing to do for want of data") \
    X(data_wait_share, double, OF_WAITER, "data_wait_share", ALWAYS, \
      "this waiting as a part of the epoch's time (0 to 1)")

#define EPOCH_FIGURES_LAST(X) \
    X(n_skipped, int64_t, OF_RANK_0, "steps_skipped", IF_ABOVE_0, \
      "steps that were left out, as spikes or for numbers that are not finite") \
    X(n_left_out, int64_t, OF_RANK_0, "left_out", IF_ABOVE_0, \
      "those of `samples` that could not be read (`data.on_corrupt: skip`)") \
    X(loss_scale, double, OF_RANK_0, "loss_scale", IF_ABOVE_0, \
      "with `precision: float16`, the loss scale at the end of the epoch")

/* clang-format on */

#define EPOCH_FIGURES(X) EPOCH_FIGURES_FIRST(X) EPOCH_FIGURES_LAST(X)

/* A row as a member of a struct. */
#define FIGURE_MEMBER(member, type, of, key, when, text) type member;

#endif
