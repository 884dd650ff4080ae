/* mnist - the options of the format `mnist`: where its files are, and what they are called.
 *
 * Threads: constant. */
#ifndef DATA_MNIST_H
#define DATA_MNIST_H

#include "data/image.h"
#include "data/mnist_sets.h"

struct mnist_options {
    const char *path;           /* the folder of the IDX files, absolute */
    const char *train;          /* prefix of the training files */
    const char *validation;     /* prefix of the validation files; NULL: nothing is validated */
    struct image_options image; /* only its normalisation has keys */
    enum split split;           /* the prefixes are this set's; SPLIT_NONE: train, validation */
    int64_t classes;            /* 0: those of the set */
};

#endif
