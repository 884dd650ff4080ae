/* outputs - a network's outputs for the validation set, as the files of this room find them: the
 * samples, the names of their classes, and the stepper whose programs compute the outputs.
 *
 * Life:    the owner fills in a struct outputs, whose members are all borrowed, once the data are
 *          open.
 * Threads: the engine's. */
#ifndef JUDGE_OUTPUTS_H
#define JUDGE_OUTPUTS_H

#include "data/dataset.h"
#include "job/job.h"
#include "step/step.h"

struct outputs {
    const struct job *job;
    const struct sample_spec *spec;
    const struct dataset *set;     /* the validation set; NULL: there is none to judge by */
    const char *const *class_name; /* [n_class_names]; NULL: the classes have no names */
    int64_t n_class_names;
    struct shape row;     /* the logits of one sample: [C], or [T, V] for a model of tokens */
    struct stepper *step; /* its programs and its coll are there once the ranks have formed */
    /* Tell the user. */
    void (*warn)(void *arg, const char *text);
    void *arg;
};

/* The field of a sample with which the outputs are compared. */
const struct sample_field *outputs_target(const struct outputs *o);

/* The name of class k, or of label or value k; NULL: it has none. */
const char *outputs_class_name(const struct outputs *o, int64_t k);

/* 1: the outputs are real numbers, so there is no accuracy. */
int outputs_are_numbers(const struct outputs *o);

/* Copy those that the program has just computed for n samples, of n_outputs each, to `to`, in the
 * type in which layers compute.  Waits for a device. */
int outputs_read(const struct outputs *o, struct program *p, int64_t n, int64_t n_outputs, void *to,
                 struct err *err);

#endif
