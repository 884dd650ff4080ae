/* Fuzz target: the input is a picture, or, with a first byte of 't', the tar archive after it.  A
 * picture is refused, or a square of it is there; an archive is refused, or each of its members
 * lies within it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/picture.h"
#include "data/tar.h"
#include "input.h"

enum { SIZE = 16, MOST_PIXELS = 1 << 20 }; /* larger ones are legal, and take long */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_picture(const uint8_t *data, size_t size)
{
    uint8_t rgb[SIZE * SIZE * PICTURE_CHANNELS];
    struct picture_box box = {0};
    struct picture *p = NULL;
    struct err err = {0};
    int64_t width, height;

    if (picture_open(&p, data, size, &err) < 0) {
        ASSERT(err.msg[0]);
        return;
    }
    picture_size(p, &width, &height);
    if (width * height <= MOST_PIXELS) {
        box.x = (double)width / 5;
        box.y = (double)height / 3;
        box.width = (double)width / 2;
        box.height = (double)height / 2;
        if (picture_read(p, &box, SIZE, rgb, &err) < 0)
            ASSERT(err.msg[0]);
    }
    picture_close(p);
}

static void read_archive(const uint8_t *data, size_t size)
{
    const int fd = input_file(data, size);
    struct tar t = {.fd = fd, .path = "archive", .n_bytes = (int64_t)size};
    struct tar_member m;
    struct err err = {0};

    while (tar_next(&t, &m, &err) == 0) {
        ASSERT(strlen(m.name) < TAR_NAME_BYTES);
        ASSERT(m.n_bytes >= 0 && m.offset >= 0 && m.offset + m.n_bytes <= (int64_t)size);
    }
    tar_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 't')
        read_archive(data + 1, size - 1);
    else
        read_picture(data, size);
    return 0;
}
