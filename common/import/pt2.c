/* pt2 - the archive of torch.export.save: its members, the JSON of its network, the signature.
 *
 * The happy path: find the folder by the member "FOLDER/archive_format"; load the JSON and both
 * tables of tensors; make the signature's inputs, then the nodes, then the outputs; read the
 * constants; let import_network_check judge the whole. */
#include "import/pt2.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/even.h"
#include "import/pt2_impl.h"
#include "import/weights_impl.h"

enum { PT2_MAJOR = 8, PT2_MAX_JSON = 1 << 30 };

int pt2_refuse(struct pt2 *p, const char *fmt, ...)
{
    char text[sizeof p->err->msg];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(p->err, ERR_CONFIG, "%s", text);
}

int pt2_damaged(struct pt2 *p, const char *fmt, ...)
{
    char text[sizeof p->err->msg];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(p->err, ERR_CORRUPT, "%s; the file is damaged: export it again", text);
}

const char *pt2_text(struct pt2 *p, const json_t *j)
{
    const char *s = json_string_value(j);

    return s ? arena_strdup(&p->net->arena, s) : "";
}

const char *pt2_union(const json_t *j, json_t **what)
{
    void *at = json_object_size(j) == 1 ? json_object_iter((json_t *)(uintptr_t)j) : NULL;

    *what = at ? json_object_iter_value(at) : NULL;
    return at ? json_object_iter_key(at) : NULL;
}

int pt2_type(json_int_t code)
{
    static const int types[] = {
        [1] = IMPORT_U8,  [2] = IMPORT_I8,    [3] = IMPORT_I16,  [4] = IMPORT_I32, [5] = IMPORT_I64,
        [6] = IMPORT_F16, [7] = IMPORT_F32,   [8] = IMPORT_F64,  [9] = -1,         [10] = -1,
        [11] = -1,        [12] = IMPORT_BOOL, [13] = IMPORT_BF16};

    return code >= 1 && code < (json_int_t)ARRAY_LEN(types) ? types[code] : -1;
}

int pt2_grow(struct pt2 *p, void **array, size_t size, int n, int *room, int most, const char *what)
{
    const int more = *room ? 2 * *room : 64;

    if (n >= most)
        return pt2_refuse(p, "the network has more than %d %s, which is not supported", most, what);
    if (n < *room)
        return 0;
    if (try_realloc(array, size * (size_t)more, what, p->err) < 0)
        return p->err->code;
    *room = more;
    return 0;
}

/* Say what an archive without archive_format is. */
static int pt2_foreign(struct pt2 *p)
{
    for (int i = 0; i < p->zip->n_members; i++) {
        const char *name = p->zip->member[i].name, *slash = strrchr(name, '/');

        if (!strcmp(slash ? slash + 1 : name, "constants.pkl"))
            return pt2_refuse(p, "this is a TorchScript file of torch.jit.save, want one of "
                                 "torch.export.save; export the network "
                                 "(deploy/examples/export.py)");
    }
    for (int i = 0; i < p->zip->n_members; i++) {
        const char *name = p->zip->member[i].name, *slash = strrchr(name, '/');

        if (!strcmp(slash ? slash + 1 : name, "data.pkl"))
            return pt2_refuse(p, "this is a pickle of torch.save, which is never read; export the "
                                 "network by torch.export.save, see deploy/examples/export.py");
    }
    return pt2_refuse(p, "the archive has no member archive_format, want a file of "
                         "torch.export.save of PyTorch 2.8 or newer; export the network "
                         "(deploy/examples/export.py)");
}

