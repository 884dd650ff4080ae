/* joint: a checkpoint that all ranks of a divided state write together.  Some ranks do not see the
 * disk of rank 0, disks fail, and ranks are lost. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "members.h"
#include "state/joint.h"
#include "state/snapshot.h"

enum { STEP = 5, GENERATION = 7 };

/* The course of one checkpoint. */
static struct {
    char dir[32];
    int is_apart[MOST_RANKS];
    size_t window_bytes;
    int fails_at;                 /* the n-th fsync of a file fails; 0: none does */
    int fails_at_write, n_writes; /* likewise, of parts */
    int spoils_from, spoils_to;   /* these writes of parts put a wrong byte on the disk */
    int spoils_place;             /* so does the first write to it, from 1; 0: none */
    int has_spoilt;               /* ... which has come */
    int notes_places;
    int n_syncs;          /* of files */
    int is_held;          /* fsync waits */
    int gives_up;         /* once it has begun, all ranks do */
    int gives_up_reading; /* the same, while rank 0 reads it back */
    int n_read;           /* reads of what was written; they wait while this is asked */
    int n_reports, n_warnings;
    int n_told[MOST_RANKS], n_mended; /* corruption events, by rank */
    char *path, *error;               /* of rank 0's report */
    int is_gone;                      /* as in it */
    double exposed_s;
} course;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat st;
    int is_full, is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

    pthread_mutex_lock(&lock);
    while (course.is_held)
        pthread_cond_wait(&changed, &lock);
    course.n_syncs += is_file;
    is_full = is_file && course.n_syncs == course.fails_at;
    pthread_mutex_unlock(&lock);
    if (is_full)
        errno = ENOSPC;
    return is_full ? -1 : __real_fsync(fd);
}

/* The parts of a checkpoint's files that are written, each with one call.  They are the same each
 * time, whichever rank comes first. */
static struct place {
    char name[NAME_MAX + 1];
    off_t at;
} places[256];
static int n_places;

static struct place place_of(int fd, off_t at)
{
    char link[64], path[PATH_MAX] = "";
    struct place p = {.at = at};

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ASSERT(readlink(link, path, sizeof path - 1) > 0 && strrchr(path, '/'));
    snprintf(p.name, sizeof p.name, "%s", strrchr(path, '/') + 1);
    return p;
}

/* The lock is held. */
static int spoils_here(int fd, off_t at)
{
    const struct place here = place_of(fd, at);
    const struct place *wanted = course.spoils_place ? &places[course.spoils_place - 1] : NULL;

    if (course.notes_places) {
        ASSERT(n_places < (int)ARRAY_LEN(places));
        places[n_places++] = here;
    }
    if (!wanted || course.has_spoilt || here.at != wanted->at || strcmp(here.name, wanted->name))
        return 0;
    course.has_spoilt = 1;
    return 1;
}

/* The linker knows pwrite by this name where off_t has 64 bits. */
ssize_t __real_pwrite64(int fd, const void *from, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at)
{
    ssize_t done;
    int is_full, is_spoilt;

    pthread_mutex_lock(&lock);
    is_full = ++course.n_writes == course.fails_at_write;
    is_spoilt = course.n_writes >= course.spoils_from && course.n_writes <= course.spoils_to;
    is_spoilt |= spoils_here(fd, at);
    pthread_mutex_unlock(&lock);
    if (is_full)
        errno = ENOSPC;
    done = is_full ? -1 : __real_pwrite64(fd, from, n, at);
    if (done > 0 && is_spoilt) {
        const char other = (char)(((const char *)from)[done - 1] ^ 1);

        ASSERT(__real_pwrite64(fd, &other, 1, at + done - 1) == 1);
    }
    return done;
}

ssize_t __real_pread64(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at);

