/* picture - finds the decoder by the file's first bytes, lets it decode the part that is wanted,
 * and resizes that part. */
#include "data/picture.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/pixels.h"

struct picture {
    struct decoder *decoder;
};

static const struct decoder_ops *const decoders[] = {&decoder_jpeg, &decoder_png};

int picture_open(struct picture **out, const void *bytes, size_t n_bytes, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(decoders); i++) {
        struct decoder *d;

        if (!decoders[i]->is(bytes, n_bytes))
            continue;
        if (decoders[i]->open(&d, bytes, n_bytes, err) < 0)
            return err->code;
        *out = xmalloc(sizeof **out);
        (*out)->decoder = d;
        return 0;
    }
    return err_set(err, ERR_CORRUPT, "its %zu bytes begin neither as a JPEG nor as a PNG file",
                   n_bytes);
}

struct picture_size picture_size(const struct picture *p)
{
    return (struct picture_size){p->decoder->width, p->decoder->height};
}

int picture_read(struct picture *p, const struct picture_box *box, struct picture_size to,
                 enum picture_scale scale, uint8_t *rgb, struct err *err)
{
    struct decoder *d = p->decoder;
    struct pixels pixels = {0};
    int rc = d->ops->read(d, box, to, scale, &pixels, err);

    if (rc == 0)
        rc = pixels_resize(&pixels, box, to, rgb, err);
    free(pixels.rgb);
    return rc;
}

void picture_close(struct picture *p)
{
    if (!p)
        return;
    p->decoder->ops->close(p->decoder);
    free(p);
}
