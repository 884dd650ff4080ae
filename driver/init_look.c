/* Folders and files as recognisers see them, sorted by name, and the settings that they collect for
 * the job file. */
#include "driver/init_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/gzin.h"

/* ---- settings ---- */

static void look_set(struct init_job *j, const char *key, char *value)
{
    int i = 0;

    while (i < j->n && strcmp(j->set[i].key, key) != 0)
        i++;
    ASSERT(i < INIT_MOST_SETS);
    if (i == j->n)
        j->n++;
    else
        free(j->set[i].value);
    j->set[i].key = key;
    j->set[i].value = value;
}

void init_set(struct init_job *j, const char *key, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    look_set(j, key, xvasprintf(fmt, args));
    va_end(args);
}

/* 1: YAML reads the bare word as this text, in a list, too. */
static int look_is_plain(const char *text)
{
    static const char *const words[] = {"null", "none", "true", "false", "yes",
                                        "no",   "on",   "off",  "nan",   "inf"};
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-";

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcasecmp(text, words[i]))
            return 0;
    return (*text == '/' || (*text | 0x20) >= 'a') && text[strspn(text, plain)] == '\0';
}

static void look_put_text(struct buf *b, const char *text)
{
    if (look_is_plain(text)) {
        buf_printf(b, "%s", text);
        return;
    }
    buf_printf(b, "\"");
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            buf_printf(b, "\\x%02x", (unsigned char)*text);
        else
            buf_printf(b, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    buf_printf(b, "\"");
}

void init_set_text(struct init_job *j, const char *key, const char *text)
{
    struct buf b = {0};

    look_put_text(&b, text);
    init_set(j, key, "%s", buf_cstr(&b));
    buf_fini(&b);
}

void init_set_texts(struct init_job *j, const char *key, const char *const *text, int n)
{
    struct buf b = {0};

    for (int i = 0; i < n; i++) {
        buf_printf(&b, "%s", i == 0 ? "[" : ", ");
        look_put_text(&b, text[i]);
    }
    init_set(j, key, "%s]", buf_cstr(&b));
    buf_fini(&b);
}

const char *init_value(const struct init_job *j, const char *key)
{
    for (int i = 0; i < j->n; i++)
        if (!strcmp(j->set[i].key, key))
            return j->set[i].value;
    return NULL;
}

void init_note(struct init_job *j, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    text = xvasprintf(fmt, args);
    va_end(args);
    buf_printf(&j->notes, "%s\n", text);
    free(text);
}

void init_job_fini(struct init_job *j)
{
    for (int i = 0; i < j->n; i++)
        free(j->set[i].value);
    buf_fini(&j->notes);
    *j = (struct init_job){.n = 0};
}

/* ---- folders ---- */

static int look_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void look_add(struct init_look *l, const char *name)
{
    if ((l->n & (l->n - 1)) == 0)
        l->name = xrealloc(l->name, (size_t)max_i64(2 * l->n, 1) * sizeof *l->name);
    l->name[l->n++] = xstrdup(name);
}

static int look_list(struct init_look *l, struct err *err)
{
    DIR *d = opendir(l->folder);

    if (!d)
        return err_sys(err, errno, "folder %s", l->folder);
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            look_add(l, e->d_name);
    closedir(d);
    if (l->n > 1)
        qsort(l->name, (size_t)l->n, sizeof *l->name, look_compare);
    return 0;
}

/* A job file is a text: a path with a control character cannot stand in it. */
static int look_check(const char *path, struct err *err)
{
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return err_set(err, ERR_ARG,
                           "%s: its name has a control character (byte %d), which a job file "
                           "cannot hold; rename it",
                           path, (unsigned char)*c);
    return 0;
}

int init_look_open(struct init_look *l, const char *path, struct err *err)
{
    struct stat st;

    *l = (struct init_look){.path = realpath(path, NULL)};
    if (!l->path || stat(l->path, &st) < 0)
        return err_set(err, ERR_ARG,
                       "%s: %s; want a folder or a file with the data (--out FILE names the job "
                       "file to write)",
                       path, strerror(errno));
    if (look_check(l->path, err) < 0)
        return err->code;
    l->folder = xstrdup(l->path);
    if (S_ISDIR(st.st_mode))
        return look_list(l, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_ARG, "%s is neither a folder nor a file; want one of them", path);
    *strrchr(l->folder, '/') = '\0';
    look_add(l, strrchr(l->path, '/') + 1);
    return 0;
}

void init_look_close(struct init_look *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->name[i]);
    free(l->name);
    free(l->folder);
    free(l->path);
    *l = (struct init_look){.n = 0};
}

int init_look_has(const struct init_look *l, const char *name)
{
    return l->n > 0 && bsearch(&name, l->name, (size_t)l->n, sizeof *l->name, look_compare) != NULL;
}

const char *init_look_first(const struct init_look *l, const char *const *names)
{
    while (*names && !init_look_has(l, *names))
        names++;
    return *names;
}

char *init_look_join(const struct init_look *l, const char *name)
{
    return xasprintf("%s/%s", l->folder, name);
}

int init_look_head(const struct init_look *l, const char *name, void *to, size_t n, size_t *got,
                   struct err *err)
{
    char *path = init_look_join(l, name);
    struct gzin *in = NULL;
    int rc = gzin_open_file(&in, path, err);

    if (rc == 0)
        rc = gzin_read(in, to, n, got, err);
    gzin_close(in);
    free(path);
    return rc;
}

int init_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), len = strlen(end);

    return n > len && !strcasecmp(name + n - len, end);
}
