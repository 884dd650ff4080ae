/* The picture of a confusion matrix: cells, names, a scale, and the file by libpng.
 *
 * From the top: a title, the matrix with the classes' names at its left, the predictions' names
 * below it, turned by 90 degrees, and at the right the scale of colours. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "see/font.h"
#include "see/matrix.h"

enum {
    SIDE = 400, /* of the matrix, about: TensorBoard shows it at half its size */
    LEAST_CELL = 6,
    MOST_CELL = 48,
    MARGIN = 12,
    LETTER = 2 * (FONT_WIDTH + 1), /* width of a letter with its gap; letters have double size */
    LINE = 2 * FONT_HEIGHT + 4,
    MOST_LETTERS = 16,     /* of a name; longer ones are cut */
    LEAST_OF_PERCENT = 30, /* a cell that has room for two digits */
    LEAST_OF_LINES = 10,   /* a cell with a line around it */
    SCALE = 16,            /* width of the scale */
    TICK_EVERY = 10,       /* where axes have numbers */
};

struct colour {
    unsigned char r, g, b;
};

_Static_assert(sizeof(struct colour) == 3, "libpng takes pixels without gaps");

struct canvas {
    int width, height;
    struct colour *pixel; /* [height, width] */
};

static const double DARK = 0.7; /* from here on white letters have more contrast than black ones */
static const struct colour white = {255, 255, 255}, black = {30, 30, 30}, grey = {200, 205, 210};

/* ---- drawing ---- */

static void canvas_fill(struct canvas *c, int x, int y, int width, int height, struct colour with)
{
    for (int j = (int)max_i64(y, 0); j < min_i64(y + height, c->height); j++)
        for (int i = (int)max_i64(x, 0); i < min_i64(x + width, c->width); i++)
            c->pixel[j * c->width + i] = with;
}

/* Where the next letter of a text goes, and how. */
struct pen {
    int x, y;      /* its top left; turned: its bottom left */
    int size;      /* pixels of one of the letter's */
    int is_turned; /* it runs upwards */
    struct colour colour;
};

static void canvas_letter(struct canvas *c, const struct pen *p, char letter)
{
    for (int y = 0; y < FONT_HEIGHT; y++)
        for (int x = 0; x < FONT_WIDTH; x++)
            if (font_pixel(letter, x, y))
                canvas_fill(c, p->x + p->size * (p->is_turned ? y : x),
                            p->y + p->size * (p->is_turned ? -x - 1 : y), p->size, p->size,
                            p->colour);
}

static void canvas_text(struct canvas *c, struct pen p, const char *text)
{
    for (; *text; text++) {
        canvas_letter(c, &p, *text);
        *(p.is_turned ? &p.y : &p.x) += (p.is_turned ? -1 : 1) * p.size * (FONT_WIDTH + 1);
    }
}

static int text_width(const char *text, int size)
{
    return (int)strlen(text) * size * (FONT_WIDTH + 1) - size;
}

/* The stops of ColorBrewer's "Blues", whose lightness falls evenly. */
static struct colour colour_of(double part)
{
    static const struct colour stop[] = {
        {255, 255, 255}, {198, 219, 239}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}};
    const double at = part * (double)(ARRAY_LEN(stop) - 1);
    const size_t i = (size_t)min_i64((int64_t)at, ARRAY_LEN(stop) - 2);
    const double f = at - (double)i;
    const struct colour a = stop[i], b = stop[i + 1];

    return (struct colour){(unsigned char)(a.r + f * (b.r - a.r) + 0.5),
                           (unsigned char)(a.g + f * (b.g - a.g) + 0.5),
                           (unsigned char)(a.b + f * (b.b - a.b) + 0.5)};
}

/* ---- the parts ---- */

struct picture {
    const struct matrix *m;
    struct canvas canvas;
    int cell;    /* side of a cell */
    int letters; /* of the longest name */
    int x, y;    /* the matrix' top left */
};

/* 1: names stand beside rows and columns. */
static int has_names(const struct matrix *m) { return m->n <= MATRIX_MOST_NAMES; }

/* The label of a class: its name, cut, or its number, if the letters are not ours. */
static void matrix_label(const struct matrix *m, int k, char out[MOST_LETTERS + 1])
{
    const char *name = m->name[k];

    if (!has_names(m)) {
        snprintf(out, MOST_LETTERS + 1, "%d", k);
        return;
    }
    for (const char *c = name; *c; c++)
        if (*c < ' ' || *c > '~') {
            snprintf(out, MOST_LETTERS + 1, "%d", k);
            return;
        }
    snprintf(out, MOST_LETTERS + 1, "%s", name);
    if (strlen(name) > MOST_LETTERS)
        memcpy(out + MOST_LETTERS - 2, "..", 2);
}

/* 1: the names below the matrix stand upright, because they are no wider than a cell. */
static int is_upright(const struct picture *p)
{
    return !has_names(p->m) || p->letters * LETTER <= p->cell;
}

static void picture_plan(struct picture *p)
{
    char label[MOST_LETTERS + 1];
    const int n = p->m->n;

    p->cell = (int)max_i64(LEAST_CELL, min_i64(MOST_CELL, SIDE / n));
    if (has_names(p->m))
        p->cell = (int)max_i64(p->cell, LINE);
    for (int k = 0; k < n; k++) {
        matrix_label(p->m, k, label);
        p->letters = (int)max_i64(p->letters, (int)strlen(label));
    }
    p->x = MARGIN + LINE + p->letters * LETTER + 8;
    p->y = MARGIN + 2 * LINE;
    p->canvas.width = p->x + n * p->cell + 2 * MARGIN + SCALE + 5 * LETTER;
    p->canvas.width = (int)max_i64(p->canvas.width, 2 * MARGIN + 32 * LETTER);
    p->canvas.height =
        (int)max_i64(p->y + n * p->cell, p->y + 8 * LINE) + 8 + p->letters * LETTER + LINE + MARGIN;
}

