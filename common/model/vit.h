/* vit - the options of the vision transformers.
 *
 * Threads: constant. */
#ifndef MODEL_VIT_H
#define MODEL_VIT_H

#include "model/model.h"

struct vit_options {
    int64_t image; /* pixels of a side; 0: whatever the data have */
    int64_t patch; /* pixels of a side; the image's sides are multiples of it */
    int64_t width, depth, heads;
    int64_t mlp; /* hidden units of a block's MLP; 0: 4 * width */
    double dropout;
    double drop_path; /* of the last block's branches */
    int64_t classes;  /* 0: as many as the data have */
};

#endif
