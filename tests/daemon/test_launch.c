/* Tests of launch: rank, number of ranks and the driver's address are read from the environment of
 * Slurm, Open MPI, torchrun and others; contradictory or malformed values are refused. */
#include "../test.h"

#include "daemon/launch.h"

enum { MAX_VARIABLES = 10 };

/* The environment of one case, as "NAME=VALUE"; NULL ends it. */
static const char *const *variables;

static char *get(const char *name)
{
    size_t n = strlen(name);

    for (int i = 0; i < MAX_VARIABLES && variables[i]; i++)
        if (strncmp(variables[i], name, n) == 0 && variables[i][n] == '=')
            return (char *)variables[i] + n + 1;
    return NULL;
}

struct good {
    const char *variables[MAX_VARIABLES];
    const char *says; /* launch_describe's text */
};

static const struct good good[] = {
    {{NULL}, ""},
    {{"PATH=/bin", "RANKS=3"}, ""},
    {{"RANK=", "WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT="}, ""},
    {{"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=node1", "MASTER_PORT=29500"},
     "rank 2 (RANK), 4 ranks (WORLD_SIZE), driver on node1 (MASTER_ADDR), port 29500 "
     "(MASTER_PORT)"},
    /* torchrun's agent has MASTER_PORT itself. */
    {{"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=node1", "MASTER_PORT=29500",
      "TORCHELASTIC_RUN_ID=none"},
     "rank 2 (RANK), 4 ranks (WORLD_SIZE), driver on node1 (MASTER_ADDR), port 29501 "
     "(MASTER_PORT + 1)"},
    {{"MASTER_PORT=65519", "TORCHELASTIC_RUN_ID=7"}, "port 65520 (MASTER_PORT + 1)"},
    {{"MASTER_PORT=65520", "TORCHELASTIC_RUN_ID=7"}, "port 65504 (below MASTER_PORT)"},
    {{"TORCHELASTIC_RUN_ID=7"}, ""},
    {{"MASTER_ADDR=fd00::7"}, "driver on fd00::7 (MASTER_ADDR)"},
    {{"WORLD_SIZE=8"}, "8 ranks (WORLD_SIZE)"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
     "rank 0 (OMPI_COMM_WORLD_RANK), 1 rank (OMPI_COMM_WORLD_SIZE)"},
    /* Hydra's ranks of a node have the SLURM_PROCID of their proxy, and SLURM_NTASKS is the number
     * of proxies, or what the batch script had. */
    {{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "SLURM_PROCID=1",
      "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[2-3]", "SLURM_JOB_NODELIST=n[1-3]"},
     "rank 3 (PMI_RANK), 4 ranks (PMI_SIZE), driver on n1 (SLURM_JOB_NODELIST), local rank 1 "
     "(MPI_LOCALRANKID)"},
    {{"PMI_RANK=0", "PMI_SIZE=3"}, "rank 0 (PMI_RANK), 3 ranks (PMI_SIZE)"},
    {{"PMI_SIZE=3"}, "3 ranks (PMI_SIZE)"},
    {{"PALS_RANKID=2", "PALS_LOCAL_RANKID=0", "PMI_RANK=2", "PMI_SIZE=4", "PMI_LOCAL_SIZE=2",
      "MASTER_ADDR=x1000c0s0"},
     "rank 2 (PALS_RANKID), 4 ranks (PMI_SIZE), driver on x1000c0s0 (MASTER_ADDR), local rank 0 "
     "(PALS_LOCAL_RANKID)"},
    {{"JSM_NAMESPACE_RANK=3", "JSM_NAMESPACE_SIZE=4", "JSM_NAMESPACE_LOCAL_RANK=1", "PMIX_RANK=3"},
     "rank 3 (JSM_NAMESPACE_RANK), 4 ranks (JSM_NAMESPACE_SIZE), local rank 1 "
     "(JSM_NAMESPACE_LOCAL_RANK)"},
    /* Flux within a Slurm job: SLURM_PROCID is its broker's. */
    {{"FLUX_TASK_RANK=5", "FLUX_JOB_SIZE=8", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=2",
      "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=n[1-2]"},
     "rank 5 (FLUX_TASK_RANK), 8 ranks (FLUX_JOB_SIZE), local rank 1 (FLUX_TASK_LOCAL_ID)"},
    {{"PMIX_RANK=1", "MASTER_ADDR=a"}, "rank 1 (PMIX_RANK), driver on a (MASTER_ADDR)"},
    {{"PMIX_RANK=1", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[2-3]"},
     "rank 1 (SLURM_PROCID), 2 ranks (SLURM_NTASKS), driver on n2 (SLURM_STEP_NODELIST)"},
    /* srun --mpi=pmi2 sets PMI's variables, too. */
    {{"PMI_RANK=1", "PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[2-3]",
      "SLURM_JOB_NODELIST=n[1-3]"},
     "rank 1 (SLURM_PROCID), 2 ranks (SLURM_NTASKS), driver on n2 (SLURM_STEP_NODELIST)"},
    {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=b", "SLURM_JOB_NODELIST=a,b"},
     "rank 2 (OMPI_COMM_WORLD_RANK), 3 ranks (OMPI_COMM_WORLD_SIZE), driver on a "
     "(SLURM_JOB_NODELIST), local rank 0 (OMPI_COMM_WORLD_LOCAL_RANK)"},
    {{"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[1-4]"},
     "rank 3 (SLURM_PROCID), 4 ranks (SLURM_NTASKS), driver on n1 (SLURM_JOB_NODELIST)"},
    {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=gpu[07,09]", "SLURM_JOB_NODELIST=gpu[01-09]"},
     "rank 1 (SLURM_PROCID), driver on gpu07 (SLURM_STEP_NODELIST)"},
    /* One launcher runs inside another: the inner one counts. */
    {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3", "SLURM_PROCID=0", "SLURM_NTASKS=1",
      "SLURM_JOB_NODELIST=a"},
     "rank 2 (OMPI_COMM_WORLD_RANK), 3 ranks (OMPI_COMM_WORLD_SIZE), driver on a "
     "(SLURM_JOB_NODELIST)"},
    {{"RANK=5", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=a"}, "rank 5 (RANK)"},
    /* A variable that names the driver is believed before a list of nodes. */
    {{"MASTER_ADDR=head", "SLURM_PROCID=1", "SLURM_JOB_NODELIST=a,b"},
     "rank 1 (SLURM_PROCID), driver on head (MASTER_ADDR)"},
    /* TensorFlow's: the chief, or the first worker, drives. */
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"h0:1\", \"h1:2\"]}, \"task\": {\"type\": "
      "\"worker\", "
      "\"index\": 1}}"},
     "rank 1 (TF_CONFIG), 2 ranks (TF_CONFIG), driver on h0 (TF_CONFIG), port 1 (TF_CONFIG)"},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"h0:1\", \"h1:2\"], \"chief\": [\"c:9\"]}, \"task\": "
      "{\"type\": \"worker\", \"index\": 1}}"},
     "rank 2 (TF_CONFIG), 3 ranks (TF_CONFIG), driver on c (TF_CONFIG), port 9 (TF_CONFIG)"},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"h0:1\", \"h1:2\"]}, \"task\": {\"type\": "
      "\"worker\", \"index\": \"1\"}}"},
     "rank 1 (TF_CONFIG), 2 ranks (TF_CONFIG), driver on h0 (TF_CONFIG), port 1 (TF_CONFIG)"},
    {{"TF_CONFIG={\"cluster\": {\"chief\": [\"c:9\"]}, \"task\": {\"type\": \"chief\", \"index\": "
      "0}}",
      "MASTER_ADDR=m", "SLURM_PROCID=3"},
     "rank 0 (TF_CONFIG), 1 rank (TF_CONFIG), driver on m (MASTER_ADDR), port 9 (TF_CONFIG)"},
    {{"RANK=1", "TF_CONFIG={"}, "rank 1 (RANK)"},
    {{"RANK=5", "LOCAL_RANK=1"}, "rank 5 (RANK), local rank 1 (LOCAL_RANK)"},
    /* These lists of hosts are sorted, and do not say where task 0 is. */
    {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=n[1,4]", "SLURM_DISTRIBUTION=arbitrary"},
     "rank 1 (SLURM_PROCID)"},
    {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=n[1-3]", "SLURM_HET_SIZE=2"}, "rank 1 (SLURM_PROCID)"},
    {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=n[1,4]", "SLURM_DISTRIBUTION=arbitrary",
      "MASTER_ADDR=n4"},
     "rank 1 (SLURM_PROCID), driver on n4 (MASTER_ADDR)"},
    {{"SLURM_PROCID=1", "SLURM_STEP_NODELIST=n[1,4]", "SLURM_DISTRIBUTION=cyclic"},
     "rank 1 (SLURM_PROCID), driver on n1 (SLURM_STEP_NODELIST)"},
    /* In a batch script without srun there is an allocation, but no rank. */
    {{"SLURM_NTASKS=4", "SLURM_JOB_NODELIST=a,b"}, "4 ranks (SLURM_NTASKS)"},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct launch l;
        struct err err;
        char text[LAUNCH_TEXT];

        variables = good[i].variables;
        assert_int_equal(launch_read(get, &l, &err), 0);
        launch_describe(&l, text);
        assert_string_equal(text, good[i].says);
    }
}

