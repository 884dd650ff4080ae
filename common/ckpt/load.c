/* load - opening a generation: the one in a folder, or the newest of a run that is undamaged.
 *
 * ckpt.h tells what counts as damage, and what becomes of a damaged generation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"
#include "ckpt/generations.h"
#include "ckpt/links.h"
#include "ckpt/owner.h"

/* want: the hash that state.json has of the file. */
static int open_checked(const char *folder, enum ckpt_file file, const struct ckpt_hashes *want,
                        struct st_file **out, struct err *err)
{
    char *path = ckpt_file_path(folder, file);
    char seen[HASH_TEXT_LEN];
    struct hash128 hash;
    int rc = ckpt_check_there(path, err);

    if (rc == 0)
        rc = st_open(path, out, err);
    if (rc == 0)
        rc = st_hash(*out, &hash, err);
    if (rc == 0) {
        hash_to_text(hash, seen);
        if (strcmp(seen, want->text[file]) != 0)
            rc = err_set(err, ERR_CORRUPT, "%s: its content has hash %s, " CKPT_STATE " says %s",
                         path, seen, *want->text[file] ? want->text[file] : "nothing");
    }
    free(path);
    return rc;
}

int ckpt_load_folder(const char *folder, struct ckpt **out, struct err *err)
{
    struct ckpt *c = xcalloc(1, sizeof *c);
    struct ckpt_hashes want;
    int rc = ckpt_read_state(folder, &c->state, &want, err);

    if (rc == 0)
        rc = open_checked(folder, CKPT_MODEL, &want, &c->model, err);
    if (rc == 0)
        rc = open_checked(folder, CKPT_OPTIMIZER, &want, &c->optimizer, err);
    if (rc == 0 && *want.text[CKPT_AVERAGE])
        rc = open_checked(folder, CKPT_AVERAGE, &want, &c->average, err);
    if (rc < 0) {
        ckpt_close(c);
        return rc;
    }
    c->path = xstrdup(folder);
    *out = c;
    return 0;
}

/* Tell of a damaged generation. */
static void tell_damage(void (*warn)(void *, const char *), void *arg, const struct err *why)
{
    char *text = xasprintf("skipping a damaged checkpoint: %s", why->msg);

    warn(arg, text);
    free(text);
}

/* 0: a folder in the place of a link (links_add_copies). */
static int is_generation(const char *name)
{
    int64_t step;

    return generation_step(name, &step);
}

/* A failure costs the link alone. */
static void link_to(const char *which, const char *run_dir, const char *folder, const char *name)
{
    struct err ignored;

    if (is_generation(name))
        (void)links_point(which, run_dir, folder, name, &ignored);
}

/* The first n generations are damaged, and the next one, `good`, is not.  If a rename fails, it is
 * tried again when the run is resumed again.  A damaged folder in the place of a link stays. */
static void set_aside(const char *run_dir, const char *folder, const struct generation *g, int n,
                      const char *good)
{
    struct err ignored;

    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", folder, g[i].name);

        links_unpoint(folder, g[i].name);
        if (is_generation(g[i].name))
            (void)generations_set_aside(folder, path, "damaged", g[i].name, &ignored);
        free(path);
    }
    if (n)
        link_to("latest", run_dir, folder, good);
}

static int is_own(const char *run_dir)
{
    struct owner o;
    struct err ignored;

    return owner_read(run_dir, &o, &ignored) == 0 && owner_is_self(&o);
}

static int load_first_good(const char *run_dir, const char *folder, const struct generation *g,
                           int n, void (*warn)(void *, const char *), void *arg, struct ckpt **out,
                           struct err *err)
{
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", folder, g[i].name);
        int rc = ckpt_load_folder(path, out, err);

        free(path);
        if (rc == 0 && is_own(run_dir))
            set_aside(run_dir, folder, g, i, g[i].name);
        if (rc == 0)
            return 0;
        if (rc != ERR_CORRUPT)
            return rc;
        tell_damage(warn, arg, err);
    }
    return err_set(err, ERR_IO,
                   "%s holds no complete checkpoint (%d looked at); restore one, or start anew in "
                   "another --run-dir",
                   folder, n);
}

/* ---- the best ---- */

/* The generations, and the folders that a copy of the run has in the places of links. */
static int list_all(const char *folder, struct generation **g, int *n, struct err *err)
{
    const int rc = generations_list(folder, g, n, err);

    if (rc == 0)
        links_add_copies(folder, g, n);
    return rc;
}

