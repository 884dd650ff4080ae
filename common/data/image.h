/* image - what may be done to the images of a data set on their way: drawn crops and flips in
 * training, and normalisation.
 *
 * A format of images embeds struct image_options in its own options, its rows by IMAGE_ROWS, and
 * calls image_prepare when it has opened the data; gathering does the rest (data/dataset.c).  Each
 * draw depends on (seed, epoch, sample) alone, so it is the same for any number of ranks, and after
 * a resume.
 *
 * Threads: any. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include "config/words.h"
#include "data/dataset.h"

/* The source of mean and std: the job file, or the training set, which is measured before the job
 * begins (job_measure). */
#define NORMALIZE_LIST(X) X(NORMALIZE_GIVEN, "given") X(NORMALIZE_AUTO, "auto")

enum normalize { NORMALIZE_LIST(WORD_VALUE) };

extern const char *const normalize_names[];

struct image_options {
    int64_t crop; /* pixels of padding, of which a crop is taken; 0: none */
    int flip;
    enum normalize normalize;
    struct option_reals mean, std; /* by channel; none: 0, and 1 */
};

#define IMAGE_ROWS(type, member)                                                              \
    {"data.augment.crop",                                                                     \
     OPT_INT,                                                                                 \
     offsetof(type, member.crop),                                                             \
     "0",                                                                                     \
     0,                                                                                       \
     1024,                                                                                    \
     .unit = "pixels",                                                                        \
     .help = "In training, pad each image with so many black pixels on all sides and take a " \
             "piece of the old size at random; 0: do not."},                                  \
        {"data.augment.flip", OPT_BOOL, offsetof(type, member.flip), "false",                 \
         .help = "In training, mirror every second image, left to right, at random."},        \
        IMAGE_NORMALIZE_ROWS(type, member)

#define IMAGE_NORMALIZE_ROWS(type, member)                                                      \
    {"data.normalize.source",                                                                   \
     OPT_CHOICE,                                                                                \
     offsetof(type, member.normalize),                                                          \
     "given",                                                                                   \
     .choices = normalize_names,                                                                \
     .flags = OPT_SHORT,                                                                        \
     .help = "auto, for which data.normalize: auto is short: mean and standard deviation are "  \
             "those of the training set's channels. The driver measures them, over 1024 files " \
             "at most if the images are in files of their own, and job.yaml has them."},        \
        {"data.normalize.mean",                                                                 \
         OPT_REALS,                                                                             \
         offsetof(type, member.mean),                                                           \
         "[]",                                                                                  \
         -1000,                                                                                 \
         1000,                                                                                  \
         .only = "data.normalize.source",                                                       \
         .only_values = 1u << NORMALIZE_GIVEN,                                                  \
         .help = "Subtract these from the channels of the images, which are from 0 to 1."},     \
    {                                                                                           \
        "data.normalize.std", OPT_REALS, offsetof(type, member.std), "[]", 0, 1000,             \
            .flags = OPT_ABOVE, .only = "data.normalize.source",                                \
            .only_values = 1u << NORMALIZE_GIVEN, .help = "Then divide the channels by these."  \
    }

/* The mean and the standard deviation (of the population) of each channel of a set of images, from
 * 0 to 1: of all images, or of IMAGE_MOST_MEASURED of them, evenly spread, where each has to be
 * decoded.  Sums are of integers, so the result is the same on every machine.  Fails with
 * ERR_CONFIG if the samples are no images of bytes, or if a channel is the same everywhere. */
enum { IMAGE_MOST_MEASURED = 1024 };
int image_measure(const struct dataset *ds, struct option_reals *mean, struct option_reals *std,
                  struct err *err);

/* Check that mean and std are for this many channels, or features of other data: `each` names one.
 * The message begins with a key. */
int normalize_check(const struct image_options *o, int64_t n, const char *each, struct err *err);
int image_check(const struct image_options *o, int n_channels, struct err *err);

/* Give a data set whose field 0 is images of bytes, [H,W,C], what the options say.  Without crop
 * and flip, field 0 may be rows of any numbers: mean and std are of the places of the last axis. */
void image_prepare(struct dataset *ds, const struct image_options *o, enum dataset_purpose purpose);

/* Write field 0 of sample i, whose bytes are `from`, as programs read it.  draw: [H,W,C], cropped
 * and flipped as is drawn for it; NULL: nothing is drawn.  row [W*C] is room. */
void image_write(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                 const uint8_t *from, uint8_t *row, float *to);

/* Normalise a row [..,C] of numbers, in place. */
void image_normalize(const struct dataset *ds, float *x);

#endif
