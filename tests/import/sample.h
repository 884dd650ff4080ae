/* sample - a small network as torch.export.save writes it: linear(x) with a tied weight, a batch
 * norm's counter, a view of a storage, a no_grad block and a symbolic batch.
 *
 * Threads: any. */
#ifndef TESTS_IMPORT_SAMPLE_H
#define TESTS_IMPORT_SAMPLE_H

#include <stdlib.h>

#include "base/alloc.h"
#include "import/archive.h"

#define SAMPLE_S                                                                \
    "{\"as_expr\":{\"expr_str\":\"Symbol('s7', positive=True, integer=True)\"," \
    "\"hint\":{\"as_int\":3}}}"
#define SAMPLE_2S                                                               \
    "{\"as_expr\":{\"expr_str\":\"Mul(Integer(2), Symbol('s7', positive=True, " \
    "integer=True))\",\"hint\":{\"as_int\":6}}}"
#define SAMPLE_INT(n) "{\"as_int\":" #n "}"
#define SAMPLE_META(type, sizes, strides, offset)                                             \
    "{\"dtype\":" #type ",\"sizes\":[" sizes "],\"requires_grad\":true,\"strides\":[" strides \
    "],\"storage_offset\":{\"as_int\":" #offset "},\"layout\":7}"
#define SAMPLE_X              SAMPLE_META(7, SAMPLE_S "," SAMPLE_INT(4), "", 0)
#define SAMPLE_ARG(name, arg) "{\"name\":\"" name "\",\"arg\":{" arg "},\"kind\":1}"
#define SAMPLE_T(name)        "\"as_tensor\":{\"name\":\"" name "\"}"
#define SAMPLE_NODE(target, inputs, output)                                             \
    "{\"target\":\"torch.ops." target "\",\"inputs\":[" inputs "],\"outputs\":[" output \
    "],\"metadata\":{\"nn_module_stack\":\"L__self__,,Net;L__self__a.b,a.b,Linear\"},"  \
    "\"name\":\"\"}"

/* The network's JSON, in two parts. */
static const char
    sample_nodes[] =
        "{\"schema_version\":{\"major\":8,\"minor\":99},\"torch_version\":\"2.15.0\",\"new\":[1],"
        "\"range_constraints\":{\"s7\":{\"min_val\":2,\"max_val\":null}},\"graph_module\":{"
        "\"graph\":{"
        "\"inputs\":[],\"outputs\":[],\"nodes\":[" SAMPLE_NODE("aten.linear.default",
                                                               SAMPLE_ARG("input", SAMPLE_T("x")) "," SAMPLE_ARG(
                                                                   "weight",
                                                                   SAMPLE_T(
                                                                       "p_w")) "," SAMPLE_ARG("bia"
                                                                                              "s",
                                                                                              "\"as"
                                                                                              "_non"
                                                                                              "e\":"
                                                                                              "tru"
                                                                                              "e"),
                                                               "{" SAMPLE_T("y") "}") "," SAMPLE_NODE("aten.sym_size.int",
                                                                                                      SAMPLE_ARG(
                                                                                                          "self",
                                                                                                          SAMPLE_T(
                                                                                                              "x")) "," SAMPLE_ARG("dim",
                                                                                                                                   "\"as_int\":0"),
                                                                                                      "{\"as_sym_int\":{\"as_name\":\"n\"}}") "," SAMPLE_NODE("higher_order.wrap_with_set_grad_enabled",
                                                                                                                                                              SAMPLE_ARG("", "\"as_bool\":false") "," SAMPLE_ARG("",
                                                                                                                                                                                                                 "\"as_graph\":{\"name\":\"g\",\"graph\":{\"inputs\":[{" SAMPLE_T("q") "}],\"outputs\":[{" SAMPLE_T("r") "}],\"nodes\":[" SAMPLE_NODE("aten.clamp.default",
                                                                                                                                                                                                                                                                                                                                                      SAMPLE_ARG("self", SAMPLE_T("q")) "," SAMPLE_ARG("min",
                                                                                                                                                                                                                                                                                                                                                                                                       "\"as_float\":\"-Infinity\""),
                                                                                                                                                                                                                                                                                                                                                      "{" SAMPLE_T("r") "}") "],\"tensor_values\":{\"q\":" SAMPLE_X ",\"r\":" SAMPLE_X
                                                                                                                                                                                                                                                                                                                                                                             "},"
                                                                                                                                                                                                                                                                                                                                                                             "\"sym_int_values\":{}}}") "," SAMPLE_ARG("",
                                                                                                                                                                                                                                                                                                                                                                                                                       SAMPLE_T("y")),
                                                                                                                                                              "{" SAMPLE_T(
                                                                                                                                                                  "z") "}") "," SAMPLE_NODE("aten.view.default",
                                                                                                                                                                                            SAMPLE_ARG("self", SAMPLE_T("z")) "," SAMPLE_ARG("size", "\"as_sym_ints\":[{\"as_name\":\"n\"},{\"as_int\":-1}]"), "{" SAMPLE_T("v") "}") "," SAMPLE_NODE("aten.dropout.default",
                                                                                                                                                                                                                                                                                                                                                      SAMPLE_ARG(
                                                                                                                                                                                                                                                                                                                                                          "input", SAMPLE_T(
                                                                                                                                                                                                                                                                                                                                                                       "v")) "," SAMPLE_ARG("p",
                                                                                                                                                                                                                                                                                                                                                                                            "\"as_float\":0.5") "," SAMPLE_ARG("train",
                                                                                                                                                                                                                                                                                                                                                                                                                               "\"as_bool\":true"),
                                                                                                                                                                                                                                                                                                                                                      "{" SAMPLE_T(
                                                                                                                                                                                                                                                                                                                                                          "d") "}") "," SAMPLE_NODE("aten.cat.default",
                                                                                                                                                                                                                                                                                                                                                                                    SAMPLE_ARG("tensors",
                                                                                                                                                                                                                                                                                                                                                                                               "\"as_tensors\":[{\"name\":\"d\"},"
                                                                                                                                                                                                                                                                                                                                                                                               "{\"name\":\"d\"}]"),
                                                                                                                                                                                                                                                                                                                                                                                    "{" SAMPLE_T(
                                                                                                                                                                                                                                                                                                                                                                                        "c") "}");

