/* ckpt: the links `latest` and `best` in a copy of a run.  The state.json of a folder in a link's
 * place says what it is; no checkpoint depends on a link. */
#include "linked.h"

#include "../remove_tree.h"
#include "ckpt/owner.h"

/* ---- what a copy holds ---- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    assert_true(in && out);
    n = fread(bytes, 1, sizeof bytes, in);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* A copy of the generation, as cp -rL makes it of a link. */
static void copy_to(const char *which, const char *generation)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "config.json"};
    char *to = in_run(which);

    unlink(to);
    assert_int_equal(mkdir(to, 0777), 0);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char *from = xasprintf("%s/checkpoints/%s/%s", run, generation, files[i]);
        char *at = xasprintf("%s/%s", to, files[i]);

        if (access(from, F_OK) == 0)
            copy_file(from, at);
        free(at);
        free(from);
    }
    free(to);
}

static void move(const char *from, const char *to)
{
    char *a = in_run(from), *b = in_run(to);

    unlink(b);
    assert_int_equal(rename(a, b), 0);
    free(a);
    free(b);
}

static void put_text(const char *name, const char *text)
{
    char *path = in_run(name);

    unlink(path);
    write_text(path, text);
    free(path);
}

static void remove_generation(const char *generation)
{
    char *path = in_run(generation);

    assert_int_equal(remove_tree(path), 0);
    free(path);
}

static void spoil(const char *generation)
{
    char *path = xasprintf("%s/checkpoints/%s/model.safetensors", run, generation);

    assert_int_equal(truncate(path, 300), 0);
    free(path);
}

static void copy_all(void)
{
    copy_to("latest", "step-00000030");
    copy_to("best", "step-00000020");
}

static void keep_latest_alone(void) { move("step-00000030", "latest"); }
static void keep_latest_with_notes(void)
{
    keep_latest_alone();
    put_text("latest/notes.txt", "the newest so far");
}

static void keep_best_alone(void) { move("step-00000020", "best"); }

static void spoil_the_newest(void)
{
    copy_to("latest", "step-00000030");
    spoil("step-00000030");
}

static void spoil_both(void)
{
    spoil("step-00000030");
    copy_to("latest", "step-00000030");
}

static void make_notes(void)
{
    char *path = in_run("best");

    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);
    free(path);
    put_text("best/notes.txt", "the best so far");
}

static void copy_with_notes_of(const char *generation)
{
    copy_to("best", generation);
    put_text("best/notes.txt", "the best so far");
}

static void copy_with_notes(void) { copy_with_notes_of("step-00000020"); }

/* The copies are complete, but of other bytes. */
static void edit_the_model(void)
{
    char *path = in_run("best/model.safetensors");
    FILE *f;

    copy_all();
    f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc('x', f), 'x');
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void edit_the_config(void)
{
    copy_all();
    put_text("best/config.json", "{\"n_head\": 2}");
}

/* Some tools that look for files of equal content put links in their places. */
static void link_to_the_copy(void)
{
    char *path = in_run("step-00000020/model.safetensors");

    copy_all();
    unlink(path);
    assert_int_equal(symlink("../best/model.safetensors", path), 0);
    free(path);
}

static void keep_an_old_one(void)
{
    copy_to("best", "step-00000010");
    remove_generation("step-00000010");
}

static void copy_of_another(void)
{
    copy_to("latest", "step-00000030");
    save((struct run_point){30, 1, 20}, 3, CKPT_UNLINKED);
}

static void dangle(void)
{
    char *path = in_run("latest");

    unlink(path);
    assert_int_equal(symlink("step-00000099", path), 0);
    free(path);
}

static void put_files(void)
{
    put_text("latest", "step-00000030\n");
    put_text("best", "hello");
}

