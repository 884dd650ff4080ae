/* losses - model.loss: a word, `output NAME`, or a mapping from outputs to losses with weights.
 *
 * Threads: pure. */
#ifndef MODEL_LOSSES_H
#define MODEL_LOSSES_H

#include "base/arena.h"
#include "model/model.h"

enum { LOSSES_MOST = 8 };

/* The loss of an output, or the output that is a loss by itself (LOSS_OUTPUT). */
struct loss_term {
    const char *output; /* of model.import; NULL: the first one */
    enum loss kind;
    double weight;
    double delta;            /* LOSS_HUBER */
    double gamma;            /* LOSS_FOCAL */
    double positive;         /* LOSS_BCE: the weight of targets of 1 */
    const double *positives; /* likewise, a weight for each output; NULL: `positive` */
    int n_positives;
    const char *with;   /* LOSS_CONTRASTIVE: the other output */
    const char *scale;  /* likewise: the output that is the scores' factor; NULL: none is */
    double temperature; /* likewise: the scores' divisor */
    double beta;        /* LOSS_DPO: the factor of what the answers' log-probabilities gained */
    int class_dim;      /* classes at places: 1: [N,C,T], 2: [N,T,C]; 0: as the shape says */
};

struct losses {
    int n;
    struct loss_term term[LOSSES_MOST];
};

/* A failure sets *at to where in the text it is. */
int losses_check(const char *text, size_t len, size_t *at, struct err *err);
/* The first one's kind; contrasts: 1 if any is contrastive. */
int losses_first(const char *text, enum loss *out, int *contrasts, struct err *err);

/* Those of a job: o->losses, or o->loss alone. */
int losses_of(const struct model_options *o, struct arena *arena, struct losses *out,
              struct err *err);

/* 1: the targets are classes. */
static inline int loss_is_of_classes(enum loss l)
{
    return l == LOSS_CROSS_ENTROPY || l == LOSS_FOCAL || l == LOSS_OUTPUT ||
           l == LOSS_CONTRASTIVE || l == LOSS_DPO;
}

/* 1: the loss compares the output with no target. */
static inline int loss_is_free(enum loss l) { return l == LOSS_OUTPUT || l == LOSS_CONTRASTIVE; }

#endif
