/* Reading a launcher's variables, each with its range checked, and Slurm's node lists.
 * Only the first host of a list is needed, so only that is expanded. */
#include "daemon/launch.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "wire/msg.h"

struct launcher {
    const char *rank, *n_ranks; /* n_ranks: NULL: it does not say the number */
    int shares_n_ranks;         /* 1: other launchers set n_ranks, too; `rank` tells them apart */
    const char *local_rank;     /* NULL: none that names a GPU */
    const char *n_local;        /* the ranks on this machine, or NULL */
    const char *n_hosts;        /* the machines, or NULL */
    const char *host_lists[3];  /* the first of these that is set; NULL at the end */
};

/* Cray's PALS (mpiexec, aprun), LSF's jsrun and Flux set PMI's variables or Open MPI's in some of
 * their configurations, too; PMIx says no number of ranks to those that do not call it, and srun
 * sets it with --mpi=pmix.  Flux may run within a Slurm job, whose SLURM_PROCID is then its
 * broker's.
 *
 * Within a Slurm job mpirun and mpiexec start a daemon on each node by a step of their own, whose
 * list may be one node alone; their rank 0 is on the first node of the job. */
static const struct launcher launchers[] = {
    {.rank = "RANK",
     .n_ranks = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .n_local = "LOCAL_WORLD_SIZE"},
    {.rank = "OMPI_COMM_WORLD_RANK",
     .n_ranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .n_local = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .host_lists = {"SLURM_JOB_NODELIST"}},
    {.rank = "PALS_RANKID",
     .n_ranks = "PMI_SIZE",
     .shares_n_ranks = 1,
     .local_rank = "PALS_LOCAL_RANKID",
     .n_local = "PMI_LOCAL_SIZE",
     .host_lists = {"SLURM_JOB_NODELIST"}},
    {.rank = "JSM_NAMESPACE_RANK",
     .n_ranks = "JSM_NAMESPACE_SIZE",
     .local_rank = "JSM_NAMESPACE_LOCAL_RANK"},
    {.rank = "FLUX_TASK_RANK",
     .n_ranks = "FLUX_JOB_SIZE",
     .local_rank = "FLUX_TASK_LOCAL_ID",
     .n_hosts = "FLUX_JOB_NNODES"},
    {.rank = "PMI_RANK",
     .n_ranks = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .n_local = "MPI_LOCALNRANKS",
     .host_lists = {"SLURM_JOB_NODELIST"}},
    {.rank = "SLURM_PROCID",
     .n_ranks = "SLURM_NTASKS",
     .n_hosts = "SLURM_STEP_NUM_NODES",
     .host_lists = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}},
    {.rank = "PMIX_RANK"},
};

/* ---- Slurm's node lists ---- */

/* A host's name, letter by letter; brackets hold lists of numbers, of which the first is taken. */
int launch_first_host(const char *list, char out[ADDR_MAX_HOST])
{
    int n = 0, is_inside = 0, is_taking = 1;

    for (; *list && (is_inside || *list != ','); list++) {
        if (*list == '[' || *list == ']') {
            if (is_inside == (*list == '['))
                return -1;
            is_inside = !is_inside;
            is_taking = 1;
        } else if (is_inside && (*list == ',' || *list == '-')) {
            is_taking = 0; /* until the bracket closes */
        } else if (!isalnum((unsigned char)*list) && (is_inside || !strchr("-._", *list))) {
            return -1;
        } else if (is_taking) {
            if (n == ADDR_MAX_HOST - 1)
                return -1;
            out[n++] = *list;
        }
    }
    out[n] = '\0';
    return n > 0 && !is_inside ? 0 : -1;
}

/* ---- values ---- */

/* An integer from min to max; where the variable is unset or empty, *from stays NULL. */
static int take_int(char *(*get)(const char *), const char *name, int64_t min, int64_t max,
                    const char *option, int64_t *out, const char **from, struct err *err)
{
    const char *text = get(name);
    char *end;
    long long v;

    if (!text || !*text)
        return 0;
    v = strtoll(text, &end, 10);
    if (*end || isspace((unsigned char)*text) || v < min || v > max)
        return err_set(
            err, ERR_ARG,
            "the environment's %s is \"%.64s\", want an integer from %lld to %lld; unset "
            "it, or give %s, which takes precedence",
            name, text, (long long)min, (long long)max, option);
    *out = v;
    *from = name;
    return 0;
}

