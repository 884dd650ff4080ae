/* again - the other process is this program, /proc/self/exe.  It dies with this one, and gets its
 * signals.
 *
 * Failure modes: a signal ends both, and the folder is removed; SIGKILL leaves the folder. */
#include "driver/again.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"

/* ---- the folder ---- */

/* 1: `path` is `folder`, or in it. */
static int again_is_in(const char *path, const char *folder)
{
    char *inner = realpath(path, NULL), *outer = realpath(folder, NULL);
    const size_t n = outer ? strlen(outer) : 0;
    const int is = inner && outer && !strncmp(inner, outer, n) && (!inner[n] || inner[n] == '/');

    free(inner);
    free(outer);
    return is;
}

static int again_make_named(struct again *a, const char *wanted, const char *run, struct err *err)
{
    a->is_kept = 1;
    a->folder = xstrdup(wanted);
    if (mkdir(wanted, 0777) < 0)
        return err_sys(err, errno, "--run-dir %s: want the name of a folder that is not there yet",
                       wanted);
    if (!run || !again_is_in(wanted, run))
        return 0;
    rmdir(wanted);
    return err_set(err, ERR_CONFIG,
                   "--run-dir %s is in the run %s, where nothing is written; give another folder",
                   wanted, run);
}

int again_init(struct again *a, const struct options *o, const char *wanted, const char *run,
               struct err *err)
{
    const char *base = getenv("TMPDIR");

    *a = (struct again){.options = o};
    if (wanted)
        return again_make_named(a, wanted, run, err);
    a->folder = xasprintf("%s/dptrain-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(a->folder))
        return 0;
    err_sys(err, errno, "a folder for the steps that are computed again, %s; TMPDIR names another",
            a->folder);
    free(a->folder);
    a->folder = NULL;
    return err->code;
}

static int again_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)at;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}

