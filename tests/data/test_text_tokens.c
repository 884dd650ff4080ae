/* Texts by a tokenizer.json: files of all kinds become one stream of tokens, once for all processes
 * that want it; what cannot be read is refused with file, line and remedy, and leaves nothing
 * behind. */
#include "../test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/token_cache.h"
#include "text_place.h"

enum { CONTEXT = 4, NAME = 256 };

static void make_sub(const struct place *p, const char *name)
{
    char *path = xasprintf("%s/%s", p->data, name);

    assert_int_equal(mkdir(path, 0777), 0);
    free(path);
}

/* All inputs of a data set, one after the other; each target is the token behind its input. */
static struct buf all_tokens(const struct dataset *ds)
{
    struct buf all = {0};
    struct err err;

    for (int64_t i = 0; i < ds->n_samples; i++) {
        int32_t x[CONTEXT], y[CONTEXT];

        assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), 0);
        for (int k = 1; k < CONTEXT; k++)
            assert_int_equal(y[k - 1], x[k]);
        buf_append(&all, x, sizeof x);
        if (i == ds->n_samples - 1)
            buf_append(&all, &y[CONTEXT - 1], sizeof *y);
    }
    return all;
}

/* The data set's tokens are those of `want`, in which a byte stands for itself, '|' for the end
 * token, '^' for <begin> and '~' for "th". */
static void check_tokens(const struct dataset *ds, const char *want)
{
    struct buf all = all_tokens(ds);
    const int32_t *token = (const int32_t *)(const void *)all.data;
    const size_t n = all.len / sizeof *token;

    assert_in_range(strlen(want), n, n + CONTEXT - 1); /* the rest is no whole sample */
    for (size_t i = 0; i < n; i++) {
        const int32_t number = want[i] == '|'   ? TOKEN_END
                               : want[i] == '^' ? TOKEN_END + 1
                               : want[i] == '~' ? TOKEN_TH
                                                : (uint8_t)want[i];

        if (token[i] != number)
            fail_msg("token %zu is %d, want %d", i, (int)token[i], (int)number);
    }
    buf_fini(&all);
}

static struct dataset *open_train(const struct place *p)
{
    return open_ok(&format_text, p->settings, request(DATASET_TRAIN, CONTEXT, 0));
}

/* The number of token files in a folder, *one the name of one of them; none is half-written. */
static int count_files(const char *folder, char one[NAME])
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        const char *const end = strrchr(e->d_name, '.');

        assert_false(end && !strcmp(end, ".part"));
        if (end && !strcmp(end, ".tokens")) {
            n++;
            snprintf(one, NAME, "%s", e->d_name);
        }
    }
    closedir(d);
    return n;
}

/* ---- reading ---- */

static void files_become_one_stream(void **state)
{
    struct place p = place_new(*state);
    struct dataset *ds;

    make_sub(&p, "b");
    make_sub(&p, ".hidden");
    write_texts(p.data, "c.txt", "the c\n");
    write_texts(p.data, "b/z.txt", "z");
    write_texts(p.data, "b/a.jsonl",
                "\xef\xbb\xbf{\"text\": \"one\", \"id\": 3}\r\n \n"
                "{\"text\": \"\"}\n{\"text\": \"t\\u00e9\"}");
    write_texts(p.data, "a.txt", "a <end>");
    write_texts(p.data, ".hidden/x.txt", "no");
    write_texts(p.data, "readme.md", "no");
    write_texts(*state, "tokenizer_config.json", "{\"eos_token\": {\"content\": \"<end>\"}}");
    place_set(&p, "data.validation", "none");
    ds = open_train(&p);
    assert_int_equal(ds->spec.field[0].n_classes, TOKENIZER_VOCAB);
    check_tokens(ds, "a |one|t\xc3\xa9|z|~e c\n|"); /* the first ends by itself */
    dataset_close(ds);
    place_free(&p);
}

static void the_last_tenth_validates(void **state)
{
    struct place p = place_new(*state);
    struct dataset *ds;

    write_texts(p.data, "a.txt",
                "0123456789abcdefghij0123456789abcdefghij0123456789abcdefghij0123456789ABCD");
    ds = open_train(&p);
    check_tokens(ds, "0123456789abcdefghij0123456789abcdefghij0123456789abcdefghij012345");
    dataset_close(ds);
    ds = open_ok(&format_text, p.settings, request(DATASET_VALIDATION, CONTEXT, 1000));
    assert_int_equal(ds->spec.field[1].n_classes, 1000);
    check_tokens(ds, "6789ABCD");
    dataset_close(ds);
    place_free(&p);
}

