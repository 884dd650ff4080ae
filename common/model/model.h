/* model - the network of a job, as a graph.
 *
 * An architecture is one entry, `arch_NAME` in a file of model/, and its word in model/meson.build.
 * The entry brings its name, its help, its own keys of the job file with the struct that they fill,
 * and the function that builds the network from layers (model/layer.h).
 *
 * Names of parameters follow PyTorch's modules ("conv1.weight", "fc1.bias"), so that a checkpoint
 * is a state dict.  The file of each architecture says which layers it has, and their names; a
 * layer has the parameters NAME.weight and NAME.bias, batch norm also the states NAME.running_mean
 * and NAME.running_var.
 *
 * Threads: entries are constant; a graph belongs to one thread. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/err.h"
#include "config/option.h"
#include "config/words.h"
#include "ir/graph.h"
#include "tensor/sample.h"

#include "model/arch_list.h" /* generated: ARCH_LIST(X) with X(name) for each entry */

struct net; /* model/layer.h */

enum config_kind {
    CONFIG_SHAPE,    /* shapes of tensors follow from it */
    CONFIG_NUMBERS,  /* with another value the same tensors are another function */
    CONFIG_TRAINING, /* training alone depends on it */
};

/* A key of transformers' config.json. */
struct config_row {
    const char *name, *also; /* its name there, and another one or NULL */
    const char *key;         /* of the job; NULL: the network has the value `def` alone */
    const char *def;         /* transformers' default, as a job file would write it */
    enum config_kind kind;
    int is_vocabulary;
    const char *const *alike; /* other values that mean `def`, NULL at the end; or NULL */
};

/* A network that transformers has, too, with the same names of tensors (job/pretrained.h). */
struct model_config {
    const char *type, *class_name; /* "gpt2", "GPT2LMHeadModel" */
    const struct config_row *row;
    int n_rows;
};

/* The differences between the files of other programs and ours, so that model.init.path can name
 * such files, too. */
struct model_file {
    const char *prefix;         /* may be missing from all names */
    const char *const *ignored; /* ends of the names of tensors to ignore; NULL at the end */
    const char *tied,
        *tied_to; /* two names of what may be one parameter here, of the second name */
    const struct model_config *config; /* NULL: transformers has no such network */
};

struct model_arch {
    struct option_group group;
    void (*build)(struct net *m, const void *options); /* from samples to logits */
    const struct model_file *file;                     /* NULL: there is no difference */
    int takes_config; /* 1: config.json says which of its keys a job leaves out */
    int packs; /* 1: it reads packed documents (data.pack): causal attention keeps them apart,
                * and positions begin anew; `build` may refuse them all the same */
};

#define X(name) extern const struct model_arch arch_##name;
ARCH_LIST(X)
#undef X

extern const struct option_group *const model_archs[]; /* all of them; NULL at the end */

/* kaiming is kaiming_normal, and xavier is xavier_uniform. */
#define INIT_LIST(X)                           \
    X(INIT_PYTORCH, "pytorch")                 \
    X(INIT_NORMAL, "normal")                   \
    X(INIT_FILE, "file")                       \
    X(INIT_KAIMING, "kaiming")                 \
    X(INIT_XAVIER, "xavier")                   \
    X(INIT_KAIMING_NORMAL, "kaiming_normal")   \
    X(INIT_KAIMING_UNIFORM, "kaiming_uniform") \
    X(INIT_XAVIER_NORMAL, "xavier_normal")     \
    X(INIT_XAVIER_UNIFORM, "xavier_uniform")   \
    X(INIT_TRUNC_NORMAL, "trunc_normal")       \
    X(INIT_RANDOM, "random")                   \
    X(INIT_IMPORT, "import")
#define MISSING_LIST(X) X(MISSING_ERROR, "error") X(MISSING_DRAW, "draw")
#define LOSS_LIST(X)                       \
    X(LOSS_CROSS_ENTROPY, "cross_entropy") \
    X(LOSS_MSE, "mse")                     \
    X(LOSS_L1, "l1")                       \
    X(LOSS_BCE, "bce")                     \
    X(LOSS_HUBER, "huber")                 \
    X(LOSS_KL, "kl")                       \
    X(LOSS_FOCAL, "focal")                 \
    X(LOSS_CONTRASTIVE, "contrastive")     \
    X(LOSS_DPO, "dpo")                     \
    X(LOSS_OUTPUT, "output")

#define BASE_LIST(X)             \
    X(BASE_FLOAT32, "float32")   \
    X(BASE_BFLOAT16, "bfloat16") \
    X(BASE_INT8, "int8")

enum init_name { INIT_LIST(WORD_VALUE) };
enum init_missing { MISSING_LIST(WORD_VALUE) };
enum loss { LOSS_LIST(WORD_VALUE) };
enum base { BASE_LIST(WORD_VALUE) };

struct init_options {
    enum init_name name;
    double std;                /* INIT_NORMAL, INIT_TRUNC_NORMAL: of the weights; biases are 0 */
    const char *path;          /* INIT_FILE: of weights (ckpt/st_set.h), absolute; else NULL */
    enum init_missing missing; /* INIT_FILE: of what the file lacks */
};

enum { LORA_ALPHA = 8 }; /* the default, which is PEFT's */

/* Low-rank adapters (model/lora.h). */
struct lora_options {
    int64_t rank; /* 0: there are none */
    double alpha, dropout;
    const char *match; /* patterns of layers' names, separated by ", "; NULL: all linear ones but
                        * the last */
    const char *path;  /* of adapters to begin from, absolute; NULL: they begin anew */
    int rslora;
};

/* The section `model` of a job, and what the loss takes from the section `train`. */
struct model_options {
    const struct model_arch *kind;
    const void *options; /* of kind: its own struct */
    struct init_options init;
    struct lora_options lora;
    enum base base;         /* the form of frozen weights in memory (program/base.h) */
    int sync_batch_norm;    /* statistics over all ranks */
    enum loss loss;         /* of the first output that model.loss names */
    const char *losses;     /* the whole of model.loss (model/losses.h); NULL: `loss` alone */
    int contrasts;          /* 1: one of them is contrastive, of the samples of a global batch */
    int64_t global_batch;   /* train.global_batch */
    double label_smoothing; /* [0, 1) */
    /* One for each class, none negative, not all 0; n is 0: each class weighs 1. */
    struct option_numbers class_weights;
};

/* A training graph may take these over all ranks. */
enum { MODEL_SYNC_NORMS = 1, MODEL_SYNC_LOSS = 2 };

/* The forward graph with its loss for `batch` samples (0 is legal); its inputs are the fields of
 * `spec`, by their numbers.  sync: MODEL_SYNC_NORMS: the statistics of batch norms,
 * MODEL_SYNC_LOSS: the rows that a contrastive loss compares. Fails with ERR_CONFIG when the
 * samples do not fit the architecture or the loss: says which layer and why. */
int model_build(const struct model_options *o, const struct sample_spec *spec, int64_t batch,
                int training, int sync, struct graph **out, struct err *err);

/* 1: a validation of this network counts the targets among the five largest logits.  It does with
 * the loss cross_entropy and more than five classes. */
int model_counts_top5(const struct model_options *o, const struct graph *g);

#endif
