/* pack - a network to a message and back.
 *
 * The bytes are the word "dpnet1", the message's length (8 bytes, little-endian), and the message
 * compressed by zlib.  A stranger's message is decompressed into no more than it says, and that is
 * bounded; what protobuf-c allocates for it is bounded, too, because many empty elements take few
 * bytes in a message and many in memory. */
#include "import/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "network.pb-c.h"

enum { PACK_WORD_BYTES = 6, PACK_HEADER_BYTES = PACK_WORD_BYTES + 8 };

#define PACK_MAX_MEMORY ((size_t)2 << 30)

static const char pack_word[PACK_WORD_BYTES + 1] = "dpnet1";

/* The parts of the message, in an arena. */
struct pack {
    const struct import_network *n;
    struct arena *arena;
};

#define PACK_STRING(s) ((char *)(uintptr_t)(s))

/* n pointers to n zeroed messages of `size` bytes. */
static void *pack_list(struct arena *a, size_t n, size_t size, size_t *n_out)
{
    char **list = arena_alloc(a, sizeof *list * (n + 1)), *all = arena_alloc(a, size * (n + 1));

    for (size_t i = 0; i < n; i++)
        list[i] = all + i * size;
    *n_out = n;
    return list;
}

static void import_pack_value(const struct import_value *v, ImportPb__Value *to)
{
    import_pb__value__init(to);
    to->name = PACK_STRING(v->name);
    to->is_int = v->is_int;
    to->type = v->type;
    to->n_dim = to->n_symbol = (size_t)v->n_dims;
    to->dim = (int64_t *)(uintptr_t)v->dim;
    to->symbol = (int32_t *)(uintptr_t)v->symbol;
    to->hint = v->hint;
    to->tensor = v->tensor;
}

static void pack_arg(struct arena *arena, const struct import_arg *a, ImportPb__Arg *to)
{
    import_pb__arg__init(to);
    to->name = PACK_STRING(a->name);
    to->is_keyword = a->is_keyword;
    to->kind = a->kind;
    if (a->ints) {
        to->n_number = to->n_number_value = (size_t)a->n;
        to->number = arena_alloc(arena, sizeof *to->number * ((size_t)a->n + 1));
        to->number_value = arena_alloc(arena, sizeof *to->number_value * ((size_t)a->n + 1));
        for (int i = 0; i < a->n; i++) {
            to->number[i] = a->ints[i].number;
            to->number_value[i] = a->ints[i].value;
        }
    }
    if (a->reals) {
        to->n_real = (size_t)a->n;
        to->real = (double *)(uintptr_t)a->reals;
    }
    if (a->values) {
        to->n_value = (size_t)a->n;
        to->value = (int32_t *)(uintptr_t)a->values;
    }
    to->text = PACK_STRING(a->text ? a->text : "");
}

static void pack_node(struct arena *arena, const struct import_node *n, ImportPb__Node *to)
{
    import_pb__node__init(to);
    to->target = PACK_STRING(n->target);
    to->module = PACK_STRING(n->module);
    to->name = PACK_STRING(n->name);
    to->no_gradient = n->no_gradient;
    to->n_out = (size_t)n->n_out;
    to->out = (int32_t *)(uintptr_t)n->out;
    to->arg = pack_list(arena, (size_t)n->n_args, sizeof **to->arg, &to->n_arg);
    for (int i = 0; i < n->n_args; i++)
        pack_arg(arena, &n->arg[i], to->arg[i]);
}

static void pack_tensor(const struct import_tensor *t, ImportPb__Tensor *to)
{
    import_pb__tensor__init(to);
    to->name = PACK_STRING(t->name);
    to->role = t->role;
    to->requires_grad = t->requires_grad;
    to->type = t->type;
    to->n_dim = to->n_stride = (size_t)t->n_dims;
    to->dim = (int64_t *)(uintptr_t)t->dim;
    to->stride = (int64_t *)(uintptr_t)t->stride;
    to->offset = t->offset;
    to->same_as = t->same_as;
    to->is_even = t->is_even;
    to->even = t->even;
    to->has_bytes = t->bytes != NULL;
    if (t->bytes)
        to->content =
            (ProtobufCBinaryData){(size_t)import_tensor_elements(t) * import_type_size(t->type),
                                  (uint8_t *)(uintptr_t)t->bytes};
}

static void pack_symbol(const struct import_symbol *s, ImportPb__Symbol *to)
{
    import_pb__symbol__init(to);
    to->name = PACK_STRING(s->name);
    to->hint = s->hint;
    to->min = s->min;
    to->max = s->max;
    to->of = s->of;
    to->scale = s->scale;
    to->plus = s->plus;
}

