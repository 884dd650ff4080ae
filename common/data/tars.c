/* tars - the samples of tar files, as WebDataset writes them: the members of one sample follow
 * each other, and their names differ after the first dot only.
 *
 * Of sample KEY the members KEY.jpg (.jpeg, .png) and KEY.cls are read.  Left out and counted are
 * its other members, such as KEY.json and KEY.seg.png, and files without a key: hidden ones, such
 * as macOS's ._KEY.jpg; names without a dot; and WebDataset's own, __NAME__/...  A member
 * that looks like a part of a sample, and cannot be read as such, is an error that says why. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/files.h"
#include "data/tar.h"
#include "data/tar_names.h"
#include "tensor/sample.h"

enum { MOST_CLASSES = 1 << 24, MOST_CLASS_TEXT = 64 };

/* The sample whose members are being read. */
struct sample {
    char key[TAR_NAME_BYTES];
    char picture[TAR_NAME_BYTES], class[TAR_NAME_BYTES]; /* their names; "": there is none yet */
    /* The last members such as KEY.v2.jpg and KEY.v2.cls. */
    char dotted_picture[TAR_NAME_BYTES], dotted_class[TAR_NAME_BYTES];
    struct file_item item;
};

/* The tar file that is being listed. */
struct tar_list {
    struct files *f;
    const struct files *train; /* NULL: f is the training set */
    struct tar t;
    struct tar_names members, keys;
    struct sample s;
};

/* ---- names ---- */

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

/* The length of the key: the name up to the first dot of its last part; 0: it has none. */
static size_t key_len(const char *name)
{
    const char *base = base_of(name), *dot = strchr(base, '.');
    const char *first_end = strchrnul(name, '/');

    if (!dot || dot == base)
        return 0;
    if (first_end - name >= 4 && !strncmp(name, "__", 2) && !strncmp(first_end - 2, "__", 2))
        return 0;
    return (size_t)(dot - name);
}

/* 1: KEY.jpg and the like; the first dot is the last one. */
static int is_plain(const char *name, size_t len) { return !strchr(name + len + 1, '.'); }

static int tars_is_class(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && !strcasecmp(dot, ".cls");
}

/* ---- the members of a sample ---- */

static int tars_refuse(const struct tar_list *h, const struct tar_member *m, const char *why,
                       struct err *err)
{
    return err_set(err, ERR_CORRUPT, "%s: offset %lld: %s %s", h->t.path,
                   (long long)(m->offset - 512), m->name, why);
}

/* A hard link is the member that it leads to. */
static int tars_follow(const struct tar_list *h, struct tar_member *m, struct err *err)
{
    static const char *const why[] = {
        [TAR_SYMBOLIC_LINK] = "is a symbolic link, whose content is not in the archive; make the "
                              "shard with tar --dereference",
        [TAR_SPARSE] = "is stored without its holes, and shards are read in place; make the shard "
                       "without tar --sparse (-S)",
        [TAR_OTHER] = "is no regular file; leave it out of the shard"};

    if (m->kind == TAR_HARD_LINK && !tar_names_find(&h->members, m->link, m))
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: %s is a hard link to %s, which no member before it is; "
                       "make the shard with tar --hard-dereference",
                       h->t.path, (long long)(m->offset - 512), m->name, m->link);
    return m->kind == TAR_FILE ? 0 : tars_refuse(h, m, why[m->kind], err);
}

/* Keep the name of a sample's one picture or class. */
static int take_one(const struct tar_list *h, const struct tar_member *m, const char *what,
                    char *name, struct err *err)
{
    if (name[0] && !strcmp(name, m->name))
        return tars_refuse(h, m, "comes twice in its sample; leave one of them out", err);
    if (name[0])
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: sample %s has two %s, %s and %s; leave one out of the "
                       "shard, or name it %s.other.png or the like",
                       h->t.path, (long long)(m->offset - 512), h->s.key, what, name, m->name,
                       h->s.key);
    strcpy(name, m->name);
    return 0;
}