static void parts_of_a_folder_are_named(void **state)
{
    struct place p = place_new(*state);
    struct dataset *ds;

    make_sub(&p, "new");
    write_texts(p.data, "a.txt", "first");
    write_texts(p.data, "new/b.txt", "second");
    write_texts(p.data, "v.text", "validates");
    place_set(&p, "data.train", "new, a.txt");
    place_set(&p, "data.validation", "v.text");
    place_set(&p, "data.end_token", "<end>");
    ds = open_train(&p);
    check_tokens(ds, "second|first|");
    dataset_close(ds);
    ds = open_ok(&format_text, p.settings, request(DATASET_VALIDATION, CONTEXT, 0));
    check_tokens(ds, "validates|");
    dataset_close(ds);
    place_free(&p);
}

static const struct ends {
    const char *name, *file; /* beside the tokenizer; NULL: none */
    const char *end_token;
    int begins;
    const char *want;
} ends[] = {
    {"config.json", "{\"eos_token_id\": 257}", NULL, 0, "one|two|"},
    {"tokenizer_config.json", /* integers that no machine has */
     "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"<end>\"}", NULL, 0,
     "one|two|"},
    {"generation_config.json", "{\"eos_token_id\": [257, 3]}", NULL, 0, "one|two|"},
    {"special_tokens_map.json", "{\"eos_token\": \"<end>\"}", NULL, 1, "^one|^two|"},
    {"tokenizer_config.json", "{\"eos_token\": \"<end>\"}", "none", 0, "onetwo"},
    {"tokenizer_config.json", "{\"eos_token\": null}", "<end>", 0, "one|two|"},
    {NULL, NULL, "<begin>", 0, "one^two^"},
};

static void end_tokens_are_found(void **state)
{
    struct place p = place_new(*state);
    const int n = p.n;

    write_texts(p.data, "a.txt", "one");
    write_texts(p.data, "b.txt", "two");
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const struct ends *c = &ends[i];
        char *path = c->name ? xasprintf("%s/%s", (char *)*state, c->name) : NULL;
        struct dataset *ds;

        p.n = n;
        p.settings[n] = p.settings[n + 1] = (struct setting){NULL, NULL};
        write_tokenizer(*state, c->begins);
        if (c->name)
            write_texts(*state, c->name, c->file);
        place_set(&p, "data.validation", "none");
        if (c->end_token)
            place_set(&p, "data.end_token", c->end_token);
        p.settings[p.n] = (struct setting){NULL, NULL};
        ds = open_train(&p);
        check_tokens(ds, c->want);
        dataset_close(ds);
        if (path)
            unlink(path);
        free(path);
    }
    place_free(&p);
}

/* A token file knows its documents; their tokens are those of the stream. */
static void documents_are_kept_apart(void **state)
{
    static const int64_t first[] = {0, 4, 9}, n[] = {4, 5, 3}; /* "th" is one token */
    struct place p = place_new(*state);
    struct corpus corpus;
    struct token_file f;
    struct err err = {0};

    write_texts(p.data, "a.jsonl",
                "{\"text\": \"one\"}\n{\"text\": \"three\"}\n{\"text\": \"do\"}");
    if (corpus_list(&corpus, p.data, NULL, &err) < 0)
        fail_msg("%s", err.msg);
    p.tokenizer = xrealloc(p.tokenizer, strlen(p.tokenizer) + 32);
    strcat(p.tokenizer, "/tokenizer.json");
    if (token_cache_open(&f,
                         &(struct token_cache){.corpus = &corpus,
                                               .tokenizer = p.tokenizer,
                                               .end_token = "<end>",
                                               .beside = p.data},
                         &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(f.facts.n_documents, 3);
    assert_int_equal(f.facts.end, TOKEN_END);
    for (int i = 0; i < 3; i++) {
        int64_t at, len;
        int32_t last;

        assert_int_equal(token_file_document(&f, i, &at, &len, &err), 0);
        assert_int_equal(at, first[i]);
        assert_int_equal(len, n[i]);
        assert_int_equal(token_file_read(&f, at + len - 1, 1, &last, NULL, &err), 0);
        assert_int_equal(last, TOKEN_END);
    }
    token_file_close(&f);
    corpus_fini(&corpus);
    place_free(&p);
}

/* ---- one file for all ---- */

static void tokens_are_made_once(void **state)
{
    struct place p = place_new(*state);
    char name[NAME], *path;
    struct stat first, second;

    write_texts(p.data, "a.txt", "a text");
    place_set(&p, "data.validation", "none");
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 1);
    path = xasprintf("%s/%s", p.data, name);
    assert_int_equal(stat(path, &first), 0);
    dataset_close(open_train(&p));
    assert_int_equal(stat(path, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    assert_int_equal(first.st_mtim.tv_nsec, second.st_mtim.tv_nsec);
    write_texts(p.data, "a.txt", "another one");
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 2);
    write_tokenizer(*state, 1);
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 3);
    write_texts(p.data, "a.txt", "anozher one"); /* of the same size */
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 4);
    free(path);
    place_free(&p);
}

