/* Loads the checkpoint and its tokenizer, and asks common/generate for one token after another,
 * whose text it writes at once. */
#include "driver/sample.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "driver/export.h"
#include "generate/draw.h"
#include "generate/generator.h"
#include "generate/scribe.h"
#include "import/arch.h"

struct sample {
    const struct options *o;
    const struct job *job;
    struct ckpt *c;
    struct scribe *scribe;
    struct generator *g;
    struct draw *draw;
    struct scribe_stream stream;
    struct buf text;          /* all that was written */
    int64_t n_given, n_added; /* tokens */
    const char *end;          /* why no more came */
};

/* ---- opening ---- */

/* A text of the job, NULL: it has no such key, or no value. */
static const char *sample_key(const struct job *job, const char *key)
{
    const char *const *at = job_field(job, key);

    return at && *at && **at ? *at : NULL;
}

/* The first tokenizer that is there: the one that was asked for, the job's, that beside the
 * checkpoint, that of the imported folder.  For free(). */
static char *sample_find_tokenizer(const struct sample *s)
{
    const struct import_options *import = import_options_of(&s->job->model);
    const char *of_job = sample_key(s->job, "data.tokenizer");
    char *path;

    if (s->o->tokenizer)
        return xstrdup(s->o->tokenizer);
    if (of_job && (*of_job != '/' || access(of_job, R_OK) == 0))
        return xstrdup(of_job);
    path = xasprintf("%s/tokenizer.json", s->c->path);
    if (access(path, R_OK) != 0 && import) {
        free(path);
        path = xasprintf("%s/tokenizer.json", import->path);
    }
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* Networks of ours whose samples are tokens have a context. */
static int sample_check_kind(const struct sample *s, struct err *err)
{
    const struct model_options *m = &s->job->model;

    if (import_options_of(m) || job_field(s->job, "model.context"))
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "model.arch %s takes no tokens; want a language model, such as gpt, or a folder "
                   "in model.import",
                   m->kind->group.name);
}

static int sample_open_scribe(struct sample *s, struct err *err)
{
    char *path = sample_find_tokenizer(s);
    const char *end = sample_key(s->job, "data.end_token");
    const int is_number = end && !strcmp(s->job->data.kind->group.name, "tokens");
    const struct scribe_request r = {.tokenizer = path,
                                     .corpus = sample_key(s->job, "data.path"),
                                     .end = is_number ? NULL : end,
                                     .has_end_number = is_number,
                                     .end_number = is_number ? (int32_t)atoll(end) : -1};
    int rc = 0;

    if (!path)
        rc = err_set(err, ERR_CONFIG,
                     "there is no tokenizer: neither data.tokenizer of the job nor "
                     "%s/tokenizer.json; give --tokenizer, a tokenizer.json or bytes",
                     s->c->path);
    else if (!strcmp(path, "chars") && !r.corpus)
        rc = err_set(err, ERR_CONFIG,
                     "--tokenizer chars: the job has no text (data.path) whose characters have "
                     "numbers; want a tokenizer.json or bytes");
    if (rc == 0)
        rc = scribe_open(&r, &s->scribe, err);
    free(path);
    return rc < 0 ? err_wrap(err, "tokenizer") : 0;
}

/* The tokens of a sample; 2, the least, where the network has no such number. */
static int64_t sample_context(const struct job *job)
{
    enum { LEAST = 2 };
    const struct import_options *import = import_options_of(&job->model);
    const int64_t *of_job = job_field(job, "model.context");

    if (import && import->network->n_inputs > 0) {
        const struct import_network *n = import->network;
        const struct import_value *x = &n->value[n->input[0].value];

        return x->n_dims > 1 ? max_i64(x->dim[1], LEAST) : LEAST;
    }
    return of_job ? max_i64(*of_job, LEAST) : LEAST;
}

/* The network's tokens: model.vocab, or as many as the text has, where the checkpoint does not have
 * them; 0: the checkpoint has them, or the imported network. */
static int64_t sample_vocab(const struct sample *s)
{
    const int64_t *of_job = job_field(s->job, "model.vocab");

    if (of_job && *of_job > 0)
        return *of_job;
    return of_job && s->job->model.base != BASE_FLOAT32 ? scribe_vocab(s->scribe) : 0;
}

static int sample_open_generator(struct sample *s, struct err *err)
{
    const struct generator_request r = {.model = &s->job->model,
                                        .weights = s->o->averaged ? s->c->average : s->c->model,
                                        .context = sample_context(s->job),
                                        .vocab = sample_vocab(s),
                                        .n_threads = (int)max_i64(s->o->common.n_threads, 1)};
    const struct draw_rule rule = {.temperature = s->o->temperature,
                                   .top_k = s->o->top_k,
                                   .top_p = s->o->top_p,
                                   .seed = (uint64_t)s->o->sample_seed};
    const int rc = generator_open(&r, &s->g, err);

    if (rc < 0)
        return err_wrap(err, "%s", s->c->path);
    s->draw = draw_new(&rule, generator_vocab(s->g));
    return 0;
}

static void sample_close(struct sample *s)
{
    scribe_stream_fini(&s->stream);
    buf_fini(&s->text);
    draw_free(s->draw);
    scribe_close(s->scribe);
    generator_close(s->g);
    ckpt_close(s->c);
}

/* ---- the text ---- */

static void sample_write(struct sample *s, const char *text, size_t n)
{
    buf_append(&s->text, text, n);
    if (s->o->common.log_format != LOG_JSON)
        log_put(STDOUT_FILENO, text, n);
}