static ImportPb__Port **pack_ports(struct arena *arena, const struct import_port *p, int n,
                                   size_t *n_out)
{
    ImportPb__Port **to = pack_list(arena, (size_t)n, sizeof **to, n_out);

    for (int i = 0; i < n; i++) {
        import_pb__port__init(to[i]);
        to[i]->name = PACK_STRING(p[i].name);
        to[i]->value = p[i].value;
    }
    return to;
}

static void pack_network(struct arena *a, const struct import_network *n, ImportPb__Network *to)
{
    import_pb__network__init(to);
    to->path = PACK_STRING(n->path);
    to->writer = PACK_STRING(n->writer);
    to->is_eval = n->is_eval;
    to->config = PACK_STRING(n->config ? n->config : "");
    to->init_std = n->init_std;
    to->packs = n->packs;
    to->value = pack_list(a, (size_t)n->n_values, sizeof **to->value, &to->n_value);
    for (int i = 0; i < n->n_values; i++)
        import_pack_value(&n->value[i], to->value[i]);
    to->node = pack_list(a, (size_t)n->n_nodes, sizeof **to->node, &to->n_node);
    for (int i = 0; i < n->n_nodes; i++)
        pack_node(a, &n->node[i], to->node[i]);
    to->tensor = pack_list(a, (size_t)n->n_tensors, sizeof **to->tensor, &to->n_tensor);
    for (int i = 0; i < n->n_tensors; i++)
        pack_tensor(&n->tensor[i], to->tensor[i]);
    to->symbol = pack_list(a, (size_t)n->n_symbols, sizeof **to->symbol, &to->n_symbol);
    for (int i = 0; i < n->n_symbols; i++)
        pack_symbol(&n->symbol[i], to->symbol[i]);
    to->input = pack_ports(a, n->input, n->n_inputs, &to->n_input);
    to->output = pack_ports(a, n->output, n->n_outputs, &to->n_output);
}

static int pack_compress(const ImportPb__Network *m, const char *path, struct buf *out,
                         struct err *err)
{
    const size_t len = import_pb__network__get_packed_size(m);
    uint8_t header[PACK_HEADER_BYTES];
    uLongf packed = compressBound((uLong)len);
    void *plain = NULL, *small = NULL;
    int rc;

    if (len > IMPORT_PACK_MAX)
        return err_set(err, ERR_CONFIG,
                       "%s: the network with its constants takes %zu MiB, want %d MiB at most",
                       path, len >> 20, IMPORT_PACK_MAX >> 20);
    rc = try_alloc(&plain, len + 1, "a network's message", err);
    if (rc == 0)
        rc = try_alloc(&small, packed, "a packed network", err);
    if (rc == 0) {
        import_pb__network__pack(m, plain);
        ASSERT(compress2(small, &packed, plain, (uLong)len, 6) == Z_OK);
        memcpy(header, pack_word, PACK_WORD_BYTES);
        for (int i = 0; i < 8; i++)
            header[PACK_WORD_BYTES + i] = (uint8_t)((uint64_t)len >> 8 * i);
        buf_append(out, header, sizeof header);
        rc = buf_try_append(out, small, packed, "a packed network", err);
    }
    free(plain);
    free(small);
    return rc;
}

int import_pack(const struct import_network *n, struct buf *out, struct err *err)
{
    struct arena arena;
    ImportPb__Network m;
    int rc;

    arena_init(&arena);
    pack_network(&arena, n, &m);
    rc = pack_compress(&m, n->path, out, err);
    arena_fini(&arena);
    return rc;
}

/* The bytes that protobuf-c may still allocate. */
struct pack_budget {
    size_t left;
};

static void *pack_budget_alloc(void *arg, size_t n)
{
    struct pack_budget *b = arg;

    if (n + 32 > b->left)
        return NULL;
    b->left -= n + 32;
    return malloc(n);
}

static void pack_budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

static int unpack_shape(size_t n, const int64_t *dim, int64_t *to, int *n_dims)
{
    if (n > IMPORT_MAX_DIMS)
        return -1;
    if (n)
        memcpy(to, dim, sizeof *to * n);
    *n_dims = (int)n;
    return 0;
}

