/* tar_kinds: what other programs write into tar files is read as WebDataset reads it, or refused
 * with the member and the reason: links, holes, labels, dots in keys, names that come twice. */
#include <unistd.h>

#include "image_folder.h"

/* A member whose name, or whose link's target, is long, by GNU's headers. */
static void put_long_link(struct buf *b, const char *name, const char *target)
{
    put_member(b, 'K', "././@LongLink", target, strlen(target) + 1);
    put_member(b, 'L', "././@LongLink", name, strlen(name) + 1);
    put_tar_header(b, '1', "short", "short", 0);
}

/* The same by pax's. */
static void put_pax_link(struct buf *b, const char *name, const char *target)
{
    struct buf pax = {0};

    put_record(&pax, "linkpath", target, strlen(target));
    put_record(&pax, "path", name, strlen(name));
    put_member(b, 'x', "pax", pax.data, pax.len);
    put_tar_header(b, '1', "short", "short", 0);
    buf_fini(&pax);
}

/* A file with holes: 0 its old form, with two blocks of spans behind the header; 1 pax's. */
static void put_sparse(struct buf *b, const char *name, int is_pax)
{
    static const char spans[1024], content[300] = "x";
    struct buf pax = {0};

    if (is_pax) {
        put_record(&pax, "GNU.sparse.major", "1", 1);
        put_record(&pax, "GNU.sparse.name", name, strlen(name));
        put_record(&pax, "path", "GNUSparseFile.1/0", 17);
        put_member(b, 'x', "pax", pax.data, pax.len);
        put_member(b, '0', "GNUSparseFile.1/0", content, sizeof content);
        buf_fini(&pax);
        return;
    }
    put_tar_header(b, 'S', name, "", sizeof content);
    b->data[b->len - 512 + 482] = 1;
    mend_tar_sum(b->data + b->len - 512);
    buf_append(b, spans, sizeof spans);
    b->data[b->len - 1024 + 504] = 1;
    buf_append(b, content, sizeof content);
    fill_block(b);
}

/* As tar -V writes it, without a size. */
static void put_label(struct buf *b, const char *name)
{
    put_tar_header(b, 'V', name, "", 0);
    memset(b->data + b->len - 512 + 124, 0, 11);
    mend_tar_sum(b->data + b->len - 512);
}

/* Members as a line: NAME*COLOUR a picture, NAME=TEXT a file, NAME>OTHER a hard link (>> with GNU's
 * long names, >x with pax's), NAME~OTHER a symbolic one, NAME/ a folder, NAME! a label, NAME% a
 * sparse file (%% pax's), NAME@ a device; ";" ends the archive, "0" is 200 empty blocks, and "?"
 * other bytes.  Members are separated by "|". */
static void put_one(struct buf *b, char *text)
{
    static const char signs[] = "*=>~/!%@;0?";
    const size_t at = strcspn(text, text[0] == '0' && !text[1] ? "0" : "*=>~!%@;?");
    const char sign = text[at] ? text[at] : '/', *rest = text + at + 1;

    assert_non_null(strchr(signs, sign));
    text[at] = 0;
    switch (sign) {
    case '*':
        put_picture(b, text, atoi(rest));
        break;
    case '=':
        put_member(b, '0', text, rest, strlen(rest));
        break;
    case '>':
        if (*rest == '>')
            put_long_link(b, text, rest + 1);
        else if (*rest == 'x')
            put_pax_link(b, text, rest + 1);
        else
            put_tar_header(b, '1', text, rest, 700); /* its size is the target's, as star writes */
        break;
    case '~':
        put_tar_header(b, '2', text, rest, 0);
        break;
    case '%':
        put_sparse(b, text, *rest == '%');
        break;
    case '@':
        put_tar_header(b, '3', text, "", 0);
        break;
    case '!':
        put_label(b, text);
        break;
    case ';':
        end_tar(b);
        break;
    case '0':
        for (int i = 0; i < 100; i++)
            end_tar(b);
        break;
    case '?':
        buf_append(b, "garbage", 7);
        break;
    default:
        put_tar_header(b, '5', text, "", 0);
    }
}

