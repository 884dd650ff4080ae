"""safefile - reads and writes safetensors files with Python's standard library alone.

The format: 8 bytes, little-endian, with the header's length; the header in JSON, name -> {dtype,
shape, data_offsets}; then the tensors' bytes.  The offsets count from the first of these bytes.
"""
import json
import math
import struct

BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1}


def read(path):
    """Read {name: (dtype, shape, bytes)}, and check all that the format demands."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack_from("<Q", data)
    assert data[8:9] == b"{", f"{path}: the header begins with {data[8:9]}"
    header = json.loads(data[8:8 + length].decode("utf-8"))
    body = data[8 + length:]
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(v, str) for v in metadata.values()), metadata
    end = 0
    tensors = {}
    for name, row in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = row["data_offsets"]
        want = math.prod(row["shape"]) * BYTES[row["dtype"]]
        assert first == end, f"{name} begins at {first}, the one before ended at {end}"
        assert last - first == want, f"{name} has {last - first} bytes, its shape {want}"
        tensors[name] = (row["dtype"], row["shape"], body[first:last])
        end = last
    assert end == len(body), f"{path}: {len(body) - end} bytes belong to no tensor"
    return tensors


def write(path, tensors, metadata=None):
    """Write tensors, as read() returns them, in the order in which they lie in the file."""
    header, end = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode("utf-8")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def floats(tensor):
    """The values of an F32 tensor."""
    dtype, _, data = tensor
    assert dtype == "F32", dtype
    return struct.unpack(f"<{len(data) // 4}f", data)


def of_floats(shape, values):
    return ("F32", shape, struct.pack(f"<{len(values)}f", *values))
