"""samples - small data sets for the GPU suite's networks, written by Python's standard library.

Each can be learnt: an image has the colours of its class beside noise, and a token mostly follows
from the one before it.  The same seed gives the same bytes."""

import array
import os
import random
import struct

CLASSES = 10
WORDS = "the cat and a dog ran over that old hill while no one was looking at them".split()


def planes_of(draw, label, n_pixels):
    """Red, green and blue of an image: noise of 120 levels upon the colour of its class."""
    for channel in range(3):
        base = (label * 41 * (channel + 1)) % 130
        yield draw.randbytes(n_pixels).translate(bytes(base + b % 120 for b in range(256)))


def write_cifar(folder, sizes, n, n_validation):
    """CIFAR-10's binary files; the sizes are CIFAR's own."""
    del sizes
    for name, count, seed in (("data_batch_1.bin", n, 1), ("test_batch.bin", n_validation, 2)):
        draw = random.Random(seed)
        with open(os.path.join(folder, name), "wb") as file:
            for i in range(count):
                file.write(bytes([i % CLASSES]) + b"".join(planes_of(draw, i % CLASSES, 1024)))
    return {"data.format": "cifar10", "data.path": folder, "data.augment.crop": 4,
            "data.augment.flip": "true"}


def npy_header(dtype, shape):
    """The first bytes of NumPy's file of this type and shape; a multiple of 64."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode("ascii")


def write_npy(folder, sizes, n, n_validation):
    """Images of sizes["side"] pixels, and their classes, as arrays of NumPy."""
    side = sizes["side"]
    for prefix, count, seed in (("", n, 1), ("v", n_validation, 2)):
        draw = random.Random(seed)
        with open(os.path.join(folder, prefix + "x.npy"), "wb") as file:
            file.write(npy_header("|u1", (count, side, side, 3)))
            for i in range(count):
                for pixel in zip(*planes_of(draw, i % CLASSES, side * side)):
                    file.write(bytes(pixel))
        with open(os.path.join(folder, prefix + "y.npy"), "wb") as file:
            file.write(npy_header("<u2", (count,)))
            file.write(array.array("H", [i % CLASSES for i in range(count)]).tobytes())
    return {"data.format": "npy", "data.path": folder, "data.train": "x.npy,y.npy",
            "data.validation": "vx.npy,vy.npy"}


def write_tokens(folder, sizes, n, n_validation):
    """n samples of sizes["context"] tokens below sizes["vocab"], of 16 bits each."""
    for name, count, seed in (("train.bin", n, 1), ("val.bin", n_validation, 2)):
        draw, tokens = random.Random(seed), [0]
        while len(tokens) < count * sizes["context"] + 1:
            tokens.append((tokens[-1] * 7 + 3) % sizes["vocab"] if draw.random() < 0.6
                          else draw.randrange(sizes["vocab"]))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(array.array("H", tokens).tobytes())
    return {"data.format": "tokens", "data.path": folder, "data.train": "train.bin",
            "data.validation": "val.bin"}


def write_text(folder, sizes, n, n_validation):
    """A text of words for n samples of sizes["context"] characters or a few more.  Its last tenth
    validates, and has a sample at least."""
    del n_validation
    draw, text = random.Random(1), ""
    length = max((n * sizes["context"] + 1) * 10 // 9, 10 * (sizes["context"] + 2))
    while len(text) < length:
        text += draw.choice(WORDS) + " "
    path = os.path.join(folder, "words.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write(text[:length])
    return {"data.format": "text", "data.path": path, "data.tokenizer": "chars"}
