/* Claiming, resuming and discarding a run directory.
 * Whatever is made is synced, so that a power cut does not lose it. */
#include "report/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

enum { MAX_NAMES = 10000 };

enum { CLAIM_TAKEN = 1 }; /* a run is there already */

/* runs/NAME, runs/NAME-2, runs/NAME-3 ... */
static char *run_dir_numbered(const char *path, int n)
{
    return n == 1 ? xstrdup(path) : xasprintf("%s-%d", path, n);
}

static int run_dir_has(const char *dir, const char *entry)
{
    char *p = xasprintf("%s/%s", dir, entry);
    struct stat st;
    int yes = lstat(p, &st) == 0;

    free(p);
    return yes;
}

int run_dir_holds_run(const char *path)
{
    return run_dir_has(path, "events.jsonl") || run_dir_has(path, "job.yaml") ||
           run_dir_has(path, "checkpoints");
}

int run_dir_has_trained(const char *path) { return run_dir_has(path, "checkpoints"); }

/* The folder for checkpoints says that the run has trained.  If it cannot be made, the first
 * checkpoint fails and says why. */
void run_dir_begin_training(const struct run_dir *d)
{
    char *folder = xasprintf("%s/checkpoints", d->path);

    (void)mkdir(folder, 0777);
    free(folder);
}

void run_dir_end_training(const struct run_dir *d)
{
    char *folder = xasprintf("%s/checkpoints", d->path);

    if (!owner_is_other(d->path))
        (void)rmdir(folder); /* fails, as it should, if checkpoints are in it */
    free(folder);
}

/* Make new entries in the folder of `path` survive a power cut, if the file system can do that. */
static void run_dir_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash == path ? xstrdup("/")
                   : slash       ? xasprintf("%.*s", (int)(slash - path), path)
                                 : xstrdup(".");
    struct err ignored;

    (void)file_sync_folder(parent, &ignored);
    free(parent);
}

/* *n_made: how many folders of `path`, from its end, were not there before. */
static int make_dirs(const char *path, int *n_made, struct err *err)
{
    char *p = xstrdup(path);
    struct stat st;
    int rc = 0;

    for (char *c = p + 1; rc == 0; c++) {
        char end = *c;

        if (end != '/' && end != '\0')
            continue;
        *c = '\0';
        if (mkdir(p, 0777) == 0) {
            ++*n_made;
            run_dir_sync_parent(p);
        } else if (errno != EEXIST) {
            rc = err_sys(err, errno, "run directory %s: cannot make %s (give another --run-dir)",
                         path, p);
        }
        *c = end;
        if (!end)
            break;
    }
    free(p);
    if (rc == 0 && (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)))
        rc = err_set(err, ERR_CONFIG, "run directory %s: there is something that is not a folder",
                     path);
    return rc;
}

int run_dir_cut_torn_line(int fd, const char *path, struct err *err)
{
    char block[4096];
    off_t size = lseek(fd, 0, SEEK_END), end = size;

    while (end > 0) {
        off_t from = end > (off_t)sizeof block ? end - (off_t)sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t)(end - from), from);
        const char *nl;

        if (n != end - from)
            return err_sys(err, n < 0 ? errno : EIO, "%s: cannot be read", path);
        nl = memrchr(block, '\n', (size_t)n);
        end = from + (nl ? nl - block + 1 : 0);
        if (nl)
            break;
    }
    if (end < size) {
        log_warn("%s: a torn last line of %lld bytes is cut", path, (long long)(size - end));
        if (ftruncate(fd, end) < 0)
            return err_sys(err, errno, "%s: cannot be cut to %lld bytes", path, (long long)end);
    }
    return 0;
}

static int in_use(const char *dir, const char *by, struct err *err)
{
    return err_set(err, ERR_CONFIG,
                   "run directory %s: another dpdriver is using it%s; wait for that one to end, "
                   "or give another --run-dir",
                   dir, by);
}

/* The file system has no locks: ask the file `owner`. */
static int check_owner(const char *dir, const struct run_dir_request *q, struct err *err)
{
    char by[HOST_NAME + 64];
    struct owner o;
    int rc = owner_read(dir, &o, err), lives = rc == 0 ? owner_lives(&o) : 0;

    if (rc == ERR_CORRUPT || rc == OWNER_NONE || lives == 0)
        return 0;
    if (rc < 0)
        return rc;
    snprintf(by, sizeof by, ": pid %lld on %s", (long long)o.pid, o.host);
    if (lives > 0 && !owner_is_self(&o))
        return in_use(dir, by, err);
    if (lives < 0 && q->resume && q->check && (rc = q->check(q->arg, dir, err)) < 0)
        return rc;
    if (lives < 0)
        log_warn("run directory %s: its file system has no locks, and its last driver%s may still "
                 "run; that one writes nothing more there from now on",
                 dir, by);
    return 0;
}

/* The lock lives as long as the descriptor. */
static int lock_events(int fd, struct run_dir *d, const struct run_dir_request *q, struct err *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    d->wants_lock = errno == EWOULDBLOCK;
    return d->wants_lock ? in_use(d->path, "", err) : check_owner(d->path, q, err);
}

