/* export - a trained network as a file of ONNX, for programs that serve it.
 *
 * The model is the graph for evaluation in float32, node by node: dropout does nothing, and batch
 * norm takes its running statistics.  It takes any number of samples.  Parameters have their names
 * in model.safetensors.
 *
 * Inputs are the numbers that the network takes, that is, after data.normalize; the metadata say
 * what was done to the data.  Images are [batch,C,H,W].  Those of an imported network are its own,
 * by name, order and type, and so are its outputs.  Other networks have one input, `input` or
 * `input_ids`, and one output, `output` or `logits`, whose shape is that of predictions.
 *
 * Threads: one at a time. */
#ifndef EXPORT_EXPORT_H
#define EXPORT_EXPORT_H

#include "base/buf.h"
#include "base/err.h"
#include "ckpt/ckpt.h"
#include "data/dataset.h"
#include "model/model.h"

struct export_request {
    const struct model_options *model;
    const struct dataset *data; /* of training: its samples, and how they were scaled */
    const struct st_file *weights;
    int64_t step;
    const char *class_names; /* config/names.h, or "[]" */
};

/* Write the model to the new file `path`, and append to `told` what it takes and gives: text, or
 * with is_json an object.  ERR_UNSUPPORTED names each operator that ONNX lacks, before anything is
 * written; ERR_CONFIG: the weights are those of another network, or `path` is there. */
int export_onnx(const struct export_request *r, const char *path, struct err *err);

/* Copy the weights' file, a state dict under PyTorch's names, to the new file `path`. */
int export_state_dict(const char *weights, const char *path, struct err *err);

#endif