static const char sample_signature[] =
    "],\"tensor_values\":{\"x\":" SAMPLE_X ",\"y\":" SAMPLE_X ",\"z\":" SAMPLE_X ",\"v\":" SAMPLE_X
    ",\"d\":" SAMPLE_X ",\"c\":" SAMPLE_META(
        7, SAMPLE_2S "," SAMPLE_INT(4), "",
        0) ","
           "\"p_w\":" SAMPLE_META(
               7, SAMPLE_INT(4) "," SAMPLE_INT(4), "",
               0) ","
                  "\"p_t\":" SAMPLE_META(
                      7, SAMPLE_INT(4) "," SAMPLE_INT(4), "",
                      0) ","
                         "\"b_i\":" SAMPLE_META(
                             5, SAMPLE_INT(2), "",
                             0) ","
                                "\"c_k\":" SAMPLE_META(
                                    7, SAMPLE_INT(2) "," SAMPLE_INT(3), "",
                                    0) "},"
                                       "\"sym_int_values\":{\"n\":" SAMPLE_S
                                       "}},\"signature\":{\"input_specs\":["
                                       "{\"parameter\":{\"arg\":{\"name\":\"p_w\"},\"parameter_"
                                       "name\":\"a.b.weight\"}},"
                                       "{\"parameter\":{\"arg\":{\"name\":\"p_t\"},\"parameter_"
                                       "name\":\"head.weight\"}},"
                                       "{\"buffer\":{\"arg\":{\"name\":\"b_i\"},\"buffer_name\":"
                                       "\"index\",\"persistent\":true}},"
                                       "{\"tensor_constant\":{\"arg\":{\"name\":\"c_k\"},\"tensor_"
                                       "constant_name\":\"k\"}},"
                                       "{\"user_input\":{\"arg\":{" SAMPLE_T(
                                           "x") "}}},"
                                                "{\"constant_input\":{\"name\":\"flag\",\"value\":{"
                                                "\"as_bool\":true}}}],\"output_specs\":["
                                                "{\"user_output\":{\"arg\":{\"as_none\":true}}},"
                                                "{\"user_output\":{\"arg\":{" SAMPLE_T(
                                                    "c") "}}}]},"
                                                         "\"module_call_graph\":[{\"fqn\":\"\","
                                                         "\"signature\":{\"in_spec\":\"[1, "
                                                         "{\\\"type\\\": "
                                                         "\\\"builtins.tuple\\\", \\\"context\\\": "
                                                         "\\\"null\\\", \\\"children_spec\\\": ["
                                                         "{\\\"type\\\": \\\"builtins.tuple\\\", "
                                                         "\\\"context\\\": \\\"null\\\", "
                                                         "\\\"children_spec\\\": "
                                                         "[{\\\"type\\\": null}]}, {\\\"type\\\": "
                                                         "\\\"builtins.dict\\\", \\\"context\\\": "
                                                         "\\\"[\\\\\\\"flag\\\\\\\"]\\\", "
                                                         "\\\"children_spec\\\": [{\\\"type\\\": "
                                                         "null}]}]}]\","
                                                         "\"out_spec\":\"[1, {\\\"type\\\": "
                                                         "\\\"Out\\\", \\\"context\\\": "
                                                         "\\\"[\\\\\\\"loss\\\\\\\", "
                                                         "\\\\\\\"logits\\\\\\\"]\\\", "
                                                         "\\\"children_spec\\\": [{\\\"type\\\": "
                                                         "null}, {\\\"type\\\": "
                                                         "null}]}]\",\"forward_arg_names\":["
                                                         "\"pixels\",\"flag\"]}}]}}";

