/* gradient_allreduce - Bagua's word for the plain all-reduce.
 *
 * The job file may say either; the keys and all that is done are strategy_allreduce's. */
#include "strategy/allreduce.h"

const struct strategy_ops strategy_gradient_allreduce = {
    .group = {.name = "gradient_allreduce",
              .help = "the same as allreduce, by Bagua's name",
              .option = allreduce_rows,
              .n_options = ALLREDUCE_N_ROWS,
              .size = sizeof(struct allreduce_options),
              .check = allreduce_check},
    .choose = allreduce_choose,
    .shares = allreduce_shares,
};