/* A run of a version that kept no list of the best. */
static int find_linked(const char *folder, char **path, struct err *err)
{
    char *best = xasprintf("%s/best", folder), *named;
    struct ckpt_hashes of;
    struct ckpt_state s;
    int rc = CKPT_NONE;

    named = ckpt_named_by(best);
    if (named && ckpt_is_folder(named))
        rc = 0;
    else if (!named && ckpt_read_state(best, &s, &of, err) == 0)
        rc = err_set(err, ERR_CONFIG,
                     "%s is a folder, not a link, and no checkpoint beside it says which is the "
                     "best; it holds that of step %lld: give --checkpoint and its path",
                     best, (long long)s.step);
    if (rc == 0)
        *path = named;
    else
        free(named);
    free(best);
    return rc;
}

/* The first of the best steps that is among the generations. */
static int find_listed(const char *folder, const struct generation *g, int n_generations,
                       const int64_t *best, int n, char **path)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_generations; k++)
            if (g[k].step == best[i]) {
                *path = xasprintf("%s/%s", folder, g[k].name);
                return 0;
            }
    return CKPT_NONE;
}

/* The newest generation whose state.json can be read has the list. */
int ckpt_find_best(const char *run_dir, char **path, struct err *err)
{
    char *folder = generations_folder(run_dir);
    int64_t best[CKPT_MOST_BEST];
    struct generation *g = NULL;
    int n = 0, n_best = -1, rc = list_all(folder, &g, &n, err);

    for (int i = 0, is_read = 0; rc == 0 && i < n && !is_read; i++) {
        char *from = xasprintf("%s/%s", folder, g[i].name);
        struct err ignored;

        is_read = ckpt_read_best(from, best, &n_best, &ignored) == 0;
        free(from);
    }
    if (rc == 0)
        rc = n_best < 0 ? find_linked(folder, path, err)
                        : find_listed(folder, g, n, best, n_best, path);
    free(g);
    free(folder);
    return rc;
}

/* *s: of the newest generation whose state.json can be read; all zero: there is none. */
static void read_newest_state(const char *run_dir, struct ckpt_state *s)
{
    char *folder = generations_folder(run_dir);
    struct generation *g = NULL;
    struct err ignored;
    int n = 0, is_read = 0;

    (void)list_all(folder, &g, &n, &ignored);
    for (int i = 0; i < n && !is_read; i++) {
        char *from = xasprintf("%s/%s", folder, g[i].name);
        struct ckpt_hashes of;

        is_read = ckpt_read_state(from, s, &of, &ignored) == 0;
        free(from);
    }
    if (!is_read)
        *s = (struct ckpt_state){0};
    free(g);
    free(folder);
}

int ckpt_n_ranks(const char *run_dir)
{
    struct ckpt_state s;

    read_newest_state(run_dir, &s);
    return s.n_ranks;
}

int64_t ckpt_steps_per_epoch(const char *run_dir)
{
    struct ckpt_state s;

    read_newest_state(run_dir, &s);
    return s.steps_per_epoch;
}

/* ---- the newest ---- */

static const char *name_in(const char *path) { return strrchr(path, '/') + 1; }

/* The folders in the places of the links are gone: make the links. */
static void link_again(const char *run_dir, const char *folder, const struct ckpt *newest)
{
    char *best = NULL;
    struct err ignored;

    link_to("latest", run_dir, folder, name_in(newest->path));
    if (ckpt_find_best(run_dir, &best, &ignored) != 0)
        return;
    link_to("best", run_dir, folder, name_in(best));
    free(best);
}

int ckpt_load_latest(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg,
                     struct ckpt **out, struct err *err)
{
    char *folder = generations_folder(run_dir);
    struct generation *g = NULL;
    int n = 0, n_settled = is_own(run_dir) ? links_settle(folder, warn, arg) : 0, rc;

    rc = list_all(folder, &g, &n, err);
    if (rc == 0)
        rc = n ? load_first_good(run_dir, folder, g, n, warn, arg, out, err) : CKPT_NONE;
    if (rc == 0 && n_settled)
        link_again(run_dir, folder, *out);
    free(g);
    free(folder);
    return rc;
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    st_close(c->model);
    st_close(c->optimizer);
    st_close(c->average);
    free(c->path);
    free(c);
}
