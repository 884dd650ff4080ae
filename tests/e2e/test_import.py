"""Jobs with model.import, of files that the test writes as torch.export.save does, without PyTorch:
a run, its --check, and the files that are refused or that change."""

import json
import math
import os
import random
import struct
import zipfile

import dp
from dp import FINISHED, USAGE

N, BATCH, WIDTHS = 24, 6, (4, 5, 3)


def tensor(name):
    return {"as_tensor": {"name": name}}


def node(target, inputs, output, module):
    stack = "L__self__,,Net" + (f";L__self__{module},{module},Layer" if module else "")
    return {"target": f"torch.ops.aten.{target}", "name": output, "outputs": [tensor(output)],
            "inputs": [{"name": k, "arg": tensor(v), "kind": 1} for k, v in inputs.items()],
            "metadata": {"nn_module_stack": stack}}


def meta(sizes, is_param, dtype=7):
    strides = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
    return {"dtype": dtype, "sizes": [{"as_int": n} for n in sizes], "requires_grad": is_param,
            "device": {"type": "cpu", "index": None}, "layout": 7,
            "strides": [{"as_int": n} for n in strides], "storage_offset": {"as_int": 0}}


def model(unary, shapes, outputs=("y",), batch=7):
    """linear, `unary` twice, linear; m is the mean of each sample's y"""
    wide, narrow = [batch, WIDTHS[1]], [batch, WIDTHS[2]]

    def linear(k, x, y):
        return node("linear.default", {"input": x, "weight": f"p_fc{k}_weight",
                                       "bias": f"p_fc{k}_bias"}, y, f"fc{k}")

    nodes = [linear(1, "x", "h"), node(unary, {"self": "h"}, "a", "act"),
             node(unary, {"self": "a"}, "b", "act.again"), linear(2, "b", "y")]
    if "m" in outputs:
        nodes.append(node("mean.dim", {"self": "y"}, "m", ""))
        nodes[-1]["inputs"].append({"name": "dim", "arg": {"as_ints": [1]}, "kind": 1})
    names = {name: "p_" + name.replace(".", "_") for name in shapes}
    values = {names[name]: meta(shape, True) for name, shape in shapes.items()}
    values |= {"x": meta([batch, WIDTHS[0]], False), "y": meta(narrow, False),
               "m": meta(narrow[:1], False),
               **{k: meta(wide, False) for k in "hab"}}
    graph = {"inputs": [tensor(k) for k in (*names.values(), "x")],
             "outputs": [tensor(k) for k in outputs],
             "nodes": nodes, "tensor_values": values, "sym_int_values": {}}
    specs = [{"parameter": {"arg": {"name": v}, "parameter_name": k}} for k, v in names.items()]
    signature = {"input_specs": [*specs, {"user_input": {"arg": tensor("x")}}],
                 "output_specs": [{"user_output": {"arg": tensor(k)}} for k in outputs]}
    return {"schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0",
            "range_constraints": {}, "graph_module": {"graph": graph, "signature": signature}}


def mixed(shapes, batch=7):
    """A row of the table fc1.weight by ids, times a mask, plus x, then linear: three inputs"""
    wide, narrow = [batch, WIDTHS[0]], [batch, WIDTHS[2]]
    whole = model("relu.default", shapes, batch=batch)
    graph = whole["graph_module"]["graph"]
    names, ports = [i["as_tensor"]["name"] for i in graph["inputs"][:-1]], ("ids", "mask", "x")
    graph["nodes"] = [
        node("embedding.default", {"weight": "p_fc1_weight", "indices": "ids"}, "e", "fc1"),
        node("mul.Tensor", {"self": "e", "other": "mask"}, "m", ""),
        node("add.Tensor", {"self": "m", "other": "x"}, "h", ""),
        node("linear.default", {"input": "h", "weight": "p_head_weight", "bias": "p_head_bias"},
             "y", "head")]
    graph["inputs"] = [tensor(k) for k in (*names, *ports)]
    graph["tensor_values"] |= {"ids": meta([batch], False, 5), "mask": meta([batch, 1], False),
                               "y": meta(narrow, False), **{k: meta(wide, False) for k in "emhx"}}
    signature = whole["graph_module"]["signature"]
    signature["input_specs"][-1:] = [{"user_input": {"arg": tensor(k)}} for k in ports]
    return whole


