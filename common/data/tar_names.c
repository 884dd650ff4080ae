/* tar_names - a table of places, and a hash table of their numbers, which doubles before it is half
 * full.  A slot that is taken by another name sends the search to the next one. */
#include "data/tar_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"

enum { FIRST_SLOTS = 64 };

struct tar_place {
    size_t name; /* in text */
    enum tar_kind kind;
    int64_t offset, n_bytes;
};

static const char *tar_names_plain(const char *name)
{
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    return name;
}

/* The slot of this name, or the free one where it belongs. */
static int64_t *tar_names_slot_of(const struct tar_names *names, const char *name)
{
    const uint64_t mask = (uint64_t)names->n_slots - 1;

    for (uint64_t i = hash_of(name, strlen(name)).lo & mask;; i = (i + 1) & mask) {
        int64_t *slot = &names->slot[i];

        if (*slot == 0 ||
            !strcmp((const char *)names->text.data + names->place[*slot - 1].name, name))
            return slot;
    }
}

static void tar_names_grow(struct tar_names *names)
{
    names->n_slots = max_i64(2 * names->n_slots, FIRST_SLOTS);
    free(names->slot);
    names->slot = xcalloc((size_t)names->n_slots, sizeof *names->slot);
    names->place = xrealloc(names->place, (size_t)names->n_slots / 2 * sizeof *names->place);
    for (int64_t i = 0; i < names->n; i++)
        *tar_names_slot_of(names, (const char *)names->text.data + names->place[i].name) = i + 1;
}

void tar_names_keep(struct tar_names *names, const char *name, const struct tar_member *m)
{
    int64_t *slot;

    name = tar_names_plain(name);
    if (2 * names->n >= names->n_slots)
        tar_names_grow(names);
    slot = tar_names_slot_of(names, name);
    if (*slot == 0) {
        names->place[names->n].name = names->text.len;
        buf_append(&names->text, name, strlen(name) + 1);
        *slot = ++names->n;
    }
    names->place[*slot - 1].kind = m->kind;
    names->place[*slot - 1].offset = m->offset;
    names->place[*slot - 1].n_bytes = m->n_bytes;
}

int tar_names_find(const struct tar_names *names, const char *name, struct tar_member *m)
{
    const int64_t *slot = names->n > 0 ? tar_names_slot_of(names, tar_names_plain(name)) : NULL;

    if (!slot || *slot == 0)
        return 0;
    if (m) {
        m->kind = names->place[*slot - 1].kind;
        m->offset = names->place[*slot - 1].offset;
        m->n_bytes = names->place[*slot - 1].n_bytes;
    }
    return 1;
}

void tar_names_fini(struct tar_names *names)
{
    buf_fini(&names->text);
    free(names->place);
    free(names->slot);
    *names = (struct tar_names){0};
}