static int take_rank(char *(*get)(const char *), const struct launcher *l, struct launch *out,
                     struct err *err)
{
    int rc = 0;

    if (l->n_ranks && !(l->shares_n_ranks && !get(l->rank)))
        rc = take_int(get, l->n_ranks, 1, MSG_MAX_RANKS, "--nranks to dpdriver", &out->n_ranks,
                      &out->n_ranks_from, err);
    if (rc == 0)
        rc = take_int(get, l->rank, 0, MSG_MAX_RANKS - 1, "--rank to dpfollower", &out->rank,
                      &out->rank_from, err);
    if (rc == 0 && out->rank_from && out->n_ranks_from && out->rank >= out->n_ranks)
        return err_set(err, ERR_ARG,
                       "the environment's %s is %lld, but %s is %lld: ranks count from 0; unset "
                       "both, or give --rank and --nranks, which go before them",
                       l->rank, (long long)out->rank, l->n_ranks, (long long)out->n_ranks);
    return rc;
}

static int take_host(char *(*get)(const char *), const char *name, struct launch *out,
                     struct err *err)
{
    const char *text = get(name);

    if (strlen(text) >= sizeof out->host)
        return err_set(
            err, ERR_ARG,
            "the environment's %s has %zu characters, want a host's name of at most %zu; "
            "give --root HOST:PORT, which takes precedence",
            name, strlen(text), sizeof out->host - 1);
    strcpy(out->host, text);
    out->host_from = name;
    return 0;
}

/* The variable because of which task 0 may be on any host of srun's list, or NULL. */
static const char *hidden_by(char *(*get)(const char *))
{
    static const char order[] = "SLURM_DISTRIBUTION", parts[] = "SLURM_HET_SIZE";
    const char *text = get(order);

    if (text && !strncmp(text, "arbitrary", strlen("arbitrary")))
        return order;
    text = get(parts);
    return text && *text ? parts : NULL;
}

static int take_first_host(char *(*get)(const char *), const struct launcher *l, struct launch *out,
                           struct err *err)
{
    out->hidden_by = !strcmp(l->rank, "SLURM_PROCID") ? hidden_by(get) : NULL;
    for (const char *const *name = l->host_lists; *name && !out->hidden_by; name++) {
        const char *text = get(*name);

        if (!text || !*text)
            continue;
        if (launch_first_host(text, out->host) < 0)
            return err_set(err, ERR_ARG,
                           "the environment's %s is \"%.64s\", want a node list such as "
                           "gpu[01-04]; give --root HOST:PORT, which takes precedence",
                           *name, text);
        out->host_from = *name;
        return 0;
    }
    return 0;
}

/* ---- TensorFlow's variable ---- */

static const char tf_name[] = "TF_CONFIG";

enum { TF_MAX_BYTES = 1 << 20 };

static int fail_tf(struct err *err, const char *what)
{
    return err_set(err, ERR_ARG,
                   "the environment's %s %s; unset it, or give --nranks and --port to dpdriver, "
                   "--root and --rank to dpfollower, which take precedence",
                   tf_name, what);
}

/* The chief comes first where there is one, then the workers. */
static int tf_ranks(const json_t *chief, const json_t *workers, const char *type, int64_t index,
                    struct launch *out, struct err *err)
{
    const int64_t n_chiefs = (int64_t)json_array_size(chief);
    const int64_t n_workers = (int64_t)json_array_size(workers);
    const int is_chief = !strcmp(type, "chief");

    if (!is_chief && strcmp(type, "worker") != 0)
        return fail_tf(err, "has a task that is neither chief nor worker: all ranks of dptrain "
                            "train");
    if (n_chiefs > 1 || n_chiefs + n_workers < 1 || n_chiefs + n_workers > MSG_MAX_RANKS)
        return fail_tf(err, "wants one chief at most, and at least one task in cluster");
    if (index < 0 || index >= (is_chief ? n_chiefs : n_workers))
        return fail_tf(err, "has a task.index that its cluster does not have");
    out->rank = is_chief ? 0 : n_chiefs + index;
    out->n_ranks = n_chiefs + n_workers;
    out->rank_from = out->n_ranks_from = tf_name;
    return 0;
}

