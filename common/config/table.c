/* The flat list of all rows: finding a row by its key, whether it holds in a job, and where its
 * field is. */
#include "config/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

static size_t count_rows(const struct option_table *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n_parts; i++) {
        const struct option_part *p = &t->part[i];

        n += p->row ? p->n_rows : 0;
        for (size_t e = 0; !p->row && p->selector->registry->entry[e]; e++)
            n += (size_t)p->selector->registry->entry[e]->n_options;
    }
    return n;
}

/* The list is made for each look-up, so making it must not compare all keys with each other
 * (FNV-1a). */
static uint32_t key_hash(const char *key)
{
    uint32_t h = 2166136261u;

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 16777619u;
    return h;
}

/* The first row with this key and hash, or NULL. */
static const struct option_ref *table_find_row(const struct option_list *l, const char *key,
                                               uint32_t hash)
{
    for (size_t i = l->chain[hash % OPTION_CHAINS]; i > 0; i = l->ref[i - 1].next)
        if (l->ref[i - 1].hash == hash && !strcmp(l->ref[i - 1].o->key, key))
            return &l->ref[i - 1];
    return NULL;
}

/* Find the row by its key from now on. */
static void chain_row(struct option_list *l, size_t i)
{
    size_t *chain = &l->chain[l->ref[i].hash % OPTION_CHAINS];

    l->ref[i].next = *chain;
    *chain = i + 1;
}

static void table_add_rows(struct option_list *l, const struct option_part *p,
                           const struct option_group *group, const struct option *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t hash = key_hash(row[i].key);
        const struct option_ref *same = table_find_row(l, row[i].key, hash);

        l->ref[l->n] = (struct option_ref){.o = &row[i],
                                           .part = p,
                                           .group = group,
                                           .first = same ? same->first : l->n,
                                           .hash = hash};
        ASSERT(!same || (group && same->group && same->part == p));
        if (!same)
            chain_row(l, l->n);
        l->n++;
    }
}

void table_init(struct option_list *l, const struct option_table *t)
{
    *l = (struct option_list){.ref = xcalloc(count_rows(t), sizeof *l->ref)};
    for (size_t i = 0; i < t->n_parts; i++) {
        const struct option_part *p = &t->part[i];

        if (p->row)
            table_add_rows(l, p, NULL, p->row, p->n_rows);
        for (size_t e = 0; !p->row && p->selector->registry->entry[e]; e++) {
            const struct option_group *g = p->selector->registry->entry[e];

            table_add_rows(l, p, g, g->option, (size_t)g->n_options);
        }
    }
}

void table_fini(struct option_list *l)
{
    free(l->ref);
    *l = (struct option_list){0};
}

const struct option_ref *table_find(const struct option_list *l, const char *key)
{
    return table_find_row(l, key, key_hash(key));
}

const struct option_ref *table_first_of(const struct option_list *l, const char *group)
{
    size_t len = strlen(group);

    for (size_t i = 0; i < l->n; i++)
        if (!strncmp(l->ref[i].o->key, group, len) && l->ref[i].o->key[len] == '.')
            return &l->ref[i];
    return NULL;
}

const struct option_ref *table_short_of(const struct option_list *l, const char *group)
{
    size_t len = strlen(group);

    for (size_t i = 0; i < l->n; i++) {
        const struct option *o = l->ref[i].o;

        if (o->flags & OPT_SHORT && !strncmp(o->key, group, len) && o->key[len] == '.' &&
            !strchr(o->key + len + 1, '.'))
            return &l->ref[i];
    }
    return NULL;
}

const struct option_ref *table_holding(const struct option_list *l, const struct option_ref *ref,
                                       const void *job)
{
    for (size_t i = ref->first; i < l->n; i++)
        if (l->ref[i].first == ref->first && table_hold(l, &l->ref[i], job))
            return &l->ref[i];
    return NULL;
}

/* ---- fields ---- */

