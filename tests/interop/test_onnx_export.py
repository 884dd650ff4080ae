"""Test of --export: networks of every architecture, and imported ones, as ONNX.  The onnx package
accepts the file, and onnxruntime computes the predictions of dpdriver from it, for any number of
samples.

It needs a Python with onnx, onnxruntime and numpy, for imported networks with torch, too
(find_torch.py), and is skipped (77) without one.
"""

import os
import subprocess

import find_torch

find_torch.need("onnx", "onnxruntime", "numpy", "torch", "safetensors")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import safetensors.numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from models import dp  # noqa: E402

ARITHMETIC = os.environ.get("DPARITHMETIC",
                            os.path.join(dp.ROOT, "build/tests/interop/arithmetic"))
N, SIDE, CONTEXT, VOCAB = 6, 16, 6, 11
TOLERANCE = 1e-5  # of the largest output

CNN = [{"conv": {"channels": 8, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm", "relu",
       {"conv": {"channels": 8, "kernel": 3, "padding": 2, "dilation": 2, "groups": 4}}, "silu",
       {"residual": [{"conv": {"channels": 8, "kernel": 3, "padding": 1}},
                     {"group_norm": {"groups": 2}}, "gelu"]},
       {"max_pool": {"kernel": 3, "stride": 2, "padding": 1}}, {"instance_norm": {}}, "leaky_relu",
       {"conv_transpose": {"channels": 4, "kernel": 3, "stride": 2, "padding": 1,
                           "output_padding": 1}},
       "gelu_tanh", {"avg_pool": {"kernel": 3, "stride": 2, "padding": 1}},
       {"adaptive_avg_pool": {"size": 4}}, "flatten", {"linear": {"units": 12}}, "batch_norm",
       "tanh", {"dropout": {"p": 0.3}}, "layer_norm", {"linear": {"units": 10, "bias": False}},
       "sigmoid", "log_softmax"]


def flow(value):
    """YAML's flow style, which --set takes"""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


IMAGES = {"data.format": "npy", "data.train": "[x.npy, y.npy]", "data.validation": "[x.npy, y.npy]"}
GRAY = {**IMAGES, "data.train": "[gray.npy, y.npy]", "data.validation": "[gray.npy, y.npy]"}
TOKENS = {"data.format": "tokens", "data.train": "train.bin", "data.validation": "train.bin"}
GPT = {"model.arch": "gpt", "model.layers": 2, "model.heads": 2, "model.width": 16,
       "model.context": CONTEXT, "model.vocab": VOCAB, **TOKENS}

# By name: the job.  The file of images is [N,H,W,C]; the model takes [N,C,H,W].
OWN = {
    "mlp": {"model.arch": "mlp", "model.batch_norm": "true", "model.hidden": "20,8",
            "model.activation": "tanh", **IMAGES},
    "lenet": {"model.arch": "lenet", **GRAY},
    "lenet5": {"model.arch": "lenet5", **GRAY},
    "resnet18": {"model.arch": "resnet18", "model.stem": "cifar", **IMAGES},
    "vit": {"model.arch": "vit", "model.image": SIDE, "model.patch": 4, "model.width": 16,
            "model.depth": 2, "model.heads": 2, "model.dropout": 0.1, **IMAGES},
    "gpt": {**GPT, "model.tied": "true", "model.dropout": 0.1},
    "untied": {**GPT, "model.tied": "false"},
    "layers": {"model.arch": "layers", "model.layers": flow(CNN), **IMAGES},
    "sequences": {"model.arch": "layers", "data.format": "npy",
                  "model.layers": "[lstm: {units: 4}, gru: {units: 5, layers: 2, bidirectional: "
                                  "true, return: last}, linear: {units: 10}]",
                  "data.train": "[line.npy, y.npy]", "data.validation": "[line.npy, y.npy]"},
    "numbers": {"model.arch": "mlp", "model.loss": "mse", "data.format": "npy",
                "data.targets.mean": "2,-1", "data.targets.std": "3,0.5",
                "data.train": "[row.npy, real.npy]", "data.validation": "[row.npy, real.npy]"},
}


class Views(nn.Module):
    """Images through views, means, products and conditions"""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8),
                                  nn.Hardswish(), nn.MaxPool2d(3, 2, ceil_mode=True))
        self.gate = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU6(), nn.Conv2d(4, 8, 1),
                                  nn.Hardsigmoid())
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 10)
        self.aux = nn.Conv2d(8, 10, 1)

    def forward(self, picture):
        x = self.body(picture)
        x = x * self.gate(x.mean((2, 3), keepdim=True))
        x = nn.functional.pad(x, (1, 0, 0, 1), value=0.5)
        up = nn.functional.interpolate(x, size=(6, 6), mode="bilinear", align_corners=False)
        aux = self.aux(torch.cat([up[:, :4], torch.sin(up[:, 4:])], 1))
        rows = x.flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(x.shape[0], -1, -1), rows], 1)
        q, k, v = self.qkv(self.norm(rows)).chunk(3, -1)
        seen = torch.softmax(q @ k.transpose(1, 2) / 3, -1) @ v
        rows = rows + torch.where(seen > 0, torch.expm1(seen), torch.log1p(-seen))
        spread = nn.functional.elu(rows.mean(1)) + nn.functional.softplus(rows.amax(1))
        return self.head(rows[:, 0] + spread + torch.clamp(rows.sum(1), -1, 1)), aux


