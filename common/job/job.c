/* job - making, changing and freeing a job.
 *
 * A job comes from a file, from text, or is the built-in demo. */
#include "job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/names.h"
#include "data/image.h"
#include "data/moments.h"
#include "import/arch.h"
#include "import/inputs.h"
#include "job/imported.h"
#include "job/pretrained.h"
#include "job/table.h"
#include "model/layers.h"
#include "model/losses.h"

/* The job that runs without a job file.  It must pass 97 % on two cores in about a minute. */
static const char demo[] = "name: demo\n"
                           "model: {arch: lenet}\n"
                           "data: {format: digits}\n"
                           "train: {global_batch: 64, epochs: 3}\n";

void job_free(struct job *job)
{
    const struct import_options *imported;
    struct arena arena;

    if (!job)
        return;
    imported = import_options_of(&job->model);
    if (imported)
        import_network_free(imported->network);
    arena = job->arena;
    arena_fini(&arena);
    free(job);
}

/* form: the text is of that form; NULL: it is a job file. */
static int job_make(const char *text, size_t len, const char *origin, const char *base_dir,
                    const char *const *sets, size_t n_sets, const struct job_form *form,
                    struct job **out, struct err *err)
{
    struct job *job = xcalloc(1, sizeof *job);
    struct option_list list;
    struct reader r;
    int rc;

    arena_init(&job->arena);
    table_init(&list, &job_table);
    reader_init(&r, &list, job, &job->arena);
    r.origin = origin;
    r.base_dir = base_dir;
    rc = form ? form->read(&r, text, len, form->n_ranks, form->notes, err)
              : read_yaml(&r, text, len, err);
    for (size_t i = 0; i < n_sets && rc == 0; i++)
        rc = read_set(&r, sets[i], err);
    if (rc == 0)
        rc = imported_fill(&r, err);
    if (rc == 0)
        rc = pretrained_fill(&r, err);
    if (rc == 0)
        rc = read_finish(&r, err);
    if (rc == 0)
        rc = losses_first(job->model.losses, &job->model.loss, &job->model.contrasts, err);
    job->model.global_batch = job->train.global_batch;
    if (rc == 0 && job_check(job, err) < 0)
        rc = read_locate(&r, err);
    reader_fini(&r);
    table_fini(&list);
    if (rc < 0)
        job_free(job);
    else
        *out = job;
    return rc;
}

int job_parse(const char *text, size_t len, const char *origin, const char *base_dir,
              struct job **out, struct err *err)
{
    return job_make(text, len, origin, base_dir, NULL, 0, NULL, out, err);
}

/* Append the whole file.  Fails with ERR_CONFIG soon after more bytes than a job may have.  A pipe
 * is refused: it may never begin, or never end. */
