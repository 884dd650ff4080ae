/* Each event is built on the stack, packed, and framed.  Scalars are simple_value, a float: the
 * server of today shows no doubles. */
#include "see/board_events.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "see/tfrecord.h"
#include "tensorboard.pb-c.h"

enum { HPARAMS_VERSION = 0 };

static char version[] = "brain.Event:2", hparams_plugin[] = "hparams", text_plugin[] = "text";
static char start_tag[] = "_hparams_/session_start_info";
static char end_tag[] = "_hparams_/session_end_info", text_tag[] = "job";

static void put_event(struct buf *out, const Tensorboard__Event *e)
{
    const size_t n = tensorboard__event__get_packed_size(e);
    uint8_t *packed = xmalloc(n);

    tensorboard__event__pack(e, packed);
    tfrecord_put(out, packed, n);
    free(packed);
}

static Tensorboard__Event event_at(double time, int64_t step)
{
    Tensorboard__Event e = TENSORBOARD__EVENT__INIT;

    e.has_wall_time = e.has_step = 1;
    e.wall_time = time;
    e.step = step;
    return e;
}

void board_put_version(struct buf *out, double time)
{
    Tensorboard__Event e = event_at(time, 0);

    e.file_version = version;
    put_event(out, &e);
}

void board_put_start(struct buf *out, double time, int64_t step)
{
    Tensorboard__Event e = event_at(time, step);
    Tensorboard__SessionLog log = TENSORBOARD__SESSION_LOG__INIT;

    log.has_status = 1;
    log.status = TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
    e.session_log = &log;
    put_event(out, &e);
}

static void put_values(struct buf *out, double time, int64_t step,
                       Tensorboard__Summary__Value **value, size_t n)
{
    Tensorboard__Event e = event_at(time, step);
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;

    summary.value = value;
    summary.n_value = n;
    e.summary = &summary;
    put_event(out, &e);
}

void board_put_picture(struct buf *out, double time, int64_t step, const struct board_picture *p)
{
    enum { RGB = 3 };
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT, *at = &value;
    Tensorboard__Summary__Image image = TENSORBOARD__SUMMARY__IMAGE__INIT;

    image.has_height = image.has_width = image.has_colorspace = image.has_encoded_image_string = 1;
    image.height = p->height;
    image.width = p->width;
    image.colorspace = RGB;
    image.encoded_image_string = (ProtobufCBinaryData){p->n, (uint8_t *)(uintptr_t)p->png};
    value.tag = (char *)(uintptr_t)p->tag;
    value.image = &image;
    put_values(out, time, step, &at, 1);
}

void board_put_scalars(struct buf *out, double time, int64_t step, const struct board_scalar *s,
                       int n)
{
    Tensorboard__Summary__Value value[BOARD_SCALARS], *at[BOARD_SCALARS];

    ASSERT(n <= BOARD_SCALARS);
    for (int i = 0; i < n; i++) {
        tensorboard__summary__value__init(&value[i]);
        value[i].tag = (char *)s[i].tag;
        value[i].has_simple_value = 1;
        value[i].simple_value = (float)s[i].value;
        at[i] = &value[i];
    }
    put_values(out, time, step, at, (size_t)n);
}

/* ---- values of plugins ---- */

/* A value that belongs to a plugin, which finds `content` in it; a tensor may stand beside it. */
struct board_plugin {
    char *tag, *name;
    const struct buf *content;
    Tensorboard__TensorProto *tensor;
};

static void put_plugin(struct buf *out, double time, int64_t step, const struct board_plugin *p)
{
    Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
    Tensorboard__SummaryMetadata__PluginData data =
        TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT, *at = &value;

    data.plugin_name = p->name;
    data.has_content = 1;
    data.content.data = p->content->data;
    data.content.len = p->content->len;
    metadata.plugin_data = &data;
    metadata.has_data_class = 1;
    metadata.data_class = TENSORBOARD__DATA_CLASS__DATA_CLASS_TENSOR;
    value.tag = p->tag;
    value.metadata = &metadata;
    value.tensor = p->tensor;
    put_values(out, time, step, &at, 1);
}

/* Text is shown as Markdown, where lines that are indented stand as they are. */
static void board_put_text(struct buf *out, double time, int64_t step, const struct job *job)
{
    Tensorboard__TensorProto tensor = TENSORBOARD__TENSOR_PROTO__INIT;
    Tensorboard__TensorShapeProto shape = TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
    struct buf yaml = {0}, text = {0}, none = {0};
    const struct board_plugin plugin = {text_tag, text_plugin, &none, &tensor};
    ProtobufCBinaryData bytes;
    char *rest, *line;

    job_write(job, &yaml);
    rest = (char *)buf_cstr(&yaml);
    while ((line = strsep(&rest, "\n")))
        buf_printf(&text, "    %s\n", line);
    bytes = (ProtobufCBinaryData){text.len, text.data};
    tensor.has_dtype = 1;
    tensor.dtype = TENSORBOARD__DATA_TYPE__DT_STRING;
    tensor.tensor_shape = &shape; /* no dimension: one text */
    tensor.string_val = &bytes;
    tensor.n_string_val = 1;
    put_plugin(out, time, step, &plugin);
    buf_fini(&yaml);
    buf_fini(&text);
}

