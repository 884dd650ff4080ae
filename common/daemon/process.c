/* The part of daemon/daemon.h that concerns the process and its options.
 * The loop is in daemon.c. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/daemon.h"

#include "backend/device.h"
#include "base/clock.h"
#include "base/util.h"
#include "daemon/network.h"
#include "daemon/places.h"
#include "daemon/shared_gpu.h"

void daemon_open_standard(void)
{
    sigset_t state;
    int fd;

    sigemptyset(&state);
    sigaddset(&state, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &state, NULL);
    do
        fd = open("/dev/null", O_RDWR); /* the lowest that is free */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* OpenMP's workers must sleep, not spin, while they wait: a spinning one keeps the collectives'
 * thread from the core.  libgomp reads this once, when it is loaded.  The user's value stays. */
static const struct {
    const char *name, *value;
} environment[] = {
    {"OMP_WAIT_POLICY", "passive"},
};

static void raise_file_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

/* The time when main began, handed to the program that execv starts.  The process may be older than
 * that: a script may build for minutes and then become dpdriver. */
static const char start_name[] = "DPTRAIN_START_NS";

static int64_t process_take_start(void)
{
    const char *text = getenv(start_name);
    int64_t start_ns = text ? strtoll(text, NULL, 10) : 0;

    unsetenv(start_name);
    return start_ns > 0 ? start_ns : clock_mono_ns();
}

/* Execute the program again: by its own path, so that ps and pgrep go on naming it, or through
 * /proc if the file has moved.  Returns only if neither works; then the process is slower, but
 * correct. */
static void become_self(char **argv, int64_t start_ns)
{
    char text[24], path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    snprintf(text, sizeof text, "%lld", (long long)start_ns);
    setenv(start_name, text, 1);
    path[n > 0 ? n : 0] = '\0';
    execv(path, argv);
    execv("/proc/self/exe", argv);
    unsetenv(start_name);
}