static double matrix_part(const struct matrix *m, int i, int k)
{
    int64_t all = 0;

    for (int j = 0; j < m->n; j++)
        all += m->count[i * m->n + j];
    return all ? (double)m->count[i * m->n + k] / (double)all : 0;
}

/* Percent, where the cell has room, and there is something.  A hundred has three digits. */
static void put_percent(struct picture *p, int x, int y, double part)
{
    const int percent = (int)(100 * part + 0.5);
    char text[8];
    int size;

    if (part <= 0 || p->cell < LEAST_OF_PERCENT)
        return;
    snprintf(text, sizeof text, percent ? "%d" : "<1", percent);
    size = text_width(text, 2) + 4 <= p->cell ? 2 : 1;
    canvas_text(&p->canvas,
                (struct pen){x + (p->cell - text_width(text, size)) / 2,
                             y + (p->cell - 7 * size) / 2, size, 0, part > DARK ? white : black},
                text);
}

static void put_cells(struct picture *p)
{
    const int n = p->m->n, gap = p->cell >= LEAST_OF_LINES;

    canvas_fill(&p->canvas, p->x - 1, p->y - 1, n * p->cell + 1 + !gap, n * p->cell + 1 + !gap,
                grey);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const double part = matrix_part(p->m, i, k);
            const int x = p->x + k * p->cell, y = p->y + i * p->cell;

            canvas_fill(&p->canvas, x, y, p->cell - gap, p->cell - gap, colour_of(part));
            put_percent(p, x, y, part);
        }
}

static void put_labels_of(struct picture *p, int k)
{
    const int middle = k * p->cell + p->cell / 2, below = p->y + p->m->n * p->cell + 8;
    char label[MOST_LETTERS + 1];
    int width;

    matrix_label(p->m, k, label);
    width = text_width(label, 2);
    canvas_text(&p->canvas, (struct pen){p->x - 8 - width, p->y + middle - 7, 2, 0, black}, label);
    if (is_upright(p))
        canvas_text(&p->canvas, (struct pen){p->x + middle - width / 2, below, 2, 0, black}, label);
    else
        canvas_text(&p->canvas, (struct pen){p->x + middle - 7, below + width, 2, 1, black}, label);
}

static void put_labels(struct picture *p)
{
    for (int k = 0; k < p->m->n; k += has_names(p->m) ? 1 : TICK_EVERY)
        put_labels_of(p, k);
}

static void put_words(struct picture *p, int64_t step)
{
    const int side = p->m->n * p->cell;
    char title[128];
    int64_t right = 0, all = 0;

    for (int at = 0; at < p->m->n * p->m->n; at++) {
        all += p->m->count[at];
        right += at / p->m->n == at % p->m->n ? p->m->count[at] : 0;
    }
    snprintf(title, sizeof title, "step %lld: %.2f %% right", (long long)step,
             all ? 100.0 * (double)right / (double)all : 0);
    canvas_text(&p->canvas, (struct pen){MARGIN, MARGIN, 2, 0, black}, title);
    canvas_text(&p->canvas,
                (struct pen){MARGIN, p->y + (side + text_width("class", 2)) / 2, 2, 1, black},
                "class");
    canvas_text(&p->canvas,
                (struct pen){p->x + (int)max_i64(0, side - text_width("prediction", 2)) / 2,
                             p->canvas.height - MARGIN - 2 * FONT_HEIGHT, 2, 0, black},
                "prediction");
}

/* Of a row's samples, from 0 below to 100 percent above. */
static void put_scale(struct picture *p)
{
    const int x = p->x + p->m->n * p->cell + MARGIN;
    const int height = (int)max_i64(p->m->n * p->cell, 6 * LINE);

    canvas_fill(&p->canvas, x - 1, p->y - 1, SCALE + 2, height + 2, grey);
    for (int y = 0; y < height; y++)
        canvas_fill(&p->canvas, x, p->y + y, SCALE, 1,
                    colour_of((double)(height - 1 - y) / (height - 1)));
    canvas_text(&p->canvas, (struct pen){x + SCALE + 6, p->y, 2, 0, black}, "100%");
    canvas_text(&p->canvas, (struct pen){x + SCALE + 6, p->y + height - 14, 2, 0, black}, "0%");
}

/* ---- the file ---- */

static int canvas_png(const struct canvas *c, struct buf *out)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)c->width,
                       .height = (png_uint_32)c->height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);
    uint8_t *to = buf_reserve(out, n);

    if (!png_image_write_to_memory(&image, to, &n, 0, c->pixel, 0, NULL))
        return 0;
    out->len += n;
    return 1;
}

int matrix_png(const struct matrix *m, int64_t step, struct buf *out, int *width, int *height)
{
    struct picture p = {.m = m};
    int is_made;

    picture_plan(&p);
    p.canvas.pixel = xmalloc((size_t)(p.canvas.width * p.canvas.height) * sizeof *p.canvas.pixel);
    canvas_fill(&p.canvas, 0, 0, p.canvas.width, p.canvas.height, white);
    put_cells(&p);
    put_labels(&p);
    put_words(&p, step);
    put_scale(&p);
    *width = p.canvas.width;
    *height = p.canvas.height;
    is_made = canvas_png(&p.canvas, out);
    free(p.canvas.pixel);
    return is_made;
}
