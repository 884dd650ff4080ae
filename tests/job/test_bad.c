/* Job files and overrides that are refused, with the exact messages. */
#include "../test.h"

#include "job/job.h"

#define HEAD       "model: {arch: lenet}\ndata: {format: digits}\n" /* what follows is in line 3 */
#define MLP        "model: {arch: mlp, "
#define BY_BUCKETS " works by buckets, which then may not change in the run; want a number of bytes"
#define NOT_LINEAR ", whose sum depends on which rank has which samples; leave one of the two out"
#define DIGITS     "\ndata: {format: digits}\n"

struct bad {
    const char *text;
    const char *want; /* the message */
};

static const struct bad texts[] = {
    /* not YAML, or more than one document of it */
    {"", "f: empty, want at least model.arch and data.format"},
    {"# nothing\n", "f: empty, want at least model.arch and data.format"},
    {"{", "f:2:1: not YAML: did not find expected node content, while parsing a flow node"},
    {"model: {arch: lenet",
     "f:2:1: not YAML: did not find expected ',' or '}', while parsing a flow mapping"},
    {"a: b: c", "f:1:5: not YAML: mapping values are not allowed in this context"},
    {"\tname: x", "f:1:1: a tab; YAML indents with spaces"},
    {"model:\n  arch: mlp\n \tbatch_norm: true", "f:3:2: a tab; YAML indents with spaces"},
    {"name: \"x",
     "f:1:9: not YAML: found unexpected end of stream, while scanning a quoted scalar"},
    {"name: @x", "f:1:7: not YAML: found character that cannot start any token, while scanning for "
                 "the next token"},
    {"name: \"\\q\"",
     "f:1:8: not YAML: found unknown escape character, while parsing a quoted scalar"},
    {"name: \"\u00e4\\ud83d\\ude00\"",
     "f:1:9: \\ud83d\\ude00 is JSON's pair of escapes for one character, and YAML has no such "
     "pairs; write the character itself: \U0001F600"},
    {"{\"name\": \"\\udbff\\udfff\", \"train\": {}}",
     "f:1:11: \\udbff\\udfff is JSON's pair of escapes for one character, and YAML has no such "
     "pairs; write the character itself: \xf4\x8f\xbf\xbf"},
    {"name: \"\\ud83d\"",
     "f:1:8: \\ud83d is one half of a pair of escapes; write the character itself"},
    {"name: \"\\ud83d\\ud83d\"",
     "f:1:8: \\ud83d is one half of a pair of escapes; write the character itself"},
    {"name: \"\\ude00",
     "f:1:8: \\ude00 is one half of a pair of escapes; write the character itself"},
    {"name: \"\\U0000d83d\"",
     "f:1:10: not YAML: found invalid Unicode character escape code, while parsing "
     "a quoted scalar"},
    {"name: *x", "f:1:7: not YAML: found undefined alias"},
    {"name: a\x01", "f: not YAML: control characters are not allowed (byte 7)"},
    {"name: \xff", "f: not YAML: invalid leading UTF-8 octet (byte 6)"},
    {"--- {}\n--- {}\n", "f:2:1: a second document, want one"},
    {"[[[[[[[[[[[[[[[[[", "f:1:17: nested too deep"},
    {"lenet", "f:1:1: a job is a mapping, such as model: {arch: lenet}; this is a text"},
    {"[model]", "f:1:1: a job is a mapping, such as model: {arch: lenet}; this is a list"},
    {"model: !fast {arch: lenet}",
     "f:1:8: tag \"!fast\": tags are not understood here; leave it out"},
    {"model: {arch: !!int lenet}",
     "f:1:15: tag \"tag:yaml.org,2002:int\": tags are not understood here; leave it out"},
    /* keys */
    {HEAD "trian: {epochs: 3}", "f:3:1: unknown key \"trian\"; the closest known key is train"},
    {HEAD "train: {epohcs: 3}",
     "f:3:9: unknown key \"train.epohcs\"; the closest known key is train.epochs"},
    {HEAD "train:\n  epochs: 3\n  learning_rate: 1\n",
     "f:5:3: unknown key \"train.learning_rate\"; the closest known key is optimizer.lr"},
    {HEAD "epochs: 3", "f:3:1: unknown key \"epochs\"; the closest known key is train.epochs"},
    {HEAD "batch_size: 3",
     "f:3:1: unknown key \"batch_size\"; the closest known key is train.global_batch"},
    {HEAD "cluster: {deadlines: {steps: 1}}", "f:3:23: unknown key \"cluster.deadlines.steps\"; "
                                              "the closest known key is cluster.deadlines.step"},
    {HEAD "train.epochs: 3",
     "f:3:1: unknown key \"train.epochs\"; in a file, keys nest: train: {epochs: 1}"},
    {HEAD "train.epoch: 3",
     "f:3:1: unknown key \"train.epoch\"; the closest known key is train.epochs"},
    {HEAD "\"tr\\0ain\": {epochs: 3}",
     "f:3:1: unknown key \"tr\"; the closest known key is train.global_batch"},
    {HEAD "\"\": 3", "f:3:1: unknown key \"\"; no known key is like it, --help-job lists all"},
    {HEAD "? [train]\n: 3", "f:3:3: a key is a list, want a word"},
    {HEAD "<<: {train: 3}",
     "f:3:1: unknown key \"<<\"; no known key is like it, --help-job lists all"},
    {HEAD "foo: 3", "f:3:1: unknown key \"foo\"; no known key is like it, --help-job lists all"},
    {HEAD "checkpoint: {every: 3}",
     "f:3:14: unknown key \"checkpoint.every\"; the closest known key is "
     "checkpoint.every_epochs"},
    {HEAD "a-key-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on: 1",
     "f:3:1: unknown key \"a-key-that-goes-on-and-on-and-on-and-on-and-on-...\"; no known key "
     "is like it, --help-job lists all"},
    {HEAD "train: {epochs: 3, epochs: 4}", "f:3:20: train.epochs is given twice, first in line 3"},
    {HEAD "name: a\nname: a", "f:4:1: name is given twice, first in line 3"},
    {HEAD "train: {epochs: 3}\ntrain: {seed: 3}", "f:4:1: train is given twice, first in line 3"},
    {HEAD "train: 3", "f:3:8: train is 3, want a mapping such as {global_batch: 3}"},
    {HEAD "train: [epochs, 3]",
     "f:3:8: train is a list, want a mapping with keys such as train.global_batch"},
    /* types */
    {HEAD "train: {epochs: ten}",
     "f:3:17: train.epochs is \"ten\", want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 256x}",
     "f:3:17: train.epochs is \"256x\", want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 1.0}",
     "f:3:17: train.epochs is 1.0, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 1e3}",
     "f:3:17: train.epochs is 1e3, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 010}",
     "f:3:17: train.epochs is 010, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 0x10}",
     "f:3:17: train.epochs is \"0x10\", want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: +1}",
     "f:3:17: train.epochs is +1, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: \"3\"}",
     "f:3:17: train.epochs is 3 in quotes, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: }",
     "f:3:17: train.epochs is empty, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: {}}",
     "f:3:17: train.epochs is a mapping, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: [3]}",
     "f:3:17: train.epochs is a list, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: 99999999999999999999}",
     "f:3:17: train.epochs is 99999999999999999999, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {drop_last: yes}", "f:3:20: train.drop_last is \"yes\", want true or false"},
    {HEAD "train: {drop_last: 1}", "f:3:20: train.drop_last is 1, want true or false"},
    {HEAD "train: {drop_last: \"true\"}",
     "f:3:20: train.drop_last is \"true\" in quotes, want true or false"},
    {HEAD "train: {on_nonfinite: ignore}",
     "f:3:23: train.on_nonfinite is \"ignore\", want stop or skip"},
    {HEAD "optimizer: {lr: fast}",
     "f:3:17: optimizer.lr is \"fast\", want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: .nan}",
     "f:3:17: optimizer.lr is \".nan\", want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: .inf}",
     "f:3:17: optimizer.lr is \".inf\", want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: inf}",
     "f:3:17: optimizer.lr is \"inf\", want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: 1e999}",
     "f:3:17: optimizer.lr is 1e999, want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: 1e}", "f:3:17: optimizer.lr is 1e, want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: .}", "f:3:17: optimizer.lr is ., want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: 0x1p3}",
     "f:3:17: optimizer.lr is \"0x1p3\", want a number above 0 up to 1000000"},
    {HEAD "optimizer: {lr: 1,5}",
     "f:3:19: unknown key \"optimizer.5\"; the closest known key is optimizer"},
    {HEAD "optimizer: {lr: '0.1'}",
     "f:3:17: optimizer.lr is 0.1 in quotes, want a number above 0 up to 1000000"},
    {HEAD "name: two words", "f:3:7: name is \"two words\", want a name of 1 to 64 letters, "
                             "digits, '.', '_' or '-', the first a letter or digit"},
    {HEAD "name: ../x", "f:3:7: name is \"../x\", want a name of 1 to 64 letters, digits, '.', '_' "
                        "or '-', the first a letter or digit"},
    {HEAD "name: .hidden", "f:3:7: name is \".hidden\", want a name of 1 to 64 letters, digits, "
                           "'.', '_' or '-', the first a letter or digit"},
    {HEAD "name: \"\"", "f:3:7: name is \"\", want a name of 1 to 64 letters, digits, '.', '_' or "
                        "'-', the first a letter or digit"},
    {HEAD "name: ~", "f:3:7: name is empty, want a name of 1 to 64 letters, digits, '.', '_' or "
                     "'-', the first a letter or digit"},
    {HEAD "name: [x]", "f:3:7: name is a list, want a name of 1 to 64 letters, digits, '.', '_' or "
                       "'-', the first a letter or digit"},
    {HEAD "name: a12345678901234567890123456789012345678901234567890123456789012345",
     "f:3:7: name is \"a1234567890123456789012345678901234567890123456...\", want a name of 1 to "
     "64 letters, digits, '.', '_' or '-', the first a letter or digit"},
    {"model: lenet" DIGITS, "f:1:8: model is \"lenet\", want a mapping such as {arch: lenet}"},
    {"model: {arch: resnet}" DIGITS, "f:1:15: model.arch is \"resnet\", want mlp, lenet, lenet5, "
                                     "layers, gpt, gpt2, gpt2_medium, gpt2_large, gpt2_xl, vit, "
                                     "vit_tiny, vit_small, vit_base, resnet18, "
                                     "resnet34, resnet50, resnet101 or resnet152"},
    {"model: {arch: }" DIGITS, "f:1:15: model.arch is empty, want mlp, lenet, lenet5, "
                               "layers, gpt, gpt2, gpt2_medium, gpt2_large, gpt2_xl, vit, "
                               "vit_tiny, vit_small, vit_base, resnet18, "
                               "resnet34, resnet50, resnet101 or resnet152"},
    {MLP "hidden: [64, x]}" DIGITS, "f:1:28: model.hidden is \"64, x\", want a list of at most 16, "
                                    "each an integer from 1 to 65536 units"},
    {MLP "hidden: [64, 0]}" DIGITS, "f:1:28: model.hidden is \"64, 0\", want a list of at most 16, "
                                    "each an integer from 1 to 65536 units"},
    {MLP "hidden: [64, \"32\"]}" DIGITS,
     "f:1:28: model.hidden is 32 in quotes, want a list of at most 16, "
     "each an integer from 1 to 65536 units"},
    {"data: {format: npy, path: /, normalize: {mean: ['0.5'], std: [1]}}\n",
     "f:1:48: data.normalize.mean is 0.5 in quotes, want a list of at most 256, each a number from "
     "-1000 to 1000"},
    {MLP "hidden: ['x']}" DIGITS,
     "f:1:28: model.hidden is \"x\" in quotes, want a list of at most 16, "
     "each an integer from 1 to 65536 units"},
    {MLP "hidden: [64, [32]]}" DIGITS, "f:1:28: model.hidden is a list of lists, want a list of at "
                                       "most 16, each an integer from 1 to 65536 units"},
    {MLP "hidden: [64, ~]}" DIGITS, "f:1:28: model.hidden is \"~\", want a list of at most 16, "
                                    "each an integer from 1 to 65536 units"},
    {MLP "hidden: {a: 1}}" DIGITS, "f:1:28: model.hidden is a mapping, want a list of at most 16, "
                                   "each an integer from 1 to 65536 units"},
    {MLP "hidden: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}" DIGITS,
     "f:1:28: model.hidden is \"1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, ...\", want a list "
     "of at most 16, each an integer from 1 to 65536 units"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: \"a\\nb\"}",
     "f:2:29: data.path is \"/base/a?b\", with a control character or broken UTF-8, want text in "
     "one line"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: \"a\\u2028b\"}",
     "f:2:29: data.path is \"/base/a???b\", with a control character or broken UTF-8, want text in "
     "one line"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: \"/a\\0b\"}",
     "f:2:29: data.path is \"/a?b\", with a control character or broken UTF-8, want text in one "
     "line"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: \"\"}",
     "f:2:29: data.path is empty, want a path"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: 3, validation: \"\"}",
     "f:2:44: data.validation is empty, want text"},
    /* ranges */
    {HEAD "train: {epochs: 0}",
     "f:3:17: train.epochs is 0, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {epochs: -1}",
     "f:3:17: train.epochs is -1, want an integer from 1 to 1000000 epochs"},
    {HEAD "train: {seed: 9007199254740992}",
     "f:3:15: train.seed is 9007199254740992, want an integer from 0 to 9007199254740991"},
    {HEAD "train: {global_batch: 0}",
     "f:3:23: train.global_batch is 0, want an integer from 1 to 1000000000 samples"},
    {"data: {format: digits}\nmodel:\n  arch: layers\n  layers:\n    - flatten\n    - linear: "
     "{unit: 9}\n",
     "f:6:16: model.layers: linear has no key \"unit\", want units, bias"},
    {"data: {format: digits}\nmodel:\n  arch: layers\n  layers:\n    - flatten\n    - lineal\n",
     "f:6:7: model.layers: no layer is called \"lineal\", want conv, conv_transpose, max_pool, "
     "avg_pool, global_avg_pool, adaptive_avg_pool, batch_norm, group_norm, instance_norm, "
     "layer_norm, linear, flatten, dropout, relu, tanh, sigmoid, gelu, gelu_tanh, "
     "silu, leaky_relu, "
     "residual or shortcut"},
    {"data: {format: digits}\nmodel:\n  arch: layers\n  layers:\n    - residual:\n        - conv: "
     "{channels: 3, kernel: 0}\n",
     "f:6:39: model.layers: kernel is 0, want an integer from 1 to 1024"},
    {"data: {format: digits}\nmodel:\n  arch: layers\n  layers: [conv: {kernel: 3}]\n",
     "f:4:12: model.layers: conv: channels is missing"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [relu: {p: 1}]}\n",
     "f:2:39: model.layers: relu has no key \"p\", want none"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [dropout: {p: 0.1, p: 0.2}]}\n",
     "f:2:50: model.layers: p is given twice"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [{relu: , tanh: }]}\n",
     "f:2:41: model.layers: a second layer in one item: begin a new one with '-'"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [shortcut: [relu]]}\n",
     "f:2:32: model.layers: shortcut stands beside residual"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [{residual: [relu], relu: }]}\n",
     "f:2:51: model.layers: beside residual stands shortcut alone"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [residual: relu]}\n",
     "f:2:42: model.layers: residual and shortcut want a list of layers"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [[relu]]}\n",
     "f:2:32: model.layers: a layer is a word or a mapping, such as {linear: {units: 10}}"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: []}\n",
     "f:2:31: model.layers: want a list of layers, such as [flatten, linear: {units: 10}]"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [linear: [10]]}\n",
     "f:2:40: model.layers: linear wants its keys in a mapping, such as {linear: {units: ...}}"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [dropout: 0.2]}\n",
     "f:2:41: model.layers: dropout wants its keys in a mapping, such as {dropout: {p: 0.2}}"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [flatten: 1]}\n",
     "f:2:41: model.layers: flatten has no keys; write the word alone"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [linear: {units: [10]}]}\n",
     "f:2:48: model.layers: units is a list, want an integer from 1 to 1000000"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: &a [residual: *a]}\n",
     "f:2:35: model.layers: nested too deep"},
    {"data: {format: digits}\nmodel: {arch: layers}\n",
     "f: model.layers is missing, want a list of layers"},
    {HEAD "train: {label_smoothing: 1}",
     "f:3:26: train.label_smoothing is 1, want a number from 0 to below 1"},
    {HEAD "train: {class_weights: [1, -0.5]}", "f:3:24: train.class_weights is \"1, -0.5\", want a "
                                               "list of at most 4096, each a number from 0 "
                                               "to 1000000000"},
    {HEAD "train: {class_weights: [0, 0]}",
     "f:3:24: train.class_weights are all 0, want one above 0"},
    {HEAD "train: {class_weights: [1, 0, 1e-7]}",
     "f:3:24: train.class_weights has 1e-07 and 1, want the largest at most 1e+06 times the "
     "smallest above 0"},
    {MLP "loss: bce}" DIGITS "train: {class_weights: [1, 2]}",
     "f:3:24: train.class_weights needs model.loss cross_entropy"},
    {MLP "loss: bce}" DIGITS "train: {best: {metric: validation_top5}}",
     "f:3:24: train.best.metric is validation_top5, which needs model.loss cross_entropy; want "
     "validation_loss"},
    {HEAD "train: {clip_norm: -0.5}",
     "f:3:20: train.clip_norm is -0.5, want a number from 0 to 1000000000"},
    {HEAD "optimizer: {lr: 0}", "f:3:17: optimizer.lr is 0, want a number above 0 up to 1000000"},
    {HEAD "optimizer: {momentum: 1}",
     "f:3:23: optimizer.momentum is 1, want a number from 0 to below 1"},
    {HEAD "train: {best: {metric: validation_loss}, validate_every: 0}",
     "f:3:58: train.validate_every is 0, but train.best.metric needs validations"},
    {HEAD "train: {early_stop: {patience: 2}, validate_every: 0}",
     "f:3:52: train.validate_every is 0, but train.early_stop.metric needs validations"},
    {HEAD "schedule: {name: plateau}\ntrain: {validate_every: 0}",
     "f:4:25: train.validate_every is 0, but schedule.metric needs validations"},
    {MLP "loss: mse}" DIGITS "train: {best: {metric: validation_accuracy}}",
     "f:3:24: train.best.metric is validation_accuracy, which needs model.loss cross_entropy or "
     "bce; want validation_loss"},
    {MLP "loss: mse}" DIGITS "train: {best: {metric: validation_loss}, "
         "early_stop: {patience: 2, metric: validation_accuracy}}",
     "f:3:76: train.early_stop.metric is validation_accuracy, which needs model.loss "
     "cross_entropy or bce; want validation_loss"},
    {MLP "loss: mse}" DIGITS "train: {best: {metric: validation_loss}, early_stop: {patience: 2}}\n"
         "schedule: {name: plateau, metric: validation_accuracy}",
     "f:4:35: schedule.metric is validation_accuracy, which needs model.loss cross_entropy or "
     "bce; want validation_loss"},
    {HEAD "train: {best: {metric: average_validation_loss}}",
     "f:3:24: train.best.metric is average_validation_loss, but the job averages no weights "
     "(train.average.name)"},
    {MLP "loss: mse}" DIGITS "train: {average: {name: ema}, "
         "early_stop: {patience: 2, metric: average_validation_accuracy}}",
     "f:3:65: train.early_stop.metric is average_validation_accuracy, which needs model.loss "
     "cross_entropy or bce; want average_validation_loss"},
    {HEAD "checkpoint: {keep: 0}",
     "f:3:20: checkpoint.keep is 0, want an integer from 1 to 1000000 checkpoints"},
    {HEAD "cluster: {heartbeat_timeout: 0.5}",
     "f:3:30: cluster.heartbeat_timeout is 0.5, want a number from 2 to 3600 seconds"},
    {HEAD "cluster: {deadlines: {step: 0}}",
     "f:3:29: cluster.deadlines.step is 0, want a number from 0.1 to 1000000 seconds"},
    {HEAD "cluster: {spares: 70000}",
     "f:3:19: cluster.spares is 70000, want an integer from 0 to 65536 ranks"},
    /* missing, or not for this choice */
    {"data: {format: digits}", "f: model.arch is missing, want mlp, lenet, lenet5, "
                               "layers, gpt, gpt2, gpt2_medium, gpt2_large, gpt2_xl, vit, "
                               "vit_tiny, vit_small, vit_base, resnet18, "
                               "resnet34, resnet50, resnet101 or resnet152"},
    {"model: {arch: lenet}", "f: data.format is missing, want mnist, digits, cifar10, cifar100, "
                             "tokens, text, npy, csv or images"},
    {"model:\ndata:\n", "f: model.arch is missing, want mlp, lenet, lenet5, "
                        "layers, gpt, gpt2, gpt2_medium, gpt2_large, gpt2_xl, vit, vit_tiny, "
                        "vit_small, vit_base, resnet18, "
                        "resnet34, resnet50, resnet101 or resnet152"},
    {"model: {arch: lenet}\ndata: {format: mnist}", "f: data.path is missing, want a path"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: ~}",
     "f: data.path is missing, want a path"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, train: [a, b]}",
     "f:2:40: data.train is a list, want text"},
    {"model: {arch: lenet}\ndata: {format: cifar10, path: /x, train: [a, [b]]}",
     "f:2:42: data.train is a list of lists, want text, or a list of texts"},
    {"model: {arch: lenet}\ndata: {format: digits, path: /x}",
     "f:2:30: data.path applies only if data.format is mnist, cifar10, cifar100, tokens, text, "
     "npy, csv or images; it is digits"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, samples: 3}",
     "f:2:42: data.samples applies only if data.format is digits; it is mnist"},
    {"model: {arch: lenet, hidden: [3]}" DIGITS,
     "f:1:30: model.hidden applies only if model.arch is mlp; it is lenet"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, normalize: none}",
     "f:2:44: data.normalize.source is \"none\", want given or auto"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, normalize: [1]}",
     "f:2:44: data.normalize is a list, want a mapping with keys such as data.normalize.source"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, normalize: {source: auto, std: [1]}}",
     "f:2:64: data.normalize.std applies only if data.normalize.source is given; it is auto"},
    {"model: {arch: lenet}\ndata: {format: cifar10, path: /x, validation: null}",
     "f:2:47: data.validation is empty, want text, or a list of texts"},
    {"model: {arch: lenet}\ndata: {format: images, path: /x, validation: ~}",
     "f:2:46: data.validation is empty, want text"},
    {"model: {arch: lenet}\ndata: {format: npy, path: /x, normalize: {source: auto, std: [1]}}",
     "f:2:62: data.normalize.std applies only if data.normalize.source is given; it is auto"},
    {"model: {arch: lenet}\ndata: {format: images, path: /x, normalize: {source: auto, mean: [1]}}",
     "f:2:66: data.normalize.mean applies only if data.normalize.source is given; it is auto"},
    {"model: {arch: lenet}\ndata: {format: npy, path: /x, normalize: {std: [0, 1]}}",
     "f:2:48: data.normalize.std is \"0, 1\", want a list of at most 256, each a number from 1e-30 "
     "to 1e+30"},
    {"model: {arch: lenet, init: {name: file}}" DIGITS,
     "f: model.init.path is missing, want a path"},
    {"model: {arch: lenet, init: {std: 0.1}}" DIGITS,
     "f:1:34: model.init.std applies only if model.init.name is normal or trunc_normal; "
     "it is pytorch"},
    {HEAD "schedule: {gamma: 0.5}", "f:3:19: schedule.gamma applies only if schedule.name is step, "
                                    "multistep or exponential; it is constant"},
    {HEAD "schedule: {name: step, every_steps: 3, min_lr: 0.1}",
     "f:3:48: schedule.min_lr applies only if schedule.name is cosine, linear, wsd or plateau; it "
     "is step"},
    {HEAD "strategy: {outer_lr: 0.5}",
     "f:3:22: strategy.outer_lr applies only if strategy.name is local_sgd; it is allreduce"},
    {HEAD "strategy: {zero: 4}", "f:3:18: strategy.zero is 4, want an integer from 0 to 3"},
    {HEAD "strategy: {zero: 2}\nprecision: bfloat16\n"
          "train: {accumulate: 2, grad_dtype: bfloat16}",
     "f:5:36: train.grad_dtype is bfloat16 with train.accumulate and strategy.zero 2, which adds "
     "up the sums of micro-batches; want float32, or strategy.zero 1"},
    {HEAD "strategy: {zero: 1}\noptimizer: {name: lamb}",
     "f:3:18: strategy.zero divides parameters among the ranks, but optimizer lamb needs whole "
     "tensors; want strategy.zero 0, or an optimizer that treats each element by itself"},
    {HEAD "strategy: {zero: 1, compress: uint8}",
     "f:3:31: strategy.compress is uint8 with strategy.zero 1, want none: divided state takes "
     "exact gradients"},
    {HEAD "train: {bucket_bytes: auto}\nstrategy: {zero: 2}",
     "f:3:23: train.bucket_bytes is auto, but the job's strategy.zero" BY_BUCKETS},
    {HEAD "train: {bucket_bytes: auto}\nstrategy: {shards: 2}",
     "f:3:23: train.bucket_bytes is auto, but the job's strategy.shards" BY_BUCKETS},
    {HEAD "train: {bucket_bytes: auto}\nstrategy: {compress: uint8}",
     "f:3:23: train.bucket_bytes is auto, but the job's strategy.compress" BY_BUCKETS},
    {HEAD "train: {bucket_bytes: auto}\nstrategy: {name: adasum}",
     "f:3:23: train.bucket_bytes is auto, but the job's strategy.name" BY_BUCKETS},
    {HEAD "train: {bucket_bytes: auto}\nstrategy: {name: async}",
     "f:3:23: train.bucket_bytes is auto, but the job's strategy.name" BY_BUCKETS},
    {HEAD "train: {bucket_bytes: 0}",
     "f:3:23: train.bucket_bytes is 0, want an integer from 1 to 1000000000000 bytes, or auto"},
    {HEAD "train: {bucket_bytes: automatic}",
     "f:3:23: train.bucket_bytes is \"automatic\", want an integer from 1 to 1000000000000 bytes, "
     "or auto"},
    {HEAD "cluster: {rebalance: true}\nstrategy: {shards: 2}",
     "f:3:22: cluster.rebalance is true, but with strategy.shards shares are fixed; leave one of "
     "the two out"},
    {HEAD "cluster: {rebalance: true}\nstrategy: {name: async}",
     "f:3:22: cluster.rebalance is true, but with strategy.name async each rank updates by its own "
     "gradients, from equal shares; leave one of the two out"},
    {HEAD "cluster: {rebalance: true}\nstrategy: {name: adasum}",
     "f:3:22: cluster.rebalance is true, but strategy.name is adasum" NOT_LINEAR},
    {HEAD "cluster: {rebalance: true}\nstrategy: {name: bytegrad}",
     "f:3:22: cluster.rebalance is true, but strategy.name is bytegrad" NOT_LINEAR},
    {HEAD "cluster: {rebalance: true}\nstrategy: {name: qadam}\noptimizer: {name: adam}",
     "f:3:22: cluster.rebalance is true, but strategy.name is qadam" NOT_LINEAR},
    {HEAD "cluster: {rebalance: true}\nstrategy: {compress: uint8}",
     "f:3:22: cluster.rebalance is true, but strategy.compress is uint8" NOT_LINEAR},
    {HEAD "cluster: {rebalance: true}\nstrategy: {compress: powersgd}",
     "f:3:22: cluster.rebalance is true, but strategy.compress is powersgd" NOT_LINEAR},
    {HEAD "cluster: {rebalance: true}\nstrategy: {compress: onebit}",
     "f:3:22: cluster.rebalance is true, but strategy.compress is onebit" NOT_LINEAR},
    {HEAD "strategy: {zero: 1, shards: 2}",
     "f:3:29: strategy.shards is 2 with strategy.zero 1 and strategy.compress none, want 0 and "
     "none: the sums of fixed shares are exact and whole"},
    {HEAD "strategy: {compress: float16, shards: 2}",
     "f:3:39: strategy.shards is 2 with strategy.zero 0 and strategy.compress float16, want 0 and "
     "none: the sums of fixed shares are exact and whole"},
    {HEAD "strategy: {share_threads: 2}",
     "f:3:27: strategy.share_threads is 2 without strategy.shards; want strategy.shards, or "
     "--threads"},
    {HEAD "train: {global_batch: 32, accumulate: 3}\nstrategy: {shards: 11}",
     "f:4:20: strategy.shards is 11 with train.accumulate 3, want at most train.global_batch, 32, "
     "micro-batches in all"},
    {"model: {arch: gpt}\ndata: {format: text, path: /x, validation: val.txt}",
     "f:2:44: data.validation is val.txt, but data.format text validates by a part of its one "
     "file: want last_tenth or none; over a job file of another format, --set "
     "data.validation=last_tenth"},
    {HEAD "train: {global_batch: 1000000, accumulate: 20000}\nstrategy: {shards: 4}",
     "f:4:20: strategy.shards is 4 with train.accumulate 20000, want at most 65536 micro-batches "
     "in all"},
    {HEAD "strategy: {name: qadam}\noptimizer: {name: sgd}",
     "f:3:18: strategy.name is qadam, which sends Adam's means, but optimizer.name is sgd; want "
     "adam or adamw"},
    {HEAD "strategy: {name: qadam}\noptimizer: {name: muon}",
     "f:3:18: strategy.name is qadam, which sends Adam's means, but optimizer.name is muon; want "
     "adam or adamw"},
    {HEAD "strategy: {name: qadam}\noptimizer: {name: adam}\ntrain: {clip_norm: 1}",
     "f:5:20: train.clip_norm is 1, but strategy qadam sends means of gradients, whose norm is "
     "another one; want 0"},
    {HEAD "precision: float16\nstrategy: {name: local_sgd}",
     "f:3:12: precision is float16, but with strategy.name local_sgd each rank updates by its own "
     "gradients, and the ranks' loss scales would differ; want bfloat16 or float32"},
    {HEAD "strategy: {zero: 1}\noptimizer: {name: muon}",
     "f:3:18: strategy.zero divides parameters among the ranks, but optimizer muon needs whole "
     "tensors; want strategy.zero 0, or an optimizer that treats each element by itself"},
    {HEAD "strategy: {name: allredcue}",
     "f:3:18: strategy.name is \"allredcue\", want allreduce, "
     "adasum, bytegrad, gradient_allreduce, local_sgd, "
     "decentralized, low_precision_decentralized, qadam or async"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {compress: bfloat16}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.compress takes gradients of "
     "float32; want float32"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {shards: 4}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.shards takes gradients of "
     "float32; want float32"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {name: adasum}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.name takes gradients of "
     "float32; want float32"},
    /* options that do not go together */
    {HEAD "optimizer:\n  nesterov: true\n", "f:4:13: optimizer.nesterov needs optimizer.momentum "
                                            "above 0 and optimizer.dampening 0; they are 0 and 0"},
    {HEAD "optimizer: {nesterov: true, momentum: 0.9, dampening: 0.1}",
     "f:3:23: optimizer.nesterov needs optimizer.momentum above 0 and optimizer.dampening 0; they "
     "are 0.9 and 0.1"},
    {HEAD "train: {global_batch: 8, accumulate: 9}",
     "f:3:38: train.accumulate is 9, want at most train.global_batch, 8"},
    {HEAD "schedule: {warmup_steps: 10, warmup_epochs: 2}",
     "f:3:26: schedule.warmup_steps is 10 and schedule.warmup_epochs 2, want one of them 0"},
    {HEAD "schedule: {warmup_epochs: 2, warmup_from_one_rank: true}",
     "f:3:52: schedule.warmup_from_one_rank needs optimizer.scale_lr_by_ranks true"},
    {HEAD "optimizer: {scale_lr_by_ranks: true}\nschedule: {warmup_from_one_rank: true}",
     "f:4:34: schedule.warmup_from_one_rank without a warm-up has no effect; want "
     "schedule.warmup_steps or schedule.warmup_epochs above 0"},
    {HEAD "train: {epochs: 3}\nschedule: {warmup_epochs: 3}",
     "f:4:27: schedule.warmup_epochs is 3, want less than train.epochs, 3"},
    {HEAD "optimizer: {scale_lr_by_ranks: true}\n"
          "schedule: {warmup_epochs: 2, warmup_start: 0.5, warmup_from_one_rank: true}",
     "f:4:44: schedule.warmup_start is 0.5 with schedule.warmup_from_one_rank, which says where "
     "warm-up starts; want 0"},
    {HEAD "train: {max_steps: 10}\nschedule: {warmup_steps: 10}",
     "f:4:26: schedule.warmup_steps is 10, want less than train.max_steps, 10"},
    {HEAD "schedule: {warmup_steps: 10, total_steps: 10}",
     "f:3:26: schedule.warmup_steps is 10, want less than schedule.total_steps, 10"},
    {HEAD "schedule: {name: wsd, timing: deepspeed}",
     "f:3:31: schedule.timing is deepspeed, but schedule.name wsd is none of DeepSpeed's "
     "schedulers; want constant, linear or cosine, or timing dptrain"},
    {HEAD "optimizer: {name: lamb, min_trust: 2, max_trust: 1}",
     "f:3:36: optimizer.min_trust is 2, want at most optimizer.max_trust, 1"},
    {HEAD "schedule: {name: step}", "f:3:18: schedule.name step needs one of schedule.every_steps "
                                    "and schedule.every_epochs above 0; they are 0 and 0"},
    {HEAD "schedule: {name: step, every_steps: 2, every_epochs: 2}",
     "f:3:18: schedule.name step needs one of schedule.every_steps and schedule.every_epochs above "
     "0; they are 2 and 2"},
    {HEAD "schedule: {name: cosine, min_lr: 0.2}",
     "f:3:34: schedule.min_lr is 0.2, want at most optimizer.lr, 0.1"},
    {"model: {arch: lenet}" DIGITS "train: {grad_dtype: bfloat16}",
     "f:3:21: train.grad_dtype bfloat16 needs precision bfloat16"},
    {HEAD "precision: float16\nloss_scale: {initial: 60000}",
     "f:4:23: loss_scale.initial is 60000, want a power of two"},
    {HEAD "precision: float16\nloss_scale: {initial: 2, min: 4}",
     "f:4:31: loss_scale.min is 4, want at most loss_scale.initial, 2"},
    {HEAD "precision: bfloat16\nloss_scale: {initial: 2}",
     "f:4:23: loss_scale.initial applies only if precision is float16; it is bfloat16"},
    {"model: {arch: lenet, loss: mse}" DIGITS "train: {label_smoothing: 0.1}",
     "f:3:26: train.label_smoothing needs model.loss cross_entropy"},
    {"model: {arch: lenet}\ndata: {format: digits, samples: 5}\ntrain: {drop_last: true}",
     "f:3:20: train.drop_last with data.samples 5, less than one train.global_batch of 256, leaves "
     "nothing to train on"},
    {HEAD "cluster: {straggler_factor: 0.5}",
     "f:3:29: cluster.straggler_factor is 0.5, want more than 1, or 0 for no such reports"},
    {HEAD "cluster: {min_ranks: 3, max_ranks: 2}",
     "f:3:22: cluster.min_ranks is 3, want at most cluster.max_ranks, 2"},
};