/* A run with checkpoints of the steps 10, 20 (the best) and 30, changed by `make`. */
static const struct {
    const char *name;
    void (*make)(void);
    const char *told;    /* by --check; NULL: nothing */
    int64_t newest;      /* the step that is loaded */
    const char *settled; /* entries once the owner has loaded */
    int saved;           /* what the next save returns */
} copies[] = {
    {"cp -rL", copy_all, "it is a second copy of step-00000030, and would be removed", 30,
     "best latest step-00000010 step-00000020 step-00000030", 0},
    {"the newest is in latest alone", keep_latest_alone,
     "it is all that is left of step-00000030, and would become it", 30,
     "best latest step-00000010 step-00000020 step-00000030", 0},
    {"the best is in best alone", keep_best_alone,
     "it is all that is left of step-00000020, and would become it", 30,
     "best latest step-00000010 step-00000020 step-00000030", 0},
    {"the newest is damaged, its copy is whole", spoil_the_newest,
     "it would take the place of step-00000030, which is damaged", 30,
     "best damaged-step-00000030 latest step-00000010 step-00000020 step-00000030", 0},
    {"both are damaged", spoil_both, "and is damaged, so it stays and no link can be made", 20,
     "best damaged-step-00000030 latest step-00000010 step-00000020", CKPT_UNLINKED},
    {"a folder of notes", make_notes, "best is a folder and no checkpoint", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy with notes", copy_with_notes,
     "step-00000020, and is not that checkpoint byte for byte, so it stays", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy of the step's former checkpoint", copy_of_another,
     "latest is a folder that says it is step-00000030, and is not that checkpoint byte for", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy with another model", edit_the_model, "is not that checkpoint byte for byte", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy with another config.json", edit_the_config, "is not that checkpoint byte for byte", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy to which a checkpoint has a link", link_to_the_copy,
     "step-00000020, and is not that checkpoint byte for byte", 30,
     "best latest step-00000010 step-00000020 step-00000030", CKPT_UNLINKED},
    {"a copy of an old checkpoint", keep_an_old_one,
     "is neither newer than the checkpoints beside it nor the best", 30,
     "best latest step-00000020 step-00000030", CKPT_UNLINKED},
    {"the newest is in latest alone, with notes", keep_latest_with_notes,
     "has other files than a checkpoint", 30, "best latest step-00000010 step-00000020",
     CKPT_UNLINKED},
    {"a link that dangles", dangle, NULL, 30,
     "best latest step-00000010 step-00000020 step-00000030", 0},
    {"text files", put_files, NULL, 30, "best latest step-00000010 step-00000020 step-00000030", 0},
};

static void check_copy(size_t i)
{
    char *before, *after;
    struct err err;

    for (int64_t step = 10; step <= 30; step += 10)
        save((struct run_point){step, 0, step > 10 ? 20 : 0, "{\"n_head\": 1}"}, 3, 0);
    copies[i].make();
    before = entries();
    ckpt_check_links(run, warn, NULL);
    if (copies[i].told ? !strstr(buf_cstr(&told), copies[i].told) : told.len > 0)
        fail_msg("told: %s", buf_cstr(&told));
    assert_newest(copies[i].newest);
    assert_best(20);
    after = entries();
    assert_string_equal(before, after); /* no owner, no change */
    free(before);
    free(after);
    assert_int_equal(owner_claim(run, 1, &err), 0);
    assert_newest(copies[i].newest);
    assert_entries(copies[i].settled);
    assert_best(20);
    save((struct run_point){40, 0, 20}, 2, copies[i].saved);
    assert_newest(40);
    assert_best(20);
    if (copies[i].saved == 0) {
        assert_place("latest", "step-00000040");
        assert_place("best", "step-00000020");
    }
}

static void test_copies(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
        print_message("%s\n", copies[i].name);
        make_run(NULL);
        check_copy(i);
        remove_run(NULL);
    }
}

static void assert_text(const char *name, const char *want)
{
    char *path = in_run(name), seen[64] = "";
    FILE *f = fopen(path, "r");

    if (!f || !fgets(seen, sizeof seen, f))
        fail_msg("%s is gone", name);
    fclose(f);
    assert_string_equal(seen, want);
    free(path);
}

