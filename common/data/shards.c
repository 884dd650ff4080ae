/* shards - the samples of tar shards, as WebDataset writes them: the members of one sample follow
 * each other, and their names differ after the first dot only. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/files.h"
#include "data/tar.h"
#include "tensor/sample.h"

enum { MOST_CLASSES = 1 << 24 };

/* The sample whose members are being read. */
struct sample {
    char key[TAR_NAME_BYTES];
    int has_picture, has_class;
    struct file_item item;
};

/* The length of the key: the name up to the first dot of its last part. */
static size_t key_len(const char *name)
{
    const char *base = strrchr(name, '/'), *dot = strchr(base ? base : name, '.');

    return dot ? (size_t)(dot - name) : strlen(name);
}

static int read_class(const struct tar *t, const struct tar_member *m, const struct files *train,
                      int32_t *class_number, struct err *err)
{
    const long most = train ? train->n_classes : MOST_CLASSES;
    char text[24] = "", *end;
    long v;

    if (tar_read(t, m->offset, text, min_i64(m->n_bytes, (int64_t)sizeof text - 1), err) < 0)
        return err->code;
    v = strtol(text, &end, 10);
    if (end == text || strspn(end, " \r\n") != strlen(end) || v < 0 || v >= most)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: %s is \"%.20s\", want a class from 0 to %ld%s", t->path,
                       (long long)m->offset, m->name, text, most - 1,
                       train ? ", the training set's largest" : "");
    *class_number = (int32_t)v;
    return 0;
}

static int end_sample(struct files *f, const struct tar *t, struct sample *s, struct err *err)
{
    if (f->may_lack_labels && s->has_picture && !s->has_class) {
        s->item.class_number = SAMPLE_IGNORED;
        s->has_class = 1;
    }
    if (s->has_picture != s->has_class)
        return err_set(err, ERR_CORRUPT,
                       "%s: sample %s has no %s beside it; the members of a sample follow each "
                       "other, as tar --sort=name writes them",
                       t->path, s->key, s->has_picture ? ".cls" : ".jpg, .jpeg or .png");
    if (s->has_picture) {
        s->item.name = files_keep_name(f, s->key, strlen(s->key));
        f->n_classes = (int)max_i64(f->n_classes, s->item.class_number + 1);
        files_add(f, &s->item);
    }
    return 0;
}

static int take_member(struct files *f, const struct tar *t, const struct tar_member *m,
                       const struct files *train, struct sample *s, struct err *err)
{
    const size_t len = key_len(m->name);

    if (strlen(s->key) != len || memcmp(s->key, m->name, len) != 0) {
        if (end_sample(f, t, s, err) < 0)
            return err->code;
        *s = (struct sample){.item = {.place = s->item.place}};
        memcpy(s->key, m->name, len);
    }
    if (files_is_picture(m->name) && !strchr(m->name + len + 1, '.')) {
        s->has_picture = 1;
        s->item.offset = m->offset;
        s->item.n_bytes = m->n_bytes;
    } else if (!strcasecmp(m->name + len, ".cls")) {
        s->has_class = 1;
        return read_class(t, m, train, &s->item.class_number, err);
    }
    return 0;
}

static int list_shard(struct files *f, int place, const struct files *train, struct err *err)
{
    char *path = xasprintf("%s/%s", f->folder, files_text(f, f->place[place]));
    const int64_t first = f->n;
    struct sample s = {.item = {.place = place}};
    struct tar_member m;
    struct tar t;
    int rc = tar_open(&t, path, err);

    while (rc == 0 && (rc = tar_next(&t, &m, err)) == 0)
        rc = take_member(f, &t, &m, train, &s, err);
    if (rc == TAR_END)
        rc = end_sample(f, &t, &s, err);
    if (rc == 0 && f->n == first)
        rc = err_set(err, ERR_CORRUPT, "%s has no sample; want members KEY.jpg and KEY.cls", path);
    tar_close(&t);
    free(path);
    return rc;
}

int files_list_shards(struct files *f, const struct files *train, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < f->n_places; i++)
        rc = list_shard(f, i, train, err);
    if (train)
        f->n_classes = train->n_classes;
    return rc;
}