struct bad {
    const char *variables[MAX_VARIABLES];
    const char *wants; /* part of the message */
};

static const struct bad bad[] = {
    {{"RANK=two"}, "RANK is \"two\", want an integer from 0 to 131071; unset it, or give --rank"},
    {{"RANK=-1"}, "RANK is \"-1\""},
    {{"RANK=1x"}, "RANK is \"1x\""},
    {{"RANK= 1"}, "RANK is \" 1\""},
    {{"RANK=99999999999999999999"}, "RANK is \"99999999999999999999\""},
    {{"WORLD_SIZE=0"}, "WORLD_SIZE is \"0\", want an integer from 1"},
    {{"WORLD_SIZE=4", "RANK=4"}, "RANK is 4, but WORLD_SIZE is 4: ranks count from 0"},
    {{"MASTER_PORT=0"}, "MASTER_PORT is \"0\", want an integer from 1 to 65535"},
    {{"MASTER_PORT=65536"}, "MASTER_PORT is \"65536\""},
    {{"MASTER_PORT=tcp://10.0.0.1:80"}, "MASTER_PORT is \"tcp://"},
    {{"OMPI_COMM_WORLD_RANK=?"}, "OMPI_COMM_WORLD_RANK is \"?\""},
    {{"LOCAL_RANK=x"},
     "LOCAL_RANK is \"x\", want an integer from 0 to 131071; unset it, or give --dev"},
    {{"TF_CONFIG={"}, "TF_CONFIG is not JSON; unset it, or give --nranks"},
    {{"TF_CONFIG=[]"}, "TF_CONFIG wants {\"cluster\": "},
    {{"TF_CONFIG={\"cluster\": {\"ps\": [\"a:1\"], \"worker\": [\"b:1\"]}, \"task\": {\"type\": "
      "\"ps\", "
      "\"index\": 0}}"},
     "TF_CONFIG has a task that is neither chief nor worker"},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"b:1\"]}, \"task\": {\"type\": \"worker\", "
      "\"index\": 1}}"},
     "TF_CONFIG has a task.index that its cluster does not have"},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"b:1\"]}, \"task\": {\"type\": \"worker\", "
      "\"index\": \"0x\"}}"},
     "TF_CONFIG wants {\"cluster\": "},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"b:1\"]}, \"task\": {\"type\": \"worker\", "
      "\"index\": \"\"}}"},
     "TF_CONFIG wants {\"cluster\": "},
    {{"PMI_RANK=4", "PMI_SIZE=4"}, "PMI_RANK is 4, but PMI_SIZE is 4"},
    {{"PMI_RANK=0", "MPI_LOCALRANKID=x"}, "MPI_LOCALRANKID is \"x\""},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"b\"]}, \"task\": {\"type\": \"worker\", \"index\": "
      "0}}"},
     "TF_CONFIG has an address that is not \"HOST:PORT\""},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"b:1\"], \"chief\": [\"c:1\", \"d:1\"]}, \"task\": "
      "{\"type\": \"chief\", \"index\": 0}}"},
     "TF_CONFIG wants one chief at most"},
    {{"SLURM_PROCID=7", "SLURM_NTASKS=7"}, "SLURM_PROCID is 7, but SLURM_NTASKS is 7"},
    {{"SLURM_PROCID=1", "SLURM_JOB_NODELIST=n[1-"},
     "SLURM_JOB_NODELIST is \"n[1-\", want a node list such as gpu[01-04]; give --root HOST:PORT, "
     "which "
     "takes precedence"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct launch l;
        struct err err;

        variables = bad[i].variables;
        assert_int_equal(launch_read(get, &l, &err), ERR_ARG);
        if (!strstr(err.msg, bad[i].wants))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].wants, err.msg);
    }
}

