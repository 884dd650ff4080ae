/* dataset - samples by their number: the readers' one interface.
 *
 * The data set's spec (tensor/sample.h) says what a sample is: images and labels, tokens, rows of
 * numbers.  A reader gives the stored bytes of one field of one sample; gathering converts them to
 * what programs read.
 *
 * A format is one entry, `format_NAME` in a file of data/, and its word in data/meson.build.  The
 * entry brings its name, its help, its own keys of the job file with the struct that they fill, and
 * the function that opens the data.
 *
 * Life:    dataset_open -> gather, fingerprint ... -> dataset_close.
 * Threads: any number may gather from one dataset at once; it does not change.
 * Errors:  opening checks everything, and names file, offset, seen, wanted and the remedy:
 *          ERR_ARG (options), ERR_IO (missing, unreadable), ERR_CORRUPT (content), ERR_NOMEM. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "config/option.h"
#include "tensor/sample.h"

#include "data/format_list.h" /* generated: FORMAT_LIST(X) with X(name) for each entry */

enum dataset_purpose { DATASET_TRAIN, DATASET_VALIDATION };

enum {
    DATASET_NONE = 1, /* dataset_open: there are no such data */
    DATASET_LOST = 1, /* a row: the sample cannot be read, and is to be left out */
};

/* The value of data.validation, in any format that has this key, with which dataset_open finds no
 * validation data. */
#define DATASET_WORD_NONE "none"

struct dataset; /* the base of every reader's own struct; defined after its functions */
struct dataset_draw;

struct dataset_ops {
    const char *name;
    /* The stored bytes of one field of sample i: *row is their address, in memory that the dataset
     * keeps, or `room`, which has room_bytes and was filled.  DATASET_LOST (of field 0 only): the
     * field is black, and no class counts. */
    int (*row)(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
               struct err *err);
    void (*close)(struct dataset *ds);
    /* The image of sample i, cut as `draw` says, into room; where image.cut is set.  NULL: nothing
     * is cut. */
    int (*row_drawn)(const struct dataset *ds, const struct dataset_draw *draw, int64_t i,
                     void *room, struct err *err);
    /* Where field `field` of sample i is, for messages, such as "x.npy, row 17"; for free().  NULL:
     * the sample's number says it. */
    char *(*place)(const struct dataset *ds, int64_t i, int field);
    /* Add to the fingerprint what tells these samples from others.  NULL: rows are hashed. */
    int (*print)(const struct dataset *ds, struct hasher *h, struct err *err);
    /* The name of sample i, such as that of its file within data.path, for free().  NULL: samples
     * have only numbers. */
    char *(*sample_name)(const struct dataset *ds, int64_t i);
    /* The feature of field 0 with this number.  NULL: features have no names. */
    struct dataset_feature (*feature)(const struct dataset *ds, int64_t number);
    /* The number in the user's file of sample i, from 0 on, where samples were left out.  NULL: it
     * is i. */
    int64_t (*number)(const struct dataset *ds, int64_t i);
};

struct dataset_feature {
    const char *name;
    int is_word; /* 1 or 0: is it this word?  data.normalize: auto leaves it as it is */
};

enum { IMAGE_MAX_CHANNELS = OPT_MAX_REALS };

/* Changes to the images, or rows of features, of field 0 (data/image.h); zero: none. */
struct dataset_image {
    int64_t crop; /* pixels */
    int flip;
    int cut;        /* the reader draws a part of each picture (ops->row_drawn) */
    int n_channels; /* 0: not normalised */
    double mean[IMAGE_MAX_CHANNELS], std[IMAGE_MAX_CHANNELS];
};

/* Targets that are real numbers are (y - mean) / std, by place of the last axis (data/targets.h).
 */
struct dataset_scale {
    int n; /* 0: they are as they are stored */
    double mean[OPT_MAX_REALS], std[OPT_MAX_REALS];
};