static int job_read_file(const char *path, struct buf *out, struct err *err)
{
    struct stat st;
    int is_there = stat(path, &st) == 0, rc = 0;
    FILE *f;

    if (is_there && !S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFIG, "job file %s is %s, want a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
    f = is_there ? fopen(path, "rbe") : NULL;
    if (!f)
        return err_sys(err, errno, "job file %s", path);
    while (!feof(f) && out->len <= JOB_MAX_BYTES && rc == 0) {
        uint8_t *to = buf_reserve(out, 4096);

        errno = 0;
        out->len += fread(to, 1, 4096, f);
        if (ferror(f))
            rc = err_sys(err, errno, "job file %s", path);
    }
    fclose(f);
    if (rc == 0 && out->len > JOB_MAX_BYTES)
        rc = err_set(err, ERR_CONFIG, "%s: want at most %d bytes", path, JOB_MAX_BYTES);
    return rc;
}

/* The absolute path of the folder that holds `path`, links followed; the caller frees it. */
static char *folder_of(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
    char *absolute = folder ? realpath(folder, NULL) : NULL;

    if (!absolute)
        err_sys(err, errno, "folder of job file %s", path);
    free(folder);
    return absolute;
}

int job_load_form(const struct job_form *form, const char *path, const char *const *sets,
                  size_t n_sets, struct job **out, struct err *err)
{
    struct buf text = {0};
    char *folder = NULL;
    int rc;

    if (!path)
        return job_make(demo, strlen(demo), "the demo job", NULL, sets, n_sets, NULL, out, err);
    rc = job_read_file(path, &text, err);
    if (rc == 0 && !(folder = folder_of(path, err)))
        rc = err->code;
    if (rc == 0 && form && !form->is(path, (const char *)text.data, text.len))
        form = NULL;
    if (rc == 0)
        rc =
            job_make((const char *)text.data, text.len, path, folder, sets, n_sets, form, out, err);
    free(folder);
    buf_fini(&text);
    return rc;
}

int job_load(const char *path, const char *const *sets, size_t n_sets, struct job **out,
             struct err *err)
{
    return job_load_form(NULL, path, sets, n_sets, out, err);
}

/* Set the option `key`, if the job's choices have it, from text as --set takes it. */
static int set_field(struct job *job, const char *key, const char *text, struct err *err)
{
    const struct option_ref *ref;
    struct option_list list;
    char *cwd;
    int rc = 0;

    table_init(&list, &job_table);
    ref = table_find(&list, key);
    if (ref)
        ref = table_holding(&list, ref, job);
    if (ref) {
        cwd = getcwd(NULL, 0);
        rc = read_field(ref, job, &job->arena, text, strlen(text), cwd, err);
        free(cwd);
    }
    table_fini(&list);
    return rc;
}

int job_use_data(struct job *job, const char *dir, struct err *err)
{
    return set_field(job, "data.path", dir, err) < 0 ? err_wrap(err, "--data") : 0;
}

static int set_reals(struct job *job, const char *key, const struct option_reals *x,
                     struct err *err)
{
    struct buf text = {0};
    int rc;

    for (int i = 0; i < x->n; i++)
        buf_printf(&text, "%s%.9g", i ? "," : "", x->v[i]);
    rc = set_field(job, key, buf_cstr(&text), err);
    buf_fini(&text);
    return rc;
}

struct dataset_request job_request(const struct job *job, enum dataset_purpose purpose)
{
    const int64_t *context = job_field(job, "model.context"),
                  *vocab = job_field(job, "model.vocab");
    const struct import_options *import = import_options_of(&job->model);

    return (struct dataset_request){
        .purpose = purpose,
        .seed = (uint64_t)job->train.seed,
        .context = context && !import ? *context : import_inputs_context(import),
        .vocab = vocab ? *vocab : import_inputs_vocab(import),
        .vocab_is_given = !vocab && import,
        .limit = import ? import_inputs_limit : layers_limit,
        .limit_arg = &job->model,
        .ignored = &job->data.ignore_index,
        .targets_are_fractions = job->model.loss == LOSS_BCE || job->model.loss == LOSS_KL,
        .targets_are_numbers = !loss_is_of_classes(job->model.loss),
        .wants_pairs = job->model.loss == LOSS_DPO};
}

/* Numbers that may be measured: the key of their source, and their own. */
struct measurable {
    const char *source, *mean, *std;
};

static const struct measurable features = {"data.normalize.source", "data.normalize.mean",
                                           "data.normalize.std"},
                               targets = {"data.targets.normalize", "data.targets.mean",
                                          "data.targets.std"};

static int set_measured(struct job *job, const struct measurable *m,
                        const struct option_reals *mean, const struct option_reals *std,
                        struct err *err)
{
    int rc = set_field(job, m->source, "given", err);

    if (rc == 0)
        rc = set_reals(job, m->mean, mean, err);
    if (rc == 0)
        rc = set_reals(job, m->std, std, err);
    return rc;
}

static int is_to_be_measured(const struct job *job, const struct measurable *m)
{
    const enum normalize *source = job_field(job, m->source);

    return source && *source == NORMALIZE_AUTO;
}

static int take_measured(struct job *job, const struct job *run, const struct measurable *m,
                         struct err *err)
{
    const struct option_reals *mean = job_field(run, m->mean), *std = job_field(run, m->std);

    if (!is_to_be_measured(job, m) || !mean || !std || mean->n == 0 || std->n == 0)
        return 0;
    return set_measured(job, m, mean, std, err);
}

/* 1: the job's format has a scheme, which the job does not know yet. */
static int lacks_scheme(const struct job *job)
{
    const char *const *scheme = job_field(job, "data.scheme");

    return scheme && !*scheme;
}

int job_take_measured(struct job *job, const struct job *run, struct err *err)
{
    const char *const *scheme = job_field(run, "data.scheme");
    int rc = take_measured(job, run, &features, err);

    if (rc == 0)
        rc = take_measured(job, run, &targets, err);
    if (rc == 0 && lacks_scheme(job) && scheme && *scheme)
        rc = set_field(job, "data.scheme", *scheme, err);
    if (rc == 0 && !strcmp(job->data.class_names, "[]"))
        rc = set_field(job, "data.class_names", run->data.class_names, err);
    return rc;
}

static int measure_features(const struct dataset *ds, struct option_reals *mean,
                            struct option_reals *std, struct err *err)
{
    return ds->spec.field[0].scale == SAMPLE_UNIT ? image_measure(ds, mean, std, err)
                                                  : moments_measure(ds, 0, mean, std, err);
}

int job_measure(struct job *job, int keeps_nothing, struct err *err)
{
    struct dataset_request request = job_request(job, DATASET_TRAIN);
    const int for_features = is_to_be_measured(job, &features),
              for_targets = is_to_be_measured(job, &targets);
    struct option_reals mean, std;
    struct dataset *ds;
    int rc = 0;

    request.keeps_nothing = keeps_nothing;
    if (job->data.kind->prepare && job->data.kind->prepare(job->data.options, &request, err) < 0)
        return err_wrap(err, "data");
    if (!for_features && !for_targets && !lacks_scheme(job))
        return 0;
    if (dataset_open(&ds, &job->data, &request, err) < 0)
        return err_wrap(err, "training data");
    if (for_features) {
        rc = measure_features(ds, &mean, &std, err);
        if (rc == 0)
            rc = set_measured(job, &features, &mean, &std, err);
    }
    if (for_targets && rc == 0) {
        rc = moments_measure(ds, sample_target(&ds->spec), &mean, &std, err);
        if (rc == 0)
            rc = set_measured(job, &targets, &mean, &std, err);
    }
    if (lacks_scheme(job) && rc == 0)
        rc = set_field(job, "data.scheme", ds->scheme, err);
    dataset_close(ds);
    return rc;
}

int job_note_names(struct job *job, struct err *err)
{
    struct dataset_request request = job_request(job, DATASET_TRAIN);
    struct buf text = {0};
    struct dataset *ds;
    int64_t n;
    int rc = 0;

    if (!job->data.kind->knows_names || job->data.reconstruct ||
        strcmp(job->data.class_names, "[]") != 0)
        return 0;
    request.names_only = 1;
    rc = dataset_open(&ds, &job->data, &request, err);
    if (rc != 0)
        return rc < 0 ? err_wrap(err, "training data") : 0;
    n = ds->spec.field[sample_target(&ds->spec)].n_classes;
    if (ds->class_names)
        names_write(ds->class_names, n, &text);
    if (ds->class_names && (n > NAMES_MOST || text.len > OPT_TREE_BYTES))
        log_warn("data.class_names stays empty: the names of the %lld classes are too long for a "
                 "job file (%d names, %d bytes at most)",
                 (long long)n, NAMES_MOST, OPT_TREE_BYTES);
    else if (ds->class_names)
        rc = set_field(job, "data.class_names", buf_cstr(&text), err);
    buf_fini(&text);
    dataset_close(ds);
    return rc;
}

const void *job_field(const struct job *job, const char *key)
{
    const struct option_ref *ref;
    const void *field = NULL;
    struct option_list list;

    table_init(&list, &job_table);
    ref = table_find(&list, key);
    if (ref)
        ref = table_holding(&list, ref, job);
    if (ref)
        field = table_field(ref, job);
    table_fini(&list);
    return field;
}

int job_help(const char *word, FILE *f, struct err *err)
{
    struct option_list list;
    char group[64], shown[64];
    const char *near;
    int n, rc = 0;

    if (!word)
        fprintf(f,
                "A job file is YAML or JSON.  Each key is shown with its default; dots stand for "
                "nesting,\nso train.epochs: 1 is written train: {epochs: 1}, or --set "
                "train.epochs=1.\n");
    table_init(&list, &job_table);
    n = table_help(&list, word, f);
    near = n == 0 ? table_closest(&list, word, group) : NULL;
    if (n == 0)
        rc = err_set(err, ERR_ARG,
                     "no key of a job file has %s in its name, its help or its values%s%s; "
                     "\"dpdriver keys\" lists all",
                     show_text(word, strlen(word), shown), near ? "; the closest is " : "",
                     near ? near : "");
    table_fini(&list);
    return rc;
}