static int sample_check_given(const struct sample *s, const int32_t *token, int64_t n,
                              struct err *err)
{
    if (n == 0)
        return err_set(err, ERR_ARG, "the text has no tokens");
    if (n > generator_room(s->g))
        return err_set(err, ERR_ARG,
                       "the text has %lld tokens, want at most the network's context, "
                       "%lld",
                       (long long)n, (long long)generator_room(s->g));
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= generator_vocab(s->g))
            return err_set(err, ERR_CONFIG,
                           "token %lld of the text is %d, but the network has %lld "
                           "tokens; want the tokenizer that it was trained with (--tokenizer)",
                           (long long)i, token[i], (long long)generator_vocab(s->g));
    return 0;
}

/* Add tokens by these logits until one of the three ends. */
static int sample_go_on(struct sample *s, const float *logits, struct err *err)
{
    int rc = 0;

    s->end = "tokens";
    while (s->n_added < s->o->n_tokens && rc == 0) {
        const int32_t token = draw_next(s->draw, logits);
        struct buf new = {0};

        if (token < 0) {
            buf_fini(&new);
            return err_set(err, ERR_CORRUPT,
                           "%s: the network's logits are not finite, as after training that "
                           "diverged; want another checkpoint",
                           s->c->path);
        }
        if (token == scribe_end(s->scribe)) {
            s->end = "end_token";
            break;
        }
        s->n_added++;
        rc = scribe_stream_put(&s->stream, s->scribe, token, &new, err);
        if (rc == 0)
            sample_write(s, buf_cstr(&new), new.len);
        buf_fini(&new);
        if (rc < 0 || s->n_added == s->o->n_tokens)
            break;
        if (generator_room(s->g) == 0) {
            s->end = "context";
            break;
        }
        rc = generator_feed(s->g, &token, 1, &logits, err);
    }
    return rc;
}

/* A shell may give any bytes. */
static int sample_check_text(const char *text, struct err *err)
{
    for (size_t at = 0, len; text[at]; at += len) {
        len = text_char_len(text + at);
        if (len == 0)
            return err_set(err, ERR_ARG, "byte %zu of the text begins no character of UTF-8", at);
    }
    return 0;
}

static int sample_text(struct sample *s, double *seconds, struct err *err)
{
    const float *logits;
    struct buf rest = {0};
    int32_t *token = NULL;
    int64_t start;
    int rc = sample_check_text(s->o->sample, err);

    if (rc == 0)
        rc = scribe_encode(s->scribe, s->o->sample, &token, &s->n_given, err);
    if (rc == 0)
        rc = sample_check_given(s, token, s->n_given, err);
    if (rc == 0) {
        scribe_stream_begin(&s->stream, token, s->n_given);
        sample_write(s, s->o->sample, strlen(s->o->sample));
        rc = generator_feed(s->g, token, s->n_given, &logits, err);
    }
    start = clock_mono_ns();
    if (rc == 0)
        rc = sample_go_on(s, logits, err);
    *seconds = (double)(clock_mono_ns() - start) / 1e9;
    if (rc == 0)
        rc = scribe_stream_end(&s->stream, s->scribe, &rest, err);
    if (rc == 0)
        sample_write(s, buf_cstr(&rest), rest.len);
    buf_fini(&rest);
    free(token);
    return rc;
}

/* The end of the text, or one line of JSON, and how fast it came. */
static void sample_tell(const struct sample *s, double seconds)
{
    const double speed = seconds > 0 ? (double)s->n_added / seconds : 0;
    struct buf line = {0};

    if (s->o->common.log_format == LOG_JSON) {
        json_t *path = json_string(s->c->path); /* NULL: it is not UTF-8 */
        json_t *o = json_pack("{s:o, s:I, s:s%, s:I, s:I, s:s, s:f}", "checkpoint",
                              path ? path : json_null(), "step", (json_int_t)s->c->state.step,
                              "text", (const char *)s->text.data, s->text.len, "given_tokens",
                              (json_int_t)s->n_given, "tokens", (json_int_t)s->n_added, "end",
                              s->end, "tokens_per_second", speed);
        char *json = json_dumps(o, JSON_COMPACT);

        ASSERT(json); /* all of the text is UTF-8 */
        buf_printf(&line, "%s", json);
        free(json);
        json_decref(o);
    }
    buf_printf(&line, "\n");
    log_put(STDOUT_FILENO, (const char *)line.data, line.len);
    buf_fini(&line);
    if (!strcmp(s->end, "context"))
        log_warn("--sample: the network's context of %lld tokens is full, so the text ends here",
                 (long long)sample_context(s->job));
    log_info("%s: %lld tokens behind the text's %lld, %.1f a second", s->c->path,
             (long long)s->n_added, (long long)s->n_given, speed);
}

int sample_run(const struct options *o, const struct evaluation *e, const struct job *job)
{
    struct sample s = {.o = o, .job = job};
    struct err err;
    double seconds = 0;
    int rc = export_load(o, e, &s.c, &err);

    if (rc == 0)
        rc = sample_check_kind(&s, &err);
    if (rc == 0)
        rc = sample_open_scribe(&s, &err);
    if (rc == 0)
        rc = sample_open_generator(&s, &err);
    if (rc == 0)
        rc = sample_text(&s, &seconds, &err);
    if (rc == 0)
        sample_tell(&s, seconds);
    else
        log_error("--sample: %s", err.msg);
    sample_close(&s);
    return rc == 0 ? STATUS_OK : daemon_status_of(&err);
}
