/* Reads a hostfile, and starts and ends the ssh process of each machine in it.
 *
 * The text that the remote shell runs contains only names and numbers that were checked here. */
#include "driver/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/options.h"

enum {
    STOP_MS = 3000, /* for followers to end after their standard input has ended */
    MOST_PAUSE_S = 60,
    SHORT_LIFE_S = 20, /* an ssh that was started again may still be connecting */
    LONG_LIFE_S = 60   /* one that lived so long before it failed is started again after 1 s */
};

/* ---- the file ---- */

/* 1: s may be given to ssh as a machine's name.  A name that begins with "-" would be an option. */
static int hosts_is_name(const char *s)
{
    if (!isalnum((unsigned char)*s))
        return 0;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-._@", *s))
            return 0;
    return 1;
}

/* Take a word behind the name: "slots=4".  MPI's max_slots, a limit for other schedulers, is
 * ignored. */
static int take_word(const char *word, struct hosts_line *line)
{
    char *end;
    long n;

    if (!strncmp(word, "max_slots=", 10) || !strncmp(word, "max-slots=", 10))
        return 0;
    if (strncmp(word, "slots=", 6) != 0)
        return -1;
    n = strtol(word + 6, &end, 10);
    if (*end || end == word + 6 || n < 1 || n > PLACES_MAX)
        return -1;
    line->slots = (int)n;
    return 0;
}

static int hosts_read_line(char *text, struct hosts *h, struct err *err)
{
    char *rest = text, *word;
    struct hosts_line line = {.slots = 1, .input = -1};

    text[strcspn(text, "#\r\n")] = '\0';
    word = strtok_r(rest, " \t", &rest);
    if (!word)
        return 0;
    if (strlen(word) >= sizeof line.name || !hosts_is_name(word))
        return err_set(err, ERR_CONFIG, "\"%.60s\" is no name of a machine, want NAME slots=N",
                       word);
    strcpy(line.name, word);
    while ((word = strtok_r(rest, " \t", &rest)))
        if (take_word(word, &line) < 0)
            return err_set(err, ERR_CONFIG,
                           "\"%.60s\", want one machine in a line, with slots=N, N from 1 to %d",
                           word, PLACES_MAX);
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->line[i].name, line.name))
            return err_set(err, ERR_CONFIG, "%s is there twice; give it more slots", line.name);
    if (h->n == HOSTS_MAX)
        return err_set(err, ERR_CONFIG, "more than %d machines", HOSTS_MAX);
    h->line[h->n++] = line;
    return 0;
}

int hosts_read(const char *path, struct hosts *out, struct err *err)
{
    FILE *f = fopen(path, "re");
    char text[1024];
    int rc = 0, number = 0;

    if (!f)
        return err_sys(err, errno, "--hosts %s", path);
    *out = (struct hosts){.line = xcalloc(HOSTS_MAX, sizeof *out->line)};
    while (rc == 0 && fgets(text, sizeof text, f)) {
        number++;
        if (hosts_read_line(text, out, err) < 0)
            rc = err_wrap(err, "--hosts %s:%d", path, number);
    }
    if (rc == 0 && ferror(f))
        rc = err_sys(err, errno, "--hosts %s", path);
    fclose(f);
    if (rc == 0 && out->n == 0)
        rc = err_set(err, ERR_CONFIG, "--hosts %s: no machine is named there", path);
    return rc;
}

int hosts_n_ranks(const struct hosts *h)
{
    int n = 0;

    for (int i = 0; i < h->n; i++)
        n += h->line[i].slots;
    return n;
}

/* ---- starting ---- */

/* The remote shell's script.  The first line of standard input is the secret.  A second process
 * reads on until standard input ends, which happens when the driver ends, and then stops the
 * follower.  It is ended with the follower, whose number another process may get.  While the
 * follower's process is still the shell it waits: dash 0.5.12 loses a signal there, for which the
 * shell has a trap (findings/dash_trap.sh).
 *
 * A signal that ends the shell leaves no secret behind.  It is not passed on: whoever ends a
 * machine signals its follower, too, and a second signal would kill the ranks. */
static const char script[] =
    "umask 077; f=; trap 'rm -f \"$f\"' EXIT; trap 'exit 143' HUP INT TERM; "
    "DPTRAIN_MINDER=%s:0; export DPTRAIN_MINDER; "
    "f=$(mktemp) || exit 1; IFS= read -r s; printf \"%%s\\n\" \"$s\" >\"$f\"; "
    "p=%s; [ -x \"$p\" ] || p=dpfollower; exec 3<&0; "
    "\"$p\" --root %s --ranks %d --device %s --once --log-format %s%s%s </dev/null & c=$!; "
    "{ cat <&3; for i in 1 2 3 4 5 6 7 8 9; do [ \"/proc/$c/exe\" -ef \"/proc/$$/exe\" ] || "
    "break; sleep 0.1; done; kill \"$c\"; } >/dev/null 2>&1 & k=$!; "
    "wait \"$c\"; s=$?; kill \"$k\" 2>/dev/null; exit \"$s\"";

/* The address of this machine that its followers on other machines get as --root. */
static int hosts_own_address(const struct options *o, int port, char *out, size_t size,
                             struct err *err)
{
    char name[ADDR_MAX_HOST] = "";
    const char *host = o->advertise[0] ? o->advertise : o->host;
    int is_any = !strcmp(host, "0.0.0.0") || !strcmp(host, "::");

