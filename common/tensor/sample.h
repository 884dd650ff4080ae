/* sample - the fields of one sample of a data set, each with a name, a type and a shape.
 *
 * A data set states its spec; the loader, the feed, the graph's inputs and the loss follow it.  A
 * field is known by its number, which is also the number of the graph's input.  One field is the
 * target; the model reads all others.  Packed documents have one field more, which says where the
 * document of each token begins, and pairs of answers have one that the loss reads.
 *
 *     images       x F32 [H,W,C]                labels: a class
 *     tokens       tokens I32 [T]               targets: a class at each of T positions
 *     documents    tokens I32 [T]               targets, and starts I32 [T]
 *     pairs        tokens I32 [2,T]             label: the better one; and answers I32 [2,T]
 *     regression   a F32 [3], b F32 [4] ...     y: real numbers [2]
 *     by name      ids I32 [T], mask I32 [T]    labels: a class
 *
 * Threads: any; specs are constant once made. */
#ifndef TENSOR_SAMPLE_H
#define TENSOR_SAMPLE_H

#include "tensor/dtype.h"
#include "tensor/shape.h"

enum { SAMPLE_MAX_FIELDS = 8, SAMPLE_ALIGN = 64 };

/* The class at a position that has no target: the loss leaves it out, as PyTorch's ignore_index
 * does. */
enum { SAMPLE_IGNORED = -100 };

enum sample_role {
    SAMPLE_INPUT, /* read by the model */
    SAMPLE_CLASS, /* the target: with shape [] one class, else one class at each position */
    SAMPLE_REAL,  /* the target: real numbers */
    /* Of several documents in one sample: for each token the place in the sample of the first token
     * of its document.  The last field, if there is one. */
    SAMPLE_STARTS,
    /* Of a pair of texts, of which each is a prompt and an answer: for each token the one behind it
     * where that is of an answer, else SAMPLE_IGNORED.  The last field, if there is one. */
    SAMPLE_ANSWERS,
};

/* The rule by which a stored number becomes the number that programs read. */
enum sample_scale {
    SAMPLE_AS_IS, /* the same numbers, in the field's dtype */
    SAMPLE_UNIT,  /* bytes: v / 255, correctly rounded */
};

struct sample_field {
    const char *name; /* "x"; not copied */
    enum sample_role role;
    enum dtype dtype;   /* in the memory of programs: DTYPE_F32, DTYPE_I32 */
    struct shape shape; /* of one sample, each extent >= 1; []: one number */
    int64_t n_classes; /* DTYPE_I32: values are 0 .. n_classes-1 (tokens: the vocabulary's size); 0:
                          of an input, any whole numbers */
    enum dtype stored; /* as the reader stores it: DTYPE_U8, the same as dtype, or DTYPE_F64 */
    enum sample_scale scale;
};

struct sample_spec {
    int n_fields;
    struct sample_field field[SAMPLE_MAX_FIELDS];
};

/* An initializer of a spec: x [height,width,channels], numbers in [0,1], and labels; both are
 * stored as bytes. */
#define SAMPLE_IMAGES(height, width, channels, classes)                                         \
    {                                                                                           \
        2,                                                                                      \
        {                                                                                       \
            {"x", SAMPLE_INPUT, DTYPE_F32,  {3, {height, width, channels}},                     \
             0,   DTYPE_U8,     SAMPLE_UNIT},                                                   \
                {"labels", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, classes, DTYPE_U8, SAMPLE_AS_IS}, \
        }                                                                                       \
    }

/* An initializer of a spec: `context` tokens out of `vocab`, and at each place its target, the
 * token that follows. */
#define SAMPLE_SEQUENCES(context, vocab)                                                         \
    {                                                                                            \
        2,                                                                                       \
        {                                                                                        \
            {"tokens", SAMPLE_INPUT, DTYPE_I32, {1, {context}}, vocab, DTYPE_I32, SAMPLE_AS_IS}, \
                {"targets", SAMPLE_CLASS, DTYPE_I32,   {1, {context}},                           \
                 vocab,     DTYPE_I32,    SAMPLE_AS_IS},                                         \
        }                                                                                        \
    }

/* The field of packed documents that stands behind those of SAMPLE_SEQUENCES. */
#define SAMPLE_STARTS_FIELD(context)                                                   \
    {                                                                                  \
        "starts", SAMPLE_STARTS, DTYPE_I32, {1, {context}}, 0, DTYPE_I32, SAMPLE_AS_IS \
    }

/* An initializer of a spec: pairs of `context` tokens each out of `vocab`, first the text with the
 * answer that is the worse one.  The target is the number of the better one, which is always 1. */
#define SAMPLE_PAIRS(context, vocab)                                                       \
    {                                                                                      \
        3,                                                                                 \
        {                                                                                  \
            {                                                                              \
                "tokens", SAMPLE_INPUT, DTYPE_I32,   {2, {2, context}},                    \
                vocab,    DTYPE_I32,    SAMPLE_AS_IS},                                     \
                {"chosen", SAMPLE_CLASS, DTYPE_I32, {0, {0}}, 2, DTYPE_I32, SAMPLE_AS_IS}, \
                {"answers", SAMPLE_ANSWERS, DTYPE_I32,   {2, {2, context}},                \
                 vocab,     DTYPE_I32,      SAMPLE_AS_IS},                                 \
        }                                                                                  \
    }

/* Bytes of one sample's field: in the memory of programs, and as the reader stores it. */
size_t sample_field_bytes(const struct sample_field *f);
size_t sample_stored_bytes(const struct sample_field *f);

/* The shape of this field of `n` samples: [n, the field's shape]. */
struct shape sample_batch_shape(const struct sample_field *f, int64_t n);

/* Divide memory at `at` between the fields of n samples: field[n_fields] gets where each begins,
 * aligned to SAMPLE_ALIGN if `at` is.  Returns the bytes that all fields need; with at NULL that is
 * all it does. */
size_t sample_place(const struct sample_spec *s, int64_t n, void *at, void **field);

/* The number of the target field; asserts that there is exactly one. */
int sample_target(const struct sample_spec *s);

/* The number of the field SAMPLE_STARTS; -1: samples are not of several documents. */
int sample_starts(const struct sample_spec *s);

/* The number of the field SAMPLE_ANSWERS; -1: samples are no pairs. */
int sample_answers(const struct sample_spec *s);

int sample_n_inputs(const struct sample_spec *s); /* fields of SAMPLE_INPUT */

/* The number of targets of one sample if none is ignored: its positions with a class, else 1. */
int64_t sample_n_predictions(const struct sample_spec *s);

/* 1: a sample has a class at each of its places, as one of tokens has. */
int sample_has_places(const struct sample_spec *s);

int sample_equal(const struct sample_spec *a, const struct sample_spec *b);

/* Append the spec, "x [28,28,1], labels of 10 classes", or one field of it. */
struct buf;
void sample_print(const struct sample_spec *s, struct buf *out);
void sample_field_print(const struct sample_field *f, struct buf *out);

#endif
