/* Decoded pictures on disk: samples are those of the run without them; a file is made once, by all
 * processes that want it, goes on after a kill or a full disk, is made anew for other pictures, and
 * is not trusted. */
#include "image_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/picture_cache.h"

enum { NAME = 512, N_MADE = 100, SIDE = 4, BYTES = SIDE * SIDE * 3, CHUNK = 16 };

/* ---- files ---- */

/* The number of files in the folder whose names end so; `path` gets the whole path of one. */
static int find_files(const char *folder, const char *end, char path[NAME])
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        const size_t len = strlen(e->d_name), n_end = strlen(end);

        if (len < n_end || strcmp(e->d_name + len - n_end, end) != 0)
            continue;
        snprintf(path, NAME, "%.200s/%.200s", folder, e->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static ino_t only_file(const char *folder, char path[NAME])
{
    struct stat st;

    assert_int_equal(find_files(folder, ".pictures.part", path), 0);
    assert_int_equal(find_files(folder, ".pictures", path), 1);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* ---- samples ---- */

/* Pictures of noise: wide, high, square, small. */
static void put_pictures(const char *folder)
{
    static const int sizes[][2] = {{9, 8}, {23, 11}, {7, 30}, {6, 6}, {40, 40}};

    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        const int w = sizes[k][0], h = sizes[k][1];
        uint8_t *rgb = malloc((size_t)(w * h * 3));
        char name[64];
        struct buf b = {0};

        for (int i = 0; i < w * h * 3; i++)
            rgb[i] = (uint8_t)((uint32_t)(i + (int)k) * 2654435761U >> 24);
        if (k % 2)
            put_jpeg(&b, rgb, w, h, 3, 0, 0);
        else
            put_rgb_png(&b, rgb, w, h);
        snprintf(name, sizeof name, "train/%s/%zu.%s", k < 3 ? "a" : "b", k, k % 2 ? "jpg" : "png");
        put(folder, name, &b);
        snprintf(name, sizeof name, "val/%s/%zu.%s", k < 3 ? "a" : "b", k, k % 2 ? "jpg" : "png");
        put(folder, name, &b);
        buf_fini(&b);
        free(rgb);
    }
}

static void check_same(const char *folder, const char *cache, enum dataset_purpose purpose,
                       const struct setting *extra)
{
    struct setting all[6] = {{"data.cache", cache}};
    struct dataset *plain, *cached;

    for (int i = 0; extra && extra[i].key; i++)
        all[i + 1] = extra[i];
    plain = open_ok(folder, purpose, extra);
    cached = open_ok(folder, purpose, all);
    assert_int_equal(plain->n_samples, cached->n_samples);
    for (int64_t epoch = 0; epoch < 8; epoch++)
        for (int64_t i = 0; i < plain->n_samples; i++) {
            const struct dataset_draw draw = {7, epoch};
            const struct dataset_draw *d = epoch ? &draw : NULL; /* NULL: the middle */
            float x[IMAGE], y[IMAGE];

            assert_int_equal(get(plain, d, i, x), get(cached, d, i, y));
            assert_memory_equal(x, y, sizeof x);
        }
    dataset_close(plain);
    dataset_close(cached);
}

static void samples_are_those_without_the_file(void **state)
{
    static const struct setting parts[] = {{"data.augment.random_resized_crop", "true"},
                                           {"data.augment.flip", "true"},
                                           {"data.jpeg_scale", "whole"},
                                           {"data.cache_size", "40"},
                                           {NULL}},
                                moved[] = {{"data.augment.crop", "2"},
                                           {"data.augment.flip", "true"},
                                           {"data.resize", "7"},
                                           {NULL}};
    char *cache = make_folder(), path[NAME];

    put_pictures(*state);
    check_same(*state, cache, DATASET_TRAIN, parts);
    check_same(*state, cache, DATASET_TRAIN, moved);
    check_same(*state, cache, DATASET_TRAIN, NULL);
    check_same(*state, cache, DATASET_VALIDATION, NULL);
    assert_int_equal(find_files(cache, ".pictures", path), 4);
    remove_folder(cache);
}

/* Predictions: neither opening nor preparing the set makes a file. */
static void nothing_is_kept_where_it_is_not_wanted(void **state)
{
    char *cache = make_folder(), path[NAME];
    const struct setting settings[] = {
        {"data.path", *state}, {"data.size", "6"}, {"data.cache", cache}, {NULL}};
    const struct dataset_request r = {.purpose = DATASET_VALIDATION, .keeps_nothing = 1};
    struct dataset *ds = NULL;
    struct err err = {0};

    put_pictures(*state);
    if (open_set(&ds, &format_images, settings, &r, &err) != 0)
        fail_msg("%s", err.msg);
    dataset_close(ds);
    assert_int_equal(find_files(cache, ".pictures", path), 0);
    remove_folder(cache);
}

/* The same parts of a picture that was made smaller: of one colour it stays, and of a picture that
 * is dark on the left and bright on the right means are near. */
static void parts_of_smaller_pictures_are_near(void **state)
{
    enum { W = 80, H = 60 };
    static uint8_t rgb[W * H * 3];
    char *cache = make_folder();
    const struct setting all[] = {
        {"data.augment.random_resized_crop", "true"}, {"data.cache", cache}, {NULL}};
    struct dataset *plain, *cached;
    struct buf b = {0};

    for (int i = 0; i < W * H * 3; i++)
        rgb[i] = (uint8_t)(i / 3 % W * 3);
    put_rgb_png(&b, rgb, W, H);
    put(*state, "train/a/1.png", &b);
    put_colour(*state, "train/b/1.png", 77);
    buf_fini(&b);
    plain = open_ok(*state, DATASET_TRAIN, (const struct setting[]){all[0], {NULL}});
    cached = open_ok(*state, DATASET_TRAIN, all);
    for (int64_t epoch = 1; epoch <= 20; epoch++) {
        float x[IMAGE], y[IMAGE];

        get(plain, &(struct dataset_draw){3, epoch}, 0, x);
        get(cached, &(struct dataset_draw){3, epoch}, 0, y);
        for (int i = 0; i < IMAGE; i++)
            assert_true(x[i] - y[i] < 0.06F && y[i] - x[i] < 0.06F);
        get(cached, &(struct dataset_draw){3, epoch}, 1, y);
        for (int i = 0; i < IMAGE; i++)
            assert_true(y[i] == 77.0F / 255);
    }
    dataset_close(plain);
    dataset_close(cached);
    remove_folder(cache);
}

static void a_set_that_changed_has_another_file(void **state)
{
    char *cache = make_folder(), path[NAME];
    const struct setting all[] = {{"data.cache", cache}, {NULL}};
    struct dataset *old, *new;
    ino_t first, second;
    float x[IMAGE];

    put_colour(*state, "train/a/1.png", 10);
    put_colour(*state, "train/b/1.png", 20);
    old = open_ok(*state, DATASET_TRAIN, all);
    first = only_file(cache, path);
    dataset_close(open_ok(*state, DATASET_TRAIN, all));
    assert_int_equal(only_file(cache, path), first);
    put_colour(*state, "train/b/2.png", 30);
    new = open_ok(*state, DATASET_TRAIN, all);
    second = only_file(cache, path);
    assert_true(first != second);
    check_colour(new, 2, 30, 1);
    check_colour(old, 1, 20, 1);
    get(old, NULL, 0, x);
    dataset_close(old);
    dataset_close(new);
    remove_folder(cache);
}

static void broken_pictures_stay_lost(void **state)
{
    char *cache = make_folder(), path[NAME];
    const struct setting skip[] = {{"data.cache", cache}, {"data.on_corrupt", "skip"}, {NULL}};
    struct dataset *ds;
    struct err err = {0};
    float x[IMAGE];
    int32_t label;

    put_colour(*state, "train/a/1.png", 51);
    put_text(*state, "train/b/1.png", "no picture");
    assert_int_equal(try_open(&ds, *state, DATASET_TRAIN, skip + 2, &err), 0);
    dataset_close(ds);
    assert_int_equal(
        try_open(&ds, *state, DATASET_TRAIN, (const struct setting[]){skip[0], {NULL}}, &err),
        ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "train/b/1.png: its 10 bytes begin neither as"));
    ds = open_ok(*state, DATASET_TRAIN, skip);
    (void)only_file(cache, path);
    check_colour(ds, 0, 51, 0);
    assert_int_equal(get(ds, NULL, 1, x), SAMPLE_IGNORED);
    assert_true(x[0] == 0);
    dataset_close(ds);
    ds = open_ok(*state, DATASET_TRAIN, (const struct setting[]){skip[0], {NULL}});
    assert_int_equal(dataset_gather(ds, (int64_t[]){1}, 1, (void *[]){x, &label}, &err),
                     ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "train/b/1.png: it could not be decoded when "));
    dataset_close(ds);
    remove_folder(cache);
}