struct more {
    const char *variables[MAX_VARIABLES];
    int n_ports;
    const char *job;
    const char *spans_hosts; /* NULL: on one machine, or not said */
    int lacks_srun;
};

static const struct more more[] = {
    {{NULL}, 1, "", NULL, 0},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=7"}, 1, "", NULL, 0},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_PORT=7", "TORCHELASTIC_RUN_ID=a b"},
     LAUNCH_PORTS,
     "a_b:7",
     NULL,
     0},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1"}, 1, "", "LOCAL_WORLD_SIZE", 0},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     1,
     "",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     0},
    {{"PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALNRANKS=2"}, 1, "", "MPI_LOCALNRANKS", 0},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_NUM_NODES=2"},
     1,
     "",
     "SLURM_STEP_NUM_NODES",
     0},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_NUM_NODES=1"}, 1, "", NULL, 0},
    {{"SLURM_NTASKS=4"}, 1, "", NULL, 1},
};

static void test_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct launch l;
        struct err err;

        variables = more[i].variables;
        assert_int_equal(launch_read(get, &l, &err), 0);
        assert_int_equal(l.n_ports, more[i].n_ports);
        assert_string_equal(l.job, more[i].job);
        assert_int_equal(l.lacks_srun, more[i].lacks_srun);
        if (more[i].spans_hosts)
            assert_string_equal(l.spans_hosts, more[i].spans_hosts);
        else
            assert_null(l.spans_hosts);
    }
}