/* Ranks that join a draft read its headers, too, but from a file that they may write. */
ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at)
{
    pthread_mutex_lock(&lock);
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        course.n_read++;
        while (course.gives_up_reading)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return __real_pread64(fd, to, n, at);
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    course.is_held = course.gives_up_reading = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void joint_report(void *arg, struct report *r)
{
    (void)arg;
    if (r->kind == REPORT_WARNING) {
        course.n_warnings++;
    } else if (r->kind == REPORT_CORRUPTION) {
        ASSERT(r->corruption.what == CORRUPTION_CHECKPOINT && r->generation == GENERATION);
        ASSERT(r->corruption.step == STEP && r->corruption.rank < MOST_RANKS);
        course.n_told[r->corruption.rank]++;
        course.n_mended += r->corruption.is_healed;
    } else {
        course.n_reports++;
        course.path = r->checkpoint.path ? strdup(r->checkpoint.path) : NULL;
        course.error = r->checkpoint.error ? strdup(r->checkpoint.error) : NULL;
        course.is_gone = r->checkpoint.is_gone;
        course.exposed_s = r->checkpoint.exposed_seconds;
    }
    report_free(r);
}

static int is_never(void *arg)
{
    (void)arg;
    return 0;
}

/* Rank 0 reads the files back. */
static int poll_until_read(struct joint *j, struct coll *c, struct err *err)
{
    int32_t is_read = 0;
    int rc = 0;

    while (rc == 0 && !is_read) {
        rc = joint_poll(j, c, err);
        pthread_mutex_lock(&lock);
        is_read = course.n_read > 0;
        pthread_mutex_unlock(&lock);
        if (rc == 0)
            rc = coll_broadcast(c, &is_read, sizeof is_read, 0, err);
    }
    return rc;
}

/* Write one checkpoint; `saver` is rank 0's. */
static int write_with(struct member *m, struct coll *c, struct saver *saver, struct err *err)
{
    const struct joint_options o = {.state = m->state,
                                    .saver = saver,
                                    .run_dir = saver ? course.dir : NULL,
                                    .keep = 2,
                                    .window_bytes = course.window_bytes,
                                    .moment_ms = 1,
                                    .is_apart = course.is_apart[m->at]};
    struct joint *j = joint_new(NULL, is_never);
    const int is_read = course.gives_up_reading;
    int rc = joint_open(j, &o, err);

    if (rc == 0)
        rc = joint_begin(j, c, 0, GENERATION, err);
    train_member(m, STEP + 1); /* the copy is taken: steps go on */
    if (rc == 0 && course.gives_up)
        ASSERT(joint_give_up(j));
    if (rc == 0 && is_read) {
        rc = poll_until_read(j, c, err);
        ASSERT(!joint_give_up(j));
    }
    let_go();
    if (rc == 0)
        rc = joint_finish(j, c, err);
    ASSERT(!joint_is_under_way(j));
    joint_free(j);
    return rc;
}

static int write_member(struct member *m, struct coll *c, struct err *err)
{
    const struct saver_hooks hooks = {.report = joint_report, .canceled = is_never};
    struct saver *saver;
    int rc;

    if (m->at > 0)
        return write_with(m, c, NULL, err);
    saver = saver_new(course.dir, &hooks);
    rc = saver_open(saver, m->state, 2, 0, err);
    if (rc == 0)
        rc = write_with(m, c, saver, err);
    saver_free(saver);
    return rc;
}

/* n ranks write a checkpoint of STEP, and fail in no collective. */
static void write_checkpoint(int n)
{
    struct member m[MOST_RANKS], *all[MOST_RANKS];

    begin_members(m, all, n, 2, STEP);
    for (int k = 0; k < n; k++)
        m[k].state->at.steps_per_epoch = 10;
    run_members(all, n, write_member, NULL);
    for (int k = 0; k < n; k++)
        if (m[k].rc != 0)
            fail_msg("rank %d: %s", k, m[k].err.msg);
    end_members(m, n);
}

static void begin_course(void)
{
    memset(&course, 0, sizeof course);
    strcpy(course.dir, "/tmp/joint-XXXXXX");
    assert_non_null(mkdtemp(course.dir));
}

static void end_course(void)
{
    assert_int_equal(remove_tree(course.dir), 0);
    free(course.path);
    free(course.error);
}

/* The checkpoint holds the state of STEP. */
static void assert_written(int n_ranks)
{
    struct member m;
    struct ckpt *c;
    struct err err;

    if (course.error)
        fail_msg("%s", course.error);
    assert_int_equal(course.n_reports, 1);
    assert_non_null(course.path);
    begin_member(&m, 1, 1);
    assert_int_equal(ckpt_load_folder(course.path, &c, &err), 0);
    assert_int_equal(c->state.n_ranks, n_ranks);
    assert_int_equal(state_load(m.state, c, &err), 0);
    m.at = 0;
    assert_member_holds(&m, STEP, 1);
    ckpt_close(c);
    end_member(&m);
}

static void assert_nothing_written(void)
{
    struct ckpt *c;
    struct err err;

    assert_int_equal(ckpt_load_latest(course.dir, NULL, NULL, &c, &err), CKPT_NONE);
}

/* ---- the tests ---- */

/* Every set of ranks that do not see the disk, with windows that parts fill exactly, or not. */
static void written(void **state)
{
    static const size_t windows[] = {4, 7, 1 << 20};

    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int apart = 0; apart < 1 << (n - 1); apart++)
            for (int i = 0; i < (int)ARRAY_LEN(windows); i++) {
                begin_course();
                course.window_bytes = windows[i];
                for (int k = 1; k < n; k++)
                    course.is_apart[k] = apart >> (k - 1) & 1;
                write_checkpoint(n);
                assert_written(n);
                assert_true(course.exposed_s > 0);
                end_course();
            }
}