static int claim_owner(const struct run_dir_request *q, struct run_dir *d, struct err *err)
{
    struct owner o = {.term = 0};
    struct err ignored;
    int rc;

    (void)owner_read(d->path, &o, &ignored);
    if (q->run)
        rc = owner_claim_for(d->path, q->run, max_i64(q->term, o.term + 1), err);
    else
        rc = owner_claim(d->path, o.term + 1, err);
    if (rc == 0)
        rc = owner_read(d->path, &o, err);
    if (rc < 0)
        return rc;
    strcpy(d->run, o.run);
    d->term = o.term;
    ckpt_clear(d->path);
    return 0;
}

/* Remove the files of a run that did not begin: the folder holds no run then. */
static void remove_files(const char *dir)
{
    static const char *const made[] = {"job.yaml", "owner", "audit.jsonl", "events.jsonl"};

    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        char *path = xasprintf("%s/%s", dir, made[i]);

        unlink(path);
        free(path);
    }
}

/* ---- hard links ---- */

/* A copy of a run that is made of hard links (cp -al) shares its files with the other run.  A file
 * that is renamed into place is the copy's own; a file that lines are added to becomes that here.
 */
static int own_file(const char *dir, const char *name, int *changed, struct err *err)
{
    char *path = xasprintf("%s/%s", dir, name);
    struct buf text = {0};
    struct stat st;
    int64_t n_bytes;
    int fd = -1, rc = 0;

    *changed = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1;
    if (*changed) {
        rc = file_open(path, &fd, &n_bytes, err);
        if (rc == 0)
            rc = file_read_at(fd, path, buf_reserve(&text, (size_t)n_bytes), (size_t)n_bytes, 0,
                              err);
        if (rc == 0)
            rc = run_dir_replace(path, text.data, (size_t)n_bytes, err);
        if (fd >= 0)
            close(fd);
    }
    buf_fini(&text);
    free(path);
    return rc;
}

/* *fd: of events.jsonl; of the new file, with the lock, if there is one. */
static int own_files(const struct run_dir *d, int *fd, struct err *err)
{
    int changed = 0, ignored, opened, rc = own_file(d->path, "metrics.csv", &ignored, err);

    if (rc == 0)
        rc = own_file(d->path, "audit.jsonl", &ignored, err);
    if (rc == 0)
        rc = own_file(d->path, "events.jsonl", &changed, err);
    if (rc < 0 || !changed)
        return rc;
    opened = open(d->events, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (opened < 0)
        return err_sys(err, errno, "%s: cannot be written", d->events);
    if (flock(opened, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        close(opened); /* another driver opened the new file, and was faster */
        return in_use(d->path, "", err);
    }
    close(*fd);
    *fd = opened;
    return 0;
}

/* `resume`: the folder holds a run, which is gone on with. */
static int run_dir_open_events(struct run_dir *d, const struct run_dir_request *q, int resume,
                               struct err *err)
{
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (resume ? 0 : O_EXCL);
    int fd = open(d->events, flags, 0666), rc;

    if (fd < 0 && errno == EEXIST)
        return CLAIM_TAKEN;
    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_CONFIG, "%s: is a link, and would be written through; remove it",
                       d->events);
    if (fd < 0)
        return err_sys(err, errno, "%s: cannot be written", d->events);
    rc = lock_events(fd, d, q, err);
    if (rc == 0 || q->run)
        rc = claim_owner(q, d, err);
    if (rc == 0 && resume && !q->run)
        rc = own_files(d, &fd, err);
    if (rc == 0 && resume)
        rc = run_dir_cut_torn_line(fd, d->events, err);
    if (rc < 0) {
        if (!resume)
            remove_files(d->path);
        close(fd);
        return rc;
    }
    d->events_fd = fd;
    return 0;
}

/* Claim exactly `path`.  0, CLAIM_TAKEN, or an error. */
static int claim_path(const char *path, const struct run_dir_request *q, struct run_dir *out,
                      struct err *err)
{
    struct run_dir d = {.path = xstrdup(path), .events_fd = -1};
    int rc = make_dirs(path, &d.n_made, err);
    int holds = rc == 0 && run_dir_holds_run(path);

    d.events = xasprintf("%s/events.jsonl", path);
    if (rc == 0)
        rc = holds && !q->resume ? CLAIM_TAKEN : run_dir_open_events(&d, q, holds, err);
    if (rc != 0) {
        run_dir_fini(&d);
        return rc;
    }
    d.resumed = holds;
    *out = d;
    return 0;
}

static int taken_error(const struct run_dir_request *q, struct err *err)
{
    return err_set(err, ERR_CONFIG,
                   "run directory %s holds a run already; add --resume to go on with it, or give "
                   "another --run-dir",
                   q->path);
}

/* The numbers of NAME, NAME-2 ... that are there; 0: none.  There may be gaps. */
struct numbers {
    int last, last_trained; /* the last that holds a run, and the last that has trained */
};

/* NAME's own number is 1, NAME-12's is 12; 0 for any other name. */
static int run_dir_number_of(const char *entry, const char *name)
{
    size_t len = strlen(name), digits;

    if (strncmp(entry, name, len) != 0)
        return 0;
    if (!entry[len])
        return 1;
    digits = strspn(entry + len + 1, "0123456789");
    if (entry[len] != '-' || entry[len + 1] == '0' || digits < 1 || digits > 5 ||
        entry[len + 1 + digits])
        return 0;
    return atoi(entry + len + 1);
}

static struct numbers find_numbers(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup(".");
    struct numbers found = {0, 0};
    DIR *d = opendir(parent);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        int n = run_dir_number_of(entry->d_name, slash ? slash + 1 : path);
        char *p = run_dir_numbered(path, n);

        if (n && n <= MAX_NAMES && run_dir_holds_run(p))
            found.last = (int)max_i64(found.last, n);
        if (n && n <= MAX_NAMES && run_dir_has_trained(p))
            found.last_trained = (int)max_i64(found.last_trained, n);
        free(p);
    }
    if (d)
        closedir(d);
    free(parent);
    return found;
}