/* The changes that are drawn for a sample depend on these and on the sample's number. */
struct dataset_draw {
    uint64_t seed; /* of the job */
    int64_t epoch; /* from 1 */
};

struct dataset {
    const struct dataset_ops *ops;
    int64_t n_samples;       /* >= 1 */
    struct sample_spec spec; /* has one target */
    size_t room_bytes;       /* that ops->row needs; 0: all rows are kept */
    struct dataset_image image;
    struct dataset_scale targets;
    char scheme[HASH_TEXT_LEN]; /* the hash of what numbers stand for, where the training data say
                                   it (data.scheme); "": the format has none */
    int leaves_out;             /* 1: a row may be DATASET_LOST, and no other class is ignored */
    int ignores; /* 1: the class `ignored` becomes SAMPLE_IGNORED; dataset_open sets both */
    int32_t ignored;
    int reconstructs;  /* 1: the target is field 0 as programs read it; dataset_open sets it */
    int has_no_labels; /* 1: the targets are unknown (dataset_request.may_lack_labels) */
    /* The names of the target's classes, or of its labels or values, as many as there are; NULL:
     * they have none.  Only a training set must have them.  The reader's, until it is closed. */
    const char *const *class_names;
    int is_slow;   /* reading a sample takes long (decoding): several threads pay */
    int n_workers; /* threads that read a batch (data/loader.h); 0 is 1; dataset_open sets it */
};

/* The request of a job to a reader.  Zeroes are fine for what a test does not care about. */
struct dataset_request {
    enum dataset_purpose purpose;
    uint64_t seed;          /* of the job; for formats that draw their samples */
    int64_t context;        /* model.context: tokens of a sample; 0: the model has none */
    int64_t vocab;          /* model.vocab: different tokens; 0: the data say */
    int vocab_is_given;     /* 1: it is the imported network's, and no key changes it */
    int n_workers;          /* where data.workers does not say: threads for a set that is_slow */
    const int64_t *ignored; /* train.ignore_index, borrowed during the call; NULL: SAMPLE_IGNORED */
    int may_lack_labels;    /* 1: of a validation set: samples without labels are fine */
    int keeps_nothing;      /* 1: decoded pictures are neither kept nor read (data.cache) */
    /* 1: only class_names are wanted: nothing is logged, samples need not be read, and the outcome
     * is DATASET_NONE if the classes have no names. */
    int names_only;
    int targets_are_fractions; /* 1: targets that are real numbers are from 0 to 1 (model.loss: bce)
                                */
    int targets_are_numbers;   /* 1: where the data have no types, the targets are real numbers
                                  (model.loss: mse, l1, bce); 0: classes */
    int wants_pairs;           /* 1: a sample is a pair of answers to a prompt (model.loss: dpo) */
    /* The whole numbers that the network takes of an input field, within int32; called with what
     * these are.  NULL: all of them. */
    void (*limit)(const void *arg, const struct sample_spec *spec, int field, int64_t *least,
                  int64_t *most);
    const void *limit_arg;
    /* Tells the user of data that are read, but perhaps not as they are meant; the text is borrowed
     * during the call.  NULL: nothing is told. */
    void (*warn)(void *arg, const char *text);
    void *warn_arg;
};

