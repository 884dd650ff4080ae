/* ckpt - the files of a generation, and saving one.
 *
 * ckpt.h tells the order of a save and the failures that it survives.  state.c has state.json,
 * generations.c the folder of all generations, load.c the way back. */
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/beside.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"
#include "ckpt/generations.h"
#include "ckpt/links.h"
#include "ckpt/owner.h"

int ckpt_has_file(const struct ckpt_content *c, enum ckpt_file file)
{
    int n;

    (void)ckpt_tensors(c, file, &n);
    return file < CKPT_AVERAGE || n > 0;
}

const char *ckpt_names_in(const struct ckpt_content *c, enum ckpt_file file)
{
    return file == CKPT_OPTIMIZER || file == CKPT_ADAPTER ? NULL : c->class_names;
}

const struct st_tensor *ckpt_tensors(const struct ckpt_content *c, enum ckpt_file file, int *n)
{
    switch (file) {
    case CKPT_MODEL:
        *n = c->n_model;
        return c->model;
    case CKPT_OPTIMIZER:
        *n = c->n_optimizer;
        return c->optimizer;
    case CKPT_AVERAGE:
        *n = c->n_average;
        return c->average;
    case CKPT_ADAPTER:
    case CKPT_FILES:
        break;
    }
    *n = c->n_adapter;
    return c->adapter;
}

const char *ckpt_file_name(enum ckpt_file file)
{
    static const char *const name[CKPT_FILES] = {[CKPT_MODEL] = "model.safetensors",
                                                 [CKPT_OPTIMIZER] = "optimizer.safetensors",
                                                 [CKPT_AVERAGE] = "model_average.safetensors",
                                                 [CKPT_ADAPTER] = "adapter_model.safetensors"};

    return name[file];
}

char *ckpt_file_path(const char *folder, enum ckpt_file file)
{
    return xasprintf("%s/%s", folder, ckpt_file_name(file));
}

int ckpt_check_there(const char *path, struct err *err)
{
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    err_sys(err, errno, "%s", path);
    return err->code = ERR_CORRUPT;
}

/* ---- what may be removed ---- */

static int is_of_checkpoint(DIR *d, const char *name)
{
    int known = !strcmp(name, CKPT_STATE) || !strcmp(name, CKPT_CONFIG) ||
                !strcmp(name, CKPT_ADAPTER_CONFIG);
    struct stat st;

    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return 1;
    for (int i = 0; i < CKPT_FILES; i++)
        known |= !strcmp(name, ckpt_file_name((enum ckpt_file)i));
    return (known || beside_is_name(name)) &&
           fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode);
}

int ckpt_is_alone(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    int alone = d != NULL;

    while (d && (entry = readdir(d)))
        alone &= is_of_checkpoint(d, entry->d_name);
    if (d)
        closedir(d);
    return alone;
}

/* 1: a folder where somebody put other files.  A link to a folder is none. */
static int is_shared(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && !ckpt_is_alone(path);
}

void ckpt_remove(const char *path)
{
    struct err ignored; /* a later save or driver tries again */

    if (!is_shared(path))
        (void)file_remove_folder(path, &ignored);
}

/* ---- writing ---- */

enum { MOST_WRITES = 2 };

/* Write the file, and read it back.  ERR_CORRUPT: the disk does not give back what was written. */
static int write_and_read(const char *path, const struct ckpt_content *c, enum ckpt_file file,
                          struct hash128 *hash, struct err *err)
{
    int n;
    const struct st_tensor *tensor = ckpt_tensors(c, file, &n);
    const int rc = st_write(path, tensor, n, ckpt_names_in(c, file), hash, err);

    return rc == 0 ? file_check_hash(path, *hash, err) : rc;
}

static int ckpt_write_file(const char *folder, const struct ckpt_content *c, enum ckpt_file file,
                           struct hash128 *hash, struct err *err)
{
    char *path = ckpt_file_path(folder, file);
    int n_damaged = 0, rc;

