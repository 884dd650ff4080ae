/* Finding the secrets, and the texts that tell a user why a peer has another one.
 * The texts are here because they speak of options; net/tls.c shows them. */
#include "daemon/trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"

struct found {
    struct secret secret[TLS_MAX_SECRETS];
    int n;
    int is_lasting; /* one of the secrets outlives the job */
    enum source { OF_FILES, OF_JOB, OF_USER } source;
};

#define BOTH "give both sides --secret-file with copies of one file, or both --insecure"

static const struct tls_texts texts[][2] = {
    [OF_FILES] =
        {
            [TLS_DRIVER] = {"its --secret-file is no copy of this driver's",
                            "give that dpfollower --secret-file with a copy of this driver's"},
            [TLS_FOLLOWER] = {"its --secret-file is no copy of this follower's",
                              "give dpdriver --secret-file, or leave it out here"},
        },
    [OF_JOB] =
        {
            [TLS_DRIVER] = {"only followers that --local started have this driver's; " BOTH,
                            "only followers that --local started have this driver's secret; " BOTH},
            [TLS_FOLLOWER] = {"the driver that answers has not started this follower",
                              "the driver that answers has not started this follower"},
        },
    [OF_USER] =
        {
            [TLS_DRIVER] = {"it is of another user, or has another XDG_RUNTIME_DIR; " BOTH,
                            "it has not found this user's secret in XDG_RUNTIME_DIR; run it as "
                            "this user with the same XDG_RUNTIME_DIR, or " BOTH},
            [TLS_FOLLOWER] = {"it is of another user, has another XDG_RUNTIME_DIR, or takes only "
                              "followers that its --local started; " BOTH,
                              "it has not found this user's secret in XDG_RUNTIME_DIR; run it as "
                              "this user with the same XDG_RUNTIME_DIR, or " BOTH},
        },
};

/* ---- files ---- */

static int trust_read_files(const struct arg_list *files, struct found *f, struct err *err)
{
    if (files->n > TLS_MAX_SECRETS)
        return err_set(err, ERR_ARG, "--secret-file was given %zu times, want at most %d", files->n,
                       TLS_MAX_SECRETS);
    for (; f->n < (int)files->n; f->n++) {
        if (secret_read(files->item[f->n], &f->secret[f->n], err) < 0)
            return err_wrap(err, "--secret-file");
        f->is_lasting |= !secret_is_descriptor(files->item[f->n]);
    }
    f->source = f->is_lasting ? OF_FILES : OF_JOB;
    return 0;
}

int trust_check_files(const struct arg_list *files, struct err *err)
{
    struct found f = {0};
    int rc = trust_read_files(files, &f, err);

    for (int i = 0; i < f.n; i++)
        secret_wipe(&f.secret[i]);
    return rc;
}

/* ---- this user's ---- */

/* 1: only this user can reach `folder`; 0: why_not says what is wrong. */
static int is_own_folder(const char *folder, char *why_not, size_t n)
{
    struct stat st;

    if (!folder || !*folder)
        snprintf(why_not, n, "XDG_RUNTIME_DIR is not set");
    else if (*folder != '/' || lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
        snprintf(why_not, n, "XDG_RUNTIME_DIR is %.80s, which is no folder", folder);
    else if (st.st_uid != geteuid())
        snprintf(why_not, n, "XDG_RUNTIME_DIR, %.80s, is of user %ld, and this process of %ld",
                 folder, (long)st.st_uid, (long)geteuid());
    else if (st.st_mode & 077)
        snprintf(why_not, n, "XDG_RUNTIME_DIR, %.80s, has mode %04o, so that others reach it",
                 folder, (unsigned)st.st_mode & 07777);
    else
        return 1;
    return 0;
}

/* A folder in which no file can be made is as none: the daemon goes on without this secret. */
static int share_with_user(struct found *f, char *why_not, size_t n, struct err *err)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    char *path;
    int rc;

    if (!is_own_folder(folder, why_not, n))
        return 0;
    path = xasprintf("%s/dptrain-secret", folder);
    rc = secret_share(path, &f->secret[f->n], err);
    if (rc == 0) {
        f->n++;
        f->is_lasting = 1;
    } else if (rc == ERR_IO) {
        snprintf(why_not, n, "%.*s", (int)n - 1, err->msg);
        rc = 0;
    } else {
        err_wrap(err, "this user's secret (remove it, and a new one is made)");
    }
    free(path);
    return rc;
}

/* ---- all ---- */

static int trust_find(const struct trust_options *o, struct trust *t, struct found *f,
                      struct err *err)
{
    int rc = 0;

    if (o->files->n > 0 && o->insecure)
        log_warn("--insecure has no effect beside --secret-file: a peer without a copy of the "
                 "secret is refused");
    if (o->files->n > 0)
        return trust_read_files(o->files, f, err);
    if (o->insecure)
        return 0;
    f->source = o->is_local ? OF_JOB : OF_USER;
    if (o->is_local) {
        rc = secret_make_nameless(&f->secret[0], &t->fd, err);
        t->is_local = rc == 0;
        f->n = t->is_local;
    }
    if (rc == 0 && (!o->is_local || o->has_guests))
        rc = share_with_user(f, t->why_not, sizeof t->why_not, err);
    return rc;
}

static void hide_memory(void)
{
    const struct rlimit none = {0, 0};

    prctl(PR_SET_DUMPABLE, 0);
    setrlimit(RLIMIT_CORE, &none);
}

int trust_open(const struct trust_options *o, struct trust *out, struct err *err)
{
    struct found f = {0};
    int rc;

    *out = (struct trust){.fd = -1};
    rc = trust_find(o, out, &f, err);
    if (rc == 0 && f.is_lasting)
        hide_memory();
    if (rc == 0 && f.n > 0)
        rc = tls_context_new(f.secret, f.n, o->role, &texts[f.source][o->role], &out->tls, err);
    for (int i = 0; i < TLS_MAX_SECRETS; i++)
        secret_wipe(&f.secret[i]);
    if (rc < 0)
        trust_close(out);
    return rc;
}

void trust_close(struct trust *t)
{
    tls_context_free(t->tls);
    if (t->is_local)
        close(t->fd);
    *t = (struct trust){.fd = -1};
}