/* The number of the run that --resume goes on with; 1 if there is none. */
static int number_to_resume(const char *path)
{
    struct numbers n = find_numbers(path);

    return (int)max_i64(1, n.last_trained ? n.last_trained : n.last);
}

static int claim_numbered(const struct run_dir_request *q, struct run_dir *out, struct err *err)
{
    int first = q->resume ? number_to_resume(q->path) : find_numbers(q->path).last + 1;

    for (int n = first; n <= MAX_NAMES; n++) {
        char *p = run_dir_numbered(q->path, n);
        int rc = claim_path(p, q, out, err);

        free(p);
        if (rc == 0)
            out->renamed = n > 1;
        if (rc <= 0)
            return rc;
    }
    return err_set(err, ERR_CONFIG,
                   "run directory %s and %d numbered ones hold runs already; give "
                   "another --run-dir",
                   q->path, MAX_NAMES - 1);
}

static int is_of_run(const char *path, const char *run)
{
    struct owner o;
    struct err ignored;

    return owner_read(path, &o, &ignored) == 0 && !strcmp(o.run, run);
}

char *run_dir_find(const struct run_dir_request *q)
{
    int last = q->is_explicit ? 1 : find_numbers(q->path).last;

    for (int n = 1; n <= last; n++) {
        char *p = run_dir_numbered(q->path, n);

        if (is_of_run(p, q->run))
            return p;
        free(p);
    }
    return NULL;
}

int run_dir_claim(const struct run_dir_request *q, struct run_dir *out, struct err *err)
{
    int rc;

    if (!q->is_explicit)
        return claim_numbered(q, out, err);
    rc = claim_path(q->path, q, out, err);
    return rc == CLAIM_TAKEN ? taken_error(q, err) : rc;
}

int run_dir_check(const struct run_dir_request *q, struct err *err)
{
    struct stat st;

    if (stat(q->path, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(err, ERR_CONFIG, "run directory %s: there is something that is not a folder",
                       q->path);
    if (q->is_explicit && !q->resume && run_dir_holds_run(q->path))
        return taken_error(q, err);
    return 0;
}

char *run_dir_to_resume(const struct run_dir_request *q)
{
    return run_dir_numbered(q->path, q->is_explicit ? 1 : number_to_resume(q->path));
}

int run_dir_replace(const char *path, const void *data, size_t len, struct err *err)
{
    char *aside = xasprintf("%s.%s.new", path, owner_own_id());
    int fd = -1, rc;

    rc = file_create_as(aside, path, &fd, err);
    if (rc == 0) {
        rc = file_put(fd, path, data, len, err);
        if (rc == 0)
            rc = file_finish(fd, path, err);
        else
            close(fd);
        if (rc == 0 && rename(aside, path) < 0)
            rc = err_sys(err, errno, "%s: cannot be put in its place", path);
        if (rc == 0)
            run_dir_sync_parent(path);
        else
            unlink(aside);
    }
    free(aside);
    return rc;
}

/* The last n folders of `path`, as far as they are empty. */
static void remove_empty(const char *path, int n)
{
    char *p = xstrdup(path);

    for (; n > 0; n--) {
        char *slash;

        for (size_t len = strlen(p); len > 1 && p[len - 1] == '/'; len--)
            p[len - 1] = '\0';
        if (rmdir(p) < 0)
            break;
        slash = strrchr(p, '/');
        if (!slash)
            break;
        slash[1] = '\0';
    }
    free(p);
}

void run_dir_discard(const struct run_dir *d)
{
    if (d->resumed || !d->path || owner_is_other(d->path))
        return;
    remove_files(d->path);
    remove_empty(d->path, d->n_made);
}

void run_dir_fini(struct run_dir *d)
{
    if (d->path && d->events_fd >= 0)
        close(d->events_fd);
    free(d->path);
    free(d->events);
    *d = (struct run_dir){.events_fd = -1};
}
