/* Stochastic gradient descent, as torch.optim.SGD; the update's formula is in op/sgd.c. */
#include "optim/optimizer.h"

static const struct slot_def momentum = {.name = "momentum",
                                         .suffix = ".momentum_buffer", /* as in PyTorch's state */
                                         .scope = SLOT_PER_TRAINED,
                                         .dtype = DTYPE_F32,
                                         .file = SLOT_IN_OPTIMIZER,
                                         .is_hashed = 1,
                                         .is_broadcast = 1};

int optimizer_slots(const struct job *job, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    out[0] = &momentum;
    return job->optimizer.momentum > 0;
}
