/* gradient_allreduce - Bagua's name for the plain all-reduce.
 *
 * The job file may use either name.  The keys and functions are those of strategy_allreduce. */
#include "strategy/allreduce.h"

const struct strategy_ops strategy_gradient_allreduce = {
    .group = {.name = "gradient_allreduce",
              .help = "the same as allreduce, by Bagua's name",
              .option = allreduce_rows,
              .n_options = ALLREDUCE_N_ROWS,
              .size = sizeof(struct allreduce_options),
              .check = allreduce_check},
    .choose = allreduce_choose,
};