    if (is_any && gethostname(name, sizeof name - 1) < 0)
        return err_sys(err, errno, "--hosts: the name of this machine");
    host = is_any ? name : host;
    for (const char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-._:", *c))
            return err_set(err, ERR_ARG,
                           "--hosts: this machine's address is \"%.80s\"; give --iface", host);
    snprintf(out, size, strchr(host, ':') ? "\"[%s]:%d\"" : "%s:%d", host, port);
    return 0;
}

/* The path of `name` in PATH, for free(). */
static int find_program(const char *name, char **out, struct err *err)
{
    const char *path = getenv("PATH");

    while (path && *path) {
        size_t n = strcspn(path, ":");
        char *at = xasprintf("%.*s/%s", (int)n, path, name);

        if (n > 0 && access(at, X_OK) == 0) {
            *out = at;
            return 0;
        }
        free(at);
        path += n + (path[n] == ':');
    }
    return err_set(err, ERR_CONFIG, "--hosts: there is no %s in PATH; install OpenSSH's client",
                   name);
}

/* Write the first line of the secret's file to `to`; an empty line if there is no secret. */
static int send_secret(const struct options *o, int to, struct err *err)
{
    const struct arg_list *files = &o->common.secret_files;
    char line[1024] = "\n";
    FILE *f = files->n ? fopen(files->item[0], "re") : NULL;
    int rc = 0;

    if (files->n && (!f || !fgets(line, sizeof line, f)))
        rc = err_sys(err, errno, "--secret-file %s", files->item[0]);
    if (f)
        fclose(f);
    if (rc == 0 && write(to, line, strlen(line)) != (ssize_t)strlen(line))
        rc = err_sys(err, errno, "--hosts: the secret cannot be handed over");
    explicit_bzero(line, sizeof line);
    return rc;
}

static int start_line(struct hosts *h, int i, struct err *err)
{
    const struct options *o = h->options;
    struct hosts_line *line = &h->line[i];
    char *text = xasprintf(script, h->starts_again ? "ssh" : "none", h->program, h->root,
                           line->slots, device_is_cuda(o->device) ? "cuda" : "cpu",
                           o->common.log_format == LOG_JSON ? "json" : "text",
                           o->common.secret_files.n ? " --secret-file \"$f\"" : " --insecure",
                           o->n_relays ? " --relay" : "");
    struct minder_command c = {.n = 0};
    struct minder_order order = {.command = &c, .death_signal = SIGTERM};
    int pipe_fd[2], rc;

    line->started_ns = clock_mono_ns();
    line->due_ns = 0;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0) {
        free(text);
        return err_sys(err, errno, "--hosts: pipe");
    }
    order.input_fd = pipe_fd[0];
    line->input = pipe_fd[1];
    minder_add(&c, h->ssh, NULL);
    minder_add(&c, "-T", NULL);
    minder_add(&c, "-o", "BatchMode=yes");
    minder_add(&c, "-o", "ConnectTimeout=20");
    minder_add(&c, "-o", "ServerAliveInterval=5"); /* a machine may die without a word */
    minder_add(&c, "-o", "ServerAliveCountMax=3");
    minder_add(&c, line->name, text);
    rc = send_secret(o, line->input, err);
    if (rc == 0)
        rc = minder_start(&h->minder, &order, i, err);
    close(pipe_fd[0]);
    free(text);
    return rc;
}

int hosts_start(struct hosts *h, const struct options *o, int port, int starts_again,
                struct err *err)
{
    int rc = hosts_own_address(o, port, h->root, sizeof h->root, err);

    h->options = o;
    h->starts_again = starts_again;
    if (rc == 0)
        rc = find_program("ssh", &h->ssh, err);
    if (rc == 0 && minder_find_follower(&h->program, err) < 0)
        rc = err_wrap(err, "--hosts");
    if (rc == 0 && strpbrk(h->program, "'\"\\$` "))
        rc = err_set(err, ERR_CONFIG, "--hosts: the path %s has characters of the shell",
                     h->program);
    for (int i = 0; i < h->n && rc == 0; i++)
        rc = start_line(h, i, err);
    return rc;
}

/* ---- starting again ---- */

static void hosts_close_input(struct hosts_line *line)
{
    if (line->input >= 0)
        close(line->input);
    line->input = -1;
}

int hosts_retry(struct hosts *h, int number)
{
    struct hosts_line *line = &h->line[number];
    const int is_young = clock_since_s(line->started_ns) < LONG_LIFE_S;

    hosts_close_input(line);
    line->pause_s = line->pause_s && is_young ? (int)min_i64(2 * line->pause_s, MOST_PAUSE_S) : 1;
    line->due_ns = clock_mono_ns() + line->pause_s * INT64_C(1000000000);
    return line->pause_s;
}

int hosts_start_due(struct hosts *h)
{
    int n = 0;

    for (int i = 0; i < h->n; i++) {
        struct err err;

        if (h->line[i].due_ns && h->line[i].due_ns <= clock_mono_ns() && start_line(h, i, &err) < 0)
            log_warn("%s, started by --hosts: %s: trying again in %d s", h->line[i].name, err.msg,
                     hosts_retry(h, i));
        n += h->line[i].due_ns != 0;
    }
    return n;
}

/* ---- ending ---- */

int hosts_reap(struct hosts *h, int *number, char text[64], int *status)
{
    return minder_reap(&h->minder, number, text, status);
}

void hosts_end(struct hosts *h, int patience_ms)
{
    for (int i = 0; i < h->minder.n; i++) { /* the job does not wait for machines that are away */
        const struct minder_child *child = &h->minder.child[i];

        if (child->pid && h->line[child->tag].pause_s > 0 &&
            clock_since_s(h->line[child->tag].started_ns) < SHORT_LIFE_S)
            kill(child->pid, SIGTERM);
    }
    minder_wait(&h->minder, patience_ms);
    for (int i = 0; i < h->n; i++)
        hosts_close_input(&h->line[i]);
    minder_wait(&h->minder, STOP_MS);
    minder_end(&h->minder, 0, 1);
    free(h->ssh);
    free(h->program);
}
