/* make_seeds DIR: write the seed corpus of the wire fuzzer.
 * Run it after a change of the samples. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "samples.h"

/* In the place of a sample: the connection is lost (session/feed.h). */
enum { LOST = -1 };

static void append_lost(struct buf *b)
{
    struct frame *f = frame_new(1);
    f->data[FRAME_HEADER] = 0;
    buf_append(b, f->data, f->len);
    frame_unref(f);
}

static void append(struct buf *b, int sample)
{
    struct arena a;
    Wire__Control m;
    struct err err;
    if (sample == LOST) {
        append_lost(b);
        return;
    }
    arena_init(&a);
    ASSERT(sample_make(&a, sample, &m));
    struct frame *f = msg_frame(&m, &err);
    ASSERT(f);
    buf_append(b, f->data, f->len);
    frame_unref(f);
    arena_fini(&a);
}

static int save(const char *dir, const char *name, const struct buf *b)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    int ok = f && fwrite(b->data, 1, b->len, f) == b->len;
    if (f && fclose(f) != 0)
        ok = 0;
    return ok ? 0 : 1;
}

static int save_all(const char *dir, const char *name, const int *samples, size_t n)
{
    struct buf b = {0};
    for (size_t i = 0; i < n; i++)
        append(&b, samples[i]);
    int rc = save(dir, name, &b);
    buf_fini(&b);
    return rc;
}

static int save_text(const char *dir, const char *name, const char *text)
{
    struct buf b = {0};
    buf_append(&b, text, strlen(text));
    int rc = save(dir, name, &b);
    buf_fini(&b);
    return rc;
}

/* The sample alone; another one of its kind may have come before it. */
static int save_sample(const char *dir, int sample, const Wire__Control *m)
{
    struct arena a;
    Wire__Control other;
    char name[64];
    int n = 1;

    arena_init(&a);
    for (int i = 0; i < sample && sample_make(&a, i, &other); i++)
        n += other.body_case == m->body_case;
    arena_fini(&a);
    snprintf(name, sizeof(name), n > 1 ? "%s-%d" : "%s", msg_name(m), n);
    return save_all(dir, name, &sample, 1);
}

int main(int argc, char **argv)
{
    static const int from_follower[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int from_driver[] = {10, 12, 13, 4, 14, 15, 16, 18};
    static const int to_standby[] = {10, 25, 4, 18};
    static const int inspected[] = {10, 12, 13, 21, 23, 24, 17}; /* ... drained, aborted */
    static const int failing[] = {0, 1, 2, 3, 20, 22, 8};        /* ... injected, fault */
    static const int leaving[] = {0, 1, 2, 3, 4, 9};
    static const int from_drivers[] = {10, 12, 13, LOST, 10, 12, 13, 18};
    static const int from_followers[] = {0, 1, 2, 3, LOST, 0, 1, 2, 3};
    struct arena a;
    Wire__Control m;
    int rc = argc != 2;

    arena_init(&a);
    for (int i = 0; rc == 0 && sample_make(&a, i, &m); i++)
        rc = save_sample(argv[1], i, &m);
    arena_fini(&a);
    if (rc == 0)
        rc = save_all(argv[1], "conversation-follower", from_follower, ARRAY_LEN(from_follower)) ||
             save_all(argv[1], "conversation-driver", from_driver, ARRAY_LEN(from_driver)) ||
             save_all(argv[1], "conversation-standby", to_standby, ARRAY_LEN(to_standby)) ||
             save_all(argv[1], "conversation-inspected", inspected, ARRAY_LEN(inspected)) ||
             save_all(argv[1], "conversation-failing", failing, ARRAY_LEN(failing)) ||
             save_all(argv[1], "conversation-leaving", leaving, ARRAY_LEN(leaving)) ||
             save_all(argv[1], "conversation-drivers", from_drivers, ARRAY_LEN(from_drivers)) ||
             save_all(argv[1], "conversation-followers", from_followers,
                      ARRAY_LEN(from_followers)) ||
             save_text(argv[1], "http", "GET / HTTP/1.1\r\nHost: driver\r\n\r\n") ||
             save_text(argv[1], "tls", "\x16\x03\x01\x02");
    if (rc)
        fprintf(stderr, "usage: make_seeds DIR (which must exist)\n");
    return rc;
}
