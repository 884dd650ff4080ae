/* names - reads a list of words, and writes one with quotes around each, so that a name may hold
 * commas, colons and brackets. */
#include "config/names.h"

#include <string.h>

#include "config/option.h"
#include "config/tree.h"

static int names_fail(size_t place, size_t *at, const char *what, struct err *err)
{
    *at = place;
    return err_set(err, ERR_CONFIG, "%s, want a list of names, such as [cat, dog]", what);
}

static int names_read_at(const char *text, size_t len, struct arena *arena,
                         const struct tree **list, size_t *at, struct err *err)
{
    if (tree_parse(text, len, arena, list, at, err) < 0)
        return err->code;
    if ((*list)->kind != TREE_LIST)
        return names_fail((*list)->at, at, "it is no list", err);
    for (int i = 0; i < (*list)->n; i++)
        if ((*list)->child[i]->kind != TREE_WORD)
            return names_fail((*list)->child[i]->at, at, "an item is no name", err);
    return 0;
}

int names_check(const char *text, size_t len, size_t *at, struct err *err)
{
    const struct tree *list;
    struct arena arena;
    int rc;

    arena_init(&arena);
    rc = names_read_at(text, len, &arena, &list, at, err);
    arena_fini(&arena);
    return rc;
}

int names_read(const char *text, struct arena *arena, const char ***out, int *n, struct err *err)
{
    const struct tree *list;
    size_t at;
    int rc = names_read_at(text, strlen(text), arena, &list, &at, err);

    if (rc < 0)
        return rc;
    *n = list->n;
    *out = arena_alloc(arena, ((size_t)list->n + 1) * sizeof **out);
    for (int i = 0; i < list->n; i++)
        (*out)[i] = list->child[i]->text;
    return 0;
}

static void names_put_plain(const char *name, struct buf *out)
{
    size_t left = strlen(name);

    while (left > 0) {
        const size_t n = (unsigned char)*name < ' ' ? 0 : line_char_len(name, left);

        if (*name == '"' || *name == '\\')
            buf_append(out, "\\", 1);
        buf_append(out, n > 0 ? name : "?", n > 0 ? n : 1);
        left -= n > 0 ? n : 1;
        name += n > 0 ? n : 1;
    }
}

void names_write(const char *const *name, int64_t n, struct buf *out)
{
    buf_append(out, "[", 1);
    for (int64_t i = 0; i < n; i++) {
        buf_printf(out, i ? ", \"" : "\"");
        names_put_plain(name[i], out);
        buf_append(out, "\"", 1);
    }
    buf_append(out, "]", 1);
}

int names_equal(const char *of_data, const char *of_job)
{
    struct buf data = {0}, job = {0};
    int is;

    names_put_plain(of_data, &data);
    names_put_plain(of_job, &job);
    is = !strcmp(buf_cstr(&data), buf_cstr(&job));
    buf_fini(&data);
    buf_fini(&job);
    return is;
}
