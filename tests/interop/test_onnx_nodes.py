"""Test the reader of ONNX with the backend node tests of the onnx package: each case of an operator
that dptrain reads gives the case's outputs, or is refused by a message that REFUSED has.

A case runs in up to two forms.  As it is, the first dimension of its inputs is the batch, and
vectors of integers beside real inputs (shapes, axes) are constants.  A case that mixes samples in
that form has all of its inputs as weights and constants in the second one, where its outputs are
added to an input of zeros.  The program in $RUN_NETWORK (tests/import/run_network.c) runs both.

    test_onnx_nodes.py             the test
    test_onnx_nodes.py PATTERN     tell of the cases whose name has it, and run only these
"""
import collections
import concurrent.futures
import fnmatch
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import find_torch

find_torch.need("numpy", "onnx")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test import loader  # noqa: E402

BATCH = 2  # of the input of zeros
FIRST, LAST = 13, 24  # operator sets that dptrain reads

# Patterns of cases that are refused, and words of the message.  All cases of a pattern are, but for
# those that the onnx package wrote out in other operators ("_expanded"), which have their own.
REFUSED = {
    "*_uint16": "floats, integers or booleans",
    "*_uint32": "floats, integers or booleans",
    "*_uint64": "floats, integers or booleans",
    "*_uint16_expanded": "floats, integers or booleans",
    "*_uint32_expanded": "floats, integers or booleans",
    "*_uint64_expanded": "floats, integers or booleans",
    "test_attention_4d_*padded_kv*": "its nonpad_kv_seqlen is not supported",
    "test_attention_4d_*nonpad_*": "its nonpad_kv_seqlen is not supported",
    "test_averagepool_2d_dilations": "it averages with dilation, which is not supported",
    "test_averagepool_3d_*": "want [N,C,L] or [N,C,H,W]",
    "test_batchnorm_*_training_mode": "an output of BatchNormalization that is not supported",
    "test_convtranspose_3d": "want [N,C,L] or [N,C,H,W]",
    "test_gru_*": "its linear_before_reset is 0",
    "test_lstm_with_peepholes": "it has peepholes, which are not supported",
    "test_*dropout*_mask*": "an output of Dropout that is not supported",
    "test_maxpool_3d_*": "want [N,C,L] or [N,C,H,W]",
    "test_maxpool_with_argmax_*": "its second output, the places, is not supported",
    "test_pow_types_int*_float32": "it has whole numbers to a real power",
    "test_reduce_max_empty_set*": "which has no elements",
    "test_reduce_min_empty_set": "which has no elements",
    "test_reduce_prod_empty_set": "no elements",
}

# Cases of other random numbers, whose dropout is on: in evaluation ours is off.
OTHERS = ("test_training_dropout_default", "test_training_dropout")


def patterns_of(name):
    return [p for p in REFUSED
            if fnmatch.fnmatch(name, p) and ("_expanded" in name) == ("_expanded" in p)]


def real(x):
    return np.asarray(x).astype("f4")


def is_integer(x):
    return np.issubdtype(np.asarray(x).dtype, np.integer)


def is_tensor(x):
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "OUSc"


def opset(model):
    return max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=0)


def is_read(case):
    """Its values are tensors of numbers, its operators of the default domain, of a set we read"""
    model = case.model
    return (all(not n.domain for n in model.graph.node)
            and FIRST <= opset(model) <= LAST
            and not model.functions and len(case.data_sets) == 1
            and all(is_tensor(x) for part in case.data_sets[0] for x in part)
            and all(np.size(x) for x in case.data_sets[0][1])
            and case.name not in OTHERS)


class Form:
    """A case as files: the model, and the elements of its inputs and weights"""

    def __init__(self, case, folder):
        self.folder, self.batch = folder, BATCH
        self.model = onnx.ModelProto()
        self.model.CopyFrom(case.model)
        self.given = [np.asarray(x) for x in case.data_sets[0][0]]
        self.graph = self.model.graph

    def path(self, name):
        return os.path.join(self.folder, name)

    def give(self, inputs, is_open=False):
        """The inputs of these indices are inputs, whose batch may be open, others initializers"""
        ports = list(self.graph.input)
        del self.graph.input[:]
        for i, (port, x) in enumerate(zip(ports, self.given)):
            if i not in inputs:
                t = numpy_helper.from_array(x, port.name)
                t.data_type = port.type.tensor_type.elem_type
                self.graph.initializer.append(t)
                continue
            self.batch = x.shape[0]
            if is_open:
                port.type.tensor_type.shape.dim[0].dim_param = "N"
            x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
            x = np.ascontiguousarray(x.astype("i4" if x.dtype.kind in "biu" else "f4"))
            x.tofile(self.path(f"input.{len(self.graph.input)}"))
            self.graph.input.append(port)
        for o in self.graph.output:
            if is_open:
                o.type.tensor_type.ClearField("shape")
        for t in self.graph.initializer:
            real(numpy_helper.to_array(t)).tofile(self.path(t.name))

    def add_zeros(self, wanted):
        """Each output as a row, added to a column of zeros: [BATCH, elements]"""
        self.graph.input.append(helper.make_tensor_value_info("zeros", 1, [BATCH, 1]))
        np.zeros(BATCH, "f4").tofile(self.path("input.0"))
        old = [o.name for o in self.graph.output]
        del self.graph.output[:]
        self.graph.initializer.append(
            numpy_helper.from_array(np.array([1, -1], "i8"), "flat_shape"))
        for name, x in zip(old, wanted):
            self.graph.node.extend([
                helper.make_node("Cast", [name], [name + "_real"], to=TensorProto.FLOAT),
                helper.make_node("Reshape", [name + "_real", "flat_shape"], [name + "_flat"]),
                helper.make_node("Add", ["zeros", name + "_flat"], [name + "_rows"])])
            self.graph.output.append(
                helper.make_tensor_value_info(name + "_rows", 1, [BATCH, np.asarray(x).size]))

    def run(self):
        """The outputs by name, or the message of a refusal"""
        onnx.save(self.model, self.path("net.onnx"))
        done = subprocess.run([os.environ["RUN_NETWORK"], "--forward", self.path("net.onnx"),
                               self.folder, str(self.batch)], check=False, text=True,
                              capture_output=True)
        if done.returncode:
            return None, done.stderr.strip() or f"exit status {done.returncode}"
        got = {}
        for line in done.stdout.splitlines():
            i, name, kind, *dims = line.split()
            x = np.fromfile(self.path(f"output.{i}"), {"f32": "f4", "i32": "i4"}[kind])
            got[name] = x.reshape([int(d) for d in dims])
        return got, ""