/* Notes, and a checkpoint that no other folder has, stay whatever is saved and resumed. */
static void test_nothing_foreign_is_lost(void **state)
{
    struct err err;
    char *model;

    (void)state;
    save((struct run_point){10, 0, 10}, 1, 0);
    copy_with_notes_of("step-00000010");
    copy_to("latest", "step-00000010");
    put_text("step-00000010/notes.txt", "the first");
    save((struct run_point){10, 1, 10}, 1, CKPT_UNLINKED);
    assert_text("replaced-step-00000010/notes.txt", "the first");
    put_text("step-00000010/notes.txt", "the second");
    for (int64_t step = 20; step <= 60; step += 10) {
        assert_int_equal(owner_claim(run, step, &err), 0);
        ckpt_clear(run);
        assert_newest(step - 10);
        save((struct run_point){step, 0, step}, 1, CKPT_UNLINKED);
        save((struct run_point){step, 1, step}, 1, CKPT_UNLINKED);
    }
    assert_entries("best latest replaced-step-00000010 step-00000010 step-00000060");
    assert_text("best/notes.txt", "the best so far");
    assert_text("step-00000010/notes.txt", "the second");
    model = in_run("latest/model.safetensors");
    assert_int_equal(access(model, F_OK), 0);
    free(model);
}

/* A checkpoint that is damaged again does not take the place of the first one. */
static void test_damaged_again(void **state)
{
    struct err err;

    (void)state;
    save((struct run_point){10, 0, 0}, 2, 0);
    assert_int_equal(owner_claim(run, 1, &err), 0);
    for (int i = 0; i < 3; i++) {
        save((struct run_point){20, i, 0}, 2, 0);
        spoil("step-00000020");
        assert_newest(10);
    }
    assert_entries("damaged-step-00000020 damaged-step-00000020-2 damaged-step-00000020-3 latest "
                   "step-00000010");
    assert_place("latest", "step-00000010");
}

/* Each call of a resume that makes a folder a checkpoint fails once.  A failed rename is told, and
 * the folder stays. */
static void test_failed_settling(void **state)
{
    int n = 0, has_failed = 1, n_told = 0;

    (void)state;
    while (has_failed) {
        struct ckpt *c = NULL;
        struct err err;

        make_run(NULL);
        save((struct run_point){10, 0, 0}, 1, 0);
        move("step-00000010", "latest");
        assert_int_equal(owner_claim(run, 1, &err), 0);
        disk_fail_at(++n, EACCES);
        (void)ckpt_load_latest(run, warn, NULL, &c, &err);
        ckpt_close(c);
        has_failed = disk_has_failed();
        disk_fail_at(0, 0);
        if (strstr(buf_cstr(&told), "latest: cannot rename to")) {
            n_told++;
            assert_entries("latest");
        }
        assert_newest(10);
        remove_run(NULL);
    }
    assert_int_equal(n_told, 1);
}

/* The newest checkpoint is a folder in the place of a link, which no link can name. */
static void test_no_link_to_itself(void **state)
{
    struct err err;

    (void)state;
    for (int64_t step = 10; step <= 20; step += 10)
        save((struct run_point){step, 0, step}, 3, 0);
    move("step-00000020", "best");
    put_text("best/notes.txt", "the best so far");
    copy_to("latest", "step-00000010");
    assert_int_equal(owner_claim(run, 1, &err), 0);
    assert_newest(20);
    assert_entries("best step-00000010");
}

/* The three steps by which folders change places are cut off in the middle. */
static void test_cut_exchange(void **state)
{
    (void)state;
    save((struct run_point){10, 0, 0}, 1, 0);
    move("step-00000010", "step-00000010.old");
    ckpt_clear(run);
    assert_newest(10);
    copy_to("step-00000010.old", "step-00000010");
    ckpt_clear(run);
    assert_entries("latest step-00000010");
    copy_to("step-00000010.old", "step-00000010");
    put_text("step-00000010.old/notes.txt", "the first");
    ckpt_clear(run);
    assert_entries("latest replaced-step-00000010 step-00000010");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies), CASE(test_nothing_foreign_is_lost),
        CASE(test_cut_exchange),       CASE(test_damaged_again),
        CASE(test_no_link_to_itself),  cmocka_unit_test(test_failed_settling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
