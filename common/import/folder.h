/* folder - reads a network from a folder of Hugging Face: transformers' config.json.
 *
 * The network has the nodes that an export of the model would have (import/network.h), with the
 * names of its state dict, for samples of `context` tokens: input_ids [batch, context] in, logits
 * out.  A batch of any size is open.  Families of language models: folder_families in folder.c.
 *
 * The weights are not read here: model.safetensors, or its shards with their index, are files of
 * ckpt/st_set.h, which state/weights.c compares with the network.
 *
 * A key of config.json that is unknown here is refused by its name, since it could change numbers.
 *
 * Threads: any.
 * Errors:  ERR_IO (missing, unreadable), ERR_CONFIG (damaged JSON; a key that is missing, has
 *          another type, or is out of bounds), ERR_UNSUPPORTED (a family, a key or a form of it
 * that dptrain lacks); they begin with the path. */
#ifndef IMPORT_FOLDER_H
#define IMPORT_FOLDER_H

#include "import/network.h"

int folder_is(const char *path); /* 1: there is a folder at this path */

/* context: tokens of a sample; 0: max_position_embeddings, and FOLDER_MOST_CONTEXT at most. */
enum { FOLDER_MOST_CONTEXT = 1024, FOLDER_CONTEXT_LIMIT = 1 << 20 };
int folder_read(const char *path, int64_t context, struct import_network **out, struct err *err);

/* The same from config.json's text; `path` is the folder's, for messages. */
int folder_parse(const char *text, size_t len, const char *path, int64_t context,
                 struct import_network **out, struct err *err);

#endif