int64_t daemon_process_setup(char **argv)
{
    int64_t start_ns = process_take_start();
    int is_changed = 0;

    for (size_t i = 0; i < ARRAY_LEN(environment); i++)
        if (!getenv(environment[i].name))
            is_changed |= setenv(environment[i].name, environment[i].value, 0) == 0;
    if (is_changed)
        become_self(argv, start_ns);
    /* LLVM 14's TSan loses a signal that comes in a thread's first call that may wait
     * (findings/tsan_first_wait.sh): let that call be before signals are caught. */
    usleep(0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails with EFBIG, as on a full disk */
    raise_file_limit();
    return start_ns;
}

void daemon_tell_ignored(const char *what)
{
    struct sigaction now;

    if (!isatty(STDERR_FILENO) && sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
        log_info("SIGINT is ignored, as the program wished that started this one (a shell's \"&\" "
                 "in a script does); SIGTERM stops %s",
                 what);
}

void daemon_host(struct daemon_host *out)
{
    host_boot(out->id);
    host_name(out->name);
    if (!out->id[0])
        snprintf(out->id, sizeof out->id, "%.*s", (int)sizeof out->id - 1, out->name);
}

static const char *const log_formats[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json", NULL};
static const char *const binds[] = {[BIND_AUTO] = "auto", [BIND_NONE] = "none", NULL};

#define AT(field) offsetof(struct daemon_options, field)

const struct arg daemon_args[] = {
    {{"device", OPT_STRING, AT(device), .def = "auto",
      .help =
          "The device to compute on: cuda is a GPU that no other rank uses, and cuda:I the I-th of "
          "this machine. auto takes a GPU if there is one. LOCAL_RANK, "
          "OMPI_COMM_WORLD_LOCAL_RANK or MPI_LOCALRANKID in the environment names the GPU if this "
          "option leaves it open."},
     "auto|cpu|cuda|cuda:I",
     .of = DAEMON_AS_RANK},
    {{"threads", OPT_INT, AT(n_threads), NULL, 1, 4096,
      .help =
          "The number of threads for computing. The default is this host's cores divided by its "
          "ranks, and no more than a CPU quota of the cgroup pays for."},
     "T",
     .of = DAEMON_AS_RANK,
     .is_rare = 1},
    {{"ranks", OPT_STRING, AT(ranks),
      .help =
          "The number of ranks on this machine; gpus means one for each GPU. This command starts a "
          "process for each rank (dpdriver is itself one of them), shares GPUs and cores out among "
          "them, passes signals on, and starts one that dies again."},
     "N|gpus",
     .of = DAEMON_AS_RANKS},
    {{"bind", OPT_CHOICE, AT(bind), .choices = binds,
      .help = "With --ranks: auto, the default, binds each rank to its part of the CPUs that this "
              "command may use, near its GPU. none leaves that to the system, as for two jobs that "
              "share a machine."},
     "auto|none",
     .of = DAEMON_AS_RANKS,
     .is_rare = 1},
    {{"iface", OPT_STRING, AT(iface),
      .help =
          "The network interface for what the ranks exchange. Its address is told to the other "
          "ranks, and NCCL's sockets use no other interface, by NCCL_SOCKET_IFNAME unless that is "
          "set. The default is the address that connects driver and follower; NCCL then chooses "
          "one "
          "itself."},
     "IF",
     .of = DAEMON_AS_RANK,
     .is_rare = 1},
    {{"insecure", OPT_BOOL, AT(insecure),
      .help =
          "Allow connections beyond this host although they are neither authenticated nor "
          "encrypted. This is for private networks only. On this host it does without the secret "
          "that a user's processes share in XDG_RUNTIME_DIR."},
     NULL,
     .of = DAEMON_AS_RANK,
     .is_rare = 1},
    {{"secret-file", OPT_STRING, AT(secret_files), .flags = OPT_MANY,
      .help =
          "Talk only to processes with a copy of this file, and encrypt. \"dpdriver --make-secret "
          "F\" "
          "makes one, of mode 0600. While a secret is being changed, give the option twice: with "
          "the new secret, and with the old one."},
     "F",
     .of = DAEMON_AS_RANK},
    {{"log-format", OPT_CHOICE, AT(log_format), .choices = log_formats, .def = "text",
      .help = "The format of the messages on standard error."},
     "text|json",
     .is_rare = 1},
    {{"test-shared-gpu", OPT_BOOL, AT(test_shared_gpu),
      .help =
          "For tests: let several ranks use one GPU of this machine. This is slow, and never right "
          "for training. All ranks need the option; --local gives it to them."},
     NULL,
     .of = DAEMON_AS_RANK,
     .is_rare = 1},
    {{"help", OPT_BOOL, AT(help), .help = "Show the options."}, NULL},
    {{"version", OPT_BOOL, AT(version), .help = "Show the version."}, NULL, .is_rare = 1},
};

const size_t n_daemon_args = ARRAY_LEN(daemon_args);

/* A bad secret file is a fault of the command line and is named before anything else is done.  The
 * secrets are not kept: trust_open reads them again. */
int daemon_check_options(const struct daemon_options *o, char advertise[ADDR_TEXT], struct err *err)
{
    int n, rc = device_check(o->device, err);

    advertise[0] = '\0';
    if (rc == 0)
        rc = places_parse(o, &n, err);
    if (rc == 0 && o->bind != BIND_AUTO && !o->ranks)
        rc = err_set(err, ERR_ARG, "--bind belongs to --ranks; give both, or leave --bind out");
    if (rc == 0 && o->iface)
        rc = addr_of_interface(o->iface, advertise, err);
    return rc < 0 ? rc : trust_check_files(&o->secret_files, err);
}

void daemon_set_nccl(const struct daemon_options *o, const char *advertise)
{
    if (o->test_shared_gpu)
        daemon_share_gpu(); /* over loopback, whatever --iface says */
    else if (o->iface && strcmp(o->device, "cpu") != 0)
        daemon_name_network(o->iface, advertise);
}

void daemon_check_nccl(const struct daemon_options *o)
{
    if (o->iface)
        daemon_check_network(o->iface);
}

int daemon_end_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    log_error("standard output cannot be written: %s", strerror(errno));
    return status == STATUS_OK ? STATUS_FAILED : status;
}

int daemon_status_of(const struct err *err)
{
    switch (err->code) {
    case ERR_ARG:
    case ERR_CONFIG:
    case ERR_UNSUPPORTED:
    case ERR_REFUSED:
    case ERR_CORRUPT:
        return STATUS_USAGE;
    default:
        return STATUS_FAILED;
    }
}
