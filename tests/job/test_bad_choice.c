/* Job files that are refused, with the exact messages: keys that are missing, that are not for this
 * choice, or that do not go together. */
#include "bad.h"

static const struct bad missing[] = {
    {"data: {format: digits}", "f: model.arch is missing, want @arch"},
    {"model: {arch: lenet}", "f: data.format is missing, want @format"},
    {"model:\ndata:\n", "f: model.arch is missing, want @arch"},
    {"model: {arch: lenet}\ndata: {format: mnist}", "f: data.path is missing, want a path"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: ~}",
     "f: data.path is missing, want a path"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, train: [a, b]}",
     "f:2:40: data.train is a list, want text"},
    {"model: {arch: lenet}\ndata: {format: cifar10, path: /x, train: [a, [b]]}",
     "f:2:42: data.train is a list of lists, want text, or a list of texts"},
    {"model: {arch: lenet}\ndata: {format: cifar10, path: /x, train: {a: b}}",
     "f:2:42: data.train is a mapping, want text, or a list of texts"},
    {"model: {arch: lenet}\ndata: {format: mnist, path: /x, train: {a: b}}",
     "f:2:40: data.train is a mapping, want text"},
    {"model: {arch: lenet}\ndata: {format: npy, path: /x, train: [a, [b]]}",
     "f:2:38: data.train is a list of lists, want text, or a list of texts"},
    {"model: {arch: lenet}\ndata: {format: npy, path: /x, train: {a: {b: c}, y: d}}",
     "f:2:38: data.train has the field a, which is a mapping, want one file"},
    {"model: {arch: lenet}\ndata: {format: npy, path: /x, validation: {a: b, a: c}}",
     "f:2:43: data.validation has the field a twice, want each once"},
    {"model: {arch: lenet}\ndata: {format: digits, path: /x}",
     "f:2:30: data.path applies only if data.format is @format.data.path; it is digits"},
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
    {HEAD "schedule: {gamma: 0.5}", "f:3:19: schedule.gamma applies only if schedule.name is "
                                    "@schedule.schedule.gamma; it is constant"},
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
     "f:2:44: data.validation is val.txt, but data.format text with data.tokenizer chars "
     "validates by a part of its one file: want last_tenth or none; over a job file of another "
     "format, --set data.validation=last_tenth"},
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
    {HEAD "strategy: {name: allredcue}", "f:3:18: strategy.name is \"allredcue\", want @strategy"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {compress: bfloat16}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.compress takes gradients of "
     "float32; want float32"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {shards: 4}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.shards takes gradients of "
     "float32; want float32"},
    {HEAD "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\nstrategy: {name: adasum}",
     "f:4:21: train.grad_dtype is bfloat16, but the job's strategy.name takes gradients of "
     "float32; want float32"},
};

static const struct bad together[] = {
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

static void test_texts(void **state)
{
    (void)state;
    bad_check_texts(missing, ARRAY_LEN(missing));
    bad_check_texts(together, ARRAY_LEN(together));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
