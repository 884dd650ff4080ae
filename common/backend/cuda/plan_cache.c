/* plan_cache - the plans of cuDNN and cuBLASLt on disk, with a file for each.
 *
 * A file is a head (magic, key, hash and length of the body; all text) and the body. */
#include "backend/cuda/plan_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"

#define SUFFIX ".plan"

enum { MAX_FILE = 16 << 20 }; /* a plan with compiled kernels has some hundred KiB */

struct plan_cache {
    char *folder;
    plan_cache_warn *warn;
    void *arg;
    int has_written, is_broken; /* is_broken: warn was called, and nothing is written any more */
};

static char *cuda_plan_cache_joined(const char *a, const char *b)
{
    struct buf path = {0};

    buf_printf(&path, "%s%s", a, b);
    (void)buf_cstr(&path);
    return (char *)path.data;
}

/* The value of a variable that is an absolute path, or NULL. */
static const char *path_in_env(const char *name)
{
    const char *path = getenv(name);

    return path && path[0] == '/' ? path : NULL;
}

char *plan_cache_folder(void)
{
    const char *service = path_in_env("CACHE_DIRECTORY"), *xdg = path_in_env("XDG_CACHE_HOME");
    const char *home = path_in_env("HOME");

    if (service) { /* may be several folders, separated by colons */
        char *first = xstrdup(service), *folder;

        first[strcspn(first, ":")] = '\0';
        folder = cuda_plan_cache_joined(first, "/plans");
        free(first);
        return folder;
    }
    if (xdg)
        return cuda_plan_cache_joined(xdg, "/dptrain/plans");
    return home ? cuda_plan_cache_joined(home, "/.cache/dptrain/plans") : NULL;
}

struct plan_cache *plan_cache_open(const char *folder, plan_cache_warn *warn, void *arg)
{
    struct plan_cache *c;

    if (!folder)
        return NULL;
    c = xcalloc(1, sizeof *c);
    c->folder = xstrdup(folder);
    c->warn = warn;
    c->arg = arg;
    return c;
}

void plan_cache_close(struct plan_cache *c)
{
    if (!c)
        return;
    free(c->folder);
    free(c);
}

static char *cuda_plan_cache_path_of(const struct plan_cache *c, const char *key)
{
    char name[HASH_TEXT_LEN], file[HASH_TEXT_LEN + sizeof "/" SUFFIX];

    hash_to_text(hash_of(key, strlen(key)), name);
    snprintf(file, sizeof file, "/%s" SUFFIX, name);
    return cuda_plan_cache_joined(c->folder, file);
}

static void add_head(struct buf *to, const char *key, const void *data, size_t n_bytes)
{
    char hash[HASH_TEXT_LEN];

    hash_to_text(hash_of(data, n_bytes), hash);
    buf_printf(to, "dptrain plan 1\n%s\n%s %zu\n", key, hash, n_bytes);
}

/* ---- reading ---- */

/* Reads the whole of a file that belongs to this user; 0 if it does not, or cannot be read. */
static int read_own(const char *path, struct buf *out)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        st.st_size <= MAX_FILE) {
        n = read(fd, buf_reserve(out, (size_t)st.st_size), (size_t)st.st_size);
        out->len = n > 0 ? (size_t)n : 0;
        (void)futimens(fd, NULL); /* marks the entry as used now, so that it is removed last */
    }
    close(fd);
    return n > 0;
}

/* 1 if the file is whole and has this key; then its body starts at *skip. */
static int cuda_plan_cache_is_whole(const struct buf *file, const char *key, size_t *skip)
{
    struct buf head = {0};
    int whole = 0;

    for (size_t at = 0, n_lines = 0; at < file->len && n_lines < 3; at++) {
        n_lines += file->data[at] == '\n';
        if (n_lines == 3)
            *skip = at + 1;
    }
    if (*skip > 0) {
        add_head(&head, key, file->data + *skip, file->len - *skip);
        whole = head.len == *skip && !memcmp(head.data, file->data, head.len);
    }
    buf_fini(&head);
    return whole;
}

int plan_cache_get(struct plan_cache *c, const char *key, struct buf *out)
{
    char *path;
    size_t skip = 0;
    int found;

    if (!c)
        return 0;
    path = cuda_plan_cache_path_of(c, key);
    found = read_own(path, out) && cuda_plan_cache_is_whole(out, key, &skip);
    free(path);
    if (found)
        buf_consume(out, skip);
    else
        buf_clear(out);
    return found;
}

/* ---- writing ---- */

