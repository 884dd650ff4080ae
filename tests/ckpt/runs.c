/* runs - saves and loads small checkpoints.  Every number of a checkpoint follows from its step and
 * its version, so that a load can tell parts of different checkpoints. */
#include "runs.h"

#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"

int run_save(const char *run, struct run_point p, int keep, struct err *err)
{
    float w[64] = {(float)p.step, (float)p.version}, m[64] = {(float)p.version, (float)p.step};
    struct st_tensor model[] = {{"w", DTYPE_F32, SHAPE(64), w}, {"b", DTYPE_F32, SHAPE(2), w}};
    struct st_tensor momentum = {"w.momentum_buffer", DTYPE_F32, SHAPE(64), m};
    struct ckpt_content c = {.state = {.step = p.step,
                                       .steps_per_epoch = 10,
                                       .epoch_loss = p.version,
                                       .n_updates = p.step,
                                       .n_ranks = 3},
                             .model = model,
                             .n_model = 2,
                             .optimizer = &momentum,
                             .n_optimizer = 1,
                             .config = p.config,
                             .best = {p.best},
                             .n_best = p.best > 0};
    char *path = NULL;
    int rc = ckpt_save(run, &c, keep, &path, err);

    ASSERT(!path == (rc < 0));
    free(path);
    return rc;
}

static void ignore(void *arg, const char *text)
{
    (void)arg;
    ASSERT(text[0]);
}

int run_load(const char *run, struct run_point *out, struct err *err)
{
    float w[64], b[2], m[64];
    struct ckpt *c;
    int rc = ckpt_load_latest(run, ignore, NULL, &c, err);

    if (rc != 0)
        return rc;
    *out = (struct run_point){.step = c->state.step, .version = (int)c->state.epoch_loss};
    rc = st_read(c->model, st_find(c->model, "w"), 0, w, sizeof w, err);
    if (rc == 0)
        rc = st_read(c->model, st_find(c->model, "b"), 0, b, sizeof b, err);
    if (rc == 0)
        rc = st_read(c->optimizer, st_find(c->optimizer, "w.momentum_buffer"), 0, m, sizeof m, err);
    if (rc < 0) {
        ckpt_close(c);
        return rc;
    }
    ASSERT(w[0] == (float)out->step && w[1] == (float)out->version && w[63] == 0);
    ASSERT(b[0] == (float)out->step && b[1] == (float)out->version);
    ASSERT(m[0] == (float)out->version && m[1] == (float)out->step && m[63] == 0);
    ckpt_close(c);
    return 0;
}

char *run_new_folder(void)
{
    const char *in = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    char *path = xasprintf("%s/dptrain-ckpt-XXXXXX", in);

    ASSERT(mkdtemp(path));
    return path;
}

void run_remove_folder(char *path)
{
    ASSERT(remove_tree(path) == 0);
    free(path);
}