/* MASTER_ADDR and MASTER_PORT, where they are set, count more. */
static int tf_address(const json_t *first, struct launch *out, struct err *err)
{
    const char *text = json_string_value(first);
    char host[ADDR_MAX_HOST];
    struct err why;
    int port;

    if (!text || addr_split(text, host, &port, &why) < 0)
        return fail_tf(err, "has an address that is not \"HOST:PORT\"");
    if (!out->host_from) {
        strcpy(out->host, host);
        out->host_from = tf_name;
    }
    if (!out->port_from) {
        out->port = port;
        out->port_from = tf_name;
    }
    return 0;
}

/* TensorFlow's own index: a number, or a text of digits.  1: *out is it. */
static int tf_index(const json_t *index, int64_t *out)
{
    const char *text = json_string_value(index);
    char *end;

    if (json_is_integer(index)) {
        *out = json_integer_value(index);
        return 1;
    }
    if (!text || !isdigit((unsigned char)*text))
        return 0;
    *out = strtoll(text, &end, 10);
    return *end == '\0';
}

static int tf_take(const json_t *root, struct launch *out, struct err *err)
{
    const json_t *cluster = json_object_get(root, "cluster"), *task = json_object_get(root, "task");
    const json_t *chief = json_object_get(cluster, "chief");
    const json_t *workers = json_object_get(cluster, "worker");
    const char *type = json_string_value(json_object_get(task, "type"));
    int64_t index;

    if (!type || !tf_index(json_object_get(task, "index"), &index))
        return fail_tf(err, "wants {\"cluster\": {\"worker\": [\"HOST:PORT\", ...]}, \"task\": "
                            "{\"type\": \"worker\", \"index\": 0}}");
    if (tf_ranks(chief, workers, type, index, out, err) < 0)
        return ERR_ARG;
    return tf_address(json_array_get(json_array_size(chief) ? chief : workers, 0), out, err);
}

/* 1: the variable is there, and was taken. */
static int take_tf(char *(*get)(const char *), struct launch *out, struct err *err)
{
    const char *text = get(tf_name);
    json_error_t why;
    json_t *root;
    int rc;

    if (!text || !*text)
        return 0;
    if (strlen(text) > TF_MAX_BYTES)
        return fail_tf(err, "is longer than a megabyte");
    root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    rc = root ? tf_take(root, out, err) : fail_tf(err, "is not JSON");
    json_decref(root);
    return rc < 0 ? rc : 1;
}

/* ---- all ---- */

static int launch_is_equal(char *(*get)(const char *), const char *a, const char *b)
{
    const char *one = get(a), *other = get(b);

    return one && other && *one && !strcmp(one, other);
}

/* srun --mpi=pmi2 sets PMI's variables, too: its own say then on which nodes the step is. */
static int is_of_srun(char *(*get)(const char *), const struct launcher *l)
{
    return !strcmp(l->rank, "PMI_RANK") && launch_is_equal(get, l->rank, "SLURM_PROCID") &&
           launch_is_equal(get, l->n_ranks, "SLURM_NTASKS");
}

static int take_local_rank(char *(*get)(const char *), const char *name, struct launch *out,
                           struct err *err)
{
    if (!name || out->local_rank_from)
        return 0;
    return take_int(get, name, 0, MSG_MAX_RANKS - 1, "--device", &out->local_rank,
                    &out->local_rank_from, err);
}

/* How many of something; 0: the variable does not say it. */
static long launch_count_of(char *(*get)(const char *), const char *name)
{
    const char *text = name ? get(name) : NULL;

    return text ? strtol(text, NULL, 10) : 0;
}