static void test_long_name(void **state)
{
    static char name[400] = "MASTER_ADDR=";
    static const char *one[MAX_VARIABLES] = {name};
    struct launch l;
    struct err err;

    (void)state;
    memset(name + strlen("MASTER_ADDR="), 'a', 255);
    variables = one;
    assert_int_equal(launch_read(get, &l, &err), 0);
    assert_int_equal(strlen(l.host), 255);
    memset(name + strlen("MASTER_ADDR="), 'a', 256);
    assert_int_equal(launch_read(get, &l, &err), ERR_ARG);
    assert_non_null(strstr(err.msg, "has 256 characters"));
    assert_non_null(strstr(err.msg, "give --root HOST:PORT, which takes precedence"));
}

static void test_first_host(void **state)
{
    static const struct {
        const char *list, *host; /* NULL: malformed */
    } cases[] = {
        {"node1", "node1"},
        {"node1,node2", "node1"},
        {"gpu[03-07,9],login1", "gpu03"},
        {"gpu[9,03-07]", "gpu9"},
        {"rack[1-2]n[4-9]", "rack1n4"},
        {"a-b.c_d[1]-x", "a-b.c_d1-x"},
        {"[1-3]", "1"},
        {"", NULL},
        {",a", NULL},
        {"a[", NULL},
        {"a[[1]", NULL},
        {"a]", NULL},
        {"a[1-2", NULL},
        {"a b", NULL},
        {"a;reboot", NULL},
        {"n[1.5]", NULL},
    };
    char host[ADDR_MAX_HOST], longest[ADDR_MAX_HOST + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rc = launch_first_host(cases[i].list, host);

        assert_int_equal(rc, cases[i].host ? 0 : -1);
        if (cases[i].host)
            assert_string_equal(host, cases[i].host);
    }
    memset(longest, 'a', ADDR_MAX_HOST);
    longest[ADDR_MAX_HOST] = '\0';
    assert_int_equal(launch_first_host(longest, host), -1);
    longest[ADDR_MAX_HOST - 1] = '\0';
    assert_int_equal(launch_first_host(longest, host), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_bad),
        cmocka_unit_test(test_more),       cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_first_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