/* Rank 0 cannot make the files, because a file stands in the place of their folder. */
static void no_files(void **state)
{
    char path[64];
    FILE *f;

    (void)state;
    begin_course();
    (void)snprintf(path, sizeof path, "%s/checkpoints", course.dir);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
    write_checkpoint(3);
    assert_int_equal(course.n_reports, 1);
    assert_null(course.path);
    assert_non_null(strstr(course.error, "checkpoints"));
    end_course();
}

/* A checkpoint that was given up leaves no report and no file. */
static void given_up(void **state)
{
    (void)state;
    begin_course();
    course.gives_up = course.is_held = 1;
    write_checkpoint(3);
    assert_int_equal(course.n_reports, 0);
    assert_nothing_written();
    end_course();
}

/* Each rank that sees the disk syncs its part of both files: the n-th fsync of a file fails, for
 * each n.  Rank 0 reports that, and there is no checkpoint. */
static void disks_that_fail(void **state)
{
    int n_failed = 0;

    (void)state;
    for (int n = 1, is_over = 0; !is_over; n++) {
        begin_course();
        course.fails_at = n;
        course.is_apart[2] = 1;
        write_checkpoint(3);
        is_over = course.n_syncs < n;
        assert_int_equal(course.n_reports, 1);
        if (course.error) {
            assert_non_null(strstr(course.error, "No space left"));
            assert_int_equal(course.is_gone, 0);
            assert_nothing_written();
        } else {
            assert_written(3);
        }
        n_failed += course.error != NULL;
        assert_int_equal(course.n_warnings, 0);
        end_course();
    }
    assert_int_equal(n_failed, 2 + 2 + 1); /* of ranks 0 and 1, and state.json */
}

/* The n-th write fails, for each n: on a rank that sees the disk, or of a window that one does not
 * see passes to rank 0. */
static void writes_that_fail(void **state)
{
    (void)state;
    for (int n = 1, is_over = 0; !is_over; n++) {
        begin_course();
        course.fails_at_write = n;
        course.is_apart[2] = 1;
        course.window_bytes = 64;
        write_checkpoint(3);
        is_over = course.n_writes < n;
        assert_int_equal(course.n_reports, 1);
        if (is_over) {
            assert_true(n > 10);
            assert_written(3);
        } else {
            assert_non_null(strstr(course.error, "No space left"));
            assert_nothing_written();
        }
        end_course();
    }
}

static int n_told(void)
{
    int n = 0;

    for (int k = 0; k < MOST_RANKS; k++)
        n += course.n_told[k];
    return n;
}

