/* Tests of TensorBoard's files: the checksums are those of the standard, the records parse back,
 * and each tag has each step once however often the run goes on. */
#include "../test.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "folder.h"
#include "see/board.h"
#include "see/tfrecord.h"
#include "tensorboard.pb-c.h"

/* RFC 3720, B.4; and the check value of the catalogue of CRCs. */
static void test_crc(void **state)
{
    uint8_t zeros[32] = {0}, ones[32], up[32];

    (void)state;
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (uint8_t)i;
    }
    assert_int_equal(tfrecord_crc(zeros, 32), 0x8a9136aa);
    assert_int_equal(tfrecord_crc(ones, 32), 0x62a8ab43);
    assert_int_equal(tfrecord_crc(up, 32), 0x46dd794e);
    assert_int_equal(tfrecord_crc("123456789", 9), 0xe3069283);
}

static uint64_t number(const uint8_t *at, int n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | at[n];
    return v;
}

static uint32_t masked(const uint8_t *at, size_t n)
{
    const uint32_t crc = tfrecord_crc(at, n);

    return (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8U);
}

/* ---- what a file tells ---- */

/* Append what an event says, a word for each thing. */
static void describe(const Tensorboard__Event *e, struct buf *out)
{
    if (e->file_version)
        buf_printf(out, "%s ", e->file_version);
    if (e->session_log)
        buf_printf(out, "start@%lld ", (long long)e->step);
    for (size_t i = 0; e->summary && i < e->summary->n_value; i++) {
        const Tensorboard__Summary__Value *v = e->summary->value[i];

        buf_printf(out, "%s@%lld", v->tag, (long long)e->step);
        if (v->has_simple_value)
            buf_printf(out, "=%g", (double)v->simple_value);
        buf_printf(out, " ");
    }
}