static const struct bad sets[] = {
    {"", "--set is \"\", want key=value, such as train.epochs=1"},
    {"train.epochs", "--set is \"train.epochs\", want key=value, such as train.epochs=1"},
    {"=3", "--set is \"=3\", want key=value, such as train.epochs=1"},
    {"train.epochs=", "--set: train.epochs is \"\", want an integer from 1 to 1000000 epochs"},
    {"train.epochs=ten",
     "--set: train.epochs is \"ten\", want an integer from 1 to 1000000 epochs"},
    {"train.epoch=3", "--set: unknown key \"train.epoch\"; the closest known key is train.epochs"},
    {"data.augment.rotate=3",
     "--set: unknown key \"data.augment.rotate\"; the closest known key is data.augment.crop"},
    {"train=3", "--set: train is a group of keys, want one of them, such as train.global_batch"},
    {"data.normalize=none", "--set: data.normalize.source applies only if data.format is mnist, "
                            "cifar10, cifar100, npy, csv or images; it is digits"},
    {"cluster.deadlines=3", "--set: cluster.deadlines is a group of keys, want one of them, such "
                            "as cluster.deadlines.gather"},
    {"name=\x1b[31m", "--set: name is \"?[31m\", want a name of 1 to 64 letters, digits, '.', '_' "
                      "or '-', the first a letter or digit"},
    {"name=\xc3", "--set: name is \"?\", want a name of 1 to 64 letters, digits, '.', '_' or '-', "
                  "the first a letter or digit"},
    {"data.path=/x", "--set: data.path applies only if data.format is mnist, cifar10, cifar100, "
                     "tokens, text, npy, csv or images; it is digits"},
    {"schedule.gamma=0.5", "--set: schedule.gamma applies only if schedule.name is step, multistep "
                           "or exponential; it is constant"},
    {"optimizer.nesterov=true", "--set: optimizer.nesterov needs optimizer.momentum above 0 and "
                                "optimizer.dampening 0; they are 0 and 0"},
    {"model.hidden=[1,2", "--set: model.hidden is \"[1,2\", want a list of at most 16, each an "
                          "integer from 1 to 65536 units"},
    {"data.train=[a, [b]]", "--set: data.train is a list of lists, want text, or a list of texts"},
    {"data.train=[a]: [b]", "--set: data.train is a mapping, want text, or a list of texts"},
    {"a-key-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on=1",
     "--set: unknown key \"a-key-that-goes-on-and-on-and-on-and-on-and-on-...\"; no known key "
     "is like it, --help-job lists all"},
};