static void cuda_plan_cache_give_up(struct plan_cache *c, int error)
{
    struct buf text = {0};

    buf_printf(&text,
               "plans for the GPU cannot be kept in %s: %s; they are chosen anew at each start "
               "(XDG_CACHE_HOME names another place, train.plan_cache=false none)",
               c->folder, strerror(error));
    if (c->warn)
        c->warn(c->arg, buf_cstr(&text));
    buf_fini(&text);
    c->is_broken = 1;
}

static int make_folders(const char *folder)
{
    char *path = xstrdup(folder);
    int rc = 0;

    for (char *p = path + 1; rc == 0 && *p; p++)
        if (*p == '/') {
            *p = '\0';
            rc = mkdir(path, 0700) < 0 && errno != EEXIST && errno != EROFS ? -1 : 0;
            *p = '/';
        }
    if (rc == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
        rc = -1;
    free(path);
    return rc;
}

static int cuda_plan_cache_write_all(int fd, const struct buf *b)
{
    for (size_t at = 0; at < b->len;) {
        const ssize_t n = write(fd, b->data + at, b->len - at);

        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Writes the file under another name, then renames it.  Returns 0, or -1 with errno. */
static int write_file(const char *folder, const char *path, const struct buf *b)
{
    char *aside = cuda_plan_cache_joined(folder, "/.XXXXXX");
    const int fd = mkstemp(aside);
    int rc = fd < 0 ? -1 : cuda_plan_cache_write_all(fd, b), error;

    if (fd >= 0 && close(fd) < 0)
        rc = -1;
    if (rc == 0)
        rc = rename(aside, path);
    error = errno;
    if (rc < 0 && fd >= 0)
        (void)unlink(aside);
    free(aside);
    errno = error;
    return rc;
}

/* ---- the bound ---- */

enum { NAME_LEN = HASH_TEXT_LEN - 1 + sizeof SUFFIX - 1, ASIDE_LEN = sizeof ".XXXXXX" - 1 };

struct found {
    char name[NAME_LEN + 1];
    struct timespec used;
    off_t n_bytes;
};

static int cuda_plan_cache_older(const void *a, const void *b)
{
    const struct timespec x = ((const struct found *)a)->used, y = ((const struct found *)b)->used;

    if (x.tv_sec != y.tv_sec)
        return x.tv_sec < y.tv_sec ? -1 : 1;
    return (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

/* 1 for entries and for files that a killed process left half written.  No other file in the folder
 * is touched. */
static int cuda_plan_cache_is_ours(const char *name)
{
    const size_t n = strlen(name);

    return (n == NAME_LEN && !strcmp(name + HASH_TEXT_LEN - 1, SUFFIX)) ||
           (n == ASIDE_LEN && name[0] == '.');
}

static size_t cuda_plan_cache_list(DIR *d, struct found **out)
{
    size_t n = 0, cap = 0;
    struct dirent *e;

    while ((e = readdir(d))) {
        struct stat st;

        if (!cuda_plan_cache_is_ours(e->d_name) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            *out = xrealloc(*out, cap * sizeof **out);
        }
        (*out)[n] = (struct found){.used = st.st_mtim, .n_bytes = st.st_size};
        memcpy((*out)[n++].name, e->d_name, strlen(e->d_name));
    }
    return n;
}

/* Other processes may do the same meanwhile, so a file that is gone already is no failure. */
static void remove_unused(const char *folder)
{
    DIR *d = opendir(folder);
    struct found *f = NULL;
    const size_t n = d ? cuda_plan_cache_list(d, &f) : 0;
    size_t left = n;
    off_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += f[i].n_bytes;
    if (n > PLAN_CACHE_MAX_FILES || bytes > PLAN_CACHE_MAX_BYTES) {
        qsort(f, n, sizeof *f, cuda_plan_cache_older);
        for (size_t i = 0;
             left > PLAN_CACHE_MAX_FILES / 2 || (left && bytes > PLAN_CACHE_MAX_BYTES / 2); i++) {
            (void)unlinkat(dirfd(d), f[i].name, 0);
            bytes -= f[i].n_bytes;
            left--;
        }
    }
    free(f);
    if (d)
        closedir(d);
}

void plan_cache_put(struct plan_cache *c, const char *key, const void *data, size_t n_bytes)
{
    struct buf file = {0};
    char *path;
    int rc;

    if (!c || c->is_broken || n_bytes > MAX_FILE / 2)
        return;
    path = cuda_plan_cache_path_of(c, key);
    add_head(&file, key, data, n_bytes);
    buf_append(&file, data, n_bytes);
    rc = c->has_written ? 0 : make_folders(c->folder);
    if (rc == 0)
        rc = write_file(c->folder, path, &file);
    if (rc < 0)
        cuda_plan_cache_give_up(c, errno);
    else if (!c->has_written)
        remove_unused(c->folder);
    c->has_written = 1;
    buf_fini(&file);
    free(path);
}