static void put_all(struct buf *b, const char *members)
{
    char *copy = strdup(members), *left = copy;

    for (char *one; (one = strsep(&left, "|"));)
        put_one(b, one);
    free(copy);
}

#define LONG_NAME                                                                            \
    "a-folder-whose-name-is-long-enough-to-need-a-header-of-its-own-in-every-format-of-tar/" \
    "with-a-file-in-it.png"
#define PAIR  "1.png*11|1.cls=2"
#define FIRST " 11:2"
#define TAIL  ": a key ends at the first dot of the file's name, so both are parts of sample "
#define PART                                                                                 \
    ", since a key ends at the first dot of the file's name, and that sample has no b.jpg, " \
    ".jpeg or .png; rename it, or leave it out of the shard"
#define TWO "; leave one out of the shard, or name it k.other.png or the like"

/* Tar files, and their samples as " COLOUR:CLASS", or an error behind the file's path. */
static const struct {
    const char *members, *want;
} shards[] = {
    {"./a/1.png*11|./a/1.cls=2|./a/2.cls=1|./a/2.jpeg*12|;", FIRST " 12:1"},
    {"a/|a/b.jpg/|a/1.png*11|a/1.cls=2|;", FIRST},
    {"A.PNG*11|A.CLS=2|a.Png*12|a.cls=0|;", FIRST " 12:0"},
    /* other members of a sample, of whatever place */
    {"1.cls=2|1.json={}|1.png*11|1.txt=t|1.seg.png*99|1.coarse.cls=7|;", FIRST},
    {"__info__.json={}|__cache__/7.png*9|__cache__/7.cls=0|README=x|" PAIR "|;", FIRST},
    /* files without a key do not come between the members of a sample */
    {"._1.png=x|1.png*11|._1.cls=x|README=x|1.cls=2|;", FIRST},
    {"d/._1.png=x|d/1.png*11|d/._1.cls=x|d/.DS_Store=x|d/1.cls=2|;", FIRST},
    {"label!|" PAIR "|;", FIRST},
    /* dots in keys */
    {"img.1.png*11|img.1.cls=2|;", ": img.1.png and img.1.cls are no sample of their own" TAIL
                                   "img; rename them, such as to img_2.jpg and img_2.cls"},
    {PAIR "|1.v2.cls=0|1.v2.png*12|;", ": 1.v2.png and 1.v2.cls are no sample of their own" TAIL
                                       "1; rename them, such as to 1_2.jpg and 1_2.cls"},
    {PAIR "|b.v2.png*11|b.json={}|;", ": b.v2.png is a part of sample b" PART},
    {PAIR "|b.v2.cls=1|;", ": b.v2.cls is a part of sample b" PART},
    {PAIR "|b.mask.tif=x|"
          "3.png*13|3.cls=0|;",
     ": b.mask.tif is a part of sample b" PART},
    /* members that come twice */
    {"k.jpg*11|k.png*99|k.cls=0|;",
     ": offset 1024: sample k has two pictures, k.jpg and k.png" TWO},
    {"k.png*11|k.webp=x|k.cls=0|;",
     ": offset 1024: sample k has two pictures, k.png and k.webp" TWO},
    {"k.cls=0|k.CLS=1|k.png*11|;", ": offset 1024: sample k has two classes, k.cls and k.CLS" TWO},
    {"k.png*11|k.png*12|k.cls=0|;",
     ": offset 1024: k.png comes twice in its sample; leave one of them out"},
    {"k.png*11|k.cls=0|k.cls=7|;",
     ": offset 2048: k.cls comes twice in its sample; leave one of them out"},
    {PAIR "|2.png*12|2.cls=0|1.png*13|1.cls=1|;", FIRST " 12:0 13:1"},
    /* kinds that are not read */
    {"k.webp=x|k.cls=1|;",
     ": offset 0: k.webp is neither JPEG nor PNG; convert it, or leave its sample out"},
    {PAIR "|k.json={}|k.tif=x|;",
     ": offset 3072: k.tif is neither JPEG nor PNG; convert it, or leave its sample out"},
    {PAIR "|k.png*1|k.json={\"label\": 1}|;",
     ": sample k has no .cls beside it; the members of a sample follow each other, as tar "
     "--sort=name writes them"},
    {"1.png*11|2.png*12|1.cls=0|2.cls=1|;",
     ": sample 1 has no .cls beside it; the members of a sample follow each other, as tar "
     "--sort=name writes them"},
    /* links */
    {PAIR "|2.png>1.png|2.cls=1|3.png*13|3.cls>1.cls|;", FIRST " 11:1 13:2"},
    {PAIR "|2.png>./1.png|2.cls>1.cls|3.png>2.png|3.cls>2.cls|;", FIRST " 11:2 11:2"},
    {PAIR "|1.png*12|1.png>1.png|;",
     ": offset 2048: 1.png comes twice in its sample; leave one of them out"},
    {PAIR "|2.png*12|2.cls=0|1.png*13|1.cls=1|3.png>1.png|3.cls>1.cls|;", FIRST " 12:0 13:1 13:1"},
    {LONG_NAME ">x1.png|" PAIR "|;",
     ": offset 1024: " LONG_NAME
     " is a hard link to 1.png, which no member before it is; make the shard with tar "
     "--hard-dereference"},
    {"notes=x|" PAIR "|2.png>>1.png|2.cls>x1.cls|3.txt>notes|notes.3>nothing|;", FIRST " 11:2"},
    {PAIR "|2.png~1.png|2.cls=1|;",
     ": offset 2048: 2.png is a symbolic link, whose content is not in the archive; make the shard "
     "with tar --dereference"},
    {PAIR "|2.cls~1.cls|;",
     ": offset 2048: 2.cls is a symbolic link, whose content is not in the archive; make the shard "
     "with tar --dereference"},
    {PAIR "|more~elsewhere|more.txt~elsewhere|;", FIRST},
    {PAIR "|2.png@|2.cls=1|;",
     ": offset 2048: 2.png is no regular file; leave it out of the shard"},
    /* holes */
    {PAIR "|2.png%|2.cls=1|;",
     ": offset 3072: 2.png is stored without its holes, and shards are read in place; make the "
     "shard without tar --sparse (-S)"},
    {PAIR "|2.png%%|2.cls=1|;",
     ": offset 3072: 2.png is stored without its holes, and shards are read in place; make the "
     "shard without tar --sparse (-S)"},
    {PAIR "|hole.bin%|hole.dat%%|2.png*12|2.cls=1|;", FIRST " 12:1"},
    /* the end */
    {PAIR "|;|0", FIRST},
    {PAIR "|;|0|2.png*12|2.cls=1|;",
     ": offset 105472: a second archive follows the end of the first; make a shard of each"},
    {PAIR "|;|0|?",
     ": offset 105472: bytes that are no archive follow the end of the archive, at offset 2048; "
     "make the shard anew, or cut them off"},
    {";", " has no sample; want members KEY.jpg and KEY.cls"},
    {PAIR, ": offset 2048: the archive ends without an empty header; was it copied whole?"},
    /* classes, as Python's int() reads them */
    {"1.png*11|1.cls=2\r\n|2.png*12|2.cls= \t1\t|3.png*13|3.cls=+000|;", FIRST " 12:1 13:0"},
    {"1.png*11|1.cls=0000000000000000000000000000000000000000002|;", FIRST},
    {"1.png*11|1.cls=                                                                2|;",
     ": offset 1536: 1.cls is \"                    \", want a class from 0 to 16777215"},
    {"1.png*11|1.cls= \n|;", ": offset 1536: 1.cls is \" \n\", want a class from 0 to 16777215"},
    {"1.png*11|1.cls=|;", ": offset 1536: 1.cls is \"\", want a class from 0 to 16777215"},
    {"1.png*11|1.cls=-1|;", ": offset 1536: 1.cls is \"-1\", want a class from 0 to 16777215"},
    {"1.png*11|1.cls=1.0|;", ": offset 1536: 1.cls is \"1.0\", want a class from 0 to 16777215"},
    {"1.png*11|1.cls=0_1|;", ": offset 1536: 1.cls is \"0_1\", want a class from 0 to 16777215"},
    {"1.png*11|1.cls=n01440764|;",
     ": offset 1536: 1.cls is \"n01440764\", want a class from 0 to 16777215"},
};

