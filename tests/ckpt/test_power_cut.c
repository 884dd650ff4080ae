/* ckpt: the power fails at any moment while checkpoints are saved.  A checkpoint that was complete
 * can be loaded.
 *
 * The calls of several saves are recorded.  Then the test works out what a disk may hold after each
 * call: a file's bytes count once it was fsynced, and a name once its folder was.  Of what came
 * later the disk may have all, nothing, or any part: of the names any subset, though each rename is
 * done or not; of a file's bytes none, half, zeros, or others.  Each of these disks is laid out as
 * a folder and loaded from. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/hash.h"
#include "disk.h"
#include "runs.h"

enum { MOST_NODES = 256, MOST_ENTRIES = 64, MOST_PENDING = 128, MOST_SUBSETS = 1 << 9 };

/* ---- a file system that knows what is on disk ---- */

struct node {
    enum { NODE_FILE, NODE_FOLDER, NODE_LINK } kind;
    struct buf data;  /* of a file, all that was written */
    size_t n_synced;  /* this many bytes of it are on disk */
    char target[128]; /* of a link */
};

struct entry { /* `name` in folder `in` is `node`; -1: the name is not there */
    int in, node;
    char name[64];
};

struct change { /* one entry, or two at once */
    struct entry set[2];
    int n;
};

struct world {
    struct node node[MOST_NODES]; /* 0 the root */
    int n_nodes;
    struct entry now[MOST_ENTRIES], disk[MOST_ENTRIES]; /* as programs see them; as synced */
    int n_now, n_disk;
    struct change pending[MOST_PENDING]; /* seen, but not synced; oldest first */
    int n_pending;
};

static void set_entry(struct entry *list, int *n, const struct entry *e)
{
    int i = 0;

    while (i < *n && (list[i].in != e->in || strcmp(list[i].name, e->name) != 0))
        i++;
    if (e->node < 0 && i < *n)
        list[i] = list[--*n];
    if (e->node < 0)
        return;
    assert_true(i < MOST_ENTRIES);
    list[i] = *e;
    *n += i == *n;
}

static int find(const struct entry *list, int n, int in, const char *name)
{
    for (int i = 0; i < n; i++)
        if (list[i].in == in && !strcmp(list[i].name, name))
            return list[i].node;
    return -1;
}

/* The folder that holds `path`, and the last name of it. */
static int walk(const struct world *w, const char *path, const char **last)
{
    int in = 0;

    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        in = find(w->now, w->n_now, in, name);
        assert_true(in >= 0);
    }
    *last = path;
    return in;
}

static int node_of(const struct world *w, const char *path)
{
    const char *name;
    int in = walk(w, path, &name);

    return *name ? find(w->now, w->n_now, in, name) : 0;
}

static struct entry entry_of(const struct world *w, const char *path, int node)
{
    struct entry e = {.node = node};
    const char *name;

    e.in = walk(w, path, &name);
    snprintf(e.name, sizeof e.name, "%s", name);
    return e;
}

static void make_change(struct world *w, struct change c)
{
    for (int i = 0; i < c.n; i++)
        set_entry(w->now, &w->n_now, &c.set[i]);
    assert_true(w->n_pending < MOST_PENDING);
    w->pending[w->n_pending++] = c;
}

static int new_node(struct world *w, int kind)
{
    assert_true(w->n_nodes < MOST_NODES);
    w->node[w->n_nodes].kind = kind;
    return w->n_nodes++;
}

static void add_node(struct world *w, const char *path, int kind)
{
    make_change(w, (struct change){{entry_of(w, path, new_node(w, kind))}, 1});
}

static void sync_node(struct world *w, int node)
{
    int left = 0;

    w->node[node].n_synced = w->node[node].data.len;
    for (int i = 0; i < w->n_pending; i++) {
        struct change *c = &w->pending[i];

        if (c->set[0].in == node)
            for (int j = 0; j < c->n; j++)
                set_entry(w->disk, &w->n_disk, &c->set[j]);
        else
            w->pending[left++] = *c;
    }
    w->n_pending = left;
}

/* All renames here are within one folder. */
static void move(struct world *w, const struct disk_op *op, int back)
{
    struct change c = {.n = 2};

    c.set[0] = entry_of(w, op->path, back);
    c.set[1] = entry_of(w, op->to, node_of(w, op->path));
    assert_int_equal(c.set[0].in, c.set[1].in);
    make_change(w, c);
}

static void play(struct world *w, const struct disk_op *op)
{
    switch (op->kind) {
    case DISK_CREATE:
        add_node(w, op->path, NODE_FILE);
        break;
    case DISK_WRITE:
        buf_append(&w->node[node_of(w, op->path)].data, op->data, op->len);
        break;
    case DISK_FSYNC:
        sync_node(w, node_of(w, op->path));
        break;
    case DISK_MKDIR:
        add_node(w, op->path, NODE_FOLDER);
        break;
    case DISK_RENAME:
        move(w, op, -1);
        break;
    case DISK_EXCHANGE:
        move(w, op, node_of(w, op->to));
        break;
    case DISK_SYMLINK:
        add_node(w, op->path, NODE_LINK);
        strcpy(w->node[w->n_nodes - 1].target, op->to);
        break;
    case DISK_UNLINK:
    case DISK_RMDIR:
        make_change(w, (struct change){{entry_of(w, op->path, -1)}, 1});
        break;
    case DISK_MARK:
        break;
    }
}