    do {
        rc = n_damaged > 0 && unlink(path) < 0 ? err_sys(err, errno, "%s", path) : 0;
        if (rc == 0)
            rc = write_and_read(path, c, file, hash, err);
    } while (rc == ERR_CORRUPT && ++n_damaged < MOST_WRITES);
    if (n_damaged > 0 && c->told.damaged)
        c->told.damaged(c->told.arg, ckpt_file_name(file), rc == 0);
    if (rc == ERR_CORRUPT)
        rc = err->code = ERR_IO; /* a failed save, not a damaged generation */
    free(path);
    return rc;
}

static int write_files(const char *folder, const struct ckpt_content *c, struct err *err)
{
    struct hash128 hash[CKPT_FILES];
    int rc = 0;

    for (int i = 0; i < CKPT_FILES && rc == 0; i++)
        if (ckpt_has_file(c, (enum ckpt_file)i))
            rc = ckpt_write_file(folder, c, (enum ckpt_file)i, &hash[i], err);
    return rc == 0 ? ckpt_write_state(folder, c, hash, err) : rc;
}

/* A generation may be missing in the list: its save failed, or it was damaged and set aside.  0,
 * CKPT_UNLINKED, or an error. */
static int point_best(const char *run_dir, const char *folder, const struct ckpt_content *c,
                      struct err *err)
{
    for (int i = 0; i < c->n_best; i++) {
        char name[GENERATION_NAME], *path;
        int is_there;

        generation_name(c->best[i], name);
        path = xasprintf("%s/%s", folder, name);
        is_there = access(path, F_OK) == 0;
        free(path);
        if (is_there)
            return links_point("best", run_dir, folder, name, err);
    }
    return 0;
}

static int is_among_best(const struct ckpt_content *c, int64_t step)
{
    int n = c->n_best;

    while (n > 0 && c->best[n - 1] != step)
        n--;
    return n > 0;
}

/* 1: the generation stays, however old it is. */
static int ckpt_stays(const struct ckpt_content *c, int64_t step)
{
    return (c->back_to > 0 && step == c->back_to) || is_among_best(c, step);
}

/* Remove the generations beyond `keep`, but never `name`, one that c names, nor one where somebody
 * put other files.  A failure here loses nothing: a later save tries again. */
static void ckpt_prune(const char *run_dir, const char *folder, const char *name,
                       const struct ckpt_content *c, int keep)
{
    struct generation *g = NULL;
    struct err err;
    int n, kept = 1;

    if (owner_check(run_dir, &err) < 0 || generations_list(folder, &g, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++) {
        char *path;

        if (!strcmp(g[i].name, name) || ++kept <= keep || ckpt_stays(c, g[i].step))
            continue;
        path = xasprintf("%s/%s", folder, g[i].name);
        if (!is_shared(path)) {
            links_unpoint(folder, g[i].name);
            ckpt_remove(path);
        }
        free(path);
    }
    free(g);
}

/* A former generation of this name is at `path`, and about to be removed.  With files of somebody
 * else it is set aside instead. */
static void ckpt_spare(const char *folder, const char *path, const char *name)
{
    struct err ignored; /* then ckpt_remove leaves it where it is */

    if (is_shared(path))
        (void)generations_set_aside(folder, path, "replaced", name, &ignored);
}

/* Do what an exchange that a crash cut, or a failure, has left to do.  old: of step-N.old. */
static void ckpt_mend(const char *folder, const char *old, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);

    if (access(old, F_OK) == 0) {
        if (access(path, F_OK) == 0) {
            ckpt_spare(folder, old, name);
            ckpt_remove(old);
        }
        file_exchange_mend(path);
    }
    free(path);
}

/* Once the new folder is in place, the folder aside is the old one, which must not be removed
 * before the exchange is on disk.  0, CKPT_UNLINKED, or an error. */