def cross_entropy(out, label):
    return math.log(sum(map(math.exp, out))) - out[label]


def squared(out, label):
    return sum((v - (i == label)) ** 2 for i, v in enumerate(out)) / len(out)


class Network:
    """The numbers of fc1 and fc2, by their names"""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.shapes = {}
        for k in (1, 2):
            self.shapes[f"fc{k}.weight"] = [WIDTHS[k], WIDTHS[k - 1]]
            self.shapes[f"fc{k}.bias"] = [WIDTHS[k]]
        self.numbers = {name: [draw.uniform(-0.7, 0.7) for _ in range(math.prod(shape))]
                        for name, shape in self.shapes.items()}

    def write(self, path, unary="relu.default", outputs=("y",), whole=None):
        config, text = {}, json.dumps(whole or model(unary, self.shapes, outputs))
        with zipfile.ZipFile(path, "w") as archive:
            for content, name in (("pt2", "archive_format"), ("0", "archive_version"),
                               ("little", "byteorder"),
                               (text, "models/model.json")):
                archive.writestr(f"net/{name}", content)
            for i, (name, numbers) in enumerate(self.numbers.items()):
                config[name] = {"path_name": f"weight_{i}", "is_param": True, "use_pickle": False,
                                "tensor_meta": meta(self.shapes[name], True)}
                archive.writestr(f"net/data/weights/weight_{i}",
                                 struct.pack(f"<{len(numbers)}f", *numbers))
            for kind, content in (("weights", config), ("constants", {})):
                archive.writestr(f"net/data/{kind}/model_{kind}_config.json",
                                 json.dumps({"config": content}))

    def linear(self, k, x):
        weight, bias = self.numbers[f"fc{k}.weight"], self.numbers[f"fc{k}.bias"]
        return [b + sum(w * v for w, v in zip(weight[i * len(x):], x)) for i, b in enumerate(bias)]

    def loss(self, x, y, of=cross_entropy):
        """The mean loss of these samples"""
        return sum(of(self.linear(2, [max(0, v) for v in self.linear(1, row)]), label)
                   for row, label in zip(x, y)) / len(y)