static int take_picture(struct tar_list *h, struct tar_member *m, struct err *err)
{
    if (take_one(h, m, "pictures", h->s.picture, err) < 0 || tars_follow(h, m, err) < 0)
        return err->code;
    if (!files_is_picture(m->name))
        return tars_refuse(h, m, "is neither JPEG nor PNG; convert it, or leave its sample out",
                           err);
    h->s.item.offset = m->offset;
    h->s.item.n_bytes = m->n_bytes;
    return 0;
}

/* The text of a class is what Python's int() reads, but for underscores and signs below 0. */
static int read_class(struct tar_list *h, const struct tar_member *m, struct err *err)
{
    const long most = h->train ? h->train->n_classes : MOST_CLASSES;
    const int64_t n = min_i64(m->n_bytes, MOST_CLASS_TEXT);
    char text[MOST_CLASS_TEXT + 1] = "", *end;
    long v;

    if (tar_read(&h->t, m->offset, text, n, err) < 0)
        return err->code;
    v = strtol(text, &end, 10);
    if (end == text || end - text + (int64_t)strspn(end, " \t\r\n\v\f") != m->n_bytes || v < 0 ||
        v >= most)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: %s is \"%.20s\", want a class from 0 to %ld%s", h->t.path,
                       (long long)m->offset, m->name, text, most - 1,
                       h->train ? ", the training set's largest" : "");
    h->s.item.class_number = (int32_t)v;
    return 0;
}

static int take_class(struct tar_list *h, struct tar_member *m, struct err *err)
{
    if (take_one(h, m, "classes", h->s.class, err) < 0 || tars_follow(h, m, err) < 0)
        return err->code;
    return read_class(h, m, err);
}

static void tars_leave_out(struct files *f, const char *name)
{
    if (f->n_left_out++ == 0)
        f->left_out = files_keep_name(f, name, strlen(name));
}

/* Names such as img.0001.jpg and img.0001.cls beside each other mean a sample img.0001, which by
 * WebDataset's rule is none. */
static int take_dotted(struct tar_list *h, const struct tar_member *m, struct err *err)
{
    const char *picture = h->s.dotted_picture, *class = h->s.dotted_class;
    const char *end;

    if (tars_is_class(m->name))
        strcpy(h->s.dotted_class, m->name);
    else if (files_is_picture(m->name) || files_is_other_picture(m->name))
        strcpy(h->s.dotted_picture, m->name);
    tars_leave_out(h->f, m->name);
    end = strrchr(picture, '.');
    if (!end || strlen(class) != (size_t)(end - picture) + 4 ||
        strncmp(picture, class, (size_t)(end - picture)) != 0)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "%s: %s and %s are no sample of their own: a key ends at the first dot of the "
                   "file's name, so both are parts of sample %s; rename them, such as to %s_2.jpg "
                   "and %s_2.cls",
                   h->t.path, picture, class, h->s.key, h->s.key, h->s.key);
}

/* ---- samples ---- */

static void keep_sample(struct tar_list *h)
{
    struct sample *s = &h->s;

    if (tar_names_find(&h->keys, s->key, NULL) && h->f->n_again++ == 0)
        h->f->again = files_keep_name(h->f, s->key, strlen(s->key));
    tar_names_keep(&h->keys, s->key, &(struct tar_member){.kind = TAR_FILE});
    s->item.name = files_keep_name(h->f, s->key, strlen(s->key));
    h->f->n_classes = (int)max_i64(h->f->n_classes, s->item.class_number + 1);
    files_add(h->f, &s->item);
}

static int end_sample(struct tar_list *h, struct err *err)
{
    const struct sample *s = &h->s;
    const char *dotted = s->dotted_picture[0] ? s->dotted_picture : s->dotted_class;

    if (h->f->may_lack_labels && s->picture[0] && !s->class[0])
        h->s.item.class_number = SAMPLE_IGNORED;
    else if (!s->picture[0] != !s->class[0])
        return err_set(err, ERR_CORRUPT,
                       "%s: sample %s has no %s beside it; the members of a sample follow each "
                       "other, as tar --sort=name writes them",
                       h->t.path, s->key, s->picture[0] ? ".cls" : ".jpg, .jpeg or .png");
    if (s->picture[0])
        keep_sample(h);
    else if (dotted[0])
        return err_set(err, ERR_CORRUPT,
                       "%s: %s is a part of sample %s, since a key ends at the first dot of the "
                       "file's name, and that sample has no %s.jpg, .jpeg or .png; rename it, or "
                       "leave it out of the shard",
                       h->t.path, dotted, s->key, s->key);
    return 0;
}