static int import_unpack_value(struct arena *a, const ImportPb__Value *m, struct import_value *to)
{
    memset(to->symbol, -1, sizeof to->symbol);
    to->name = arena_strdup(a, m->name);
    to->is_int = m->is_int != 0;
    to->type = (enum import_type)m->type;
    to->hint = m->hint;
    to->tensor = m->tensor;
    if (unpack_shape(m->n_dim, m->dim, to->dim, &to->n_dims) < 0 || m->n_symbol != m->n_dim)
        return -1;
    for (size_t i = 0; i < m->n_symbol; i++)
        to->symbol[i] = m->symbol[i];
    return 0;
}

/* Exactly one list of an argument has elements, the one of its kind; import_network_check counts
 * them. */
static int unpack_arg(struct arena *a, const ImportPb__Arg *m, struct import_arg *to)
{
    const size_t n = m->n_number + m->n_real + m->n_value;
    struct import_int *ints;

    *to = (struct import_arg){.name = arena_strdup(a, m->name),
                              .is_keyword = m->is_keyword != 0,
                              .kind = (enum import_arg_kind)m->kind};
    if (m->n_number_value != m->n_number || n > INT32_MAX ||
        (m->n_number != n && m->n_real != n && m->n_value != n))
        return -1;
    to->n = (int)n;
    switch (to->kind) {
    case IMPORT_NONE:
        return 0;
    case IMPORT_TEXT:
        to->text = arena_strdup(a, m->text);
        return 0;
    case IMPORT_REAL:
    case IMPORT_REALS:
        to->reals = m->n_real == n
                        ? arena_copy(a, m->real ? m->real : (double[]){0}, sizeof *m->real * n)
                        : NULL;
        return 0;
    case IMPORT_VALUE:
    case IMPORT_VALUES:
        to->values = m->n_value == n
                         ? arena_copy(a, m->value ? m->value : (int32_t[]){0}, sizeof *m->value * n)
                         : NULL;
        return 0;
    case IMPORT_INT:
    case IMPORT_INTS:
    case IMPORT_FLAG:
    case IMPORT_FLAGS:
    case IMPORT_DTYPE:
        break;
    default:
        return -1;
    }
    if (m->n_number != n)
        return -1;
    to->ints = ints = arena_alloc(a, sizeof *ints * (n + 1));
    for (size_t i = 0; i < n; i++)
        ints[i] = (struct import_int){m->number[i], m->number_value[i]};
    return 0;
}

static int unpack_node(struct arena *a, const ImportPb__Node *m, struct import_node *to)
{
    struct import_arg *arg = arena_alloc(a, sizeof *arg * (m->n_arg + 1));

    *to = (struct import_node){.target = arena_strdup(a, m->target),
                               .module = arena_strdup(a, m->module),
                               .name = arena_strdup(a, m->name),
                               .n_args = (int)m->n_arg,
                               .n_out = (int)m->n_out,
                               .arg = arg,
                               .no_gradient = m->no_gradient != 0};
    to->out = arena_copy(a, m->out ? m->out : (int32_t[]){0}, sizeof *m->out * m->n_out);
    for (size_t i = 0; i < m->n_arg; i++)
        if (unpack_arg(a, m->arg[i], &arg[i]) < 0)
            return -1;
    return 0;
}

static int unpack_tensor(struct arena *a, const ImportPb__Tensor *m, struct import_tensor *to)
{
    size_t n;

    *to = (struct import_tensor){.name = arena_strdup(a, m->name),
                                 .role = (enum import_role)m->role,
                                 .requires_grad = m->requires_grad != 0,
                                 .type = (enum import_type)m->type,
                                 .offset = m->offset,
                                 .same_as = m->same_as,
                                 .is_even = m->is_even != 0,
                                 .even = m->even};
    if (!isfinite(m->even) || m->type >= IMPORT_TYPE_COUNT || m->n_stride != m->n_dim ||
        unpack_shape(m->n_dim, m->dim, to->dim, &to->n_dims) < 0 ||
        unpack_shape(m->n_stride, m->stride, to->stride, &to->n_dims) < 0)
        return -1;
    if (!m->has_bytes)
        return m->content.len ? -1 : 0;
    n = import_type_size(to->type);
    for (int i = 0; i < to->n_dims; i++)
        if (to->dim[i] < 0 || __builtin_mul_overflow(n, (size_t)to->dim[i], &n))
            return -1;
    if (n != m->content.len)
        return -1;
    to->bytes = arena_copy(a, n ? (const void *)m->content.data : "", n);
    return 0;
}

static void unpack_symbol(struct arena *a, const ImportPb__Symbol *m, struct import_symbol *to)
{
    *to = (struct import_symbol){
        arena_strdup(a, m->name), m->hint, m->min, m->max, m->of, m->scale, m->plus};
}

