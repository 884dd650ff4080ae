/* series_read - reads a file of report/series.h whole, and cuts it into fields in its place.
 *
 * Any bytes may stand in the file; a row that is none is refused with its line. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "report/series.h"

enum { MOST_FILE_BYTES = 1 << 30 };

static int series_read_text(int fd, const char *path, char **text, size_t *len, struct err *err)
{
    struct stat st;
    ssize_t n = 1;
    int rc;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > MOST_FILE_BYTES)
        return err_set(err, ERR_CORRUPT, "%s: want a regular file of at most %d bytes", path,
                       MOST_FILE_BYTES);
    rc = try_alloc((void **)text, (size_t)st.st_size + 1, path, err);
    if (rc < 0)
        return rc;
    for (*len = 0; *len < (size_t)st.st_size && n > 0; *len += n > 0 ? (size_t)n : 0) {
        do
            n = read(fd, *text + *len, (size_t)st.st_size - *len);
        while (n < 0 && errno == EINTR);
    }
    (*text)[*len] = 0;
    return n < 0 ? err_sys(err, errno, "%s", path) : 0;
}

static int series_count(const char *text, size_t len, char wanted)
{
    int n = 0;

    for (size_t i = 0; i < len; i++)
        n += text[i] == wanted;
    return n;
}

/* The step that a line begins with, or -1. */
static int64_t series_line_step(const char *line)
{
    char *stop;
    const long long step = strtoll(line, &stop, 10);

    return *line >= '0' && *line <= '9' && *stop == 0 && step > 0 ? step : -1;
}

/* Cut the line, which ends with a zero, into the fields of a new row. */
static int series_cut_line(struct series_table *t, char *line, const char *path, struct err *err)
{
    const int64_t at = t->n_rows * t->n_columns;
    const int64_t before = t->n_rows > 0 ? series_step(t, t->n_rows - 1) : 0;
    const int n = series_count(line, strlen(line), ',') + 1;

    for (int i = 0; i < n && i < t->n_columns; i++) {
        t->field[at + i] = line;
        line += strcspn(line, ",");
        if (*line)
            *line++ = 0;
    }
    if (n != t->n_columns || series_line_step(t->field[at]) <= before)
        return err_set(err, ERR_CORRUPT,
                       "%s: line %lld is no row: want %d columns, and a step above %lld", path,
                       (long long)t->n_rows + 2, t->n_columns, (long long)before);
    t->n_rows++;
    return 0;
}

static int series_cut(struct series_table *t, size_t len, const struct series_kind *kind,
                      const char *path, struct err *err)
{
    const size_t n_head = strlen(kind->header);
    char *line, *end;
    int64_t n_lines;
    int rc;

    if (len == 0)
        return err_set(err, ERR_CORRUPT, "%s is empty: not even its header could be written", path);
    if (len < n_head || memcmp(t->text, kind->header, n_head) != 0)
        return err_set(err, ERR_CORRUPT, "%s: its first line is not this version's header", path);
    if (memchr(t->text, 0, len))
        return err_set(err, ERR_CORRUPT, "%s: it has a byte that is zero", path);
    n_lines = series_count(t->text + n_head, len - n_head, '\n');
    t->n_columns = series_count(kind->header, n_head, ',') + 1;
    rc = try_alloc((void **)&t->field,
                   (size_t)(n_lines + 1) * (size_t)t->n_columns * sizeof *t->field, path, err);
    for (line = t->text + n_head; rc == 0 && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        rc = series_cut_line(t, line, path, err);
    }
    return rc;
}

int series_read(const char *run_dir, const struct series_kind *kind, struct series_table *out,
                struct err *err)
{
    char *path = xasprintf("%s/%s", run_dir, kind->name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t len = 0;
    int rc = SERIES_NONE;

    *out = (struct series_table){.n_columns = 1};
    if (fd < 0 && errno != ENOENT)
        rc = err_sys(err, errno, "%s", path);
    if (fd >= 0)
        rc = series_read_text(fd, path, &out->text, &len, err);
    if (fd >= 0 && rc == 0)
        rc = series_cut(out, len, kind, path, err);
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        series_table_fini(out);
    free(path);
    return rc;
}

void series_table_fini(struct series_table *t)
{
    free(t->text);
    free(t->field);
    *t = (struct series_table){.n_columns = 1};
}

int64_t series_step(const struct series_table *t, int64_t row)
{
    return series_line_step(series_field(t, row, 0));
}

const char *series_field(const struct series_table *t, int64_t row, int column)
{
    ASSERT(row >= 0 && row < t->n_rows && column >= 0 && column < t->n_columns);
    return t->field[row * t->n_columns + column];
}

int64_t series_find(const struct series_table *t, int64_t step)
{
    int64_t from = 0, to = t->n_rows;

    while (from < to) {
        const int64_t middle = from + (to - from) / 2;

        if (series_step(t, middle) < step)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}