class Recurrent(nn.Module):
    """All kinds, in both directions, whose last states are outputs, too"""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, 6)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 7, batch_first=True, bidirectional=True)
        self.rnn = nn.RNN(14, 8, nonlinearity="relu", batch_first=True, bias=False)
        self.head = nn.Linear(8, 10)

    def forward(self, ids):
        x, (_, cell) = self.lstm(self.table(ids))
        x, last = self.gru(x)
        x, _ = self.rnn(x)
        return {"logits": self.head(x[:, -1]), "cell": cell.transpose(0, 1),
                "ids": last.transpose(0, 1)}


class Decoder(nn.Module):
    """Llama's parts: RMS norms, rotary positions, shared keys, a gated MLP, a mask of the user"""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, 16)
        self.norm = nn.RMSNorm(16)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
        self.head = nn.Linear(16, VOCAB, bias=False)
        self.head.weight = self.table.weight
        at = torch.arange(CONTEXT)[:, None] / 10 ** torch.linspace(0, 1, 2)
        self.register_buffer("angle", torch.cat([at, at], -1), persistent=False)

    def turn(self, x):
        half = torch.cat([-x[..., 2:], x[..., :2]], -1)
        return x * self.angle.cos() + half * self.angle.sin()

    def forward(self, ids, mask):
        h = self.table(ids)
        x = self.norm(h)
        q, k, v = (f(x).view(x.shape[0], CONTEXT, -1, 4).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        keep = mask[:, None, None, :] & torch.ones(CONTEXT, CONTEXT).tril().bool()
        y = nn.functional.scaled_dot_product_attention(self.turn(q), self.turn(k), v,
                                                       attn_mask=keep, enable_gqa=True)
        h = h + y.transpose(1, 2).reshape(x.shape)
        h = h + self.down(nn.functional.silu(self.gate(h)) * self.up(h))
        return self.head(nn.functional.rms_norm(h, (16,)))


class Counted(nn.Module):
    """Positions that a mask counts, equal neighbours, rows from the end"""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, 8), nn.Embedding(CONTEXT + 2, 8)
        self.head = nn.Linear(8, VOCAB)

    def forward(self, ids, mask):
        seen = mask.long()
        at = torch.cumsum(seen, 1) * seen + 1
        same = (ids == ids.roll(1, 1)).float()[..., None]
        return self.head(self.table(ids) + self.places(at) * (1 + same))


class Grown(nn.Module):
    """Images that a file of ONNX enlarges in several ways, and their places"""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.up, self.last = nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.Linear(6, 10)

    def forward(self, x):
        x = nn.functional.relu(self.norm(self.first(nn.functional.pad(x, (1, 1, 1, 1),
                                                                      mode="reflect"))))
        x = nn.functional.interpolate(self.up(x), scale_factor=2, mode="nearest")
        x = nn.functional.interpolate(x, size=(15, 13), mode="bicubic")
        best = nn.functional.one_hot(x.mean((2, 3)).argmax(1), 6).float()
        return self.last(torch.round(x * 4).mean((2, 3)) + best + x.amax((2, 3)))