#define SAMPLE_ROW(name, path, meta)                                                   \
    "\"" name "\":{\"path_name\":\"" path "\",\"is_param\":true,\"use_pickle\":false," \
    "\"tensor_meta\":" meta "}"

static const char sample_weights[] = "{\"config\":{" SAMPLE_ROW(
    "a.b.weight", "weight_0",
    SAMPLE_META(
        7, SAMPLE_INT(4) "," SAMPLE_INT(4), SAMPLE_INT(4) "," SAMPLE_INT(1),
        0)) "," SAMPLE_ROW("head.weight", "weight_0",
                           SAMPLE_META(
                               7, SAMPLE_INT(4) "," SAMPLE_INT(4), SAMPLE_INT(4) "," SAMPLE_INT(1),
                               0)) "," SAMPLE_ROW("unused", "weight_0",
                                                  SAMPLE_META(
                                                      7, SAMPLE_INT(3), SAMPLE_INT(4),
                                                      1)) "," SAMPLE_ROW("index", "weight_1",
                                                                         SAMPLE_META(5,
                                                                                     SAMPLE_INT(2),
                                                                                     SAMPLE_INT(1),
                                                                                     0)) "}}";

/* k is [2,3], a column-major view. */
static const char sample_constants[] = "{\"config\":{" SAMPLE_ROW(
    "k", "tensor_0",
    SAMPLE_META(7, SAMPLE_INT(2) "," SAMPLE_INT(3), SAMPLE_INT(1) "," SAMPLE_INT(2), 2)) "}}";

/* The nodes, the rest of the network, the tables of weights and of constants. */
enum { SAMPLE_TEXTS = 4 };

static const char *const sample_texts[SAMPLE_TEXTS] = {sample_nodes, sample_signature,
                                                       sample_weights, sample_constants};

/* The archive of these texts. */
static inline void sample_write(struct archive *a, const char *const text[SAMPLE_TEXTS])
{
    char *model = xasprintf("%s%s", text[0], text[1]);
    static const int64_t index[] = {5, -6};
    float numbers[16];

    for (int i = 0; i < 16; i++)
        numbers[i] = (float)i;
    archive_text(a, "net/archive_format", "pt2");
    archive_text(a, "net/archive_version", "0");
    archive_text(a, "net/byteorder", "little");
    archive_text(a, "net/models/model.json", model);
    archive_text(a, "net/data/weights/model_weights_config.json", text[2]);
    archive_text(a, "net/data/constants/model_constants_config.json", text[3]);
    archive_add(a, "net/data/weights/weight_0", numbers, sizeof numbers);
    archive_add(a, "net/data/weights/weight_1", index, sizeof index);
    archive_add(a, "net/data/constants/tensor_0", numbers, 8 * sizeof *numbers);
    free(model);
}

#endif
