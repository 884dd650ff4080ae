"""torch_text - writes an exported program of PyTorch as the text that text_network.h describes."""
import torch

TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32",
         torch.bool: "BOOL", torch.uint8: "U8"}


def dims(shape):
    return "[" + ",".join(str(int(extent)) for extent in shape) + "]"


def argument(value, names):
    if isinstance(value, torch.fx.Node):
        return "v" + names.get(value.name, value.name)
    if isinstance(value, bool):
        return f"f{int(value)}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return f"r{value!r}"
    if isinstance(value, str):
        return "t" + value.replace(" ", "")
    if isinstance(value, torch.dtype):
        return "d" + TYPES[value]
    if isinstance(value, (list, tuple)):
        if any(isinstance(x, torch.fx.Node) for x in value):
            return "V" + ",".join("-" if x is None else names.get(x.name, x.name) for x in value)
        return "I" + ",".join(str(int(x)) for x in value)
    return "n"


class Writer:
    def __init__(self, program):
        self.program, self.signature = program, program.graph_signature
        self.lines, self.inputs, self.names = [], [], {}

    def tensor(self, node):
        """A placeholder: the users' input, or a tensor of the file."""
        s = self.signature
        kinds = {"p": s.inputs_to_parameters, "b": s.inputs_to_buffers,
                 "c": s.inputs_to_lifted_tensor_constants}
        kind = next((k for k, names in kinds.items() if node.name in names), None)
        value = node.meta["val"]
        if not kind:
            self.inputs.append(node.name)
            self.lines.append(f"value {node.name} {TYPES[value.dtype]} {dims(value.shape)}")
            return
        name = kinds[kind][node.name]
        t = {**self.program.constants, **self.program.state_dict}[name]
        kept = kind != "p" and "running" not in name and t.dtype in (
            torch.int64, torch.float32, torch.bool)
        flat = (t.int() if t.dtype == torch.bool else t).flatten().tolist() if kept else []
        numbers = " = " + " ".join(map(repr, flat)) if kept else ""
        kind = "c" if name in s.non_persistent_buffers else kind
        self.lines.append(f"tensor {name} {kind} {TYPES[t.dtype]} {int(t.requires_grad)} "
                          f"{dims(t.shape)}{numbers}")
        self.lines.append(f"value {node.name} {TYPES[t.dtype]} {dims(t.shape)} of {name}")

    def call(self, node):
        if str(node.target).startswith("<built-in function getitem"):
            self.names[node.name] = f"{node.args[0].name}.{node.args[1]}"
            return
        schema = node.target._schema.arguments
        given = [(schema[i].name, a) for i, a in enumerate(node.args)] + list(node.kwargs.items())
        args = [f"{name}={argument(a, self.names)}" for name, a in given]
        made = node.meta.get("val")
        outs = [(node.name, made)] if isinstance(made, torch.Tensor) else [
            (f"{node.name}.{i}", x) for i, x in enumerate(made or [])]
        for name, value in outs:
            self.lines.append(f"value {name} {TYPES[value.dtype]} {dims(value.shape)}")
        stack = list(node.meta.get("nn_module_stack", {"": ("",)}).values())
        module = str(stack[-1][0]).replace("L['self'].", "").replace(" ", "") or "-"
        self.lines.append(" ".join(["node", str(node.target).replace("aten.", ""), module, *args,
                                    "->", *(name for name, _ in outs)]))

    def mutations(self):
        """The writes of buffers that a decomposed program's signature has, as nodes."""
        places = {name: node for node, name in self.signature.inputs_to_buffers.items()}
        for made, buffer in self.signature.buffers_to_mutate.items():
            self.lines.append(next(line for line in self.lines if line.startswith(
                f"value {places[buffer]} ")).split(" of ")[0].replace("value ", "value copy_", 1))
            self.lines.append(f"node copy_.default - self=v{places[buffer]} "
                              f"src=v{self.names.get(made, made)} -> copy_{places[buffer]}")

    def text(self):
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.tensor(node)
            elif node.op == "call_function":
                self.call(node)
        self.mutations()
        for i, name in enumerate(self.signature.user_outputs):
            self.lines.append(f"output y{i} {self.names.get(name, name)}")
        self.lines += [f"input {name} {name}" for name in self.inputs]
        return "\n".join(self.lines) + "\n"


def text(program):
    return Writer(program).text()
