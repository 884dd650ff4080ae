/* Texts, with a tokenizer or by their characters, and folders of Hugging Face's networks, which are
 * known by their config.json. */
#include "driver/init_find.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"

enum {
    LEAST_CONTEXT = 8,
    MOST_CONTEXT = 512,
    CHARS_CONTEXT = 128,
    BYTES_FOR_TOKEN = 4, /* about, of English by a tokenizer */
    SAMPLES_WANTED = 40, /* of the texts; the last tenth of them validates */
};

static json_t *text_config(const struct init_look *l)
{
    char *path = init_look_join(l, "config.json");
    json_t *o = init_look_has(l, "config.json") ? json_load_file(path, 0, NULL) : NULL;

    free(path);
    return o;
}

int init_is_network(const struct init_look *l)
{
    json_t *o = text_config(l);
    const int is_one = json_string_value(json_object_get(o, "model_type")) != NULL;

    json_decref(o);
    return is_one;
}

/* The positions that the network knows, or 0. */
static int64_t text_positions(const struct init_look *network)
{
    static const char *const keys[] = {"max_position_embeddings", "n_positions"};
    json_t *o = text_config(network);
    int64_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(keys) && n == 0; i++)
        n = json_integer_value(json_object_get(o, keys[i]));
    json_decref(o);
    return n;
}

static int text_has_weights(const struct init_look *network)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", NULL};

    return init_look_first(network, names) != NULL;
}

/* Tokenizers have their parts in such files, too. */
static int text_is(const char *name)
{
    return (init_ends(name, ".txt") && strcmp(name, "merges.txt") != 0 &&
            strcmp(name, "vocab.txt") != 0) ||
           init_ends(name, ".jsonl");
}

/* The texts of a folder: how many there are, their bytes, and the largest .txt file. */
struct init_texts {
    int n;
    int64_t n_bytes, most;
    const char *largest;
};

static struct init_texts text_count(const struct init_look *l)
{
    struct init_texts t = {.most = -1};

    for (int i = 0; i < l->n; i++) {
        char *path = init_look_join(l, l->name[i]);
        struct stat st;

        if (text_is(l->name[i]) && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            t.n++;
            t.n_bytes += st.st_size;
            if (init_ends(l->name[i], ".txt") && st.st_size > t.most) {
                t.most = st.st_size;
                t.largest = l->name[i];
            }
        }
        free(path);
    }
    return t;
}

static int64_t text_context(int64_t n_tokens, int64_t most)
{
    return max_i64(LEAST_CONTEXT, min_i64(most, n_tokens / SAMPLES_WANTED));
}

static void text_set_tokenized(const struct init_look *l, const struct init_look *tokenizer,
                               const struct init_texts *t, struct init_job *j)
{
    const int64_t positions = j->network ? text_positions(j->network) : 0;
    char *file = init_look_join(tokenizer, "tokenizer.json");

    init_set_text(j, "data.path", l->path);
    if (tokenizer != j->network)
        init_set_text(j, "data.tokenizer", file);
    init_set_language(j, min_i64(positions > 0 ? positions : MOST_CONTEXT,
                                 text_context(t->n_bytes / BYTES_FOR_TOKEN, MOST_CONTEXT)));
    if (j->network && !text_has_weights(j->network)) {
        init_set(j, "model.init.name", "random");
        init_set(j, "optimizer.lr", "0.001");
        init_note(j, "%s has no weights (model.safetensors): they are drawn.", j->network->folder);
    }
    free(file);
}

/* Without a tokenizer one file is read, by its characters. */
static void text_set_chars(const struct init_look *l, const struct init_texts *t,
                           struct init_job *j)
{
    char *path = init_look_join(l, t->largest);

    init_set_text(j, "data.path", path);
    init_set(j, "data.tokenizer", "chars");
    init_set_language(j, text_context(t->most, CHARS_CONTEXT));
    init_set(j, "train.global_batch", "16");
    if (t->n > 1)
        init_note(j,
                  "Without a tokenizer.json one text is read, %s. Put one into the folder for all "
                  "%d texts.",
                  t->largest, t->n);
    free(path);
}

int init_find_text(const struct init_look *l, struct init_job *j, struct err *err)
{
    const struct init_texts t = text_count(l);
    const struct init_look *tokenizer = init_look_has(l, "tokenizer.json") ? l : j->network;

    if (t.n == 0)
        return INIT_NONE;
    if (tokenizer && init_look_has(tokenizer, "tokenizer.json"))
        text_set_tokenized(l, tokenizer, &t, j);
    else if (j->network)
        return err_set(err, ERR_ARG,
                       "%s has no tokenizer.json, which the texts in %s need; put that of the "
                       "network there",
                       j->network->folder, l->folder);
    else if (t.largest)
        text_set_chars(l, &t, j);
    else
        return err_set(err, ERR_ARG,
                       "%s: texts in .jsonl files need a tokenizer.json in the folder, or a folder "
                       "of Hugging Face's with one: dpdriver init NETWORK %s",
                       l->folder, l->folder);
    return 0;
}
