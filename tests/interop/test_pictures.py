"""Test of pictures with torchvision: those that validate, evaluate and predict have the pixels of
its Resize and CenterCrop of what Pillow reads, to one level; in training, decoded at a smaller
size, nearly so.

It needs a Python with torchvision and safetensors (find_torch.py), and is skipped (77) without one.
Our pixels come from the program in $DPLOGITS (logits.c).
"""

import io
import os

import find_torch

find_torch.need("torchvision", "safetensors", "numpy", "PIL")

import numpy as np  # noqa: E402
import PIL  # noqa: E402
import torchvision  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision import transforms  # noqa: E402

from models import Case, dp  # noqa: E402

# Name, mode, width, height, how Pillow saves it.  Wide and tall, odd sides, smaller and larger than
# the result, by little and by much.
PICTURES = [
    ("420.jpg", "RGB", 500, 375, dict(quality=90, subsampling=2)),
    ("422.jpg", "RGB", 333, 500, dict(quality=90, subsampling=1)),
    ("444.jpg", "RGB", 401, 299, dict(quality=95, subsampling=0)),
    ("progressive.jpg", "RGB", 640, 427, dict(quality=80, progressive=True)),
    ("large.jpg", "RGB", 1803, 1201, dict(quality=85)),
    ("grey.jpg", "L", 300, 257, dict(quality=90)),
    ("cmyk.jpg", "CMYK", 320, 200, dict(quality=90)),
    ("small.jpg", "RGB", 37, 53, dict(quality=90)),
    ("tiny.png", "RGB", 3, 2, {}),
    ("rgb.png", "RGB", 300, 411, {}),
    ("grey.png", "L", 99, 131, {}),
    ("one_bit.png", "1", 150, 140, {}),
    ("palette.png", "P", 222, 111, {}),
    ("alpha.png", "RGBA", 128, 96, {}),
]


def draw(mode, width, height, seed):
    """Waves, edges and noise, so that a pixel beside the right one is seen"""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    channels = [128 + 70 * np.sin(x / (9 + 5 * c)) + 50 * np.cos(y / (7 + 3 * c)) for c in range(3)]
    pixels = np.stack(channels, 2) + rng.normal(0, 12, (height, width, 3))
    pixels[(x // 29 + y // 23) % 5 == 0] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert(mode)


def without_adobe(data):
    """The JPEG file without its markers of Adobe and JFIF"""
    at, out = 2, data[:2]
    while data[at + 1] != 0xda:
        n = int.from_bytes(data[at + 2:at + 4], "big") + 2
        if data[at + 1] not in (0xee, 0xe0):
            out += data[at:at + n]
        at += n
    return out + data[at:]


class Pictures(Case):
    @classmethod
    def setUpClass(cls):
        print(f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}", flush=True)

    def make_files(self):
        for split in ("train", "val"):
            folder = self.path("set", split, "a")
            os.makedirs(folder)
            for number, (name, mode, width, height, how) in enumerate(PICTURES):
                kind = "JPEG" if name.endswith("jpg") else "PNG"
                file = io.BytesIO()
                draw(mode, width, height, number).save(file, kind, **how)
                with open(os.path.join(folder, name), "wb") as to:
                    to.write(file.getvalue())
                if mode == "CMYK":
                    with open(os.path.join(folder, "cmyk_bare.jpg"), "wb") as to:
                        to.write(without_adobe(file.getvalue()))

    def ours(self, size, resize, scale):
        """Our pixels of both sets, [N,size,size,3] each"""
        data = dict(format="images", path=self.path("set"), size=size, resize=resize,
                    jpeg_scale=scale)
        return [np.rint(x * 255).reshape(-1, size, size, 3)
                for x, _ in self.our_samples(data, 3 * size * size, 1)]

    def theirs(self, size, resize):
        to = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(size)])
        folder = self.path("set", "val", "a")
        names = sorted(os.listdir(folder))
        return names, [np.asarray(to(Image.open(os.path.join(folder, name)).convert("RGB")), float)
                       for name in names]

    def test_pixels(self):
        self.make_files()
        for size, resize, scale in ((224, 256, "auto"), (64, 64, "auto"), (33, 40, "whole")):
            names, theirs = self.theirs(size, resize)
            train, validation = self.ours(size, resize, scale)
            self.assertEqual(len(validation), len(names))
            for name, want, fast, seen in zip(names, theirs, train, validation):
                what = f"{name}, size {size} of {resize}, jpeg_scale {scale}"
                print(f"{what}: {(seen != want).mean():.0%} differ, at most by "
                      f"{abs(seen - want).max():g}; in training by {abs(fast - want).max():g}",
                      flush=True)
                self.assertLessEqual(abs(seen - want).max(), 1, what)
                is_scaled = scale == "auto" and name == "large.jpg"
                if scale == "whole" or is_scaled:
                    self.assertEqual((fast != seen).any(), is_scaled, what)
                self.assertLessEqual(abs(fast - want).mean(), 12, what)


if __name__ == "__main__":
    dp.main()