/* The content of a short member without its newline; NULL: there is none of the name. */
static const char *pt2_word(struct pt2 *p, const char *name)
{
    char path[1024];
    const struct zip_member *m;
    char *text;
    size_t len;

    if (snprintf(path, sizeof path, "%s%s", p->folder, name) >= (int)sizeof path)
        return NULL;
    m = zip_find(p->zip, path);
    if (!m)
        return NULL;
    len = m->n_bytes < 64 ? m->n_bytes : 64;
    text = arena_alloc(&p->net->arena, len + 1);
    memcpy(text, p->zip->bytes + m->at, len);
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

static int pt2_find_folder(struct pt2 *p)
{
    const char *end = "archive_format", *word;

    for (int i = 0; i < p->zip->n_members; i++) {
        const char *name = p->zip->member[i].name, *slash = strchr(name, '/');

        if (slash && !strcmp(slash + 1, end)) {
            if (p->folder)
                return pt2_refuse(p, "the archive has two members archive_format, want one");
            p->folder = arena_strdup(&p->net->arena, name);
            ((char *)(uintptr_t)p->folder)[slash + 1 - name] = '\0';
        }
    }
    if (!p->folder)
        return pt2_foreign(p);
    word = pt2_word(p, end);
    if (!word || strcmp(word, "pt2") != 0)
        return pt2_refuse(p, "archive_format is \"%s\", want \"pt2\"", word ? word : "");
    word = pt2_word(p, "archive_version");
    if (!word || strcmp(word, "0") != 0)
        return pt2_refuse(p, "archive_version is \"%s\", want \"0\"", word ? word : "");
    word = pt2_word(p, "byteorder");
    if (word && strcmp(word, "little") != 0)
        return pt2_refuse(p,
                          "byteorder is \"%s\", want \"little\"; export on a little-endian "
                          "machine",
                          word);
    return 0;
}

static int pt2_json(struct pt2 *p, const struct zip_member *m, json_t **out)
{
    json_error_t why;

    if (m->n_bytes > PT2_MAX_JSON)
        return pt2_refuse(p, "member %s has %zu bytes, want 1 GiB at most", m->name, m->n_bytes);
    if (zip_check(p->zip, m, p->err) < 0)
        return p->err->code;
    *out =
        json_loadb((const char *)p->zip->bytes + m->at, m->n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(*out))
        return pt2_damaged(p, "member %s is no JSON object: line %d: %s", m->name, why.line,
                           why.text);
    return 0;
}

/* models/NAME.json, of which there is one. */
static int pt2_find_model(struct pt2 *p)
{
    const char *folder = arena_printf(&p->net->arena, "%smodels/", p->folder);
    const size_t len = strlen(folder);
    const struct zip_member *found = NULL;
    char *model;

    for (int i = 0; i < p->zip->n_members; i++) {
        const struct zip_member *m = &p->zip->member[i];
        const size_t whole = strlen(m->name);

        if (strncmp(m->name, folder, len) != 0 || whole < len + 6 ||
            strcmp(m->name + whole - 5, ".json") != 0 || strchr(m->name + len, '/'))
            continue;
        if (found)
            return pt2_refuse(p,
                              "the archive has two networks (%s and %s), want one; save them "
                              "one by one",
                              found->name + len, m->name + len);
        found = m;
    }
    if (!found)
        return pt2_refuse(p,
                          "the archive has no %s*.json, want one network; was it saved by "
                          "torch.export.save?",
                          folder);
    model = arena_strdup(&p->net->arena, found->name + len);
    model[strlen(model) - 5] = '\0';
    p->model = model;
    return p->is_state ? 0 : pt2_json(p, found, &p->root);
}

/* One of the two tables; a missing one is empty. */
static int pt2_table(struct pt2 *p, const char *kind, json_t **out)
{
    const struct zip_member *m =
        zip_find(p->zip, arena_printf(&p->net->arena, "%sdata/%s/%s_%s_config.json", p->folder,
                                      kind, p->model, kind));
    json_t *whole = NULL;
    int rc = m ? pt2_json(p, m, &whole) : 0;

    *out = json_incref(json_object_get(whole, "config"));
    json_decref(whole);
    if (rc == 0 && m && !json_is_object(*out))
        rc = pt2_damaged(p, "member %s has no table \"config\"", m->name);
    return rc;
}

static int pt2_check_version(struct pt2 *p)
{
    json_t *version = json_object_get(p->root, "schema_version"),
           *major = json_object_get(version, "major");
    const char *torch = json_string_value(json_object_get(p->root, "torch_version"));

    p->net->writer = arena_printf(&p->net->arena, "torch %s", torch ? torch : "(not said)");
    if (!json_is_integer(major) || json_integer_value(major) != PT2_MAJOR)
        return pt2_refuse(p,
                          "schema version is %d.%d (written by %s), want %d.x, which PyTorch 2.7 "
                          "to 2.15 write",
                          (int)json_integer_value(major),
                          (int)json_integer_value(json_object_get(version, "minor")),
                          p->net->writer, PT2_MAJOR);
    return 0;
}

/* An input that is a tensor of the state: kind {arg{name}, KEY}. */
static int pt2_state_input(struct pt2 *p, struct pt2_scope *s, json_t *spec, const char *key,
                           enum import_role role)
{
    const char *name = json_string_value(json_object_get(json_object_get(spec, "arg"), "name")),
               *tensor = json_string_value(json_object_get(spec, key));
    int v, t;

    if (!name || !tensor)
        return pt2_damaged(p, "an input of the signature has no %s", key);
    v = pt2_value_add(p, s, name);
    t = v < 0 ? v : pt2_tensor(p, tensor, role);
    if (t < 0)
        return t;
    if (p->net->value[v].is_int)
        return pt2_damaged(p, "%s is an integer, want a tensor", tensor);
    p->net->value[v].tensor = t;
    return 0;
}

/* An input that a user gives; `leaf` is its number among these. */
static int pt2_user_input(struct pt2 *p, struct pt2_scope *s, json_t *spec, json_t *names,
                          size_t leaf)
{
    json_t *what;
    const char *kind = pt2_union(json_object_get(spec, "arg"), &what), *name, *called;
    struct import_port *port = &p->net->input[p->net->n_inputs];

    if (kind && strcmp(kind, "as_tensor") != 0 && strncmp(kind, "as_sym", 6) != 0)
        return 0; /* a constant of the call: the export is made for it */
    name = json_string_value(json_object_get(what, "name"));
    if (!kind || !name || strcmp(kind, "as_tensor") != 0)
        return pt2_refuse(p,
                          "input %zu of the network is of kind %s, want a tensor; export it with "
                          "constants in the place of numbers",
                          leaf, kind ? kind : "none");
    called = json_string_value(json_array_get(names, leaf));
    port->name = arena_strdup(&p->net->arena, called ? called : name);
    port->value = pt2_value_add(p, s, name);
    if (port->value >= 0)
        p->net->n_inputs++;
    return port->value < 0 ? port->value : 0;
}

static int pt2_input(struct pt2 *p, struct pt2_scope *s, json_t *spec, json_t *names, size_t *leaf)
{
    json_t *what;
    const char *kind = pt2_union(spec, &what);

    if (!kind)
        return pt2_damaged(p, "an input of the signature has no kind");
    if (!strcmp(kind, "parameter"))
        return pt2_state_input(p, s, what, "parameter_name", IMPORT_PARAMETER);
    if (!strcmp(kind, "buffer"))
        return pt2_state_input(p, s, what, "buffer_name",
                               json_is_false(json_object_get(what, "persistent")) ? IMPORT_CONSTANT
                                                                                  : IMPORT_BUFFER);
    if (!strcmp(kind, "tensor_constant"))
        return pt2_state_input(p, s, what, "tensor_constant_name", IMPORT_CONSTANT);
    if (!strcmp(kind, "user_input"))
        return pt2_user_input(p, s, what, names, (*leaf)++);
    if (!strcmp(kind, "constant_input")) {
        ++*leaf;
        return 0;
    }
    return pt2_refuse(p, "an input of the network is a %s, which is not supported", kind);
}

static int pt2_inputs(struct pt2 *p, struct pt2_scope *s, json_t *specs)
{
    json_t *names = pt2_input_names(p), *one;
    size_t i, leaf = 0;
    int rc = 0;

    p->net->input =
        arena_alloc(&p->net->arena, sizeof *p->net->input * (json_array_size(specs) + 1));
    json_array_foreach(specs, i, one)
    {
        rc = pt2_input(p, s, one, names, &leaf);
        if (rc < 0)
            break;
    }
    json_decref(names);
    return rc;
}

static int pt2_user_output(struct pt2 *p, const struct pt2_scope *s, json_t *arg, const char *name)
{
    json_t *what;
    const char *kind = pt2_union(arg, &what);
    struct import_port *port = &p->net->output[p->net->n_outputs];

    if (kind && strcmp(kind, "as_tensor") != 0 && strncmp(kind, "as_sym", 6) != 0)
        return 0; /* a constant: nothing to compute */
    if (!kind || strcmp(kind, "as_tensor") != 0)
        return pt2_refuse(p, "output %s of the network is of kind %s, want a tensor",
                          name ? name : "", kind ? kind : "none");
    port->name = name ? arena_strdup(&p->net->arena, name) : "";
    port->value = pt2_value_find(p, s, json_object_get(what, "name"));
    if (port->value >= 0)
        p->net->n_outputs++;
    return port->value < 0 ? port->value : 0;
}

/* The buffer of this name is changed: a node that copies does it. */
static int pt2_mutation(struct pt2 *p, const struct pt2_scope *s, json_t *what)
{
    json_t *tensor = json_object_get(p->tensors, pt2_text(p, json_object_get(what, "buffer_name")));
    const int from = pt2_value_find(p, s, json_object_get(json_object_get(what, "arg"), "name"));

    if (from < 0)
        return from;
    if (tensor && p->value_of[json_integer_value(tensor)] >= 0)
        return pt2_copy_to(p, p->value_of[json_integer_value(tensor)], from);
    return pt2_damaged(p, "a buffer is changed that is no input");
}

/* For each tensor the first value that is it, or -1. */
static void pt2_find_values(struct pt2 *p)
{
    const struct import_network *n = p->net;

    p->value_of = arena_alloc(&p->net->arena, ((size_t)n->n_tensors + 1) * sizeof *p->value_of);
    for (int t = 0; t < n->n_tensors; t++)
        p->value_of[t] = -1;
    for (int v = n->n_values - 1; v >= 0; v--)
        if (n->value[v].tensor >= 0)
            p->value_of[n->value[v].tensor] = v;
}

static int pt2_outputs(struct pt2 *p, const struct pt2_scope *s, json_t *specs)
{
    json_t *names = pt2_output_names(p), *one, *what;
    size_t i, leaf = 0;
    int rc = 0;

    pt2_find_values(p);
    p->net->output =
        arena_alloc(&p->net->arena, sizeof *p->net->output * (json_array_size(specs) + 1));
    json_array_foreach(specs, i, one)
    {
        const char *kind = pt2_union(one, &what);

        if (kind && !strcmp(kind, "buffer_mutation"))
            rc = pt2_mutation(p, s, what);
        else if (kind && (!strcmp(kind, "user_output") || !strcmp(kind, "loss_output"))) {
            json_t *arg = json_object_get(what, "arg"),
                   *whole =
                       kind[0] == 'l' ? json_pack("{s:O}", "as_tensor", arg) : json_incref(arg);

            rc = pt2_user_output(p, s, whole, json_string_value(json_array_get(names, leaf++)));
            json_decref(whole);
        } else
            rc = pt2_refuse(p, "an output of the network is a %s, which is not supported",
                            kind ? kind : "thing without a kind");
        if (rc < 0)
            break;
    }
    json_decref(names);
    return rc;
}

/* 1: some nodes have a flag of training, and none of them is set.  A batch norm without running
 * statistics always has it set. */
static int pt2_is_eval(const struct import_network *n)
{
    int n_off = 0;

    for (int i = 0; i < n->n_nodes; i++) {
        const struct import_node *node = &n->node[i];
        const struct import_arg *mean = import_arg_find(node, "running_mean", INT32_MAX);

        if (mean && mean->kind == IMPORT_NONE)
            continue;
        for (int k = 0; k < node->n_args; k++) {
            const struct import_arg *a = &node->arg[k];

            if (a->kind != IMPORT_FLAG ||
                (strcmp(a->name, "training") != 0 && strcmp(a->name, "train") != 0))
                continue;
            if (a->ints[0].number)
                return 0;
            n_off++;
        }
    }
    return n_off > 0;
}

static int pt2_network(struct pt2 *p)
{
    json_t *graph_module = json_object_get(p->root, "graph_module"),
           *signature = json_object_get(graph_module, "signature");
    struct pt2_scope s = {.graph = json_object_get(graph_module, "graph"), .names = json_object()};
    int rc = 0;

    if (!json_is_object(s.graph) || !json_is_object(signature))
        rc = pt2_damaged(p, "models/%s.json has no graph and signature", p->model);
    if (rc == 0)
        rc = pt2_inputs(p, &s, json_object_get(signature, "input_specs"));
    if (rc == 0)
        rc = pt2_rest_of_state(p);
    if (rc == 0)
        rc = pt2_refuse_overlaps(p);
    if (rc == 0)
        rc = pt2_nodes(p, &s);
    if (rc == 0)
        rc = pt2_outputs(p, &s, json_object_get(signature, "output_specs"));
    json_decref(s.names);
    return rc;
}

static int pt2_load(struct pt2 *p)
{
    int rc = pt2_find_folder(p);

    if (rc == 0)
        rc = pt2_find_model(p);
    if (rc == 0 && !p->is_state)
        rc = pt2_check_version(p);
    if (rc == 0)
        rc = pt2_table(p, "weights", &p->weights);
    if (rc == 0)
        rc = pt2_table(p, "constants", &p->constants);
    if (rc == 0)
        rc = p->is_state ? pt2_rest_of_state(p) : pt2_network(p);
    return rc;
}

/* Move an array that has grown into the arena. */
static void *pt2_keep(struct pt2 *p, void *array, size_t size, int n)
{
    void *out = arena_copy(&p->net->arena, array ? array : "", array ? size * (size_t)n : 0);

    free(array);
    return out;
}

static int pt2_parse_some(const struct zip *zip, int is_state, struct import_network **out,
                          struct err *err)
{
    struct pt2 p = {
        .zip = zip, .is_state = is_state, .net = import_network_new(zip->path), .err = err};
    struct import_network *n = p.net;
    int rc;

    p.symbols = json_object();
    p.tensors = json_object();
    p.storages = json_object();
    p.checked = json_object();
    rc = pt2_load(&p);
    n->value = pt2_keep(&p, n->value, sizeof *n->value, n->n_values);
    n->node = pt2_keep(&p, n->node, sizeof *n->node, n->n_nodes);
    n->tensor = pt2_keep(&p, n->tensor, sizeof *n->tensor, n->n_tensors);
    n->symbol = pt2_keep(&p, n->symbol, sizeof *n->symbol, n->n_symbols);
    if (rc == 0)
        rc = pt2_read_contents(&p);
    if (rc < 0)
        err_wrap(err, "%s", zip->path);
    else
        rc = import_network_check(n, err);
    n->is_eval = pt2_is_eval(n);
    json_decref(p.root);
    json_decref(p.weights);
    json_decref(p.constants);
    json_decref(p.symbols);
    json_decref(p.tensors);
    json_decref(p.storages);
    json_decref(p.checked);
    if (rc < 0)
        import_network_free(n);
    else
        *out = n;
    return rc;
}

int pt2_parse(const struct zip *zip, struct import_network **out, struct err *err)
{
    return pt2_parse_some(zip, 0, out, err);
}

int pt2_parse_state(const struct zip *zip, struct import_network **out, struct err *err)
{
    return pt2_parse_some(zip, 1, out, err);
}

/* As even_reader: from the storage in the zip. */
static int pt2_elements(void *from, const struct import_tensor *t, int64_t first, int64_t n,
                        void *to, struct err *err)
{
    const struct zip *zip = from;

    (void)err;
    weights_gather(zip->bytes + t->file_at, t, first, n, to);
    return 0;
}

int pt2_read(const char *path, struct import_network **out, struct err *err)
{
    struct zip *zip;
    int rc = zip_open(path, &zip, err);

    if (rc < 0)
        return rc;
    rc = pt2_parse(zip, out, err);
    if (rc == 0)
        import_find_even(*out, pt2_elements, zip);
    zip_close(zip);
    return rc;
}
