/* Writing and reading the secret's file, with its checks of owner and mode.
 * A key is never shown in a message, not even a damaged one. */
#include "net/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define VERSION "dptrain-secret-"
#define PREFIX  VERSION "1 "

enum { PREFIX_LEN = sizeof PREFIX - 1, TEXT_LEN = PREFIX_LEN + 2 * SECRET_BYTES + 1 };

static const char digits[] = "0123456789abcdef";

void secret_wipe(struct secret *s) { OPENSSL_cleanse(s, sizeof *s); }

/* ---- making ---- */

static void secret_write_text(const struct secret *s, char text[TEXT_LEN])
{
    memcpy(text, PREFIX, PREFIX_LEN);
    for (int i = 0; i < SECRET_BYTES; i++) {
        text[PREFIX_LEN + 2 * i] = digits[s->key[i] >> 4];
        text[PREFIX_LEN + 2 * i + 1] = digits[s->key[i] & 15];
    }
    text[TEXT_LEN - 1] = '\n';
}

/* Make a secret and write it; the caller wipes *s, also after a failure. */
static int secret_fill(int fd, const char *path, struct secret *s, struct err *err)
{
    char text[TEXT_LEN];
    ssize_t n;
    int rc = 0;

    if (getrandom(s->key, sizeof s->key, 0) != (ssize_t)sizeof s->key)
        return err_sys(err, errno, "%s: no random bytes", path);
    secret_write_text(s, text);
    n = write(fd, text, sizeof text);
    if (n != (ssize_t)sizeof text)
        rc = err_sys(err, n < 0 ? errno : ENOSPC, "%s: cannot write it", path);
    else if (fchmod(fd, 0600) < 0 || fsync(fd) < 0)
        rc = err_sys(err, errno, "%s: cannot write it", path);
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

int secret_make(const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct secret s;
    int rc;

    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_ARG,
                       "%s is there already, and may be in use: take another name, or remove it "
                       "first",
                       path);
    if (fd < 0)
        return err_sys(err, errno, "%s: cannot make it", path);
    rc = secret_fill(fd, path, &s, err);
    secret_wipe(&s);
    close(fd);
    if (rc < 0)
        unlink(path);
    return rc;
}

/* Written aside and linked into place: there is never half a secret at `path`, and the link of the
 * second process fails, which then reads the first one's. */
static int make_shared(const char *path, struct err *err)
{
    uint64_t number = 0;
    ssize_t n =
        getrandom(&number, sizeof number, 0); /* pids may repeat: containers share folders */
    char *aside = xasprintf("%s.%016llx", path, (unsigned long long)number);
    int rc = n == (ssize_t)sizeof number ? secret_make(aside, err)
                                         : err_sys(err, errno, "%s: no random bytes", path);

    if (rc == 0 && link(aside, path) < 0 && errno != EEXIST)
        rc = err_sys(err, errno, "%s: cannot make it", path);
    unlink(aside);
    free(aside);
    return rc;
}

int secret_share(const char *path, struct secret *out, struct err *err)
{
    int rc = access(path, F_OK) < 0 && errno == ENOENT ? make_shared(path, err) : 0;

    if (rc == 0)
        return secret_read(path, out, err);
    *out = (struct secret){0};
    return err->code = ERR_IO;
}