/* The samples as text, like those in the table. */
static void describe(const struct dataset *ds, char *to, size_t size)
{
    size_t at = 0;

    for (int64_t i = 0; i < ds->n_samples; i++) {
        float x[IMAGE];
        const int label = get(ds, NULL, i, x);

        at += (size_t)snprintf(to + at, size - at, " %.0f:%d", (double)x[0] * 255, label);
    }
}

static void shards_of_each_kind(void **state)
{
    char want[1024], text[1024], seen[1024];

    for (size_t i = 0; i < ARRAY_LEN(shards); i++) {
        struct buf b = {0};
        struct dataset *ds = NULL;
        struct err err = {0};

        put_all(&b, shards[i].members);
        put(*state, "train/s.tar", &b);
        snprintf(text, sizeof text, "%s%s",
                 shards[i].want[0] == ' ' && shards[i].want[1] != 'h'
                     ? ""
                     : "images: folder @/train: @/train/s.tar",
                 shards[i].want);
        if (try_open(&ds, *state, DATASET_TRAIN, NULL, &err) == 0)
            describe(ds, seen, sizeof seen);
        else
            snprintf(seen, sizeof seen, "%.1023s", err.msg);
        if (strcmp(seen, fill_in(want, sizeof want, text, *state)) != 0)
            fail_msg("%s:\n is   %s\n want %s", shards[i].members, seen, want);
        dataset_close(ds);
        buf_fini(&b);
    }
}