def differs(got, want, case):
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, want {want.shape}"
    # The reference rounds in between; dptrain computes in float32.
    rtol, atol = {"bfloat16": (1e-2, 1e-2), "float16": (2e-3, 1e-4)}.get(
        want.dtype.name, (case.rtol, case.atol))
    off = np.isclose(got.astype("f8"), want.astype("f4").astype("f8"), rtol=rtol, atol=atol,
                     equal_nan=True)
    return "" if off.all() else f"{(~off).sum()} of {off.size} numbers differ"


def compare(case, form):
    """1: right, 0: wrong, None: refused; and a message"""
    got, message = form.run()
    if got is None:
        return (0 if "internal error" in message or message.startswith("exit") else None), message
    for o, want in zip(case.model.graph.output, case.data_sets[0][1]):
        if o.name not in got:
            return None, "its outputs are constants"
        off = differs(got[o.name], want, case)
        if off:
            return 0, f"{o.name}: {off}"
    return 1, ""


def run_with_batch(case, folder, of, is_open):
    """`of` takes an input, and says whether it has the batch"""
    form = Form(case, folder)
    inputs = [i for i, x in enumerate(form.given) if of(i, x)]
    if len({form.given[i].shape[:1] for i in inputs}) != 1 or not form.given[inputs[0]].size \
            or not form.given[inputs[0]].ndim:
        return None, "its inputs have no batch"
    form.give(inputs, is_open)
    return compare(case, form)


def run_as_weights(case, folder):
    form = Form(case, folder)
    wanted = case.data_sets[0][1]
    form.give([])
    form.add_zeros(wanted)
    got, message = form.run()
    if got is None:
        return (0 if "internal error" in message or message.startswith("exit") else None), message
    for o, want in zip(case.model.graph.output, wanted):
        want = np.broadcast_to(np.asarray(want).reshape(1, -1), (BATCH, np.asarray(want).size))
        off = differs(got[o.name + "_rows"], want, case)
        if off:
            return 0, f"{o.name} of weights: {off}"
    return 1, ""


def run(case):
    has_real = any(not is_integer(x) for x in case.data_sets[0][0])

    def is_data(_, x):
        return not (has_real and is_integer(x) and np.ndim(x) < 2)

    def is_first(i, _):
        return i == 0

    said = []
    for way in (lambda c, f: run_with_batch(c, f, is_data, True),
                lambda c, f: run_with_batch(c, f, is_first, True),
                lambda c, f: run_with_batch(c, f, is_data, False), run_as_weights):
        with tempfile.TemporaryDirectory() as folder:
            result, message = way(case, folder)
        if result is not None:
            return result, [message]
        said.append(message.replace(folder, ""))
    return None, said


def run_all(pattern=""):
    """name -> (case, result, messages) of the cases that are read"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in loader.load_model_tests(kind="node") if pattern in c.name]
    cases = [c for c in cases if is_read(c)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(run, cases)
        return {c.name: (c, *r) for c, r in zip(cases, results)
                if r[0] is not None or "that dptrain lacks" not in "".join(r[1])}


class Nodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = run_all()

    def test_right_or_refused(self):
        for name, (_, result, message) in self.results.items():
            with self.subTest(name):
                patterns = patterns_of(name)
                self.assertNotEqual(result, 0, message)
                if result:
                    self.assertFalse(patterns, "it runs, and REFUSED has it")
                    continue
                self.assertTrue(patterns, message)
                self.assertTrue(any(REFUSED[p] in m for p in patterns for m in message), message)

    def test_refused_are_there(self):
        for pattern in REFUSED:
            self.assertTrue(fnmatch.filter(self.results, pattern), pattern)


def tell(pattern):
    results = run_all(pattern)
    count = collections.Counter(r for _, r, _ in results.values())
    for name, (_, result, message) in sorted(results.items(), key=lambda x: str(x[1][1])):
        if result != 1:
            print(name, "REFUSED" if result is None else "WRONG", message)
    print(f"{count[1]} right, {count[None]} refused, {count[0]} wrong")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        tell(sys.argv[1])
    else:
        unittest.main()