class Export(dp.Case):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        self.x = rng.random((N, SIDE, SIDE, 3), dtype=np.float32)
        self.gray = rng.random((N, 28, 28, 1), dtype=np.float32)
        self.tokens = rng.integers(0, VOCAB, (N, CONTEXT))
        flat = np.append(self.tokens.reshape(-1), 0).astype("<u2")
        self.line = rng.standard_normal((N, CONTEXT, 3), dtype=np.float32)
        self.row = rng.standard_normal((N, 5), dtype=np.float32)
        for name, value in {"x": self.x, "gray": self.gray, "row": self.row, "line": self.line,
                            "y": np.arange(N) % 10, "ids": self.tokens,
                            "mask": np.arange(CONTEXT)[None] < [[2], [6], [3], [4], [5], [1]],
                            "real": rng.standard_normal((N, 2), dtype=np.float32)}.items():
            np.save(self.path(name + ".npy"), value)
        flat.tofile(self.path("train.bin"))

    def run_job(self, name, job):
        """Train for two steps, export and predict; the predictions"""
        keys = {"data.path": self.folder, "train.global_batch": N, "train.max_steps": 2,
                "train.epochs": 2, "train.validate_every": 0, "optimizer.lr": 0.05, **job}
        self.run_driver("--run-dir", name, "--device", "cpu", job=keys)
        for verb, to in (("export", f"{name}.onnx"), ("predict", f"{name}.npy")):
            daemon = self.start([dp.DRIVER, verb, to, name])
            self.assert_exit(daemon, dp.FINISHED)
        return np.load(self.path(f"{name}.npy"))

    def session(self, name):
        model = onnx.load(self.path(name + ".onnx"))
        onnx.checker.check_model(model, full_check=True)
        return model, onnxruntime.InferenceSession(self.path(name + ".onnx"),
                                                   providers=["CPUExecutionProvider"])

    def assert_close(self, seen, want):
        self.assertEqual(seen.shape, want.shape)
        self.assertTrue(np.isfinite(want).all())
        self.assertLess(np.abs(seen - want).max() / np.abs(want).max(), TOLERANCE)

    def assert_same(self, session, inputs, output, want):
        """For 1 and 3 samples, and all of them"""
        for n in (1, 3, N):
            self.assert_close(session.run([output], {k: v[:n] for k, v in inputs.items()})[0],
                              want[:n])

    def test_own(self):
        for name, job in OWN.items():
            with self.subTest(name):
                want = self.run_job(name, job)
                model, session = self.session(name)
                x = {"numbers": self.row, "sequences": self.line, "gpt": self.tokens,
                     "untied": self.tokens, "lenet": self.gray, "lenet5": self.gray}.get(name,
                                                                                      self.x)
                x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
                feed = {"input_ids" if x is self.tokens else "input": x}
                self.assert_same(session, feed, "logits" if x is self.tokens else "output", want)
                state = safetensors.numpy.load_file(
                    self.path(name, "checkpoints", "latest", "model.safetensors"))
                ours = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
                for key in state.keys() & ours.keys():
                    np.testing.assert_array_equal(ours[key], state[key])
                self.assertGreaterEqual(len(state.keys() & ours.keys()),
                                        sum("weight" in key for key in state) - (name == "gpt"))
                if name in ("lenet", "lenet5", "resnet18"):
                    self.assertNotIn("Transpose", [node.op_type for node in model.graph.node])

    def imported(self, name, module, inputs, job, is_onnx=False):
        torch.manual_seed(0)
        file = "given.onnx" if is_onnx else name + ".pt2"
        if is_onnx:
            ports = [f"input{i}" for i in range(len(inputs))]
            # pylint: disable-next=unexpected-keyword-arg
            torch.onnx.export(module.train(), inputs, self.path(file), dynamo=False,
                              training=torch.onnx.TrainingMode.TRAINING, input_names=ports,
                              do_constant_folding=False, opset_version=18,
                              dynamic_axes={port: {0: "n"} for port in ports})
        else:
            torch.export.save(torch.export.export(module.train(), inputs, strict=False),
                              self.path(file))
        want = self.run_job(name, {"model.import": file, "data.format": "npy", **job})
        module.load_state_dict(safetensors.torch.load_file(
            self.path(name, "checkpoints", "latest", "model.safetensors")))
        return want, *self.session(name), module.eval()

    def test_imported_images(self):
        want, _, session, module = self.imported(
            "views", Views(), (torch.zeros(4, 3, SIDE, SIDE),), IMAGES)
        x = np.moveaxis(self.x, -1, 1)
        self.assertEqual([i.shape for i in session.get_inputs()], [["batch", 3, SIDE, SIDE]])
        self.assert_same(session, {"picture": x}, "output0", want)
        with torch.no_grad():
            aux = module(torch.from_numpy(x.copy()))[1].numpy()
        self.assert_same(session, {"picture": x}, "output1", aux)

    def test_onnx_again(self):
        """A file of ONNX is trained, and written as another one"""
        want, _, session, _ = self.imported("grown", Grown(), (torch.zeros(4, 3, SIDE, SIDE),),
                                            IMAGES, is_onnx=True)
        self.assert_same(session, {"input0": np.moveaxis(self.x, -1, 1)},
                         session.get_outputs()[0].name, want)

    def test_whole_numbers(self):
        fields = "{ids: ids.npy, mask: mask.npy, labels: ids.npy}"
        inputs = (torch.zeros(4, CONTEXT, dtype=torch.int64),
                  torch.ones(4, CONTEXT, dtype=torch.bool))
        given = (self.tokens, np.load(self.path("mask.npy")))
        for is_onnx in (False, True):
            with self.subTest(is_onnx=is_onnx):
                want, _, session, _ = self.imported(
                    f"counted{is_onnx}", Counted(), inputs,
                    {"data.train": fields, "data.validation": fields}, is_onnx)
                ports = [i.name for i in session.get_inputs()]
                self.assert_same(session, dict(zip(ports, given)), session.get_outputs()[0].name,
                                 want)

    def test_arithmetic(self):
        """Each kind of arithmetic and each activation, at numbers around 0 (arithmetic.c)"""
        subprocess.run([ARITHMETIC, self.path("kinds.onnx"), self.path("numbers")], check=True)
        _, session = self.session("kinds")
        numbers = np.fromfile(self.path("numbers"), np.float32).reshape(-1, 4, 64)
        outputs = [output.name for output in session.get_outputs()]
        self.assertEqual(len(numbers), 3 + len(outputs))
        seen = session.run(None, dict(zip("abc", numbers)))
        for name, got, want in zip(outputs, seen, numbers[3:]):
            np.testing.assert_allclose(got, want, 1e-5, 1e-6, err_msg=name)

    def test_recurrent(self):
        fields = "{ids: ids.npy, labels: y.npy}"
        want, _, session, module = self.imported(
            "recurrent", Recurrent(), (torch.zeros(4, CONTEXT, dtype=torch.int64),),
            {"data.train": fields, "data.validation": fields})
        with torch.no_grad():
            theirs = module(torch.from_numpy(self.tokens))
        for output, value in {"logits": want, "cell": theirs["cell"].numpy(),
                              "ids_": theirs["ids"].numpy()}.items():
            self.assert_same(session, {"ids": self.tokens}, output, value)

    def test_imported_tokens(self):
        want, _, session, _ = self.imported(
            "decoder", Decoder(), (torch.zeros(4, CONTEXT, dtype=torch.int64),
                                   torch.ones(4, CONTEXT, dtype=torch.bool)),
            {"data.train": "{ids: ids.npy, mask: mask.npy, labels: ids.npy}",
             "data.validation": "{ids: ids.npy, mask: mask.npy, labels: ids.npy}"})
        self.assertEqual([(i.name, i.type) for i in session.get_inputs()],
                         [("ids", "tensor(int64)"), ("mask", "tensor(bool)")])
        self.assert_same(session, {"ids": self.tokens, "mask": np.load(self.path("mask.npy"))},
                         session.get_outputs()[0].name, want)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dp.main()
