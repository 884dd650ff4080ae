/* tokenize - tokenizer.json on a text, for the tests and benchmarks in Python.
 *
 *     tokenize FILE bare|special < TEXT > NUMBERS         int32_t, in the machine's byte order
 *     tokenize FILE decode|decode-special < NUMBERS > TEXT
 *     tokenize FILE time ROUNDS < TEXT                    seconds of CPU of the quickest round */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

static int take(void *arg, const int32_t *token, size_t n, struct err *err)
{
    (void)err;
    buf_append(arg, token, n * sizeof *token);
    return 0;
}

static void read_all(struct buf *b)
{
    size_t n;

    do {
        n = fread(buf_reserve(b, 1 << 16), 1, 1 << 16, stdin);
        b->len += n;
    } while (n > 0);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each round has a work of its own, so its cache begins empty. */
static int show_time(const struct tokenizer *t, const struct buf *in, int n_rounds, struct err *err)
{
    double best = 1e30;
    int rc = 0;

    for (int i = 0; rc == 0 && i < n_rounds; i++) {
        const double start = now();
        struct tokenizer_work *const w = tokenizer_work_new(t);
        struct buf out = {0};

        rc = tokenizer_encode(w, (const char *)in->data, in->len, TOKENIZER_BARE, take, &out, err);
        tokenizer_work_free(w);
        buf_fini(&out);
        best = now() - start < best ? now() - start : best;
    }
    printf("%.6f\n", best);
    return rc;
}

static int run(const struct tokenizer *t, char **argv, const struct buf *in, struct err *err)
{
    const int is_special = strstr(argv[2], "special") != NULL;
    struct buf out = {0};
    int rc;

    if (!strcmp(argv[2], "time"))
        return show_time(t, in, argv[3] ? atoi(argv[3]) : 1, err);
    if (!strncmp(argv[2], "decode", 6)) {
        rc = tokenizer_decode(t, (const int32_t *)in->data, in->len / sizeof(int32_t), is_special,
                              &out, err);
    } else {
        struct tokenizer_work *const w = tokenizer_work_new(t);

        rc = tokenizer_encode(w, (const char *)in->data, in->len, is_special, take, &out, err);
        tokenizer_work_free(w);
    }
    fwrite(out.data, 1, out.len, stdout);
    buf_fini(&out);
    return rc;
}

int main(int argc, char **argv)
{
    struct tokenizer *t = NULL;
    struct buf in = {0};
    struct err err = {0};
    int rc;

    if (argc < 3) {
        fprintf(stderr, "usage: tokenize FILE bare|special|decode|decode-special|time [ROUNDS]\n");
        return 2;
    }
    rc = tokenizer_read(&t, argv[1], &err);
    if (rc == 0) {
        read_all(&in);
        rc = run(t, argv, &in, &err);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", err.msg);
    buf_fini(&in);
    tokenizer_free(t);
    return rc < 0;
}