/* Two splits beside each other are not one set. */
static const struct {
    const char *a, *b;
    int is_refused;
} splits[] = {
    {"x-train-0.tar", "x-val-0.tar", 1},    {"train0.tar", "VALIDATION_00.tar", 1},
    {"test.tar", "train.tar", 1},           {"valid-1.tar", "x-test-2.tar", 1},
    {"train-0.tar", "training-1.tar", 0},   {"trainer-0.tar", "validated-0.tar", 0},
    {"interval-0.tar", "train-0.tar", 0},   {"0.tar", "train-0.tar", 0},
    {"latest-val-0.tar", "x.valid.tar", 0},
};

static void splits_in_one_folder_are_refused(void **state)
{
    char text[2048], want[1024], path[2][64];
    struct buf b = {0};

    put_all(&b, PAIR "|;");
    for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
        struct dataset *ds = NULL;
        struct err err = {0};

        snprintf(path[0], sizeof path[0], "train/%s", splits[i].a);
        snprintf(path[1], sizeof path[1], "train/%s", splits[i].b);
        put(*state, path[0], &b);
        put(*state, path[1], &b);
        snprintf(text, sizeof text,
                 "images: folder @/train: by their names its shards are of two splits, such as %s "
                 "and %s; put them, or links to them, into two folders, and name these in "
                 "data.train and "
                 "data.validation",
                 strcmp(splits[i].a, splits[i].b) < 0 ? splits[i].a : splits[i].b,
                 strcmp(splits[i].a, splits[i].b) < 0 ? splits[i].b : splits[i].a);
        if (try_open(&ds, *state, DATASET_TRAIN, NULL, &err) != (splits[i].is_refused ? -1 : 0) &&
            !splits[i].is_refused)
            fail_msg("%s and %s: %s", splits[i].a, splits[i].b, err.msg);
        if (splits[i].is_refused)
            assert_string_equal(err.msg, fill_in(want, sizeof want, text, *state));
        dataset_close(ds);
        for (int k = 0; k < 2; k++) {
            snprintf(text, sizeof text, "%s/%s", (char *)*state, path[k]);
            assert_int_equal(unlink(text), 0);
        }
    }
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(shards_of_each_kind),
        IN_FOLDER(splits_in_one_folder_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