int secret_make_nameless(struct secret *out, int *fd, struct err *err)
{
    static const char name[] = "a secret in memory";
    int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL, rc;

    *fd = memfd_create("dptrain-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return err_sys(err, errno, "%s: cannot make it", name);
    rc = secret_fill(*fd, name, out, err);
    if (rc == 0 && fcntl(*fd, F_ADD_SEALS, seals) < 0)
        rc = err_sys(err, errno, "%s: cannot seal it", name);
    if (rc < 0) {
        secret_wipe(out);
        close(*fd);
    }
    return rc;
}

#define DESCRIPTORS "/proc/self/fd/"

void secret_descriptor_path(int fd, char out[SECRET_PATH])
{
    snprintf(out, SECRET_PATH, DESCRIPTORS "%d", fd);
}

int secret_is_descriptor(const char *path)
{
    return !strncmp(path, DESCRIPTORS, sizeof DESCRIPTORS - 1);
}

/* ---- reading ---- */

/* 1: systemd laid the file out for this service (LoadCredential=).  Such a file may belong to root,
 * with an access list that lets this user read; the list's mask shows as the group's mode. */
static int is_credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    size_t n = folder ? strlen(folder) : 0;

    return n > 0 && !strncmp(path, folder, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* 1: a Secret of Kubernetes: root gave the file to this process's group, the pod's fsGroup, which
 * that pod alone has.  Elsewhere a group may be that of many users. */
static int secret_is_of_pod(const struct stat *st)
{
    const char *pod = getenv("KUBERNETES_SERVICE_HOST");
    const int most = pod && *pod ? getgroups(0, NULL) : -1;
    gid_t *group = xcalloc((size_t)(most > 0 ? most : 0) + 1, sizeof *group);
    const int n = most > 0 ? getgroups(most, group) : 0;
    int is_member = st->st_gid == getegid();

    for (int i = 0; i < n; i++)
        is_member |= st->st_gid == group[i];
    free(group);
    return most >= 0 && is_member && st->st_gid != 0 && st->st_uid == 0 && geteuid() != 0;
}

static int secret_check_file(int fd, const char *path, struct err *err)
{
    int of_service = is_credential(path);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_ARG, "%s is not a regular file", path);
    of_service |= secret_is_of_pod(&st);
    if (st.st_uid != geteuid() && !(of_service && st.st_uid == 0))
        return err_set(err, ERR_ARG,
                       "%s belongs to user %ld, want this process's user, %ld: chown %ld %s", path,
                       (long)st.st_uid, (long)geteuid(), (long)geteuid(), path);
    if (st.st_mode & (of_service ? 0137 : 0177))
        return err_set(err, ERR_ARG,
                       "%s has mode %04o, so that others may read, change or run it, want 0600: "
                       "chmod 600 %s",
                       path, (unsigned)st.st_mode & 07777, path);
    return 0;
}

static int secret_value_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    if (!at && c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return at ? (int)(at - digits) : -1;
}

static int bad_text(const char *path, const char *what, size_t len, struct err *err)
{
    return err_set(err, ERR_ARG,
                   "%s holds no secret: %s (%zu bytes, want %d: \"" PREFIX
                   "\" and %d hex digits); \"dpdriver --make-secret FILE\" makes one",
                   path, what, len, TEXT_LEN, 2 * SECRET_BYTES);
}

/* The message never shows the text, which may be a key. */
static int secret_parse(const char *path, const char *text, size_t len, struct secret *out,
                        struct err *err)
{
    if (len >= PREFIX_LEN && !memcmp(text, VERSION, strlen(VERSION)) &&
        memcmp(text, PREFIX, PREFIX_LEN) != 0)
        return bad_text(path, "it is of another version of the format", len, err);
    if (len < PREFIX_LEN || memcmp(text, PREFIX, PREFIX_LEN) != 0)
        return bad_text(path, "it begins otherwise", len, err);
    if (len != TEXT_LEN && len != TEXT_LEN - 1) /* the newline may be lost on the way */
        return bad_text(path, len < TEXT_LEN ? "it is cut short" : "it is too long", len, err);
    if (len == TEXT_LEN && text[TEXT_LEN - 1] != '\n')
        return bad_text(path, "it is too long", len, err);
    for (int i = 0; i < SECRET_BYTES; i++) {
        int high = secret_value_of(text[PREFIX_LEN + 2 * i]),
            low = secret_value_of(text[PREFIX_LEN + 2 * i + 1]);

        if (high < 0 || low < 0)
            return bad_text(path, "what should be hex digits is not", len, err);
        out->key[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static int secret_read_text(int fd, const char *path, struct secret *out, struct err *err)
{
    char text[TEXT_LEN + 1]; /* one more shows that there is more */
    size_t len = 0;
    ssize_t n = 0;
    int rc;

    while (len < sizeof text && (n = read(fd, text + len, sizeof text - len)) > 0)
        len += (size_t)n;
    rc = n < 0 ? err_sys(err, errno, "%s: cannot read it", path)
               : secret_parse(path, text, len, out, err);
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

int secret_read(const char *path, struct secret *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hang us */
    int rc;

    *out = (struct secret){0};
    if (fd < 0) {
        rc = errno;
        return err_set(err, ERR_ARG, "%s: cannot read it: %s%s", path, strerror(rc),
                       rc == ENOENT ? "; \"dpdriver --make-secret FILE\" makes one, of which every "
                                      "machine of the job needs a copy"
                                    : "");
    }
    rc = secret_check_file(fd, path, err);
    if (rc == 0)
        rc = secret_read_text(fd, path, out, err);
    if (rc < 0)
        secret_wipe(out);
    close(fd);
    return rc;
}