static void put_hparams(struct buf *out, double time, int64_t step, char *tag,
                        const Tensorboard__HParamsPluginData *data)
{
    Tensorboard__TensorProto tensor = TENSORBOARD__TENSOR_PROTO__INIT;
    Tensorboard__TensorShapeProto shape = TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
    Tensorboard__TensorShapeProto__Dim none = TENSORBOARD__TENSOR_SHAPE_PROTO__DIM__INIT,
                                       *dim = &none;
    struct buf content = {0};
    const struct board_plugin plugin = {tag, hparams_plugin, &content, &tensor};

    buf_reserve(&content, tensorboard__hparams_plugin_data__get_packed_size(data));
    content.len = tensorboard__hparams_plugin_data__pack(data, content.data);
    none.has_size = 1; /* a tensor of no elements, as the plugin itself writes it */
    shape.dim = &dim;
    shape.n_dim = 1;
    tensor.has_dtype = 1;
    tensor.dtype = TENSORBOARD__DATA_TYPE__DT_FLOAT;
    tensor.tensor_shape = &shape;
    put_plugin(out, time, step, &plugin);
    buf_fini(&content);
}

/* ---- the HPARAMS tab ----
 *
 * Readers keep the first content of a tag, whatever later files of the run have.  So only what
 * stays true is written: keys that a resumed run cannot change, and a success. */

struct hparams {
    struct hparam {
        Tensorboard__SessionStartInfo__HparamsEntry entry;
        Tensorboard__Value value;
    } * item;
    int n;
};

/* The tab has numbers, switches and texts. */
static void hparam_set(Tensorboard__Value *v, const char *text)
{
    const int is_true = !strcmp(text, "true");
    char *end;

    tensorboard__value__init(v);
    v->number_value = strtod(text, &end);
    v->has_number_value = end != text && *end == '\0';
    if (v->has_number_value)
        return;
    v->has_bool_value = is_true || !strcmp(text, "false");
    v->bool_value = is_true;
    if (!v->has_bool_value)
        v->string_value = xstrdup(text);
}

static void hparam_add(void *arg, const char *key, const char *text)
{
    struct hparams *h = arg;
    struct hparam *p;

    if (!strcmp(key, "name"))
        return;
    h->item = xrealloc(h->item, (size_t)(h->n + 1) * sizeof *h->item);
    p = &h->item[h->n++];
    tensorboard__session_start_info__hparams_entry__init(&p->entry);
    p->entry.key = (char *)key; /* a row's, which is constant */
    hparam_set(&p->value, text);
}

static void hparams_fini(struct hparams *h)
{
    for (int i = 0; i < h->n; i++)
        free(h->item[i].value.string_value);
    free(h->item);
}

static void put_session_start(struct buf *out, double time, int64_t step, const struct hparams *h,
                              const char *group)
{
    Tensorboard__HParamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    Tensorboard__SessionStartInfo start = TENSORBOARD__SESSION_START_INFO__INIT;

    start.hparams = xcalloc((size_t)h->n + 1, sizeof *start.hparams);
    for (int i = 0; i < h->n; i++) {
        h->item[i].entry.value = &h->item[i].value;
        start.hparams[i] = &h->item[i].entry;
    }
    start.n_hparams = (size_t)h->n;
    start.group_name = (char *)group;
    start.has_start_time_secs = 1;
    start.start_time_secs = time;
    data.has_version = 1;
    data.version = HPARAMS_VERSION;
    data.session_start_info = &start;
    put_hparams(out, time, step, start_tag, &data);
    free(start.hparams);
}

void board_put_job(struct buf *out, double time, int64_t step, const struct job *job,
                   const char *group)
{
    struct hparams h = {0};

    job_each_fixed(job, hparam_add, &h);
    put_session_start(out, time, step, &h, group);
    hparams_fini(&h);
    board_put_text(out, time, step, job);
}

void board_put_end(struct buf *out, double time, int64_t step)
{
    Tensorboard__HParamsPluginData data = TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    Tensorboard__SessionEndInfo end = TENSORBOARD__SESSION_END_INFO__INIT;

    end.has_status = end.has_end_time_secs = 1;
    end.status = TENSORBOARD__STATUS__STATUS_SUCCESS;
    end.end_time_secs = time;
    data.has_version = 1;
    data.version = HPARAMS_VERSION;
    data.session_end_info = &end;
    put_hparams(out, time, step, end_tag, &data);
}