/* The records of the I-th file by name, each checked; for free(). */
static char *read_board(int i)
{
    struct dirent **found;
    const int n = scandir("tensorboard", &found, NULL, alphasort);
    struct buf bytes = {0}, out = {0};
    char *path, *text, chunk[4096];
    FILE *f;

    assert_true(n > i + 2); /* "." and ".." come first */
    path = xasprintf("tensorboard/%s", found[i + 2]->d_name);
    assert_non_null(f = fopen(path, "rb"));
    for (size_t k; (k = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buf_append(&bytes, chunk, k);
    fclose(f);
    for (size_t at = 0; at < bytes.len;) {
        const uint8_t *r = bytes.data + at;
        const size_t len = (size_t)number(r, 8);
        Tensorboard__Event *e;

        assert_true(at + len + TFRECORD_FRAME <= bytes.len);
        assert_int_equal(number(r + 8, 4), masked(r, 8));
        assert_int_equal(number(r + 12 + len, 4), masked(r + 12, len));
        assert_non_null(e = tensorboard__event__unpack(NULL, len, r + 12));
        describe(e, &out);
        tensorboard__event__free_unpacked(e, NULL);
        at += len + TFRECORD_FRAME;
    }
    for (int k = 0; k < n; k++)
        free(found[k]);
    free(found);
    free(path);
    text = xstrdup(buf_cstr(&out));
    buf_fini(&bytes);
    buf_fini(&out);
    return text;
}

static void assert_board(int i, const char *want)
{
    char *text = read_board(i);

    assert_string_equal(text, want);
    free(text);
}

/* ---- a run ---- */

static struct job *job;

static void form(struct board *b, int64_t step)
{
    board_event(b, &(struct session_event){.kind = EVENT_FORM, .step = step});
}

static struct metrics_row row_of(int64_t step, double loss)
{
    return (struct metrics_row){.step = step,
                                .loss = loss,
                                .learning_rate = 0.5,
                                .grad_norm = NAN,
                                .samples_per_second = NAN};
}

static void row(struct board *b, int64_t step, double loss)
{
    const struct metrics_row row = row_of(step, loss);

    board_rows(b, &row, 1);
}

static void epoch(struct board *b, int64_t step, double loss)
{
    board_event(b, &(struct session_event){.kind = EVENT_EPOCH,
                                           .epoch = {.step = step,
                                                     .train_loss = 9,
                                                     .samples_per_second = 64,
                                                     .is_validated = loss > 0,
                                                     .validation_loss = loss,
                                                     .validation_accuracy = 0.75}});
}

#define HEAD(step) "start@" step " _hparams_/session_start_info@" step " job@" step " "

static void test_run(void **state)
{
    struct board *b = board_new(".", "r", job, NULL);

    (void)state;
    row(b, 5, 1); /* the ranks have not formed: this is no run yet */
    form(b, 0);
    row(b, 10, 2);
    row(b, 20, NAN); /* diverged */
    row(b, 20, 3);   /* the last one again */
    epoch(b, 25, 0.25);
    epoch(b, 50, -1); /* not validated */
    board_end(b);
    board_free(b);
    assert_board(
        0, "brain.Event:2 " HEAD(
               "0") "loss/train@10=2 learning_rate@10=0.5 loss/train@20=nan learning_rate@20=0.5 "
                    "loss/validation@25=0.25 accuracy/validation@25=0.75 "
                    "_hparams_/session_end_info@25 ");
}

/* Of rows that come together each step is there once. */
static void test_rows_together(void **state)
{
    const struct metrics_row rows[] = {row_of(10, 7), row_of(20, 1), row_of(20, 2), row_of(30, 3)};
    struct board *b = board_new(".", "r", job, NULL);

    (void)state;
    form(b, 0);
    row(b, 10, 0.5);
    board_rows(b, rows, 0);
    board_rows(b, rows, ARRAY_LEN(rows));
    board_rows(b, rows, ARRAY_LEN(rows));
    board_free(b);
    assert_board(
        0, "brain.Event:2 " HEAD(
               "0") "loss/train@10=0.5 learning_rate@10=0.5 loss/train@20=1 learning_rate@20=0.5 "
                    "loss/train@30=3 learning_rate@30=0.5 ");
}

/* A later process has a file whose name comes later, in the same second, too; it begins behind the
 * points that stay. */
static void test_resume(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct board *b = board_new(".", "r", job, NULL);

        form(b, 10 * i);
        row(b, 10 * i, 7); /* that of the process before */
        row(b, 10 * i + 10, i);
        row(b, 10 * i + 20, i);
        board_free(b);
    }
    assert_board(
        1, "brain.Event:2 " HEAD(
               "11") "loss/train@20=1 learning_rate@20=0.5 loss/train@30=1 learning_rate@30=0.5 ");
    assert_board(
        2, "brain.Event:2 " HEAD(
               "21") "loss/train@30=2 learning_rate@30=0.5 loss/train@40=2 learning_rate@40=0.5 ");
}

/* A validation that counted confusions has a picture, once, and the run's table is its. */
static void test_matrix(void **state)
{
    struct session_epoch e = {.step = 25, .is_validated = 1, .validation_loss = 0.25};
    struct board *b = board_new(".", "r", job, NULL);
    char text[64] = "";
    FILE *f;

    (void)state;
    e.validation_accuracy = 0.75;
    form(b, 0);
    for (int i = 0; i < 3; i++) {
        e.figures = i == 2 ? "{\"classes\":[{\"class\":0},{\"class\":\"b\"}],"
                             "\"confusion\":[[5,1],[2,4]]}"
                           : "{\"classes\":[{\"class\":0}],\"confusion\":[[9]]}";
        e.step = i == 2 ? 50 : 25;
        board_event(b, &(struct session_event){.kind = EVENT_EPOCH, .epoch = e});
    }
    board_free(b);
    assert_board(0,
                 "brain.Event:2 " HEAD("0") "loss/validation@25=0.25 accuracy/validation@25=0.75 "
                                            "confusion/validation@25 "
                                            "loss/validation@50=0.25 accuracy/validation@50=0.75 "
                                            "confusion/validation@50 ");
    assert_non_null(f = fopen("confusion.csv", "r"));
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_string_equal(text, "class,0,b\n0,5,1\nb,2,4\n");
}

/* A formation that goes on from where the points end changes nothing; one from an older step takes
 * back what is beyond it. */
static void test_back(void **state)
{
    struct board *b = board_new(".", "r", job, NULL);

    (void)state;
    form(b, 0);
    row(b, 10, 1);
    form(b, 12);
    row(b, 20, 2);
    form(b, 15);
    row(b, 20, 3);
    board_free(b);
    assert_board(
        0, "brain.Event:2 " HEAD(
               "0") "loss/train@10=1 learning_rate@10=0.5 loss/train@20=2 learning_rate@20=0.5 "
                    "start@16 loss/train@20=3 learning_rate@20=0.5 ");
}

/* A limit on the file's size acts as a full disk.  The head is not lost. */
static void test_full(void **state)
{
    struct rlimit old, tight = {.rlim_cur = 300};
    struct board *b = board_new(".", "r", job, NULL);

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    form(b, 0);
    row(b, 10, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    row(b, 20, 2);
    board_free(b);
    assert_board(0, "brain.Event:2 " HEAD("0") "loss/train@20=2 learning_rate@20=0.5 ");
}

/* Without rows the epochs have what rows have. */
static void test_no_rows(void **state)
{
    struct job rare = *job;
    struct board *b;

    (void)state;
    rare.report.every_steps = 0;
    b = board_new(".", "r", &rare, NULL);
    form(b, 0);
    epoch(b, 25, -1);
    board_free(b);
    assert_board(0, "brain.Event:2 " HEAD("0") "loss/train@25=9 samples_per_second@25=64 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test_setup_teardown(test_run, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_rows_together, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_resume, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_matrix, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_back, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_full, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_no_rows, folder_setup, folder_teardown),
    };
    struct err err;
    int rc;

    if (job_load(NULL, NULL, 0, &job, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    job_free(job);
    return rc;
}