/* Processes that begin together: one of them makes the file, by its log lines. */
static void processes_wait_for_the_one_that_works(void **state)
{
    enum { N = 5 };
    static const char begin[] = "become tokens in";
    struct place p = place_new(*state);
    char *log = xasprintf("%s/log", (char *)*state), name[NAME], text[8192] = "";
    struct buf big = {0};
    int n_made = 0, status;
    FILE *f;

    for (int i = 0; i < 200000; i++)
        buf_printf(&big, "the %d ", i);
    write_file(p.data, "a.txt", &big);
    buf_fini(&big);
    for (int i = 0; i < N; i++)
        if (fork() == 0) {
            assert_non_null(freopen(log, "a", stderr));
            dataset_close(open_train(&p));
            _exit(0);
        }
    for (int i = 0; i < N; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_files(p.data, name), 1);
    f = fopen(log, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    for (const char *at = text; (at = strstr(at, begin)); at++)
        n_made++;
    assert_int_equal(n_made, 1);
    free(log);
    place_free(&p);
}

/* A process that waits for one which fails makes the file itself. */
static void a_maker_that_fails_is_replaced(void **state)
{
    struct place p = place_new(*state);
    char name[NAME], *path, *part, line[512] = "";
    int fd, status, log[2];

    write_texts(p.data, "a.txt", "some text");
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 1);
    path = xasprintf("%s/%s", p.data, name);
    part = xasprintf("%s.part", path);
    fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    if (fork() == 0) {
        close(fd); /* the lock is the parent's alone */
        assert_true(dup2(log[1], STDERR_FILENO) >= 0);
        dataset_close(open_train(&p));
        _exit(0);
    }
    for (size_t n = 0; !strstr(line, "waiting for it"); n++)
        assert_int_equal(read(log[0], line + n, 1), 1);
    assert_int_equal(unlink(part), 0);
    close(open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666)); /* that of the next one */
    close(fd);
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
    assert_int_equal(count_files(p.data, name), 1);
    close(log[0]);
    close(log[1]);
    free(path);
    free(part);
    place_free(&p);
}

/* Where nothing can be created beside the data, the user's cache has the file. */
static void another_folder_may_have_the_tokens(void **state)
{
    struct place p = place_new(*state);
    char *cache = xasprintf("%s/cache", (char *)*state), *in = xasprintf("%s/dptrain", cache),
         *text = xasprintf("%s/a.txt", p.data), *made, path[64], name[NAME];
    int fd;

    write_texts(p.data, "a.txt", "some text");
    fd = open(text, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* nobody can create files there */
    p.settings[0].value = path;
    place_set(&p, "data.validation", "none");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null", 1), 0); /* no folder at all */
    p.settings[0].value = p.data;
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 1);
    made = xasprintf("%s/%s", p.data, name);
    assert_int_equal(unlink(made), 0);
    free(made);
    p.settings[0].value = path;
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    dataset_close(open_train(&p));
    assert_int_equal(count_files(in, name), 1);
    assert_int_equal(count_files(p.data, name), 0);
    place_set(&p, "data.cache", *state);
    dataset_close(open_train(&p));
    assert_int_equal(count_files(*state, name), 1);
    unsetenv("XDG_CACHE_HOME");
    close(fd);
    free(text);
    free(cache);
    free(in);
    place_free(&p);
}

