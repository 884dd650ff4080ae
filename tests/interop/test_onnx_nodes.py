"""Test the reader of ONNX with the backend node tests of the onnx package: each case of an operator
that dptrain reads gives the outputs of the case, or is refused by a message that REFUSED has.  Bad
values of nodes are refused by the name of the node.

A case of a set that is newer than those that dptrain reads counts as one of the last, where that
has its operators and attributes.  A case runs in up to four forms.  In the first ones the first
dimension of its inputs is the batch, and vectors of integers beside real inputs (shapes, axes) are
constants.  A case that mixes samples in that form has all of its inputs as weights and constants in
the last one, where its outputs are added to an input of zeros.  The program in $RUN_NETWORK
(tests/import/run_network.c) runs all of them.

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
    "test_range_*float16_type_*": "numbers of type",
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


def is_known(node):
    """Set LAST has the operator with these attributes: newer sets differ in types, mostly"""
    if not onnx.defs.has(node.op_type, LAST, ""):
        return False
    schema = onnx.defs.get_schema(node.op_type, LAST, "")
    return all(a.name in schema.attributes for a in node.attribute)


def is_read(case):
    """Its values are tensors of numbers, its operators of the default domain, of a set we read"""
    model = case.model
    return (all(not n.domain for n in model.graph.node)
            and FIRST <= opset(model)
            and all(is_known(n) for n in model.graph.node if opset(model) > LAST)
            and all(p.type.HasField("tensor_type") for p in model.graph.input)
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
        for i in self.model.opset_import:
            i.version = min(i.version, LAST)

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
            port = helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type,
                                                 ["N" if is_open else self.batch, *x.shape[1:]])
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


X, W = ("x", [2, 4, 5, 5]), [6, 4, 3, 3]
BIG = 1 << 40

# Bad nodes: operator, attributes, inputs behind x (initializers; None is left out), words.
BAD = (
    ("Conv", {"kernel_shape": [3, 2]}, [np.ones(W)], "its kernel_shape is 2 where its weight"),
    ("Conv", {"strides": [0, 1]}, [np.ones(W)], "its strides is 0, want 1 or more"),
    ("Conv", {"dilations": [BIG, 1]}, [np.ones(W)], "its dilations is"),
    ("Conv", {"strides": [1]}, [np.ones(W)], "its strides has 1 numbers, want 2"),
    ("Conv", {"pads": [-1, 0, 0, 0]}, [np.ones(W)], "it pads by -1 and 0"),
    ("Conv", {"pads": [1, 1]}, [np.ones(W)], "its pads have 2 numbers, want 4"),
    ("Conv", {"group": 3}, [np.ones(W)], "does not fit its input"),
    ("Conv", {"group": -1}, [np.ones(W)], "does not fit its input"),
    ("Conv", {"auto_pad": "SOME"}, [np.ones(W)], "its auto_pad is SOME"),
    ("MaxPool", {"kernel_shape": [6, 1]}, [], "its window does not fit into extent 5"),
    ("MaxPool", {}, [], "its kernel_shape is 0, want 1 or more"),
    ("AveragePool", {"kernel_shape": [2, 2], "dilations": [2, 1]}, [], "it averages with dilation"),
    ("ConvTranspose", {"strides": [BIG, 1]}, [np.ones([4, 6, 3, 3])], "its strides is"),
    ("ConvTranspose", {"pads": [9, 9, 9, 9]}, [np.ones([4, 6, 3, 3])], "it makes -11 elements"),
    ("ConvTranspose", {}, [np.ones([5, 6, 3, 3])], "does not fit its input of 4 channels"),
    ("Softmax", {"axis": 4}, [], "axis is 4, want a dimension of 4"),
    ("Softmax", {"axis": -5}, [], "axis is -5, want a dimension of 4"),
    ("Flatten", {"axis": 7}, [], "axis is 7"),
    ("ReduceSum", {}, [np.array([9])], "axis is 9"),
    ("ReduceMax", {}, [np.array([-BIG])], "axis is"),
    ("Transpose", {"perm": [0, 1, 1, 2]}, [], "perm is no order of 4 dimensions"),
    ("Transpose", {"perm": [0, 1]}, [], "perm has 2 numbers for 4 dimensions"),
    ("Reshape", {}, [np.array([2, 7, -1])], "it reshapes"),
    ("Reshape", {}, [np.array([-1, -1])], "its shape has -1"),
    ("Reshape", {}, [np.array([BIG, BIG, BIG])], "it reshapes"),
    ("Expand", {}, [np.array([2, 4, 5, 7])], "extents 5 and 7 do not meet"),
    ("Tile", {}, [np.array([1, BIG, BIG, 1])], "it repeats dimension"),
    ("Slice", {}, [np.array([0]), np.array([5]), np.array([1]), np.array([0])], "its step is 0"),
    ("Slice", {}, [np.array([0, 1]), np.array([5])], "it has 2 starts and 1 of another list"),
    ("Pad", {"mode": "mirror"}, [np.array([0, 0, 1, 0, 0, 0, 1, 0])], "its mode is mirror"),
    ("Pad", {}, [np.array([0, 0, 1])], "it has 3 pads for 4 dimensions"),
    ("Pad", {}, [np.array([0, 0, BIG, 0, 0, 0, 1, 0])], "its pads are beyond 31 bits"),
    ("Pad", {"mode": "edge"}, [np.array([0, 0, -4, 0, 0, 0, -4, 0])], "it makes -3 elements of 5"),
    ("Split", {"axis": 1, "num_outputs": 1}, [np.array([3])], "its parts do not fill extent 4"),
    ("Concat", {"axis": 1}, [np.ones([2, 4, 5, 6])], "its tensors do not fit each other"),
    ("Gather", {"axis": 1}, [np.array([4])], "index 4 of an extent of 4"),
    ("Resize", {}, [None, np.array([1, 1, 0, 1], "f4")], "a scale or size of 0"),
    ("Resize", {}, [None, np.array([1, 1, 2], "f4")], "it has 3 scales or sizes for 4 axes"),
    ("Resize", {"mode": "best"}, [None, np.ones(4, "f4")], "its mode is best"),
    ("Resize", {}, [], "it has neither scales nor sizes"),
    ("Resize", {}, [None, np.array([1, 1, np.nan, 1], "f4")], "a scale or size of nan"),
    ("Resize", {}, [None, np.array([1, 1, 1e9, 1e9], "f4")], "elements"),
    ("Einsum", {"equation": "nchw,nchw,nchw->n"}, [np.ones(X[1])], "one to 8 operands"),
    ("Einsum", {"equation": "nchw->q"}, [], "its equation gives"),
    ("Einsum", {"equation": "nch->n"}, [], "as many letters as dimensions"),
    ("OneHot", {}, [np.array(0), np.array([0.0, 1.0])], "want a constant depth of 1 or more"),
    ("GroupNormalization", {"num_groups": 3}, [np.ones(4)] * 2, "it has 3 groups for 4 channels"),
    ("LayerNormalization", {}, [np.ones(4)], "its scale has another shape"),
    ("Gemm", {}, [np.ones([5, 5])], "its operands have 4 and 2 dimensions"),
    ("MatMul", {}, [np.ones([4, 5])], "its operands do not fit each other"),
    ("Add", {}, [np.ones([3])], "do not meet"),
    ("DepthToSpace", {"blocksize": 3}, [], "blocks of 3 do not fit its input"),
    ("Attention", {}, [np.ones(X[1])] * 2 + [np.ones([5, 9])], "its mask has 9 keys"),
    ("RotaryEmbedding", {"rotary_embedding_dim": 3}, [np.ones([5, 2])] * 2,
     "its rotary_embedding_dim is 3"),
    ("TopK", {}, [np.array([1])], "operator that dptrain lacks: TopK"),
)


class Bad(unittest.TestCase):
    """Values that no node can have are refused by the node's name"""

    def test_refused(self):
        for op, attributes, more, words in BAD:
            with self.subTest(op, attributes=attributes), tempfile.TemporaryDirectory() as folder:
                names = [f"more{i}" if x is not None else "" for i, x in enumerate(more)]
                node = helper.make_node(op, ["x", *names], ["y"], name="bad", **attributes)
                given = [numpy_helper.from_array(x.astype("f4") if x.dtype == float else x, name)
                         for x, name in zip(more, names) if name]
                graph = helper.make_graph(
                    [node], "g", [helper.make_tensor_value_info(X[0], 1, X[1])],
                    [helper.make_tensor_value_info("y", 1, None)], given)
                path = os.path.join(folder, "net.onnx")
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]),
                          path)
                done = subprocess.run([os.environ["RUN_NETWORK"], "--check", path], check=False,
                                      text=True, capture_output=True)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertNotIn("internal error", done.stderr)
                self.assertIn(words, done.stderr)
                if op != "TopK":
                    self.assertIn(f"node bad ({op})", done.stderr)


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
