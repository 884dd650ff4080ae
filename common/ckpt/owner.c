/* owner - the file RUN/owner is written aside and renamed, so it is always whole.
 *
 * A process is one owner: its random id is made at the first use and stays. */
#include "ckpt/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "ckpt/file.h"

enum { MOST_BYTES = 4096 };

/* ---- this process ---- */

/* Written once, by pthread_once, and only read afterwards. */
static struct {
    pthread_once_t once;
    char id[OWNER_ID];
} self = {.once = PTHREAD_ONCE_INIT};

/* Where the kernel has no random bytes yet, the process and its start tell it apart. */
static void make_name(char out[OWNER_ID])
{
    struct hash128 bits = {(uint64_t)getpid(), (uint64_t)host_process_start(getpid())};

    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) < 0)
        bits.lo ^= (uint64_t)host_pid_space() << 32;
    hash_to_text(bits, out);
}

static void owner_make_id(void) { make_name(self.id); }

const char *owner_own_id(void)
{
    pthread_once(&self.once, owner_make_id);
    return self.id;
}

static void describe_self(struct owner *o, int64_t term)
{
    *o = (struct owner){.term = term, .pid = getpid(), .pid_space = host_pid_space()};
    strcpy(o->id, owner_own_id());
    host_name(o->host);
    host_boot(o->boot);
    o->started = host_process_start(o->pid);
}

int owner_is_self(const struct owner *o) { return !strcmp(o->id, owner_own_id()); }

int owner_lives(const struct owner *o)
{
    char boot[HOST_BOOT];

    host_boot(boot);
    if (!boot[0] || strcmp(boot, o->boot) != 0 || o->pid_space != host_pid_space())
        return -1;
    return o->started && host_process_start(o->pid) == o->started;
}

/* ---- the file ---- */

static char *owner_text_of(const struct owner *o)
{
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:s, s:I}", "id", o->id, "run", o->run, "term",
                  (json_int_t)o->term, "host", o->host, "pid", (json_int_t)o->pid, "pid_space",
                  (json_int_t)o->pid_space, "boot", o->boot, "started", (json_int_t)o->started);
    char *text;

    if (!root) /* the host's name is not UTF-8 */
        root = json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", o->id, "run", o->run, "term",
                         (json_int_t)o->term, "host", "?", "pid", (json_int_t)o->pid);
    text = json_dumps(root, JSON_COMPACT);
    ASSERT(text);
    json_decref(root);
    return text;
}

static int write_aside(const char *aside, const char *path, const char *text, struct err *err)
{
    int fd, rc = file_create_as(aside, path, &fd, err);

    if (rc < 0)
        return rc;
    rc = file_put(fd, path, text, strlen(text), err);
    if (rc == 0)
        return file_finish(fd, path, err);
    close(fd);
    return rc;
}

static void name_run(const char *dir, char run[OWNER_ID])
{
    struct owner before;
    struct err ignored;

    if (owner_read(dir, &before, &ignored) == 0 && before.run[0])
        strcpy(run, before.run);
    else
        make_name(run);
}

int owner_claim(const char *dir, int64_t term, struct err *err)
{
    char run[OWNER_ID];

    name_run(dir, run);
    return owner_claim_for(dir, run, term, err);
}

int owner_claim_for(const char *dir, const char *run, int64_t term, struct err *err)
{
    struct owner o;
    char *path = xasprintf("%s/owner", dir), *aside, *text;
    int rc;

    describe_self(&o, term);
    snprintf(o.run, sizeof o.run, "%s", run);
    aside = xasprintf("%s.%s.new", path, o.id);
    text = owner_text_of(&o);
    unlink(aside); /* left by an earlier claim of this process, if that failed */
    rc = write_aside(aside, path, text, err);
    if (rc == 0 && rename(aside, path) < 0)
        rc = err_sys(err, errno, "%s: cannot be put in its place", path);
    if (rc < 0)
        unlink(aside);
    if (rc == 0)
        rc = file_sync_folder(dir, err);
    free(text);
    free(aside);
    free(path);
    return rc;
}