/* A file that was cut is made anew; a number that is no token's is told when it is read. */
static void damaged_files_are_found(void **state)
{
    struct place p = place_new(*state);
    const uint32_t bad = 5000;
    char name[NAME], *path;
    struct dataset *ds;
    int32_t x[CONTEXT], y[CONTEXT];
    struct err err;
    int fd;

    write_texts(p.data, "a.txt", "0123456789");
    place_set(&p, "data.validation", "none");
    dataset_close(open_train(&p));
    assert_int_equal(count_files(p.data, name), 1);
    path = xasprintf("%s/%s", p.data, name);
    assert_int_equal(truncate(path, 70), 0);
    ds = open_train(&p);
    check_tokens(ds, "0123456789");
    dataset_close(ds);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &bad, sizeof bad, 64 + 4 * 5), sizeof bad);
    close(fd);
    ds = open_train(&p);
    assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, NULL}, &err), 0);
    assert_int_equal(dataset_gather(ds, (int64_t[]){1}, 1, (void *[]){x, y}, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, ".tokens: offset 84: damaged; remove it, and it is made anew"));
    dataset_close(ds);
    free(path);
    place_free(&p);
}

/* A disk that is full, here by a limit of the process, is one error, and nothing stays. */
static void a_full_disk_leaves_nothing(void **state)
{
    const struct rlimit small = {1 << 20, RLIM_INFINITY};
    struct rlimit before;
    struct place p = place_new(*state);
    struct dataset_request r = request(DATASET_TRAIN, CONTEXT, 0);
    struct dataset *ds = NULL;
    struct buf big = {0};
    char name[NAME];
    struct err err = {0};

    for (int i = 0; i < 100000; i++)
        buf_printf(&big, "text %d ", i);
    write_file(p.data, "a.txt", &big);
    buf_fini(&big);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_memory_equal(err.msg, "text: ", 6);
    assert_non_null(strstr(err.msg, "cannot write the tokens of the texts to "));
    assert_non_null(strstr(err.msg, "(data.cache names another folder for them): File too large"));
    assert_int_equal(count_files(p.data, name), 0);
    dataset_close(open_train(&p));
    place_free(&p);
}

/* ---- bad input ---- */

