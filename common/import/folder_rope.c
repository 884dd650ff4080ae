/* folder_rope - rotary positions, by the frequencies of config.json.
 *
 * Column i of the first half of a head turns by position * theta^(-2i / head_dim); the second half
 * has the same angles.  transformers computes in float32, and so does this: the angle of a late
 * position loses bits, which the weights were trained with.
 *
 * A score of row i and row j depends on i - j alone, however the frequencies were scaled: what
 * turns by i and by j together turns by the difference, and yarn's factor of cos and sin is the
 * same at all places.  So packed documents, whose positions begin anew, have the scores that they
 * have alone, but for the rounding of angles. */
#include <math.h>

#include "import/folder_impl.h"

/* Llama 3.1: slow frequencies are divided by the factor, fast ones stay, and those between are
 * mixed. */
static float rope_llama3(const struct folder_rope *rope, float frequency)
{
    const double length = 2 * M_PI / (double)frequency;
    const double slow = rope->positions / rope->low, fast = rope->positions / rope->high;
    const float divided = frequency / (float)rope->factor;
    float share;

    if (length > slow)
        return divided;
    if (length < fast)
        return frequency;
    share = (float)((rope->positions / length - rope->low) / (rope->high - rope->low));
    return (1 - share) * divided + share * frequency;
}

/* The column that turns so often within the positions of pre-training. */
static double rope_column(const struct folder_rope *rope, int64_t head_dim, double turns)
{
    return (double)head_dim * log(rope->positions / (turns * 2 * M_PI)) / (2 * log(rope->theta));
}

/* YaRN: columns before the first one stay, those behind the last one are divided by the factor, and
 * those between are mixed. */
static float rope_yarn(const struct folder_rope *rope, int64_t head_dim, int64_t i, float frequency)
{
    const double first = fmax(floor(rope_column(rope, head_dim, rope->high)), 0);
    double last = fmin(ceil(rope_column(rope, head_dim, rope->low)), (double)head_dim - 1);
    float share;

    if (last == first)
        last += 0.001;
    share = (float)fmin(fmax(((double)i - first) / (last - first), 0), 1);
    return frequency / (float)rope->factor * share + frequency * (1 - share);
}

static float rope_frequency(const struct folder_config *c, const struct folder_rope *rope,
                            int64_t i)
{
    const float power = powf((float)rope->theta, (float)(2 * i) / (float)c->head_dim);

    switch (rope->kind) {
    case ROPE_LONG:
        return 1 / (c->column[(double)c->context > rope->positions][i] * power);
    case ROPE_YARN:
        return rope_yarn(rope, c->head_dim, i, 1 / power);
    case ROPE_LLAMA3:
        return rope_llama3(rope, 1 / power);
    case ROPE_DIVIDED:
        break;
    }
    return 1 / power / (float)rope->factor;
}

void folder_turns(const struct folder_config *c, const struct folder_rope *rope, float *cosine,
                  float *sine)
{
    const int64_t half = c->head_dim / 2;

    for (int64_t i = 0; i < half; i++) {
        const float frequency = rope_frequency(c, rope, i);

        for (int64_t t = 0; t < c->context; t++) {
            const float angle = (float)t * frequency;

            for (int64_t k = i; k < c->head_dim; k += half) {
                cosine[t * c->head_dim + k] = (float)(rope->scale * cos((double)angle));
                sine[t * c->head_dim + k] = (float)(rope->scale * sin((double)angle));
            }
        }
    }
}
