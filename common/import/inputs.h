/* inputs - from the fields of the samples to the inputs of an imported network.
 *
 * An input takes the field that model.inputs names for it, else the field of the same name.  The
 * fields that are left feed the inputs that are left, in order.  No field may be left over, and
 * only an input that no node reads may go without one.
 *
 * Threads: pure. */
#ifndef IMPORT_INPUTS_H
#define IMPORT_INPUTS_H

#include "import/arch.h"

/* For an OPT_TREE: check the text of model.inputs. */
int import_inputs_check(const char *text, size_t len, size_t *at, struct err *err);

/* field[n_inputs] gets the number of the field of each input, -1 for none.  Fails with ERR_CONFIG,
 * which names the inputs. */
int import_inputs_find(const struct import_options *o, const struct sample_spec *s, int *field,
                       struct err *err);

/* For dataset_request.limit; `arg` is the struct model_options of an imported network: the numbers
 * from 0 to the last row of each table that is read by this field, and of the input's type. */
void import_inputs_limit(const void *arg, const struct sample_spec *s, int field, int64_t *least,
                         int64_t *most);

/* The tokens of a sample, and how many different ones, if the network's first input is whole
 * numbers [batch, tokens]; 0: it is not, or they are not known. */
int64_t import_inputs_context(const struct import_options *o);
int64_t import_inputs_vocab(const struct import_options *o);

/* Append a line for each field: its shape and type, and the input that it feeds. */
struct buf;
void import_inputs_print(const struct import_options *o, const struct sample_spec *s,
                         struct buf *out);

#endif