/* ---- making ---- */

/* Counts what is made, by all processes; and dies at picture `dies_at`, if it is not 0. */
struct maker {
    atomic_int n_made;
    int64_t dies_at;
};

static int make_picture(const void *arg, int64_t i, struct buf *pixels, struct picture_entry *entry,
                        struct err *err)
{
    struct maker *m = (struct maker *)(uintptr_t)arg;
    uint8_t rgb[BYTES];

    if (m->dies_at && i == m->dies_at)
        raise(SIGKILL);
    memset(rgb, (int)i, sizeof rgb);
    *entry = (struct picture_entry){0, SIDE, SIDE, SIDE, SIDE};
    atomic_fetch_add(&m->n_made, 1);
    return buf_try_append(pixels, rgb, sizeof rgb, "pixels", err);
}

static struct picture_cache request_of(const char *folder, const struct maker *m, uint64_t key)
{
    return (struct picture_cache){.folder = folder,
                                  .pictures = "/pictures",
                                  .name = {1, 2},
                                  .key = {key, 0},
                                  .n = N_MADE,
                                  .make = make_picture,
                                  .arg = m};
}

static void check_file(const struct picture_file *f)
{
    for (int64_t i = 0; i < N_MADE; i++) {
        struct picture_entry e;
        uint8_t rgb[BYTES];
        struct err err;

        assert_int_equal(picture_file_find(f, i, &e, &err), 0);
        assert_int_equal(picture_file_read(f, &e, rgb, &err), 0);
        for (int k = 0; k < BYTES; k++)
            assert_int_equal(rgb[k], i);
    }
}

