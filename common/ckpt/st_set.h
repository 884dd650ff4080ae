/* st_set - the tensors of one model, in one safetensors file or in several with an index, as
 * Hugging Face's libraries write them:
 *
 *     FOLDER/model.safetensors                   one file
 *     FOLDER/model.safetensors.index.json        {"weight_map": {NAME: FILE, ...}, "metadata": ...}
 *     FOLDER/model-00001-of-00003.safetensors    FILE, beside the index
 *
 * All files are opened and their headers checked at once.  The index and the files must agree:
 * each tensor is in the file that the index names, and in no other.
 *
 * Life:    st_set_open -> st_set_find, st_set_read ... -> st_set_close.
 * Threads: as safetensors.h.
 * Errors:  as safetensors.h; ERR_CORRUPT, too, if index and files do not agree. */
#ifndef CKPT_ST_SET_H
#define CKPT_ST_SET_H

#include "ckpt/safetensors.h"

enum { ST_SET_MOST_FILES = 4096 };

struct st_set; /* opaque */

/* path: a safetensors file, an index (it ends in .json), or a folder that holds model.safetensors
 * or else model.safetensors.index.json. */
int st_set_open(const char *path, struct st_set **out, struct err *err);
void st_set_close(struct st_set *s); /* NULL is fine */

int st_set_count(const struct st_set *s);
const struct st_tensor *st_set_at(const struct st_set *s, int i);
const struct st_tensor *st_set_find(const struct st_set *s, const char *name); /* or NULL */

/* Read n_bytes of a tensor of the set, from byte `from` on. */
int st_set_read(const struct st_set *s, const struct st_tensor *t, size_t from, void *out,
                size_t n_bytes, struct err *err);

#endif
