/* Job files and overrides that are refused, with the exact messages: form, keys, types, ranges. */
#include "bad.h"

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
    {"model: {arch: resnet}" DIGITS, "f:1:15: model.arch is \"resnet\", want @arch"},
    {"model: {arch: }" DIGITS, "f:1:15: model.arch is empty, want @arch"},
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
     "f:6:7: model.layers: no layer is called \"lineal\", want conv, conv1d, conv_transpose, "
     "max_pool, avg_pool, global_avg_pool, adaptive_avg_pool, mean, max, upsample, batch_norm, "
     "group_norm, instance_norm, layer_norm, rms_norm, linear, embedding, position, attention, "
     "lstm, gru, flatten, reshape, permute, concat, add, mul, split, dropout, softmax, "
     "log_softmax, relu, tanh, sigmoid, gelu, gelu_tanh, silu, leaky_relu, residual, shortcut, "
     "repeat, save, from or input"},
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
     "f:2:51: model.layers: beside residual stand shortcut, save, from and input alone"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [residual: relu]}\n",
     "f:2:42: model.layers: residual and shortcut want a list of layers"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [[relu]]}\n",
     "f:2:32: model.layers: a layer is a word or a mapping, such as {linear: {units: 10}}"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: []}\n",
     "f:2:31: model.layers: want a list of layers, such as [flatten, linear: {units: 10}]"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [linear: [10]]}\n",
     "f:2:40: model.layers: units is a list, want an integer from 1 to 1000000"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [dropout: 1]}\n",
     "f:2:41: model.layers: p is 1, want a number from 0 to below 1"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [flatten, concat: [skip], linear: 10]}"
     "\n",
     "f:2:41: model.layers: no value \"skip\" is saved before this layer, want save: NAME before "
     "it"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [save: a, {flatten: , save: b}, from: "
     "c]}\n",
     "f:2:69: model.layers: no value \"c\" is saved before this layer, want one of a, b"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [save: a, flatten, save: a]}\n",
     "f:2:56: model.layers: \"a\" is saved twice; want another name"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [flatten, save: a, linear: 10]}\n",
     "f:2:47: model.layers: no layer reads \"a\", which is saved here; leave it out"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [flatten, {repeat: 2, layers: [save: "
     "a, "
     "relu, add: a]}, from: a]}\n",
     "f:2:93: model.layers: no value \"a\" is saved before this layer, want save: NAME before it"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [flatten, split: [a, b], add: a]}\n",
     "f:2:41: model.layers: no layer reads \"b\", which is saved here; leave it out"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [save: \"a b\"]}\n",
     "f:2:38: model.layers: save is \"a b\", want a name of 1 to 64 letters, digits, '.', "
     "'_' or '-', the first a letter or digit"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [conv: {channels: 2, kernel: [3, 1, "
     "1]}]}\n",
     "f:2:60: model.layers: kernel is a list of 3, want one number, or two: for rows and for "
     "columns"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [conv: {channels: 2, kernel: 3, "
     "padding: "
     "some}]}\n",
     "f:2:72: model.layers: padding is \"some\", want an integer from 0 to 1024, or same"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [permute: []]}\n",
     "f:2:41: model.layers: order is a list of 0, want 1 to 16 numbers"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [{repeat: 2, relu: }]}\n",
     "f:2:41: model.layers: beside repeat stand layers, save, from and input alone"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [repeat: 2]}\n",
     "f:2:32: model.layers: want repeat and a list of layers side by side, such as "
     "{repeat: 4, layers: [linear: {units: 10}, relu]}"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [{repeat: 100, layers: [{repeat: 100, "
     "layers: [relu]}]}]}\n",
     "f:2:64: model.layers: there are more than 4096 layers"},
    {"data: {format: digits}\nmodel: {arch: layers, layers: [save: a, {from: a, input: , relu: "
     "}]}\n",
     "f:2:48: model.layers: from and input are in one item, want one of them"},
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
    {HEAD "cluster: {spares: 140000}",
     "f:3:19: cluster.spares is 140000, want an integer from 0 to 131072 ranks"},
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
    {"data.normalize=none", "--set: data.normalize.source applies only if data.format is "
                            "@format.data.normalize.source; it is digits"},
    {"cluster.deadlines=3", "--set: cluster.deadlines is a group of keys, want one of them, such "
                            "as cluster.deadlines.gather"},
    {"name=\x1b[31m", "--set: name is \"?[31m\", want a name of 1 to 64 letters, digits, '.', '_' "
                      "or '-', the first a letter or digit"},
    {"name=\xc3", "--set: name is \"?\", want a name of 1 to 64 letters, digits, '.', '_' or '-', "
                  "the first a letter or digit"},
    {"data.path=/x",
     "--set: data.path applies only if data.format is @format.data.path; it is digits"},
    {"schedule.gamma=0.5", "--set: schedule.gamma applies only if schedule.name is "
                           "@schedule.schedule.gamma; it is constant"},
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

static void test_texts(void **state)
{
    (void)state;
    bad_check_texts(texts, ARRAY_LEN(texts));
}

static void check_sets(const struct bad *b, int n, const char *const *settings)
{
    struct job *job = NULL;
    struct err err;

    bad_check(job_load(NULL, settings, n, &job, &err), &err, b, job);
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
