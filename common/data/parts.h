/* parts - the part of a picture that becomes a sample, in the picture's pixels.
 *
 * Threads: any; pure. */
#ifndef DATA_PARTS_H
#define DATA_PARTS_H

#include "data/dataset.h"
#include "data/picture.h"

/* The middle square of `size` once the shorter side is resized to `resize`.  Both steps round to
 * whole pixels of the resized picture as torchvision's Resize and CenterCrop do. */
struct picture_box parts_middle(int64_t size, int64_t resize, int64_t width, int64_t height);

/* An area of 8 to 100 % of the picture, and a form from 3:4 to 4:3, uniform in its logarithm, drawn
 * for sample i.  The block of random numbers of attempt k is apart from those of image_write and of
 * other samples. */
struct picture_box parts_drawn(const struct dataset_draw *draw, int64_t i, int64_t width,
                               int64_t height);

#endif
