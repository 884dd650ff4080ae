/* ckpt_impl - what ckpt.c, state.c, load.c and draft.c share: the files of a generation, and
 * putting them in place.
 *
 * Only files in ckpt/ include this header.
 *
 * Threads: as ckpt.h. */
#ifndef CKPT_CKPT_IMPL_H
#define CKPT_CKPT_IMPL_H

#include "base/hash.h"
#include "ckpt/ckpt.h"

/* The files beside those of tensors.  ckpt_is_alone knows all. */
#define CKPT_STATE          "state.json"
#define CKPT_CONFIG         "config.json"
#define CKPT_ADAPTER_CONFIG "adapter_config.json"

/* The files of tensors, in the order in which they are written.  The last two are optional. */
enum ckpt_file { CKPT_MODEL, CKPT_OPTIMIZER, CKPT_AVERAGE, CKPT_ADAPTER, CKPT_FILES };

int ckpt_has_file(const struct ckpt_content *c, enum ckpt_file file);
const struct st_tensor *ckpt_tensors(const struct ckpt_content *c, enum ckpt_file file, int *n);
/* The names of classes in the metadata of the file, or NULL. */
const char *ckpt_names_in(const struct ckpt_content *c, enum ckpt_file file);
const char *ckpt_file_name(enum ckpt_file file);               /* "model.safetensors" */
char *ckpt_file_path(const char *folder, enum ckpt_file file); /* for free() */
/* A file that is not there is damage of its generation: ERR_CORRUPT. */
int ckpt_check_there(const char *path, struct err *err);

/* 1: the folder has a checkpoint's files, and nothing else that would be lost with them. */
int ckpt_is_alone(const char *folder);
/* Remove what a save has made, unless it is a folder where somebody put other files. */
void ckpt_remove(const char *path);

/* Make the new folder `aside`, in the folder of checkpoints.  Remains of the same name are removed.
 */
int ckpt_make_aside(const char *run_dir, const char *aside, struct err *err);

/* Write config.json and adapter_config.json, if c has them, and state.json, with the hashes of the
 * files, and fsync the folder. */
int ckpt_write_state(const char *folder, const struct ckpt_content *c, const struct hash128 *hash,
                     struct err *err);

/* The hashes of a generation's files, as its state.json has them.  "": it has none of that file. */
struct ckpt_hashes {
    char text[CKPT_FILES][HASH_TEXT_LEN];
};
int ckpt_read_state(const char *folder, struct ckpt_state *s, struct ckpt_hashes *of,
                    struct err *err);
/* The list of the best steps in it.  *n is -1 if the version that wrote it kept none there. */
int ckpt_read_best(const char *folder, int64_t best[CKPT_MOST_BEST], int *n, struct err *err);

/* The folder `aside` is complete and on disk: make it the generation of c's step, as ckpt_save
 * does.  If that fails, `aside` is removed. */
int ckpt_place(const char *run_dir, const char *aside, const struct ckpt_content *c, int keep,
               char **path, struct err *err);

#endif