static void make_ok(const char *folder, const struct maker *m, uint64_t key)
{
    const struct picture_cache what = request_of(folder, m, key);
    struct picture_file f;
    struct err err = {0};

    if (picture_cache_open(&f, &what, &err) != 0)
        fail_msg("%s", err.msg);
    check_file(&f);
    picture_file_close(&f);
}

static struct maker *shared_maker(void)
{
    void *at =
        mmap(NULL, sizeof(struct maker), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

/* Make the file in a process of its own, which makes chunks one after the other. */
static pid_t start_maker(const char *folder, const struct maker *m)
{
    const pid_t pid = fork();
    cpu_set_t cpus, one;

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    CPU_ZERO(&one);
    (void)sched_getaffinity(0, sizeof cpus, &cpus);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cpus)) {
            CPU_SET(i, &one);
            break;
        }
    (void)sched_setaffinity(0, sizeof one, &one);
    make_ok(folder, m, 1);
    _exit(0);
}

static void a_kill_loses_one_chunk(void **state)
{
    struct maker *m = shared_maker();
    char path[NAME];
    int status;

    m->dies_at = 3 * CHUNK + 5;
    assert_true(waitpid(start_maker(*state, m), &status, 0) > 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(find_files(*state, ".pictures", path), 0);
    assert_int_equal(find_files(*state, ".pictures.part", path), 1);
    m->dies_at = 0;
    m->n_made = 0;
    make_ok(*state, m, 1);
    assert_int_equal(m->n_made, N_MADE - 3 * CHUNK);
    (void)only_file(*state, path);
    munmap(m, sizeof *m);
}

/* The rest of another set is no beginning of this one. */
static void a_part_of_other_pictures_is_left(void **state)
{
    struct maker *m = shared_maker();
    char path[NAME];

    m->dies_at = 3 * CHUNK;
    assert_true(waitpid(start_maker(*state, m), NULL, 0) > 0);
    m->dies_at = 0;
    m->n_made = 0;
    make_ok(*state, m, 2);
    assert_int_equal(m->n_made, N_MADE);
    (void)only_file(*state, path);
    make_ok(*state, m, 3);
    assert_int_equal(m->n_made, 2 * N_MADE);
    munmap(m, sizeof *m);
}

static void processes_make_a_file_together(void **state)
{
    enum { N_PROCESSES = 4 };
    struct maker *m = shared_maker();
    char path[NAME];
    int status;

    for (int i = 0; i < N_PROCESSES; i++)
        (void)start_maker(*state, m);
    for (int i = 0; i < N_PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(m->n_made, N_MADE);
    (void)only_file(*state, path);
    munmap(m, sizeof *m);
}

/* A disk that is full, here by a limit of the process, is one error; the next start goes on. */
static void a_full_disk_is_told(void **state)
{
    const struct rlimit small = {64 + 24 * N_MADE + 3 * CHUNK * BYTES + 10, RLIM_INFINITY};
    struct maker m = {0};
    const struct picture_cache what = request_of(*state, &m, 1);
    struct rlimit before;
    struct picture_file f;
    struct err err = {0};

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(picture_cache_open(&f, &what, &err), ERR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(err.msg, "cannot write the pictures of /pictures to "));
    assert_non_null(strstr(err.msg, "the next start goes on from there"));
    m.n_made = 0;
    make_ok(*state, &m, 1);
    assert_true(m.n_made < N_MADE);
}

static void damage_is_told(void **state)
{
    static const struct picture_entry bad[] = {{1, 4, 4, 4, 4},
                                               {1 << 30, 4, 4, 4, 4},
                                               {UINT64_MAX - 1, 4, 4, 4, 4},
                                               {3000, 0, 4, 4, 4},
                                               {3000, 4, 4, 4, 0},
                                               {3000, 4, 5, 4, 4},
                                               {3000, 40000, 40000, 40000, 40000},
                                               {3000, UINT32_MAX, 1, UINT32_MAX, 1}};
    struct maker m = {0};
    struct picture_file f;
    struct picture_entry e;
    struct err err;
    char path[NAME];
    int fd;

    make_ok(*state, &m, 1);
    (void)only_file(*state, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(picture_file_open(&f, path, (struct hash128){1, 0}, N_MADE, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(pwrite(fd, &bad[i], sizeof bad[i], 64 + 24 * 7), sizeof bad[i]);
        assert_int_equal(picture_file_find(&f, 7, &e, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.msg, "offset 232: damaged; remove it, and it is made anew"));
    }
    picture_file_close(&f);
    assert_int_equal(ftruncate(fd, 2000), 0); /* what is not whole is made anew */
    close(fd);
    m.n_made = 0;
    make_ok(*state, &m, 1);
    assert_int_equal(m.n_made, N_MADE);
}

static void folders_must_be_there(void **state)
{
    struct maker m = {0};
    const struct picture_cache what = request_of("/nowhere", &m, 1);
    struct picture_file f;
    struct err err;

    (void)state;
    assert_int_equal(picture_cache_open(&f, &what, &err), ERR_IO);
    assert_string_equal(err.msg, "the pictures of /pictures cannot be kept in /nowhere; want a "
                                 "folder that can be written, data.cache: No such file or "
                                 "directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(samples_are_those_without_the_file),
        IN_FOLDER(nothing_is_kept_where_it_is_not_wanted),
        IN_FOLDER(parts_of_smaller_pictures_are_near),
        IN_FOLDER(a_set_that_changed_has_another_file),
        IN_FOLDER(broken_pictures_stay_lost),
        IN_FOLDER(a_kill_loses_one_chunk),
        IN_FOLDER(a_part_of_other_pictures_is_left),
        IN_FOLDER(processes_make_a_file_together),
        IN_FOLDER(a_full_disk_is_told),
        IN_FOLDER(damage_is_told),
        IN_FOLDER(folders_must_be_there),
    };

    log_init("test_picture_cache", LOG_TEXT, LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