static void note_hosts(char *(*get)(const char *), const struct launcher *l, struct launch *out)
{
    const long n_local = launch_count_of(get, l->n_local);

    if (launch_count_of(get, l->n_hosts) > 1)
        out->spans_hosts = l->n_hosts;
    else if (n_local > 0 && out->n_ranks_from && n_local < out->n_ranks)
        out->spans_hosts = l->n_local;
}

/* Of the launchers from `first` up to `end`: 1 if one set rank or size. */
static int take_launcher(char *(*get)(const char *), size_t first, size_t end, struct launch *out,
                         struct err *err)
{
    for (size_t i = first; i < end; i++) {
        const struct launcher *l = &launchers[i];
        int rc = is_of_srun(get, l) ? 0 : take_rank(get, l, out, err);

        if (rc < 0)
            return rc;
        if (!out->rank_from && !out->n_ranks_from)
            continue;
        if (out->rank_from)
            rc = take_local_rank(get, l->local_rank, out, err);
        if (out->rank_from)
            note_hosts(get, l, out);
        out->lacks_srun = !out->rank_from && !strcmp(l->rank, "SLURM_PROCID");
        if (rc == 0 && out->rank_from && !out->host_from)
            rc = take_first_host(get, l, out, err);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

/* torchrun's agent has MASTER_PORT itself: the driver takes a port above it, or below it where
 * there are none above.  The agent of each job that runs on the machine has another MASTER_PORT, so
 * that the name of the job and this port are of one job alone. */
static void take_torchrun(char *(*get)(const char *), struct launch *out)
{
    const char *id = get("TORCHELASTIC_RUN_ID");
    const int is_below = out->port + LAUNCH_PORTS > UINT16_MAX;

    out->n_ports = 1;
    if (!id || !*id || !out->port_from)
        return;
    snprintf(out->job, sizeof out->job, "%.80s:%lld", id, (long long)out->port);
    for (char *c = out->job; *c; c++)
        if (!isgraph((unsigned char)*c))
            *c = '_';
    out->port += is_below ? -LAUNCH_PORTS : 1;
    out->port_from = is_below ? "below MASTER_PORT" : "MASTER_PORT + 1";
    out->n_ports = LAUNCH_PORTS;
}

int launch_read(char *(*get)(const char *name), struct launch *out, struct err *err)
{
    const char *host = get("MASTER_ADDR");
    int rc;

    *out = (struct launch){0};
    rc = take_int(get, "MASTER_PORT", 1, 65535, "--port to dpdriver or --root to dpfollower",
                  &out->port, &out->port_from, err);
    if (rc == 0)
        take_torchrun(get, out);
    if (rc == 0)
        rc = take_local_rank(get, "LOCAL_RANK", out, err);
    if (rc == 0 && host && *host)
        rc = take_host(get, "MASTER_ADDR", out, err);
    if (rc == 0)
        rc = take_launcher(get, 0, 1, out, err);
    if (rc == 0)
        rc = take_tf(get, out, err);
    if (rc == 0)
        rc = take_launcher(get, 1, ARRAY_LEN(launchers), out, err);
    return rc < 0 ? rc : 0;
}

static void launch_add(char out[LAUNCH_TEXT], const char *text, const char *from)
{
    size_t n = strlen(out);

    if (from)
        snprintf(out + n, LAUNCH_TEXT - n, "%s%s (%s)", n ? ", " : "", text, from);
}

void launch_describe(const struct launch *l, char out[LAUNCH_TEXT])
{
    char text[ADDR_MAX_HOST + 16];

    out[0] = '\0';
    snprintf(text, sizeof text, "%s %lld", l->is_task ? "task" : "rank", (long long)l->rank);
    launch_add(out, text, l->rank_from);
    snprintf(text, sizeof text, "%lld %s%s", (long long)l->n_ranks, l->is_task ? "task" : "rank",
             l->n_ranks == 1 ? "" : "s");
    launch_add(out, text, l->n_ranks_from);
    snprintf(text, sizeof text, "driver on %s", l->host);
    launch_add(out, text, l->host_from);
    snprintf(text, sizeof text, "port %lld", (long long)l->port);
    launch_add(out, text, l->port_from);
    snprintf(text, sizeof text, "local rank %lld", (long long)l->local_rank);
    launch_add(out, text, l->local_rank_from);
}