static struct import_port *unpack_ports(struct arena *a, size_t n, ImportPb__Port *const *m)
{
    struct import_port *to = arena_alloc(a, sizeof *to * (n + 1));

    for (size_t i = 0; i < n; i++)
        to[i] = (struct import_port){arena_strdup(a, m[i]->name), m[i]->value};
    return to;
}

static int unpack_network(const ImportPb__Network *m, struct import_network *n)
{
    struct arena *a = &n->arena;

    if (m->n_value > IMPORT_MAX_VALUES || m->n_node > IMPORT_MAX_NODES ||
        m->n_tensor > IMPORT_MAX_TENSORS || m->n_symbol > IMPORT_MAX_VALUES ||
        m->n_input > IMPORT_MAX_VALUES || m->n_output > IMPORT_MAX_VALUES)
        return -1;
    n->writer = arena_strdup(a, m->writer);
    n->is_eval = m->is_eval != 0;
    n->config = *m->config ? arena_strdup(a, m->config) : NULL;
    n->init_std = m->init_std >= 0 && m->init_std <= 1 ? m->init_std : 0;
    n->packs = m->packs != 0;
    n->n_values = (int)m->n_value;
    n->n_nodes = (int)m->n_node;
    n->n_tensors = (int)m->n_tensor;
    n->n_symbols = (int)m->n_symbol;
    n->n_inputs = (int)m->n_input;
    n->n_outputs = (int)m->n_output;
    n->value = arena_alloc(a, sizeof *n->value * (m->n_value + 1));
    n->node = arena_alloc(a, sizeof *n->node * (m->n_node + 1));
    n->tensor = arena_alloc(a, sizeof *n->tensor * (m->n_tensor + 1));
    n->symbol = arena_alloc(a, sizeof *n->symbol * (m->n_symbol + 1));
    for (int i = 0; i < n->n_values; i++)
        if (import_unpack_value(a, m->value[i], &n->value[i]) < 0)
            return -1;
    for (int i = 0; i < n->n_nodes; i++)
        if (unpack_node(a, m->node[i], &n->node[i]) < 0)
            return -1;
    for (int i = 0; i < n->n_tensors; i++)
        if (unpack_tensor(a, m->tensor[i], &n->tensor[i]) < 0)
            return -1;
    for (int i = 0; i < n->n_symbols; i++)
        unpack_symbol(a, m->symbol[i], &n->symbol[i]);
    n->input = unpack_ports(a, m->n_input, m->input);
    n->output = unpack_ports(a, m->n_output, m->output);
    return 0;
}

static int unpack_fail(struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "a packed network is damaged; want bytes of this version of "
                   "dptrain, whole");
}

/* The message of the bytes, of *len bytes, for free(). */
static int unpack_plain(const uint8_t *data, size_t *len, void **out, struct err *err)
{
    uint64_t n = 0;
    uLongf got;

    if (*len < PACK_HEADER_BYTES || memcmp(data, pack_word, PACK_WORD_BYTES) != 0)
        return unpack_fail(err);
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)data[PACK_WORD_BYTES + i] << 8 * i;
    /* zlib makes at most 1032 bytes of one. */
    if (n > IMPORT_PACK_MAX || n / 1032 > *len)
        return unpack_fail(err);
    if (try_alloc(out, (size_t)n + 1, "a network's message", err) < 0)
        return err->code;
    got = (uLongf)n;
    if (uncompress(*out, &got, data + PACK_HEADER_BYTES, (uLong)(*len - PACK_HEADER_BYTES)) !=
            Z_OK ||
        got != n) {
        free(*out);
        return unpack_fail(err);
    }
    *len = (size_t)n;
    return 0;
}

int import_unpack(const void *data, size_t len, struct import_network **out, struct err *err)
{
    struct pack_budget budget = {PACK_MAX_MEMORY};
    ProtobufCAllocator allocator = {pack_budget_alloc, pack_budget_free, &budget};
    struct import_network *n = NULL;
    ImportPb__Network *m;
    void *plain;
    int rc = unpack_plain(data, &len, &plain, err);

    if (rc < 0)
        return rc;
    m = import_pb__network__unpack(&allocator, len, plain);
    free(plain);
    if (!m)
        return unpack_fail(err);
    n = import_network_new(m->path);
    rc = unpack_network(m, n) < 0 ? unpack_fail(err) : import_network_check(n, err);
    import_pb__network__free_unpacked(m, &allocator);
    if (rc < 0)
        import_network_free(n);
    else
        *out = n;
    return rc;
}