static int take_member(struct tar_list *h, struct tar_member *m, struct err *err)
{
    const size_t len = key_len(m->name);

    if (len == 0) {
        tars_leave_out(h->f, m->name);
        return 0;
    }
    if (strlen(h->s.key) != len || memcmp(h->s.key, m->name, len) != 0) {
        if (end_sample(h, err) < 0)
            return err->code;
        h->s = (struct sample){.item = {.place = h->s.item.place}};
        memcpy(h->s.key, m->name, len);
    }
    if (!is_plain(m->name, len))
        return take_dotted(h, m, err);
    if (files_is_picture(m->name) || files_is_other_picture(m->name))
        return take_picture(h, m, err);
    if (tars_is_class(m->name))
        return take_class(h, m, err);
    tars_leave_out(h->f, m->name);
    return 0;
}

/* ---- tar files ---- */

/* By a name that comes again, a later link means what is there once it has been unpacked. */
static void keep_member(struct tar_list *h, const struct tar_member *m)
{
    struct tar_member target = *m;

    if (m->kind == TAR_HARD_LINK && !tar_names_find(&h->members, m->link, &target))
        target.kind = TAR_OTHER;
    tar_names_keep(&h->members, m->name, &target);
}

static int list_tar(struct files *f, int place, const struct files *train, struct err *err)
{
    char *path = xasprintf("%s/%s", f->folder, files_text(f, f->place[place]));
    const int64_t first = f->n;
    struct tar_list h = {.f = f, .train = train, .s = {.item = {.place = place}}};
    struct tar_member m;
    int rc = tar_open(&h.t, path, err);

    while (rc == 0 && (rc = tar_next(&h.t, &m, err)) == 0) {
        const struct tar_member as_written = m;

        rc = take_member(&h, &m, err);
        keep_member(&h, &as_written);
    }
    if (rc == TAR_END)
        rc = end_sample(&h, err);
    if (rc == 0 && f->n == first)
        rc = err_set(err, ERR_CORRUPT, "%s has no sample; want members KEY.jpg and KEY.cls", path);
    tar_close(&h.t);
    tar_names_fini(&h.members);
    tar_names_fini(&h.keys);
    free(path);
    return rc;
}

/* The split that a tar file's name tells, by its words: imagenet-train-0001.tar; NULL: none. */
static const char *split_of(const char *name)
{
    static const char *const words[][2] = {
        {"train", "train"},    {"training", "train"}, {"val", "val"},   {"valid", "val"},
        {"validation", "val"}, {"dev", "val"},        {"test", "test"}, {"testing", "test"}};

    for (size_t len; *name; name += len ? len : 1) {
        len = 0;
        while (isalpha((unsigned char)name[len]))
            len++;
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
            if (strlen(words[i][0]) == len && !strncasecmp(name, words[i][0], len))
                return words[i][1];
    }
    return NULL;
}

static int check_splits(const struct files *f, struct err *err)
{
    const char *first = NULL, *split = NULL;

    for (int i = 0; i < f->n_places; i++) {
        const char *name = files_text(f, f->place[i]), *its = split_of(name);

        if (its && split && strcmp(its, split) != 0)
            return err_set(
                err, ERR_CORRUPT,
                "by their names its shards are of two splits, such as %s and %s; put "
                "them, or links to them, into two folders, and name these in data.train and "
                "data.validation",
                first, name);
        if (its && !split) {
            first = name;
            split = its;
        }
    }
    return 0;
}

int files_list_tars(struct files *f, const struct files *train, struct err *err)
{
    int rc = check_splits(f, err);

    for (int i = 0; rc == 0 && i < f->n_places; i++)
        rc = list_tar(f, i, train, err);
    if (train)
        f->n_classes = train->n_classes;
    return rc;
}
