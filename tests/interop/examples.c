/* examples - prompts and conversations as tokens, for the tests in Python.
 *
 *     examples TOKENIZER.json FILE.jsonl FORM CACHE
 *
 * FORM is a number of enum chat_form.  A line of standard output is an example: its tokens, each
 * with a '+' in front if it is learnt.  The file of tokens goes to the folder CACHE. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/token_cache.h"

static int show(const struct token_file *f, int64_t i, struct err *err)
{
    int64_t first, n;
    int32_t *token;
    uint8_t *unlearnt;
    int rc = token_file_document(f, i, &first, &n, err);

    if (rc < 0)
        return rc;
    token = xcalloc((size_t)n, sizeof *token);
    unlearnt = xcalloc((size_t)n, 1);
    rc = token_file_read(f, first, n, token, unlearnt, err);
    for (int64_t k = 0; rc == 0 && k < n; k++)
        printf("%s%s%d", k ? " " : "", unlearnt[k] ? "" : "+", (int)token[k]);
    printf("\n");
    free(token);
    free(unlearnt);
    return rc;
}

static int run(char **argv, struct err *err)
{
    struct token_cache what = {.tokenizer = argv[1],
                               .form = (enum chat_form)atoi(argv[3]),
                               .cache = argv[4],
                               .beside = argv[4]};
    struct corpus corpus;
    struct token_file f;
    int rc = corpus_list(&corpus, argv[2], NULL, err);

    if (rc < 0)
        return rc;
    what.corpus = &corpus;
    rc = token_cache_open(&f, &what, err);
    for (int64_t i = 0; rc == 0 && i < f.facts.n_documents; i++)
        rc = show(&f, i, err);
    if (rc == 0)
        token_file_close(&f);
    corpus_fini(&corpus);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err;

    if (argc != 5) {
        fprintf(stderr, "examples TOKENIZER.json FILE.jsonl FORM CACHE\n");
        return 2;
    }
    if (run(argv, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