static int ckpt_folder_place(const char *run_dir, const char *folder, const char *aside,
                             const char *name, struct err *err)
{
    char *path = xasprintf("%s/%s", folder, name), *old = xasprintf("%s.old", path);
    int is_placed = 0;
    int rc = owner_check(run_dir, err); /* another driver may have come while the files were
                                           written */

    if (rc == 0) {
        ckpt_mend(folder, old, name);
        rc = file_exchange(aside, path, err);
        is_placed = rc == 0;
    }
    if (is_placed)
        ckpt_spare(folder, aside, name);
    if (rc == 0)
        rc = file_sync_folder(folder, err);
    if (rc == 0)
        rc = links_point("latest", run_dir, folder, name, err);
    if (rc >= 0 || !is_placed)
        ckpt_remove(aside); /* a failed save gives its space back */
    free(old);
    free(path);
    return rc;
}

int ckpt_place(const char *run_dir, const char *aside, const struct ckpt_content *c, int keep,
               char **path, struct err *err)
{
    char *folder = generations_folder(run_dir);
    char name[GENERATION_NAME];
    int rc = c->beside ? beside_copy(c->beside, aside, err) : 0, unlinked = 0;

    generation_name(c->state.step, name);
    if (rc < 0)
        ckpt_remove(aside);
    else
        rc = ckpt_folder_place(run_dir, folder, aside, name, err);
    if (rc >= 0) {
        unlinked = rc;
        rc = point_best(run_dir, folder, c, err);
    }
    if (rc == 0)
        rc = unlinked;
    if (rc >= 0) {
        ckpt_prune(run_dir, folder, name, c, keep);
        *path = xasprintf("%s/%s", folder, name);
    }
    free(folder);
    return rc;
}

int ckpt_make_aside(const char *run_dir, const char *aside, struct err *err)
{
    char *folder = generations_folder(run_dir);
    int rc = file_make_folder(folder, err);

    if (rc == 0)
        rc = file_sync_folder(run_dir, err); /* whoever made the folder may not have synced it */
    if (rc == 0)
        rc = owner_check(run_dir, err);
    if (rc == 0 && is_shared(aside))
        rc = err_set(err, ERR_IO, "%s holds other files than a checkpoint's; move it away", aside);
    if (rc == 0)
        rc = file_remove_folder(aside, err);
    if (rc == 0 && mkdir(aside, 0777) < 0) /* a link put there meanwhile is not followed */
        rc = err_sys(err, errno, "%s: cannot make this folder", aside);
    free(folder);
    return rc;
}

int ckpt_save(const char *run_dir, const struct ckpt_content *c, int keep, char **path,
              struct err *err)
{
    char *aside = xasprintf("%s/checkpoints/step.%s.tmp", run_dir, owner_own_id());
    struct err ignored;
    int rc = ckpt_make_aside(run_dir, aside, err);

    if (rc == 0) {
        rc = write_files(aside, c, err);
        if (rc < 0)
            (void)file_remove_folder(aside, &ignored);
        else
            rc = ckpt_place(run_dir, aside, c, keep, path, err);
    }
    free(aside);
    return rc;
}

/* 1: a save makes such an entry, and a save that ends removes it. */
static int is_unfinished(const char *name)
{
    size_t len = strlen(name);

    return (!strncmp(name, "step.", 5) || !strncmp(name, "latest.", 7) ||
            !strncmp(name, "best.", 5) || !strncmp(name, "link.", 5)) &&
           len > 4 && !strcmp(name + len - 4, ".tmp");
}

/* 1: step-N.old (file_exchange), and step-N. */
static int is_old(const char *name, char step[GENERATION_NAME])
{
    const size_t len = strlen(name);
    int64_t at;

    if (len < 4 || len >= GENERATION_NAME || strcmp(name + len - 4, ".old") != 0)
        return 0;
    snprintf(step, GENERATION_NAME, "%.*s", (int)len - 4, name);
    return generation_step(step, &at);
}

void ckpt_clear(const char *run_dir)
{
    char *folder = generations_folder(run_dir);
    DIR *d = opendir(folder);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        char *path = xasprintf("%s/%s", folder, entry->d_name), step[GENERATION_NAME];

        if (is_unfinished(entry->d_name))
            ckpt_remove(path);
        if (is_old(entry->d_name, step))
            ckpt_mend(folder, path, step);
        free(path);
    }
    if (d)
        closedir(d);
    free(folder);
}
