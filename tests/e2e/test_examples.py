"""The job files of deploy/examples: --check accepts each, with small files of the kind that it
names."""

import glob
import os
import random
import struct

import dp

EXAMPLES = os.path.join(dp.ROOT, "deploy", "examples")

# Of a large network the first block is enough.
SMALLER = {"gpt2-124m": {"model.layers": 1, "model.width": 48}}


class Examples(dp.Case):
    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def setUp(self):
        super().setUp()
        rng = random.Random(1)
        for prefix in ("train", "t10k"):
            self.write(f"{prefix}-images-idx3-ubyte",
                       struct.pack(">4i", 0x803, 10, 28, 28) + rng.randbytes(10 * 784))
            self.write(f"{prefix}-labels-idx1-ubyte",
                       struct.pack(">2i", 0x801, 10) + bytes(range(10)))
        cifar = b"".join(bytes([i]) + rng.randbytes(3072) for i in range(10))
        self.write("data_batch_1.bin", cifar)
        self.write("test_batch.bin", cifar)
        tokens = struct.pack("<2100H", *(rng.randrange(50257) for _ in range(2100)))
        self.write("train.bin", tokens)
        self.write("val.bin", tokens)
        self.write("input.txt", bytes(rng.randrange(97, 123) for _ in range(2000)))

    def test_check(self):
        jobs = sorted(glob.glob(os.path.join(EXAMPLES, "*.yaml")))
        self.assertGreaterEqual(len(jobs), 6)
        for job in jobs:
            name = os.path.splitext(os.path.basename(job))[0]
            with self.subTest(example=name):
                data = self.path("input.txt") if "shakespeare" in name else self.folder
                done = self.driver("--check", "--job", job, *dp.sets(SMALLER.get(name, {})),
                                   "--set", f"data.path={data}", n=2, job=None, port=False)
                self.assert_exit(done, dp.FINISHED)


if __name__ == "__main__":
    dp.main()