static const struct bad {
    const char *name, *text; /* in data/; name NULL: no file */
    const char *key, *value; /* a setting; NULL: none */
    int64_t vocab;
    int code;
    const char *want; /* @ is the folder */
} bad[] = {
    {"a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y}\n", "data.end_token", "none", 0, ERR_CORRUPT,
     "@/data/a.jsonl: line 2: column 12: premature end of input near '\"y}'; want a mapping of "
     "JSON "
     "on each line"},
    {"a.jsonl", "\n[1]\n", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.jsonl: line 2: it is no mapping of JSON; want one on each line, such as {\"text\": "
     "\"...\"}"},
    {"a.jsonl", "{\"content\": \"x\", \"id\": 1}", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.jsonl: line 1: it has the keys \"content\", \"id\"; want a text \"text\", or two "
     "texts \"prompt\" and \"completion\", or a list \"messages\""},
    {"a.jsonl", "{}", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.jsonl: line 1: it has no keys; want a text \"text\", or two texts \"prompt\" and "
     "\"completion\", or a list \"messages\""},
    {"a.jsonl", "{\"text\": \"\"}", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.jsonl: no document has a token; want texts"},
    {"a.jsonl", "{\"messages\": null, \"prompt\": null, \"completion\": \"x\", \"text\": \"\"}",
     NULL, NULL, 0, ERR_CORRUPT, "@/data/a.jsonl: no document has a token; want texts"},
    {"a.jsonl", "{\"prompt\": \"\", \"completion\": \"\"}", "data.end_token", "none", 0,
     ERR_CORRUPT, "@/data/a.jsonl: no document has a token; want texts"},
    {"a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"}", NULL, NULL, 0, ERR_CONFIG,
     "@/data/a.jsonl: line 2: a second document, but no file beside @/tokenizer.json names the "
     "token that ends one (eos_token of tokenizer_config.json); want its text as data.end_token, "
     "or none"},
    {"a.txt", "", NULL, NULL, 0, ERR_CORRUPT, "@/data/a.txt is empty; want a text, or remove it"},
    {"a.txt", "ab\xe9", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.txt: offset 2: byte 0xe9 begins no character of UTF-8; convert the text (iconv -f "
     "LATIN1 -t UTF-8, if it is in Latin-1)"},
    {"a.txt", "PK\x03\x04", NULL, NULL, 0, ERR_CORRUPT,
     "@/data/a.txt: it is a zip archive (numpy.savez()'s .npz, torch.save()'s .pt), want a text"},
    {"a.text", "x", NULL, NULL, 0, ERR_CORRUPT,
     "folder @/data has no file that ends in .txt or .jsonl, but others, such as @/data/a.text"},
    {NULL, NULL, NULL, NULL, 0, ERR_CORRUPT,
     "folder @/data has no file that ends in .txt or .jsonl"},
    {"a.json", "[]", "data.train", "a.json", 0, ERR_CORRUPT,
     "@/data/a.json is JSON in one piece; write it with one mapping a line, as .jsonl"},
    {"a.txt", "x", "data.train", "b.txt", 0, ERR_IO,
     "file @/data/b.txt (of data.path, data.train or data.validation): No such file or directory"},
    {"a.txt", "x", "data.end_token", "</s>", 0, ERR_CONFIG,
     "data.end_token is \"</s>\", which is no token of data.tokenizer; want the text of one, or "
     "data.end_token none"},
    {"a.txt", "x", "data.tokenizer", "/nowhere/t.json", 0, ERR_IO,
     "file /nowhere/t.json (of data.tokenizer): No such file or directory"},
    {"a.txt", "x", "data.cache", "/nowhere", 0, ERR_IO,
     "the tokens of the texts cannot be kept in /nowhere; want a folder that can be written, "
     "data.cache: No such file or directory"},
    {"a.txt", "0123456789", NULL, NULL, 100, ERR_CONFIG,
     "data.tokenizer: @ has 269 tokens, but the network has 100 (model.vocab, or vocab_size of its "
     "config.json); want the network's own tokenizer, or a network with at least as many"},
    {"a.txt", "abc", NULL, NULL, 0, ERR_CORRUPT,
     "the first nine tenths of the texts: 2 tokens, want at least 5: model.context, and one that "
     "is "
     "the last target; give more text, or set model.context lower"},
};

static void check_bad(const char *folder, const struct bad *c)
{
    struct place p = place_new(folder);
    const struct dataset_request r = request(DATASET_TRAIN, CONTEXT, c->vocab);
    struct dataset *ds = NULL;
    struct err err = {0};
    char want[1024], name[NAME];
    int rc;

    if (c->name)
        write_texts(p.data, c->name, c->text);
    if (c->key && !strcmp(c->key, "data.tokenizer"))
        p.settings[1].value = c->value;
    else if (c->key)
        place_set(&p, c->key, c->value);
    rc = open_set(&ds, &format_text, p.settings, &r, &err);
    assert_string_equal(err.msg + strlen("text: "), fill_in(want, sizeof want, c->want, folder));
    assert_int_equal(rc, c->code);
    (void)count_files(p.data, name);
    place_free(&p);
}

static void bad_input_is_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *folder = xasprintf("%s/%zu", (char *)*state, i);

        assert_int_equal(mkdir(folder, 0777), 0);
        check_bad(folder, &bad[i]);
        free(folder);
    }
}

/* A link to a folder that it is in has no end. */
static void loops_are_refused(void **state)
{
    struct place p = place_new(*state);
    const struct dataset_request r = request(DATASET_TRAIN, CONTEXT, 0);
    char *link = xasprintf("%s/sub", p.data), want[1024];
    struct dataset *ds = NULL;
    struct err err = {0};

    assert_int_equal(symlink(p.data, link), 0);
    assert_int_equal(open_set(&ds, &format_text, p.settings, &r, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "text: folder @/data/sub is folder @/data again, by a "
                                         "symbolic link; remove the link",
                                         *state));
    free(link);
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_become_one_stream),
        IN_FOLDER(the_last_tenth_validates),
        IN_FOLDER(parts_of_a_folder_are_named),
        IN_FOLDER(end_tokens_are_found),
        IN_FOLDER(documents_are_kept_apart),
        IN_FOLDER(tokens_are_made_once),
        IN_FOLDER(processes_wait_for_the_one_that_works),
        IN_FOLDER(a_maker_that_fails_is_replaced),
        IN_FOLDER(another_folder_may_have_the_tokens),
        IN_FOLDER(damaged_files_are_found),
        IN_FOLDER(a_full_disk_leaves_nothing),
        IN_FOLDER(bad_input_is_refused),
        IN_FOLDER(loops_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
