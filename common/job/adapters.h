/* adapters - PEFT's adapter_config.json, of low-rank adapters (model/lora.h): the one that a
 * checkpoint has, and the one beside the adapters that a job begins from.
 *
 * Threads: any.
 * Errors:  ERR_CONFIG: what the file says, and what the job says. */
#ifndef JOB_ADAPTERS_H
#define JOB_ADAPTERS_H

#include "base/buf.h"
#include "base/err.h"
#include "model/model.h"

struct layout; /* program/layout.h */

/* Refuse keys of model.lora that contradict each other or model.init. */
int adapters_check_keys(const struct model_options *m, struct err *err);
/* A warning about keys that have no effect, for free(); NULL: there is none. */
char *adapters_doubt(const struct lora_options *o);

/* Append the text with which PEFT loads the adapters of a model with this layout. */
void adapters_write(const struct lora_options *o, const struct layout *l, struct buf *out);

/* The path of the adapters' tensors: o->path, or the file in that folder; for free(). */
char *adapters_path(const struct lora_options *o);

/* Refuse adapters that would be another function here than in PEFT, by the adapter_config.json
 * beside them: another rank, factor, or kind of adapter.  Fails if there is no such file. */
int adapters_check(const struct lora_options *o, struct err *err);

#endif