static void again_remove_all(const char *folder)
{
    enum { OPEN_FOLDERS = 16 };

    if (nftw(folder, again_remove, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        log_warn("%s could not be removed: %s", folder, strerror(errno));
}

void again_drop(const struct again *a, const char *name)
{
    char *path = xasprintf("%s/%s", a->folder, name);

    if (!a->is_kept)
        again_remove_all(path);
    free(path);
}

void again_fini(struct again *a)
{
    if (a->folder && !a->is_kept)
        again_remove_all(a->folder);
    free(a->folder);
    a->folder = NULL;
}

/* ---- the process ---- */

struct words {
    char *word[AGAIN_WORDS];
    int n; /* a word that does not fit is counted */
};

static void again_add(struct words *w, const char *text)
{
    if (w->n < AGAIN_WORDS - 1)
        w->word[w->n] = xstrdup(text);
    w->n++;
}

static void words_fini(struct words *w)
{
    for (int i = 0; i < w->n && i < AGAIN_WORDS - 1; i++)
        free(w->word[i]);
}

/* The options that say what this process does, or where it writes. */
static int is_own_option(const char *name)
{
    static const char *const own[] = {"replay", "step", "verify",     "run-dir", "nranks", "local",
                                      "key",    "seed", "log-format", "dump",    "compare"};

    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (!strcmp(name, own[i]))
            return 1;
    return 0;
}

/* Each such run is set to these: it has a row of hashes for every step, and tells nobody else. */
static const char *const again_sets[] = {
    "checkpoint.hashes=1", "cluster.min_ranks=0",      "cluster.max_ranks=0", "cluster.spares=0",
    "report.exec=",        "report.trace=[]",          "report.gradients=0",  "report.operators=0",
    "report.tensor=0",     "report.tensorboard=false",
};

static int again_words(const struct again *a, const char *name, const char *const *more,
                       int is_shown, struct words *w, struct err *err)
{
    const struct args *given = &a->options->args;
    char *run_dir = xasprintf("%s/%s", a->folder, name);

    again_add(w, a->options->program);
    again_add(w, "train");
    for (int i = 0; i < given->n_given; i++) {
        const struct arg_given *g = &given->given[i];
        char *option = xasprintf("--%s", g->arg->row.key);

        if (!is_own_option(g->arg->row.key)) {
            again_add(w, option);
            if (g->value)
                again_add(w, g->value);
        }
        free(option);
    }
    again_add(w, "--run-dir");
    again_add(w, run_dir);
    if (is_shown && a->options->common.log_format == LOG_JSON) {
        again_add(w, "--log-format");
        again_add(w, "json");
    }
    for (size_t i = 0; i < ARRAY_LEN(again_sets); i++) {
        again_add(w, "--set");
        again_add(w, again_sets[i]);
    }
    for (; *more; more++)
        again_add(w, *more);
    free(run_dir);
    if (w->n < AGAIN_WORDS)
        return 0;
    return err_set(err, ERR_ARG, "%d words of options, want fewer than %d", w->n, AGAIN_WORDS);
}

static volatile sig_atomic_t again_child; /* for the handler, which no other thread runs */

static volatile sig_atomic_t again_signal; /* the signal that came while one ran, or 0 */

static void again_pass(int number)
{
    again_signal = number;
    if (again_child > 0)
        kill((pid_t)again_child, number);
}

/* Never returns. */
static void again_be_child(const struct words *w, const char *log)
{
    static const char sorry[] = "dpdriver: error: the other process could not be started\n";
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : STDERR_FILENO;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (null >= 0 && fd >= 0 && dup2(null, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0)
        execv("/proc/self/exe", (char *const *)w->word);
    if (write(STDERR_FILENO, sorry, sizeof sorry - 1) < 0)
        _exit(STATUS_FAILED);
    _exit(STATUS_FAILED);
}

/* A process that a signal ended counts as failed. */
static int again_wait(pid_t pid, int *status, struct err *err)
{
    int how;

    while (waitpid(pid, &how, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "waiting for the other process");
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : STATUS_FAILED;
    return 0;
}

static int again_start(const struct words *w, const char *log, int *status, struct err *err)
{
    struct sigaction pass = {.sa_handler = again_pass}, before[2];
    pid_t pid;
    int rc;

    sigaction(SIGINT, &pass, &before[0]);
    sigaction(SIGTERM, &pass, &before[1]);
    pid = fork();
    if (pid == 0)
        again_be_child(w, log);
    again_child = pid;
    rc = pid < 0 ? err_sys(err, errno, "another process") : again_wait(pid, status, err);
    again_child = 0;
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (rc == 0 && again_signal)
        rc = err_set(err, ERR_CANCELED, "stopped by %s", strsignal(again_signal));
    return rc;
}

int again_run(struct again *a, const char *name, const char *const *more, int is_shown, int *status,
              struct err *err)
{
    char *log = is_shown ? NULL : xasprintf("%s/%s.log", a->folder, name);
    struct words w = {.n = 0};
    int rc = again_words(a, name, more, is_shown, &w, err);

    if (rc == 0)
        rc = again_start(&w, log, status, err);
    words_fini(&w);
    free(log);
    return rc;
}

/* The rest of the last line of a run's log that has `mark`, for free(); NULL: there is none. */
static char *again_last(const struct again *a, const char *name, const char *mark)
{
    char *path = xasprintf("%s/%s.log", a->folder, name), *line = NULL, *why = NULL;
    FILE *f = fopen(path, "re");
    size_t room = 0;

    while (f && getline(&line, &room, f) > 0) {
        const char *at = strstr(line, mark);

        if (!at)
            continue;
        line[strcspn(line, "\n")] = 0;
        free(why);
        why = xstrdup(at + strlen(mark));
    }
    if (f)
        fclose(f);
    free(line);
    free(path);
    return why;
}

char *again_why(const struct again *a, const char *name)
{
    char *why = again_last(a, name, "error: ");

    return why ? why : xstrdup("it says no reason");
}

char *again_warned(const struct again *a, const char *name, const char *about)
{
    char *why = again_last(a, name, about);

    return why ? why : xstrdup("its log may say why");
}