static void begin_spoilt_course(void)
{
    begin_course();
    course.is_apart[2] = 1;
    course.window_bytes = 64;
}

/* One write puts a wrong byte on the disk, for each of them.  All ranks write again, and rank 0
 * tells whose part was wrong. */
static void spoil_each(void)
{
    int is_named[3] = {0};

    begin_spoilt_course();
    n_places = 0;
    course.notes_places = 1;
    write_checkpoint(3);
    assert_int_equal(n_told(), 0);
    end_course();
    for (int i = 1; i <= n_places; i++) {
        begin_spoilt_course();
        course.spoils_place = i;
        write_checkpoint(3);
        assert_written(3);
        assert_true(course.has_spoilt);
        assert_int_equal(n_told(), 1);
        assert_int_equal(course.n_mended, 1);
        for (int k = 0; k < 3; k++)
            is_named[k] |= course.n_told[k];
        end_course();
    }
    for (int k = 0; k < 3; k++)
        assert_int_equal(is_named[k], 1);
}

/* All writes from the n-th on do so, for each n. */
static void spoil_all_from_each(void)
{
    for (int n = 1, is_over = 0; !is_over; n++) {
        begin_spoilt_course();
        course.spoils_from = n;
        course.spoils_to = 1 << 30;
        write_checkpoint(3);
        is_over = course.n_writes < n;
        if (is_over) {
            assert_written(3);
            assert_int_equal(n_told(), 0);
        } else {
            assert_non_null(strstr(course.error, "is not what is read back"));
            assert_nothing_written();
            assert_int_equal(n_told(), 3); /* the second time all parts are wrong */
            assert_int_equal(course.n_mended, 0);
        }
        end_course();
    }
}

static void disks_that_spoil(void **state)
{
    (void)state;
    spoil_each();
    spoil_all_from_each();
}

/* Once all parts are written, rank 0 needs no other rank to place the checkpoint. */
static void given_up_reading(void **state)
{
    (void)state;
    begin_course();
    course.gives_up_reading = 1;
    write_checkpoint(3);
    assert_written(3);
    end_course();
    begin_course();
    course.gives_up_reading = 1;
    course.spoils_from = course.spoils_to = 2;
    write_checkpoint(3);
    assert_int_equal(course.n_reports, 1);
    assert_non_null(course.error);
    assert_int_equal(n_told(), 1);
    assert_int_equal(course.n_mended, 0);
    assert_nothing_written();
    end_course();
}

static void a_folder_that_is_gone(void **state)
{
    (void)state;
    begin_course();
    assert_int_equal(rmdir(course.dir), 0);
    write_checkpoint(2);
    assert_int_equal(course.n_reports, 1);
    assert_non_null(course.error);
    assert_int_equal(course.is_gone, 1);
    end_course();
}

static void warned_once(void **state)
{
    const struct saver_hooks hooks = {.report = joint_report, .canceled = is_never};
    struct saver *saver;

    (void)state;
    begin_course();
    saver = saver_new(course.dir, &hooks);
    saver_warn_unlinked(saver, 1, "no links here");
    saver_warn_unlinked(saver, 2, "no links here");
    assert_int_equal(course.n_warnings, 1);
    saver_free(saver);
    end_course();
}

/* A folder in the place of the link: the checkpoint is written, and the user is warned. */
static void unlinked(void **state)
{
    char path[64];

    (void)state;
    begin_course();
    (void)snprintf(path, sizeof path, "%s/checkpoints", course.dir);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof path, "%s/checkpoints/latest", course.dir);
    assert_int_equal(mkdir(path, 0777), 0);
    write_checkpoint(2);
    assert_written(2);
    assert_int_equal(course.n_warnings, 1);
    end_course();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written),
        cmocka_unit_test(no_files),
        cmocka_unit_test(given_up),
        cmocka_unit_test(disks_that_fail),
        cmocka_unit_test(a_folder_that_is_gone),
        cmocka_unit_test(warned_once),
        cmocka_unit_test(unlinked),
        cmocka_unit_test(writes_that_fail),
        cmocka_unit_test(disks_that_spoil),
        cmocka_unit_test(given_up_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
