/* Looks at the folders, settles what the job is, and writes the file once the job that it makes was
 * read back without an error. */
#include "driver/init.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "driver/init_write.h"
#include "job/job.h"

enum { MOST_FOLDERS = 8, MOST_NAME = 40 };

/* The job's name: that of the folder or file, as far as a name may have it. */
static void init_name(const char *path, struct init_job *j)
{
    const char *slash = strrchr(path, '/');
    char name[MOST_NAME + 1];
    size_t n = 0;

    for (const char *c = slash ? slash + 1 : path; *c && *c != '.' && n < MOST_NAME; c++)
        name[n++] = isalnum((unsigned char)*c) ? *c : '-';
    name[n] = '\0';
    init_set_text(j, "name", isalnum((unsigned char)name[0]) ? name : "job");
}

/* ---- what the job is ---- */

/* The network of Hugging Face among the folders; NULL: there is none. */
static const struct init_look *init_network_of(const struct init_look *l, int n)
{
    for (int i = 0; i < n; i++)
        if (init_is_network(&l[i]))
            return &l[i];
    return NULL;
}

static int init_no_data(const struct init_look *l, int n, const struct init_look *network,
                        struct err *err)
{
    if (network && n == 1)
        return err_set(err, ERR_ARG,
                       "%s is a network of Hugging Face without data: name the folder of the "
                       "texts, too: dpdriver init %s TEXTS",
                       network->path, network->path);
    return err_set(err, ERR_ARG,
                   "%s has no data that are known here; want IDX files of MNIST's kind, CIFAR's "
                   "binary files, train/CLASS/NAME.jpg, shards (.tar), x.npy with y.npy, .csv, "
                   ".bin of token numbers, .txt or .jsonl; on a terminal questions are asked, and "
                   "\"dpdriver keys data\" lists all formats",
                   l[n - 1].path);
}

static int init_settle(const struct init_look *l, int n, struct init_job *j, struct err *err)
{
    const char *format;
    int rc = INIT_NONE;

    j->network = init_network_of(l, n);
    for (int i = 0; i < n && rc == INIT_NONE; i++)
        if (n == 1 || &l[i] != j->network) {
            rc = init_find(&l[i], j, err);
            init_name(l[i].path, j);
        }
    if (rc == INIT_NONE && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        printf("%s has no data that are recognised: please say what they are.\n", l[n - 1].path);
        rc = init_ask(l[n - 1].path, j, err);
    }
    if (rc == INIT_NONE)
        return init_no_data(l, n, j->network, err);
    format = rc == 0 ? init_value(j, "data.format") : NULL;
    if (rc == 0 && j->network && strcmp(format, "text") != 0 && strcmp(format, "tokens") != 0)
        return err_set(err, ERR_ARG,
                       "%s is a network of Hugging Face, and the data are %s: want texts or tokens "
                       "for it; or leave it out, and write model.import into the job file",
                       j->network->path, format);
    return rc;
}

/* ---- the file ---- */

static const char *init_file(const struct options *o) { return o->out ? o->out : "job.yaml"; }

static int init_check_file(const char *path, struct err *err)
{
    if (access(path, F_OK) < 0)
        return 0;
    return err_set(err, ERR_ARG, "%s exists and is not replaced; --out FILE names another file",
                   path);
}

static int init_save(const char *path, const struct buf *text, struct err *err)
{
    int fd, rc = file_create(path, &fd, err);

    if (rc < 0)
        return err_wrap(err, "the job file (--out FILE names another)");
    rc = file_put(fd, path, text->data, text->len, err);
    if (rc == 0)
        rc = file_finish(fd, path, err);
    else
        close(fd);
    if (rc < 0)
        unlink(path);
    return rc;
}

/* The head of the file: where it is from, and each note. */
static void init_put_head(struct init_job *j, const char *from, const char *file, struct buf *out)
{
    char *rest, *line;

    buf_printf(out,
               "# A job for the data in %s, by dpdriver %s.\n"
               "#\n"
               "#   dpdriver train %s --check        would it run?\n"
               "#   dpdriver train %s                by one process; --ranks 4 by four of them\n"
               "#\n"
               "# All keys that are not here have their defaults; \"dpdriver keys\" lists them.\n",
               from, DPTRAIN_VERSION, file, file);
    buf_cstr(&j->notes);
    for (rest = (char *)j->notes.data; (line = strtok_r(rest, "\n", &rest));)
        buf_printf(out, "#\n# %s\n", line);
}

/* Read the settings as a job, and write them with comments. */
static int init_make(struct init_job *j, const char *from, const char *file, struct buf *out,
                     struct err *err)
{
    struct buf plain = {0};
    struct job *job = NULL;
    int rc;

    init_write(j, NULL, &plain);
    rc = job_parse(buf_cstr(&plain), plain.len, "the job", NULL, &job, err);
    if (rc == 0) {
        init_put_head(j, from, file, out);
        init_write(j, job, out);
    }
    job_free(job);
    buf_fini(&plain);
    return rc;
}

static int init_do(const struct options *o, struct init_look *l, int *n, struct init_job *j,
                   struct err *err)
{
    const char *file = init_file(o);
    struct buf text = {0};
    int rc = init_check_file(file, err);

    if (o->inits.n > MOST_FOLDERS)
        return err_set(err, ERR_ARG, "%zu folders are given, want %d at most", o->inits.n,
                       MOST_FOLDERS);
    for (size_t i = 0; rc == 0 && i < o->inits.n; i++) {
        ++*n;
        rc = init_look_open(&l[i], o->inits.item[i], err);
    }
    if (rc == 0)
        rc = init_settle(l, *n, j, err);
    if (rc == 0)
        rc = init_make(j, l[*n - 1].path, file, &text, err);
    if (rc == 0)
        rc = init_save(file, &text, err);
    buf_fini(&text);
    return rc;
}

int init_run(const struct options *o)
{
    struct init_look look[MOST_FOLDERS] = {{0}};
    struct init_job j = {.n = 0};
    struct err err;
    int n = 0, rc = init_do(o, look, &n, &j, &err);

    if (rc < 0)
        log_error("--init: %s", err.msg);
    else
        printf("data    %s: %s\nwritten %s\nnext    dpdriver train %s --check\n",
               init_value(&j, "data.format"),
               init_value(&j, "data.path") ? init_value(&j, "data.path") : "drawn", init_file(o),
               init_file(o));
    for (int i = 0; i < n; i++)
        init_look_close(&look[i]);
    init_job_fini(&j);
    return rc < 0 ? daemon_status_of(&err) : STATUS_OK;
}