/* ---- a disk after the cut ---- */

enum tail { TAIL_LOST, TAIL_WHOLE, TAIL_HALF, TAIL_ZEROS, TAIL_GARBAGE, N_TAILS };

static void tear(const struct node *n, enum tail tail, struct buf *out)
{
    size_t more = n->data.len - n->n_synced;

    buf_append(out, n->data.data, n->data.len);
    if (tail == TAIL_LOST || tail == TAIL_HALF)
        out->len -= tail == TAIL_LOST ? more : more - more / 2;
    if (tail == TAIL_ZEROS)
        memset(out->data + n->n_synced, 0, more);
    for (size_t i = 0; tail == TAIL_GARBAGE && i < more; i++)
        out->data[n->n_synced + i] ^= (uint8_t)(0x55 + i);
}

struct disk {
    const struct world *w;
    enum tail tail;
    struct entry entry[MOST_ENTRIES];
    int n;
};

static void pick(struct disk *d, const struct world *w, enum tail tail, uint64_t subset)
{
    d->w = w;
    d->tail = tail;
    d->n = w->n_disk;
    memcpy(d->entry, w->disk, sizeof d->entry);
    for (int i = 0; i < w->n_pending; i++)
        for (int j = 0; j < w->pending[i].n && (subset >> (i % 64) & 1); j++)
            set_entry(d->entry, &d->n, &w->pending[i].set[j]);
}

/* Describe the part of the disk that is in a folder in `list`, to be compared; or lay it out as
 * files. */
static void lay_out(const struct disk *d, int in, const char *path, struct buf *list)
{
    for (int i = 0; i < d->n; i++) {
        const struct node *n = &d->w->node[d->entry[i].node];
        char *inside;

        if (d->entry[i].in != in)
            continue;
        inside = xasprintf("%s/%s", path, d->entry[i].name);
        if (list)
            buf_printf(list, "%s %d %d\n", inside, d->entry[i].node,
                       n->n_synced == n->data.len ? -1 : (int)d->tail);
        if (!list && n->kind == NODE_FOLDER)
            assert_int_equal(mkdir(inside, 0700), 0);
        if (!list && n->kind == NODE_LINK)
            assert_int_equal(symlink(n->target, inside), 0);
        if (!list && n->kind == NODE_FILE) {
            int fd = open(inside, O_WRONLY | O_CREAT | O_EXCL, 0600);
            struct buf b = {0};

            tear(n, d->tail, &b);
            assert_true(fd >= 0 && write(fd, b.data, b.len) == (ssize_t)b.len);
            close(fd);
            buf_fini(&b);
        }
        if (n->kind == NODE_FOLDER)
            lay_out(d, d->entry[i].node, inside, list);
        free(inside);
    }
}

/* ---- what must load ---- */

struct history {
    const struct run_point *save;
    int n_done;     /* saves that had returned */
    int is_running; /* one more had begun */
    int n_disks, n_loaded;
    struct hash128 *seen;
    int n_seen;
};

static int is_same(struct run_point a, struct run_point b)
{
    return a.step == b.step && a.version == b.version;
}

static void check_latest(const char *run)
{
    char *latest = xasprintf("%s/checkpoints/latest/state.json", run);
    char *link = xasprintf("%s/checkpoints/latest", run);
    struct stat st;

    if (lstat(link, &st) == 0 && stat(latest, &st) < 0)
        fail_msg("latest names what is not there");
    free(latest);
    free(link);
}

static void check_run(const struct history *h, const char *run)
{
    struct run_point seen;
    struct err err;
    int rc = run_load(run, &seen, &err);
    const struct run_point *last = h->n_done ? &h->save[h->n_done - 1] : NULL;
    const struct run_point *next = h->is_running ? &h->save[h->n_done] : NULL;

    check_latest(run);
    if (rc == CKPT_NONE && !last)
        return;
    if (rc != 0)
        fail_msg("after %d saves: %s", h->n_done, rc < 0 ? err.msg : "there is none");
    if (!(last && is_same(seen, *last)) && !(next && is_same(seen, *next)))
        fail_msg("after %d saves, the last of step %d: step %d, version %d is loaded", h->n_done,
                 last ? (int)last->step : -1, (int)seen.step, seen.version);
}

/* 1: this disk was not checked before.  The same disk need not be checked twice. */
static int is_new(struct history *h, const struct disk *d)
{
    struct buf list = {0};
    struct hash128 hash;
    int known = 0;

    buf_printf(&list, "%d %d\n", h->n_done, h->is_running);
    lay_out(d, 0, "", &list);
    hash = hash_of(list.data, list.len);
    buf_fini(&list);
    for (int i = 0; i < h->n_seen && !known; i++)
        known = hash_equal(h->seen[i], hash);
    if (known)
        return 0;
    h->seen = xrealloc(h->seen, sizeof *h->seen * (size_t)(h->n_seen + 1));
    h->seen[h->n_seen++] = hash;
    return 1;
}

