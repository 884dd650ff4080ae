/* resnet - the options of the residual networks.
 *
 * Threads: constant. */
#ifndef MODEL_RESNET_H
#define MODEL_RESNET_H

#include "model/model.h"

#define STEM_LIST(X) X(STEM_IMAGENET, "imagenet") X(STEM_CIFAR, "cifar")

enum stem { STEM_LIST(WORD_VALUE) };

struct resnet_options {
    enum stem stem;
    double drop_path; /* of the last block's branch */
    int64_t classes;  /* 0: as many as the data have */
};

#endif