/* The two pointers of a choice have types that only the job knows, so they are copied as bytes. */
static void *pointer_at(const void *job, size_t offset)
{
    void *p;

    memcpy(&p, (const char *)job + offset, sizeof p);
    return p;
}

const struct option_group *table_chosen(const struct option_ref *ref, const void *job)
{
    return pointer_at(job, ref->part->base + ref->o->offset);
}

const void *table_chosen_options(const struct option_ref *ref, const void *job)
{
    return pointer_at(job, ref->part->base + ref->o->registry->options);
}

void table_choose(const struct option_ref *ref, void *job, const struct option_group *g,
                  struct arena *arena)
{
    void *options = g->size ? arena_alloc(arena, g->size) : NULL;

    memcpy((char *)job + ref->part->base + ref->o->offset, &g, sizeof g);
    memcpy((char *)job + ref->part->base + ref->o->registry->options, &options, sizeof options);
}

static int is_chosen(const struct option_ref *ref, const void *job)
{
    const struct option_part *p = ref->part;

    return !ref->group || pointer_at(job, p->base + p->selector->offset) == ref->group;
}

void *table_field(const struct option_ref *ref, const void *job)
{
    const struct option_part *p = ref->part;

    if (!ref->group)
        return (char *)job + p->base + ref->o->offset;
    if (!is_chosen(ref, job))
        return NULL;
    return (char *)pointer_at(job, p->base + p->selector->registry->options) + ref->o->offset;
}

/* The row that `only` names, in the same struct. */
static const struct option_ref *only_of(const struct option_list *l, const struct option_ref *ref)
{
    for (const struct option_ref *r = l->ref; r < ref; r++)
        if (r->group == ref->group && !strcmp(r->o->key, ref->o->only))
            return r;
    ASSERT(!"`only` names an earlier row");
    return NULL;
}

int table_hold(const struct option_list *l, const struct option_ref *ref, const void *job)
{
    if (!is_chosen(ref, job))
        return 0;
    return !ref->o->only || (ref->o->only_values >> *(int *)table_field(only_of(l, ref), job) & 1);
}

/* ---- what a key depends on ---- */

int table_may_change(const struct option_ref *ref)
{
    return ((ref->o->flags | (ref->group ? ref->part->selector->flags : 0)) & OPT_RESUME) != 0;
}

const char *table_selector(const struct option_ref *ref)
{
    return ref->o->only ? ref->o->only : ref->group ? ref->part->selector->key : NULL;
}

static int same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

int table_alike(const struct option_ref *a, const struct option_ref *b)
{
    const struct option *x = a->o, *y = b->o;

    return a->first == b->first && x->type == y->type && x->flags == y->flags && x->min == y->min &&
           x->max == y->max && x->choices == y->choices && x->first == y->first &&
           same_text(x->def, y->def) && same_text(x->unit, y->unit) &&
           same_text(x->help, y->help) && same_text(x->only, y->only);
}

/* "mnist, cifar10 or cifar100": the entries that have the key. */
static void when_entry(const struct option_list *l, const struct option_ref *ref, int alike,
                       struct buf *out)
{
    const struct option_ref *last = NULL; /* found, and not yet printed */
    int n = 0;

    for (size_t i = ref->first; i < l->n; i++) {
        if (l->ref[i].first != ref->first || (alike && !table_alike(&l->ref[i], ref)))
            continue;
        if (last)
            buf_printf(out, "%s%s", n++ ? ", " : "", last->group->name);
        last = &l->ref[i];
    }
    if (last)
        buf_printf(out, "%s%s", n ? " or " : "", last->group->name);
}

void table_when(const struct option_list *l, const struct option_ref *ref, int alike,
                struct buf *out)
{
    const struct option *selector;
    int n = 0;

    if (!ref->o->only) {
        when_entry(l, ref, alike, out);
        return;
    }
    selector = only_of(l, ref)->o;
    for (int i = selector->first; selector->choices[i]; i++)
        if (ref->o->only_values >> i & 1)
            buf_printf(out, "%s%s", n++ ? " or " : "", selector->choices[i]);
}
