"""test_vectors - the loops with e^x are vector code on processors with AVX2.

    test_vectors.py PROGRAM

PROGRAM has the CPU backend in it.  These loops compare numbers, and a compiler that must keep the
flags of floating point computes them one by one: each number then takes 6 ns.  Exit status 77: the
compiler made no variants of the loops (clang, sanitizers), or there is no objdump.
"""
import re
import shutil
import subprocess
import sys
import unittest

LOOPS = ("cpu_softmax_xent_exps", "cpu_attention_exps", "result_of_SILU_MUL", "da_of_SILU_MUL")


def code_of(program, name):
    """The instructions of a function"""
    return subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", program],
                          check=True, capture_output=True, text=True).stdout


class Vectors(unittest.TestCase):
    def test_loops_multiply_vectors(self):
        for name in LOOPS:
            with self.subTest(loop=name):
                code = code_of(PROGRAM, name + ".avx2")
                self.assertIn(f"<{name}.avx2>:", code)
                wide = len(re.findall(r"vmulps .*%ymm", code))
                self.assertGreaterEqual(wide, 8, f"{name} has {wide} products of vectors")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    if not shutil.which("objdump") or ".avx2>:" not in code_of(PROGRAM, LOOPS[0] + ".avx2"):
        print("no variants of loops to look at")
        sys.exit(77)
    unittest.main()