static void owner_take_text(char *out, size_t cap, json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    snprintf(out, cap, "%s", text ? text : "");
}

static int owner_parse(const char *path, const char *text, size_t len, struct owner *out,
                       struct err *err)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    int rc = 0;

    *out = (struct owner){0};
    owner_take_text(out->id, sizeof out->id, root, "id");
    owner_take_text(out->run, sizeof out->run, root, "run");
    owner_take_text(out->host, sizeof out->host, root, "host");
    owner_take_text(out->boot, sizeof out->boot, root, "boot");
    out->term = json_integer_value(json_object_get(root, "term"));
    out->pid = json_integer_value(json_object_get(root, "pid"));
    out->pid_space = json_integer_value(json_object_get(root, "pid_space"));
    out->started = json_integer_value(json_object_get(root, "started"));
    if (!out->id[0])
        rc = err_set(err, ERR_CORRUPT, "%s: names no owner", path);
    json_decref(root);
    return rc;
}

/* The file's bytes, or -1 with errno. */
static ssize_t owner_read_whole(const char *path, char text[MOST_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), errnum;
    ssize_t n;

    if (fd < 0)
        return -1;
    n = read(fd, text, MOST_BYTES);
    errnum = errno;
    close(fd);
    errno = errnum;
    return n;
}

/* The same.  On NFS, ESTALE says that the file was replaced between open and read. */
static ssize_t owner_read_text(const char *path, char text[MOST_BYTES])
{
    enum { TRIES = 5 };
    ssize_t n = -1;

    for (int i = 0; i < TRIES && n < 0; i++) {
        n = owner_read_whole(path, text);
        if (n < 0 && errno != ESTALE && errno != EINTR)
            break;
    }
    return n;
}

/* 0 or OWNER_NONE, of what owner_read_text has returned. */
static int owner_take(const char *path, const char *text, ssize_t n, struct owner *out,
                      struct err *err)
{
    if (n >= 0)
        return owner_parse(path, text, (size_t)n, out, err);
    return errno == ENOENT ? OWNER_NONE : err_sys(err, errno, "%s: cannot be read", path);
}

int owner_read(const char *dir, struct owner *out, struct err *err)
{
    char *path = xasprintf("%s/owner", dir), text[MOST_BYTES];
    const ssize_t n = owner_read_text(path, text);
    const int rc = owner_take(path, text, n, out, err);

    free(path);
    return rc;
}

/* The text begins as this process writes it; so for each event nothing is parsed. */
static int is_own_text(const char *text, ssize_t n)
{
    static const char begin[] = "{\"id\":\"";
    enum { BEGIN = sizeof begin - 1, ID = OWNER_ID - 1 };

    return n > BEGIN + ID && !memcmp(text, begin, BEGIN) &&
           !memcmp(text + BEGIN, owner_own_id(), ID) && text[BEGIN + ID] == '"';
}

int owner_check(const char *dir, struct err *err)
{
    char *path = xasprintf("%s/owner", dir), text[MOST_BYTES];
    const ssize_t n = owner_read_text(path, text);
    struct owner o;
    int rc = is_own_text(text, n) ? OWNER_NONE : owner_take(path, text, n, &o, err);

    free(path);
    if (rc < 0)
        return rc;
    if (rc == OWNER_NONE || owner_is_self(&o))
        return 0;
    return err_set(err, ERR_REFUSED,
                   "run directory %s: another dpdriver has taken it over: pid %lld on %.64s; this "
                   "one writes nothing more there",
                   dir, (long long)o.pid, o.host);
}

int owner_is_other(const char *dir)
{
    struct err ignored;

    return owner_check(dir, &ignored) == ERR_REFUSED;
}
