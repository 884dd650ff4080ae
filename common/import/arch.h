/* arch - the entry `import` of model.arch: a network that model.import names, made elsewhere.
 *
 * The job owns the network (job/imported.h): the driver reads it from the file, and all others get
 * it packed, beside the job.
 *
 * Threads: any; the entry is constant. */
#ifndef IMPORT_ARCH_H
#define IMPORT_ARCH_H

#include "import/network.h"
#include "model/model.h"

struct import_options {
    const char *path;   /* as the job names it, absolute */
    const char *inputs; /* {GRAPH_INPUT: FIELD}, in YAML's flow style; "{}": in order */
    int64_t context;    /* tokens of a sample, of a folder's network; 0: as the network says */
    /* No rows fill these (job/imported.h). */
    struct import_network *network; /* NULL until the job has it */
    const void *packed;             /* the same as bytes (import/pack.h), in the job's arena */
    size_t n_packed;
};

extern const struct model_arch arch_import;

/* The names of a folder's files that differ from the network's; NULL: `o` has another network. */
const struct model_file *import_file_of(const struct model_options *o);

/* The options of an imported network; NULL: `o` has another architecture. */
const struct import_options *import_options_of(const struct model_options *o);

/* The graph for evaluation with all that the network gives, and without a loss.  value[n_outputs]
 * gets the graph value of each output, NO_VALUE if it is no tensor. */
int import_build_outputs(const struct model_options *o, const struct sample_spec *spec,
                         int64_t batch, int *value, struct graph **out, struct err *err);

/* The name of output k in messages and in model.loss: outputK, if the export has none. */
const char *import_output_name(const struct import_network *n, int k, char room[32]);

/* Compare the graphs of two batch sizes, since sizes of the batch at export may stand in the file
 * as plain numbers.  ERR_UNSUPPORTED names the node that truly depends on it.  No effect for
 * other architectures. */
int import_check_batch(const struct model_options *o, const struct sample_spec *spec,
                       struct err *err);

#endif