/* Call r->warn, if there is one. */
void dataset_warn(const struct dataset_request *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* 1: the job ignores the class `label` (train.ignore_index).  SAMPLE_IGNORED itself is always
 * ignored. */
static inline int dataset_ignores(const struct dataset_request *r, int64_t label)
{
    return label == SAMPLE_IGNORED || (r->ignored && label == *r->ignored);
}

struct data_format {
    struct option_group group;
    int knows_names; /* 1: a training set has class_names, so the driver opens it to note them */
    /* Of data that are drawn, as a demo: the settings that put the user's own in their place, with
     * FOLDER for where these are (NULL at the end), and what FOLDER is.  NULL: there are none. */
    const char *const *own;
    const char *own_folder;
    /* Make on disk what opening by this request, and by the same for validation, needs, where that
     * may take long: the driver does so before the job begins.  NULL: nothing is needed. */
    int (*prepare)(const void *options, const struct dataset_request *request, struct err *err);
    /* As dataset_open; strings in `options` are borrowed during the call only. */
    int (*open)(struct dataset **out, const void *options, const struct dataset_request *request,
                struct err *err);
};

#define X(name) extern const struct data_format format_##name;
FORMAT_LIST(X)
#undef X

extern const struct option_group *const data_formats[]; /* all of them; NULL at the end */

/* The section `data` of a job. */
struct data_options {
    const struct data_format *kind;
    const void *options;     /* of kind: its own struct */
    int shuffle;             /* training takes the samples in an order drawn anew for each epoch */
    int64_t ignore_index;    /* labels that count in no loss and no accuracy */
    const char *class_names; /* config/names.h; [] if there are none */
    int64_t workers;         /* threads that read a batch; 0: as the request says */
    int reconstruct;         /* the target is field 0 as programs read it; the data's is not read */
};

/* Open the data of a job.  DATASET_NONE, and *out is NULL: the options name no data for this
 * purpose (validation only). */
int dataset_open(struct dataset **out, const struct data_options *o,
                 const struct dataset_request *request, struct err *err);
void dataset_close(struct dataset *ds); /* NULL is fine */

/* Read the samples index[0..n): field i of the spec goes to to[i] [n, its shape], as programs read
 * it.  A NULL in to[] leaves that field out.  n may be 0.  An index outside [0,n_samples) is a bug
 * of the caller's (asserted).  The formats mnist, digits and cifar never fail.  A sample that
 * cannot be read where the job says to go on is zeroes, with SAMPLE_IGNORED for each class. */
int dataset_gather(const struct dataset *ds, const int64_t *index, int64_t n, void *const *to,
                   struct err *err);

/* The same with what is drawn for each sample (crops, flips); draw NULL: nothing is drawn. */
int dataset_gather_drawn(const struct dataset *ds, const struct dataset_draw *draw,
                         const int64_t *index, int64_t n, void *const *to, struct err *err);

/* Where field `field` of sample i is, for messages, for free(). */
char *dataset_place(const struct dataset *ds, int64_t i, int field);

/* Look for a number that is not finite in n samples that were read: field[i] holds field i of the
 * samples index[0..n).  1: found, and *text says where and what, for free(); 0: there is none. */
int dataset_find_nonfinite(const struct dataset *ds, const int64_t *index, int64_t n,
                           void *const *field, char **text);

/* How the numbers of a field are scaled: (x - mean) / std, by place of its last axis. */
struct dataset_scaling {
    int n; /* 0: they are not; 1 may be for all places */
    const double *mean, *std;
};
struct dataset_scaling dataset_scaling(const struct dataset *ds, int field);

/* 1: samples differ from epoch to epoch, so a batch that was gathered once cannot be kept. */
int dataset_draws(const struct dataset *ds);

/* The i-th of n samples that are spread evenly over all n_samples, both ends included. */
int64_t dataset_spread(int64_t i, int64_t n, int64_t n_samples);

/* Memory for n samples: to[i] for field i, aligned to SAMPLE_ALIGN; free(to[0]) frees all. */
int dataset_alloc(const struct dataset *ds, int64_t n, void *to[SAMPLE_MAX_FIELDS],
                  const char *what, struct err *err);

/* Hash the spec, the number of samples, and the stored bytes of evenly spaced samples, some 64 KiB
 * of each field (of images in files: all names, and some files).  The hash is the same on every
 * machine for the same data.  Its work is bounded whatever the size (below 1 ms for MNIST), so it
 * finds a wrong or stale copy, but not one changed pixel of many. */
int dataset_fingerprint(const struct dataset *ds, struct hash128 *out, struct err *err);

#endif