static void check_disk(struct history *h, const struct disk *d)
{
    char *run;

    h->n_disks++;
    if (!is_new(h, d))
        return;
    h->n_loaded++;
    run = run_new_folder();
    lay_out(d, 0, run, NULL);
    check_run(h, run);
    run_remove_folder(run);
}

static int has_tail(const struct world *w)
{
    for (int i = 0; i < w->n_nodes; i++)
        if (w->node[i].n_synced < w->node[i].data.len)
            return 1;
    return 0;
}

static void cut(struct history *h, const struct world *w)
{
    static struct disk d;
    int n_tails = has_tail(w) ? N_TAILS : 1;

    assert_true(w->n_pending <= 9);
    for (uint64_t subset = 0; subset < (uint64_t)1 << w->n_pending; subset++)
        for (int tail = 0; tail < n_tails; tail++) {
            pick(&d, w, (enum tail)tail, subset);
            check_disk(h, &d);
        }
}

/* ---- the saves ---- */

/* Record the saves.  fail_at: this call of the last save fails; 0: none does.  Returns whether the
 * last save succeeded. */
static int record(const char *run, const struct run_point *save, int n, int keep, int fail_at)
{
    struct err err;
    int rc = 0;

    disk_record(run);
    for (int i = 0; i < n; i++) {
        disk_mark(); /* begins */
        disk_fail_at(i == n - 1 ? fail_at : 0, EIO);
        rc = run_save(run, save[i], keep, &err);
        if (rc == 0)
            disk_mark(); /* has returned */
        else if (i < n - 1 || !disk_has_failed())
            fail_msg("%s", err.msg);
    }
    return rc == 0;
}

static void play_all(struct history *h, int first)
{
    static struct world w;
    const struct disk_op *op;
    int n_ops;

    memset(&w, 0, sizeof w);
    new_node(&w, NODE_FOLDER);
    op = disk_ops(&n_ops);
    for (int i = 0; i < n_ops; i++) {
        play(&w, &op[i]);
        if (op[i].kind == DISK_MARK) {
            h->n_done += h->is_running;
            h->is_running = !h->is_running;
            h->n_seen = 0; /* other expectations */
        }
        if (h->n_done >= first)
            cut(h, &w);
    }
    for (int i = 0; i < w.n_nodes; i++)
        buf_fini(&w.node[i].data);
    free(h->seen);
}

static void check_saves(const struct run_point *save, int n, int keep)
{
    struct history h = {.save = save};
    char *run = run_new_folder();

    assert_true(record(run, save, n, keep, 0));
    play_all(&h, 0);
    print_message("%d saves: %d disks, %d of them different\n", n, h.n_disks, h.n_loaded);
    assert_int_equal(h.n_done, n);
    assert_true(h.n_loaded > 20 * n);
    disk_record(NULL);
    run_remove_folder(run);
}

static void test_generations(void **state)
{
    static const struct run_point save[] = {{10, 0}, {20, 0}, {30, 0}, {40, 0}};

    (void)state;
    check_saves(save, ARRAY_LEN(save), 2);
}

static void test_one_generation(void **state)
{
    static const struct run_point save[] = {{10, 0}, {20, 0}, {30, 0}};

    (void)state;
    check_saves(save, ARRAY_LEN(save), 1);
}

/* A step that is saved again takes the place of the one before. */
static void test_same_step(void **state)
{
    static const struct run_point save[] = {{10, 0}, {20, 0}, {20, 1}, {20, 2}};

    (void)state;
    check_saves(save, ARRAY_LEN(save), 2);
    check_saves(save + 1, ARRAY_LEN(save) - 1, 1);
}

static int has_exchanged(void)
{
    int n;
    const struct disk_op *op = disk_ops(&n);

    while (n > 0)
        if (op[--n].kind == DISK_EXCHANGE)
            return 1;
    return 0;
}

/* A save fails once the new folder is in the old one's place, and then the power fails. */
static void test_failed_save(void **state)
{
    static const struct run_point save[] = {{20, 0}, {20, 1}};
    int n_failed = 0;

    (void)state;
    for (int n = 1, is_done = 0; !is_done; n++) {
        struct history h = {.save = save};
        char *run = run_new_folder();

        int is_ok = record(run, save, ARRAY_LEN(save), 1, n);

        is_done = !disk_has_failed();
        disk_fail_at(0, 0);
        if (!is_ok && has_exchanged()) {
            n_failed++;
            play_all(&h, 1);
        }
        disk_record(NULL);
        run_remove_folder(run);
    }
    assert_true(n_failed >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_one_generation),
        cmocka_unit_test(test_same_step),
        cmocka_unit_test(test_failed_save),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