/* The same behind --set model.arch=layers. */
static const struct bad layers[] = {
    {"model.layers=[relu, {", "--set: model.layers: not YAML: did not find expected node content"},
    {"model.layers=[\"\\ud83d\\ude00\"]",
     "--set: model.layers: not YAML: found invalid Unicode character escape code"},
    {"model.layers=", "--set: model.layers: empty"},
};

static void check(int rc, const struct err *err, const struct bad *b, struct job *job)
{
    if (rc == 0 || strcmp(err->msg, b->want) != 0)
        print_error("%s\n  says  %s\n  want  %s\n", b->text, rc ? err->msg : "nothing", b->want);
    assert_int_equal(rc, ERR_CONFIG);
    assert_null(job);
    assert_string_equal(err->msg, b->want);
}

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct job *job = NULL;
        struct err err;
        int rc = job_parse(texts[i].text, strlen(texts[i].text), "f", "/base", &job, &err);

        check(rc, &err, &texts[i], job);
    }
}

static void check_sets(const struct bad *b, int n, const char *const *settings)
{
    struct job *job = NULL;
    struct err err;

    check(job_load(NULL, settings, n, &job, &err), &err, b, job);
}

static void test_sets(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        check_sets(&sets[i], 1, &sets[i].text);
    for (size_t i = 0; i < ARRAY_LEN(layers); i++)
        check_sets(&layers[i], 2, (const char *const[]){"model.arch=layers", layers[i].text});
}

static void test_relative_path_without_base(void **state)
{
    static const char text[] = "model: {arch: lenet}\ndata: {format: mnist, path: x/y}";
    struct job *job = NULL;
    struct err err;

    (void)state;
    assert_int_equal(job_parse(text, strlen(text), "f", NULL, &job, &err), ERR_CONFIG);
    assert_string_equal(err.msg, "f:2:29: data.path is \"x/y\", want an absolute path");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_relative_path_without_base),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