class Import(dp.Case):
    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        self.x = [[draw.uniform(-1, 1) for _ in range(WIDTHS[0])] for _ in range(N)]
        self.y = [i % WIDTHS[2] for i in range(N)]
        flat = [v for row in self.x for v in row]
        for name, content in (("x", dp.npy("<f4", (N, WIDTHS[0]), struct.pack(f"<{len(flat)}f",
                                                                              *flat))),
                              ("y", dp.npy("<i8", (N,), struct.pack(f"<{N}q", *self.y)))):
            with open(self.path(f"{name}.npy"), "wb") as file:
                file.write(content)
        self.file = self.path("net.pt2")
        self.network = Network(2)
        self.network.write(self.file)
        self.job = {"model.import": "net.pt2", "data.format": "npy", "data.path": self.folder,
                    "data.train": "[x.npy, y.npy]", "data.validation": "[x.npy, y.npy]",
                    "data.shuffle": "false", "train.global_batch": BATCH, "train.epochs": 2,
                    "optimizer.lr": 0.1}

    def train(self, *args, run="run", status=FINISHED, n=2, **more):
        job = {**self.job, **{k.replace("__", "."): v for k, v in more.items()}}
        return self.run_driver("--local", *dp.EXACT, "--run-dir", run, *args, n=n, job=job,
                               status=status)

    def check(self, status, **more):
        job = {**self.job, **more}
        return self.run_driver("--check", n=1, job=job, status=status, port=False)

    def test_train(self):
        self.train(train__max_steps=1, train__global_batch=N)
        want = self.network.loss(self.x, self.y)
        self.assertLess(abs(self.events("epoch", "run")[0]["train_loss"] - want), 1e-5 * want)
        weights = self.weights("run")["model.safetensors"]
        for name in self.network.numbers:
            self.assertIn(f'"{name}"'.encode(), weights)

    def test_large(self):
        """--check of a graph of 5,000 nodes prints each of them"""
        whole = model("relu.default", self.network.shapes)
        graph = whole["graph_module"]["graph"]
        names = ["b", *(f"c{k}" for k in range(5000))]
        graph["nodes"][-1:-1] = [node("tanh.default", {"self": x}, y, f"block.{k // 10}.act")
                                 for k, (x, y) in enumerate(zip(names, names[1:]))]
        graph["nodes"][-1]["inputs"][0]["arg"] = tensor(names[-1])
        graph["tensor_values"] |= {k: meta([7, WIDTHS[1]], False) for k in names}
        self.network.write(self.file, whole=whole)
        driver = self.check(FINISHED)
        self.assertEqual((driver.out + driver.text).count("tanh"), 5000)

    def test_recompute(self):
        whole = json.dumps(model("gelu.default", self.network.shapes))
        self.network.write(self.file, whole=json.loads(whole.replace("L__self__act",
                                                                     "L__self__fc1.act")))
        runs = {"kept": {}, "again": {"train__recompute": "blocks"},
                "cheap": {"train__recompute": "selective"},
                "zero": {"train__recompute": "blocks", "strategy__zero": 3}}
        for run, more in runs.items():
            self.train(run=run, train__epochs=1, **more)
        for run in runs:
            self.assertEqual(self.weights(run)["model.safetensors"],
                             self.weights("kept")["model.safetensors"], run)

    def test_losses(self):
        """Of several outputs, of one that is the loss itself, and of a kind without an operator"""
        self.network.write(self.file, outputs=("y", "m", "y"))
        for loss, of in (
                ("{output0: cross_entropy, output2: {name: mse, weight: 0.4}}",
                 lambda out, label: cross_entropy(out, label) + 0.4 * squared(out, label)),
                ("output output1", lambda out, label: sum(out) / len(out)),
                ("{output2: focal}", lambda out, label: cross_entropy(out, label) *
                 (1 - math.exp(-cross_entropy(out, label))) ** 2)):
            with self.subTest(loss):
                run = f"run{len(loss)}"
                self.train(model__loss=loss, train__global_batch=N, train__max_steps=2, run=run)
                seen = [event for event in self.events("epoch", run)]
                want = self.network.loss(self.x, self.y, of)
                self.assertLess(abs(seen[0]["train_loss"] - want), 1e-5 * abs(want))
                self.assertLess(seen[1]["train_loss"], seen[0]["train_loss"])

    def test_only_loss(self):
        """A network that gives nothing but a number for each sample, its loss"""
        self.network.write(self.file, outputs=("m",))
        self.train(model__loss="output output0", train__global_batch=N, train__max_steps=2)
        seen = [event["train_loss"] for event in self.events("epoch", "run")]
        want = self.network.loss(self.x, self.y, lambda out, label: sum(out) / len(out))
        self.assertLess(abs(seen[0] - want), 1e-5 * abs(want))
        self.assertLess(seen[1], seen[0])
        self.assertNotIn("accuracy", self.daemons[-1].text)

    def test_bad_losses(self):
        self.network.write(self.file, outputs=("y", "m"))
        for loss, more, pattern in (
                ("{output0: cross_entropy, output1: bce}", {},
                 r"output output1 is \[2\] and the target is y of 3 classes; want an output "
                 r"\[batch"),
                ("{name: bce, positive: [1, 2]}", {}, r"positive has 2 numbers, want 3, one for"),
                ("{name: bce, positive: [1, x]}", {}, r"positive is x, want a number above 0"),
                ("{name: bce, positive: []}", {}, r"positive is a list, want a number, or one"),
                ("{name: cross_entropy, class_dim: 3}", {}, r"class_dim is 3, want 1 for outputs"),
                ("{name: mse, class_dim: 1}", {}, r"unknown key class_dim"),
                ("output output1", {"train.class_weights": "[1, 2, 3]"},
                 r"train\.class_weights needs model\.loss cross_entropy"),
                ("{output0: {name: focal, gamma: 200}}", {},
                 r"gamma is 200, want a number above 0, of at most 100")):
            with self.subTest(loss):
                driver = self.check(USAGE, **{"model.loss": loss}, **more)
                self.assertRegex(driver.text, pattern)

    def test_check(self):
        out = self.check(FINISHED).out
        for line in (r"(?m)^fc1 +linear\.default +\[7,5\] +25 ", r"(?m)^act +relu\.default",
                     r"(?m)^act\.again +relu\.default +\[7,5\]", r"(?m)^fc2 +linear.* +18 ",
                     r"imported +.*net\.pt2 by torch 2\.15\.0: 4 nodes .* 43 parameters",
                     r"the job is fine"):
            self.assertRegex(out, line)

    def test_unknown_operator(self):
        self.network.write(self.file, "frobnicate.default")
        pattern = r"net\.pt2 has 1 operator that dptrain lacks: .*frobnicate\.default.* 2.*act\b" \
                  r".*run_decompositions"
        self.assertRegex(self.check(USAGE).text, pattern)
        self.assertRegex(self.train(status=USAGE).text, pattern)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_refused(self):
        """Files and jobs that are told in one line"""
        foreign = self.path("foreign.pt2")
        with open(foreign, "wb") as file:
            file.write(b"\x80\x02}q\x00." * 100)
        with open(self.path("cut.pt2"), "wb") as file, open(self.file, "rb") as whole:
            file.write(whole.read()[:-300])
        for more, pattern in (
                ({"model.import": "none.pt2"}, r"model\.import: .*none\.pt2.*torch\.export\.save"),
                ({"model.import": "foreign.pt2"}, r"model\.import: .*foreign\.pt2"),
                ({"model.import": "cut.pt2"}, r"model\.import: .*cut\.pt2"),
                ({"model.arch": "mlp"}, r"model\.arch is mlp, and model\.import is given, too"),
                ({"model.loss": "{z: mse}"}, r"z is no output of .*net\.pt2, which has output0"),
                ({"model.init.name": "file", "model.init.path": self.file}, r"in model\.import"),
                ({"model.inputs": "{z: x}"}, r"model\.inputs: z is no input.*has the inputs x"),
                ({"model.init.name": "file", "model.init.path": self.file}, r"model\.init.*net")):
            with self.subTest(more):
                driver = self.check(USAGE, **more)
                self.assertRegex(driver.text, pattern)
                self.assertNotRegex(driver.text, "the job is fine")

    def write_mixed(self):
        """A network of three inputs and their fields; returns the mean cross-entropy"""
        network = Network(4)
        network.shapes = {"fc1.weight": [WIDTHS[1], WIDTHS[0]],
                          "head.weight": [WIDTHS[2], WIDTHS[0]], "head.bias": [WIDTHS[2]]}
        network.numbers = {k: [random.Random(k).uniform(-1, 1) for _ in range(math.prod(s))]
                           for k, s in network.shapes.items()}
        network.write(self.file, whole=mixed(network.shapes))
        ids, mask = [i * 3 % WIDTHS[1] for i in range(N)], [i % 3 > 0 for i in range(N)]
        for name, content in (("ids", dp.npy("<i8", (N,), struct.pack(f"<{N}q", *ids))),
                              ("mask", dp.npy("|b1", (N, 1), bytes(mask)))):
            with open(self.path(f"{name}.npy"), "wb") as file:
                file.write(content)
        total = 0
        for x, k, keep, label in zip(self.x, ids, mask, self.y):
            row = network.numbers["fc1.weight"][k * WIDTHS[0]:][:WIDTHS[0]]
            h = [keep * a + b for a, b in zip(row, x)]
            w = network.numbers["head.weight"]
            out = [sum(w[c * WIDTHS[0] + j] * v for j, v in enumerate(h)) + bias
                   for c, bias in enumerate(network.numbers["head.bias"])]
            total += math.log(sum(map(math.exp, out))) - out[label]
        fields = "{labels: y.npy, x: x.npy, mask: mask.npy, ids: ids.npy}"
        self.job |= {"data.train": fields, "data.validation": fields}
        return total / N

    def test_fields(self):
        """Fields feed the inputs of their names, on two ranks, and after a resume on one"""
        want = self.write_mixed()
        out = self.check(FINISHED).out
        for line in (r"(?m)^field +mask \[1\] of whole numbers, I32 feeds mask \[7,1\] F32$",
                     r"(?m)^field +ids \[1\] of whole numbers, I32 feeds ids \[7\] I64$",
                     r"(?m)^field +x \[4\], F32 feeds x \[7,4\] F32$",
                     r"(?m)^target +labels of 3 classes, I32$"):
            self.assertRegex(out, line)
        self.train(train__max_steps=1, train__global_batch=N, run="one")
        self.assertLess(abs(self.events("epoch", "one")[0]["train_loss"] - want), 1e-5 * want)
        self.train(train__epochs=3, data__shuffle="true", run="whole")
        self.train(train__epochs=1, data__shuffle="true")
        self.run_driver("--local", *dp.EXACT, "--run-dir", "run", "--resume", "--set",
                        "train.epochs=3", n=2, job=None)
        self.assertEqual(self.weights("run"), self.weights("whole"))

    def test_bad_fields(self):
        self.write_mixed()
        with open(self.path("bad.npy"), "wb") as file:
            file.write(dp.npy("<i8", (N,), struct.pack(f"<{N}q", *[0] * (N - 1), WIDTHS[1])))
        for fields, pattern in (
                ("ids: bad.npy, mask: mask.npy, x: x.npy",
                 r"bad\.npy: row 23: a number of ids is 5, want 0 to 4, which is what the network"),
                ("ids: ids.npy, x: x.npy", r"mask is an input for which the samples have no field"),
                ("ids: ids.npy, mask: mask.npy, x: x.npy, more: x.npy",
                 r"more is a field of the samples that no input is left for"),
                ("ids: ids.npy, mask: mask.npy, x: ids.npy", r"input x of the network is \[7,4\]"),
                ("ids: mask.npy, mask: mask.npy, x: none.npy", r"none\.npy")):
            with self.subTest(fields):
                driver = self.check(USAGE, **{"data.train": f"{{{fields}, labels: y.npy}}",
                                              "data.validation": "none"})
                self.assertRegex(driver.text, pattern)

    def test_instead(self):
        """--set chooses an architecture in place of the file's import, by two keys"""
        with open(self.path("job.yaml"), "w", encoding="ascii") as file:
            file.write("model: {import: net.pt2}\ndata: {format: digits}\n")
        args = ("--check", "--job", "job.yaml", "--set", "model.arch=mlp")
        self.assertRegex(self.run_driver(*args, n=1, job=None, status=USAGE, port=False).text,
                         r"job file has model\.import; want --set model\.import=none")
        args += ("--set", "model.import=none", "--set")
        driver = self.run_driver(*args, "model.loss={a: mse}", n=1, job=None, status=USAGE,
                                 port=False)
        self.assertRegex(driver.text, r"names the output a; outputs have names")
        done = self.run_driver(*args, "model.loss={name: huber, delta: 0.5}", n=1, job=None,
                               port=False)
        self.assertRegex(done.out, "the job is fine")

    def test_changed(self):
        """A run goes on with its own network, whatever became of the file"""
        self.train(train__epochs=4, run="whole")
        self.train()
        resume = ("--local", *dp.EXACT, "--run-dir", "run", "--resume", "--set")
        os.rename(self.file, self.path("moved.pt2"))
        self.file = self.path("moved.pt2")
        driver = self.run_driver(*resume, "model.import=moved.pt2", "--set", "train.epochs=2", n=2,
                                 job=None)
        self.assertNotRegex(driver.text, "another network")
        Network(3).write(self.file, "tanh.default")
        driver = self.run_driver(*resume, "train.epochs=3", n=2, job=None)
        told = r"moved\.pt2 holds another network now than when the run began; the run goes on"
        self.assertRegex(driver.text, "warning: .*" + told)
        self.assertRegex(str(self.events("warning", "run")), told)
        self.assertEqual(driver.text.count("another network"), 1)
        self.assertRegex(driver.text, r"its checkpoint's, not those of .*moved\.pt2")
        os.unlink(self.file)
        driver = self.run_driver(*resume, "train.epochs=4", n=2, job=None)
        self.assertRegex(driver.text, r"warning: .*moved\.pt2.*goes on with the network that")
        self.assertEqual(self.weights("run"), self.weights("whole"))


if __name__ == "__main__":
    dp.main()
