/* st_set: a model in one file, or in several with an index, is found by the path of a file, an
 * index or a folder; an index that does not fit its files is refused. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/st_set.h"

#define INDEX "model.safetensors.index.json"
#define GOOD  "{'metadata': {'total_size': 12}, 'weight_map': {'c': '2', 'a': '1', 'b': '1'}}"

/* A folder with the file 1 of the tensors a and b, the file 2 of c, and others. */
static const struct set_case {
    const char *index; /* with ' for "; NULL: there is none */
    const char *open;  /* this path in the folder */
    const char *want;  /* part of the message; @ is the folder; NULL: it is fine */
    const char *names; /* of the tensors that are read; NULL: abc */
    const char *more;  /* the tensors of the file model.safetensors; NULL: there is none */
    const char *other; /* a file of this name */
    const char *text;  /* in it; NULL: it is empty */
} set_cases[] = {
    {GOOD, INDEX},
    {GOOD, ""},
    {GOOD, "2", .names = "c"},
    {GOOD, "", .names = "bd", .more = "bd"}, /* as transformers, which prefers the one file */
    {NULL, "", .names = "d", .more = "d"},
    {"{'weight_map': {'c': '2', 'a': '1'}}", "",
     "@/model.safetensors.index.json: it does not name tensor \"b\", which is in 1; fetch index "
     "and "
     "files again, together"},
    {"{'weight_map': {'c': '2', 'a': '1', 'b': '1', 'd': '2'}}", "",
     "@/model.safetensors.index.json: tensor \"d\" is not in 2; fetch index and files again, "
     "together"},
    {"{'weight_map': {'c': '2', 'a': '1', 'b': '2'}}", "",
     "@/model.safetensors.index.json: tensor \"b\" is in 1, by the index in 2; fetch index and "
     "files again, together"},
    {"{'weight_map': {'a': '1', 'b': '1', 'c': '3'}}", "",
     "@/model.safetensors.index.json: @/3: No such file or directory"},
    {"{'weight_map': {'a': '1', 'b': '1', 'c': '2', 'a': '1'}}", "",
     "want the JSON of an index of safetensors files, with each tensor once"},
    {"{'weight_map': {'a': '../1'}}", "",
     "@/model.safetensors.index.json: the file of tensor \"a\" is \"../1\", want the name of a "
     "file "
     "beside the index"},
    {"{'weight_map': {'a': 7}}", "",
     "@/model.safetensors.index.json: the file of tensor \"a\" is \"no text\", want the name of a "
     "file beside the index"},
    {"{'weight_map': {}}", INDEX,
     "@/model.safetensors.index.json: no \"weight_map\" in it, want the names of tensors and of "
     "their files"},
    {NULL, "one.json",
     "@/one.json: no \"weight_map\" in it, want the names of tensors and of their files; give the "
     "folder, model.safetensors or model.safetensors.index.json",
     .other = "one.json", .text = "{'model_type': 'gpt2'}"},
    {NULL, "one.json", "@/one.json: no \"weight_map\" in it", .other = "one.json", .text = "[]"},
    {"{'weight_map': {'a': '1', 'b': '1', 'c': 'empty'}}", "",
     "@/model.safetensors.index.json: @/empty: 0 bytes, a safetensors file has at least 8",
     .other = "empty"},
    {NULL, "",
     "folder @ has neither model.safetensors nor model.safetensors.index.json, want the "
     "folder of a model"},
    {NULL, "",
     "folder @ has neither model.safetensors nor model.safetensors.index.json; write its "
     "pytorch_model.bin anew by transformers' save_pretrained(), which makes one of them",
     .other = "pytorch_model.bin"},
    {NULL, INDEX, "@/model.safetensors.index.json: No such file or directory"},
};

static void write_text(const char *folder, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    for (; *text; text++)
        fputc(*text == '\'' ? '"' : *text, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* A tensor for each letter, of one number, which is the letter. */
static void write_tensors(const char *folder, const char *name, const char *letters)
{
    char *path = xasprintf("%s/%s", folder, name), names[8][2] = {{0}};
    struct st_tensor tensor[8];
    float number[8];
    struct hash128 hash;
    struct err err;
    int n = 0;

    for (; letters[n]; n++) {
        names[n][0] = letters[n];
        number[n] = (float)letters[n];
        tensor[n] = (struct st_tensor){names[n], DTYPE_F32, SHAPE(1), &number[n]};
    }
    assert_int_equal(st_write(path, tensor, n, NULL, &hash, &err), 0);
    free(path);
}

static void write_folder(const char *folder, const struct set_case *c)
{
    write_tensors(folder, "1", "ab");
    write_tensors(folder, "2", "c");
    if (c->more)
        write_tensors(folder, "model.safetensors", c->more);
    if (c->index)
        write_text(folder, INDEX, c->index);
    if (c->other)
        write_text(folder, c->other, c->text ? c->text : "");
}

/* The set has these tensors and no others. */
static void check_tensors(const struct st_set *s, const char *names)
{
    struct err err;

    assert_int_equal(st_set_count(s), strlen(names));
    for (; *names; names++) {
        const char name[2] = {*names};
        const struct st_tensor *t = st_set_find(s, name);
        float number = 0;
        int is_listed = 0;

        assert_non_null(t);
        assert_int_equal(st_set_read(s, t, 0, &number, sizeof number, &err), 0);
        assert_true(number == (float)*names);
        for (int i = 0; i < st_set_count(s); i++)
            is_listed += st_set_at(s, i) == t;
        assert_int_equal(is_listed, 1);
    }
    assert_null(st_set_find(s, "none"));
}

/* Replace each @ of text by `by`. */
static char *fill_in(const char *text, const char *by)
{
    char *all = xstrdup("");

    for (; *text; text++) {
        char *more = *text == '@' ? xasprintf("%s%s", all, by) : xasprintf("%s%c", all, *text);

        free(all);
        all = more;
    }
    return all;
}

static void check_case(const struct set_case *c, const char *folder)
{
    char *path = *c->open ? xasprintf("%s/%s", folder, c->open) : xstrdup(folder);
    struct st_set *s = NULL;
    struct err err = {0};
    const int rc = st_set_open(path, &s, &err);

    if (c->want) {
        char *want = fill_in(c->want, folder);

        assert_true(rc < 0);
        if (!strstr(err.msg, want))
            fail_msg("\"%s\" does not hold \"%s\"", err.msg, want);
        free(want);
    } else {
        if (rc < 0)
            fail_msg("%s", err.msg);
        check_tensors(s, c->names ? c->names : "abc");
    }
    st_set_close(s);
    free(path);
}

static void test_sets(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(set_cases); i++) {
        char folder[] = "/tmp/dptrain-set-XXXXXX";

        assert_non_null(mkdtemp(folder));
        write_folder(folder, &set_cases[i]);
        check_case(&set_cases[i], folder);
        assert_int_equal(remove_tree(folder), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sets)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
