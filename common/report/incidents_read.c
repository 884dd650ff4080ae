/* Reading incidents for people who look at a run.  A name is only ever compared with the names that
 * incidents_write gives, so no path can be asked for.
 *
 * The list needs the beginning of each file alone: what stands before the ranks is some hundred
 * bytes, and the rest some megabytes. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "report/incidents.h"

enum { HEAD = 8192, NAME = 32 };

static void incidents_name(int n, char out[NAME]) { snprintf(out, NAME, "incident-%d.json", n); }

/* 1: it is the name of an incident's file. */
static int incidents_is_name(const char *name)
{
    char known[NAME];

    for (int n = 1; n <= INCIDENTS_MOST; n++) {
        incidents_name(n, known);
        if (!strcmp(name, known))
            return 1;
    }
    return 0;
}

/* Open a regular file of at most INCIDENTS_BYTES.  INCIDENTS_NONE: there is none. */
static int incidents_open(const char *path, int *fd, size_t *size, struct err *err)
{
    struct stat st;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0)
        return errno == ENOENT || errno == ELOOP ? INCIDENTS_NONE
                                                 : err_sys(err, errno, "%s: cannot be read", path);
    if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return INCIDENTS_NONE;
    }
    *size = (size_t)st.st_size;
    if (st.st_size <= INCIDENTS_BYTES)
        return 0;
    close(*fd);
    return err_set(err, ERR_IO, "%s has %lld bytes, and %d are shown at most: look at the file",
                   path, (long long)st.st_size, INCIDENTS_BYTES);
}

/* At most `most` bytes from the file's beginning. */
static int incidents_take(int fd, const char *path, size_t most, struct buf *out, struct err *err)
{
    const size_t begin = out->len;

    while (out->len - begin < most) {
        const size_t room = most - (out->len - begin);
        const ssize_t n = read(fd, buf_reserve(out, room), room);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, errno, "%s: cannot be read", path);
        if (n == 0)
            break;
        out->len += (size_t)n;
    }
    return 0;
}

static int incidents_read_most(const char *run_dir, const char *name, size_t most, size_t *size,
                               struct buf *out, struct err *err)
{
    char *path = xasprintf("%s/incidents/%s", run_dir, name);
    int fd, rc = incidents_open(path, &fd, size, err);

    if (rc == 0) {
        rc = incidents_take(fd, path, most < *size ? most : *size, out, err);
        close(fd);
    }
    free(path);
    return rc;
}

int incidents_read(const char *run_dir, const char *name, struct buf *out, struct err *err)
{
    size_t size;

    if (!incidents_is_name(name))
        return INCIDENTS_NONE;
    return incidents_read_most(run_dir, name, INCIDENTS_BYTES, &size, out, err);
}

/* ---- the list ---- */

/* The members before "ranks"; an empty object if there are none that can be read. */
static json_t *incidents_head(struct buf *text)
{
    static const char ranks[] = "\"ranks\"", no_ranks[] = "\"ranks\": []}";
    const char *end = strstr(buf_cstr(text), ranks);
    json_t *o = NULL;

    if (end) {
        text->len = (size_t)(end - (const char *)text->data);
        buf_append(text, no_ranks, sizeof no_ranks - 1);
        o = json_loads(buf_cstr(text), 0, NULL);
    }
    if (json_is_object(o))
        return o;
    json_decref(o);
    return json_object();
}

static json_t *incidents_row(const char *name, size_t size, struct buf *text)
{
    static const char *const members[] = {"time",       "message", "stage",
                                          "generation", "step",    "nranks"};
    json_t *head = incidents_head(text), *o = json_pack("{s:s}", "name", name);

    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *v = json_object_get(head, members[i]);

        json_object_set_new(o, members[i], v ? json_incref(v) : json_null());
    }
    json_object_set_new(o, "bytes", json_integer((json_int_t)size));
    json_decref(head);
    return o;
}

int incidents_list(const char *run_dir, struct buf *out, struct err *err)
{
    json_t *list = json_array();
    struct buf head = {0};
    char name[NAME], *text;
    size_t size;
    int rc = 0;

    for (int n = 1; n <= INCIDENTS_MOST && rc >= 0; n++) {
        incidents_name(n, name);
        buf_clear(&head);
        rc = incidents_read_most(run_dir, name, HEAD, &size, &head, err);
        if (rc == 0)
            json_array_append_new(list, incidents_row(name, size, &head));
    }
    buf_fini(&head);
    text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(list);
    ASSERT(text);
    if (rc >= 0)
        buf_printf(out, "%s\n", text);
    free(text);
    return rc < 0 ? rc : 0;
}
