"""Where two computations of a step part: the lists of report.operators, and what `dpdriver verify`
and `dpdriver compare` make of them."""

import json
import os
import re
import shutil

import dp
from dp import DRIVER, FAILED, FINISHED
from test_dump import tensors
from test_replay import JOB, SHARES, Runs

LAYERS = ["flatten", {"linear": {"units": 16}}, "tanh", {"dropout": {"p": 0.1}},
          {"linear": {"units": 10}}]


def key(line):
    return line["first"], line["number"]


class Base(Runs):
    def listed(self, run, step=9):
        with open(self.path(run, f"operators-{step:08}.jsonl"), encoding="ascii") as file:
            return sorted((json.loads(line) for line in file), key=key)

    def first_other(self, run, other, step=9):
        """The first tensor with another hash, of two lists of the same tensors."""
        pairs = list(zip(self.listed(run, step), self.listed(other, step), strict=True))
        for a, b in pairs:
            self.assertEqual({**a, "hash": ""}, {**b, "hash": ""})
        return min((a for a, b in pairs if a != b), key=lambda a: (a["number"], a["first"]))

    def say(self, *args, status=FAILED):
        daemon = self.start([DRIVER, *args], env={**self.env, "TMPDIR": self.path("tmp")})
        self.assert_exit(daemon, status)
        self.assertEqual(os.listdir(self.path("tmp")), [])
        return daemon.out

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("tmp"))


class Lists(Base):
    JOB = {"report.operators": 9, "model.arch": "mlp", "model.hidden": [16]}

    def test_shares(self):
        """With fixed shares the lists are the same for each number of ranks."""
        self.train(job={**self.JOB, **SHARES}, run="one")
        self.train(job={**self.JOB, **SHARES}, n=3, run="three")
        one = self.listed("one")
        self.assertEqual(one, self.listed("three"))
        self.assertEqual({(a["first"], a["samples"]) for a in one},
                         {(first, 16) for first in (0, 16, 32, 48)})
        for first in (0, 16, 32, 48):
            numbers = [a["number"] for a in one if a["first"] == first]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertGreaterEqual({a["kind"] for a in one}, {"linear", "linear_grad_w"})
        self.assertTrue(any(a["tensor"].endswith("weight.grad") for a in one))
        self.assertEqual(len({a["hash"] for a in one if a["tensor"].endswith("weight")}), 2)

    def test_kinds(self):
        """However the ranks divide what they have; and the run is what it is without a list."""
        self.train(n=2, run="plain", job={**self.JOB, "report.operators": 0})
        for i, more in enumerate(({}, {"strategy.zero": 1}, {"strategy.zero": 2},
                                  {"strategy.zero": 3, "train.bucket_bytes": 4096},
                                  {"train.audit": 1}, {"train.accumulate": 2})):
            with self.subTest(more):
                self.train(job={**self.JOB, **more}, n=2, run=f"run{i}")
                lines = self.listed(f"run{i}")
                firsts = (0, 16, 32, 48) if "train.accumulate" in more else (0, 32)
                self.assertEqual({a["first"] for a in lines}, set(firsts))
                if i < 3 or "train.audit" in more:
                    self.assertEqual(lines, self.listed("run0"))
                    self.assertEqual(self.rows(f"run{i}"), self.rows("plain"))

    def test_tensor(self):
        """The numbers of a tensor: weights that a checkpoint of the step before has."""
        self.train(job=self.JOB)
        line = next(a for a in self.listed("run") if a["tensor"].endswith("weight") and a["given"])
        self.train(job={**self.JOB, "report.tensor": line["number"]}, n=2, run="two")
        seen = tensors(self.path("two", "tensor-00000009.safetensors"))
        want = tensors(self.path("two", "checkpoints", "step-00000008", "model.safetensors"))
        self.assertEqual(list(seen), ["0", "32"])
        for numbers in seen.values():
            self.assertEqual(numbers, want[line["tensor"]])
        told = self.train(job={**self.JOB, "report.tensor": 1000}, run="more").text
        self.assertIn("report.tensor is 1000, want the number of a tensor that "
                      "operators-00000009.jsonl lists", told)
        told = self.run_driver(job={**JOB, "report.tensor": 1}, n=1, status=dp.USAGE).text
        self.assertIn("report.tensor is 1, but report.operators is 0", told)

    def test_flips(self):
        """The first tensor that differs is the one in which a bit was flipped."""
        self.train(job=self.JOB)
        told = self.train("--inject", "flip:rank0@step7:param0", job=self.JOB, run="param").text
        other = self.first_other("run", "param")
        self.assertEqual(other["tensor"],
                         re.search(r"sign bit of element \d+ of (\S+),", told).group(1))
        self.assertTrue(other["given"])
        self.train("--inject", "flip:rank0@step8:batch", job=self.JOB, run="batch")
        other = self.first_other("run", "batch")
        self.assertEqual((other["number"], other["given"]), (1, True))


class Verify(Base):
    def test_rounding(self):
        """Without shares ranks have other samples; the sums of gradients can be compared."""
        job = {**JOB, "train.epochs": 1}
        out = self.say("verify", "1,2", "--step", "2", *dp.sets(job), status=FINISHED)
        seen = re.search(r"2 ranks beside 1: no operator had the same samples in both.*; in step 1 "
                         r"the summed gradient of (\S+) is the first that differs: (\d+) of (\d+) "
                         r"numbers of \[[\d,]+\], by up to (\S+) \(element (\d+): (\S+) and (\S+)"
                         r"\); (\d+) of (\d+) parameters' gradients differ\n", out)
        self.assertTrue(seen, out)
        for n in (1, 2):
            self.train(job={**job, "report.gradients": 1}, n=n, run=f"run{n}")
        one, two = (tensors(self.path(f"run{n}", "gradients-00000001.safetensors"))
                    for n in (1, 2))
        name = next(name for name in one if one[name] != two[name])
        gaps = [abs(x - y) for x, y in zip(one[name], two[name], strict=True)]
        at = int(seen[5])
        self.assertEqual((seen[1], int(seen[2]), int(seen[3])),
                         (name, sum(gap > 0 for gap in gaps), len(gaps)))
        self.assertEqual(gaps[at], max(gaps))
        self.assertEqual(seen[4], f"{max(gaps):.3g}")
        self.assertEqual((seen[6], seen[7]), (f"{one[name][at]:.9g}", f"{two[name][at]:.9g}"))

    def test_flips(self):
        """Rank 1 has other shares among 3 ranks than among 2."""
        out = self.say("verify", "2,3", "--step", "3", "--inject", "flip:rank1@step2:bucket0",
                       *dp.sets({**JOB, "strategy.shards": 3}), status=FINISHED)
        self.assertRegex(out, r"3 ranks beside 2: all operators' tensors are the same; in step 3 "
                              r"the summed gradient of \S+ is the first that differs: ")


class Compare(Base):
    """Runs whose jobs differ."""
    JOB = {"model.arch": "layers", "model.layers": json.dumps(LAYERS), "train.epochs": 1}

    def part(self, more, *wanted):
        self.train(job={**self.JOB, **more}, run="other")
        out = self.say("compare", "run", "other")
        for text in wanted:
            self.assertRegex(out, text)
        shutil.rmtree(self.path("other"))

    def test_jobs(self):
        self.train(job=self.JOB)
        first = r"(?m)^replay       of both, up to step 3: they part at step 1\n" \
                r"first        in step 1, samples 0 to 63 of its batch, the first "
        layers = json.dumps(LAYERS).replace("0.1", "0.2")
        self.part({"model.layers": layers},
                  first + r"operator whose output differs is \S+ \(dropout\), \S+: \d+ of 1024 "
                          r"numbers of \[64,16\], by up to [01]\.\d+ \(element")
        self.part({"model.layers": json.dumps(LAYERS).replace("16", "24")},
                  first + r"tensor that differs is \S+weight, which no operator made and \S+ "
                          r"\(linear\) reads: \[16,784\] and \[24,784\]\n")
        self.part({"precision": "bfloat16"}, first + r"operator whose output differs is .*: .* and "
                                                     r".*BF16.* by up to")
        self.part({"train.seed": 2}, "other samples", first + r"tensor that differs is \S+, which "
                                                              r"no operator made")
        self.part({"optimizer.lr": 0.004},
                  r"first        all operators' tensors are the same; all summed gradients of step "
                  r"1 are the same, so the update differs")

    def test_shares(self):
        """Other numbers of ranks have the same shares, of which the first operator is told."""
        layers = json.dumps(LAYERS).replace("0.1", "0.2")
        self.train(job={**self.JOB, **SHARES})
        self.train(job={**self.JOB, **SHARES, "model.layers": layers}, n=2, run="other")
        self.assertRegex(self.say("compare", "run", "other"),
                         r"\nfirst        in step 1, samples 0 to 15 of its batch, the first "
                         r"operator whose output differs is \S+ \(dropout\), .* of \[16,16\]")

    def test_fault(self):
        """A flip that is not there when the steps are computed again."""
        self.train(job=self.JOB)
        self.train("--inject", "flip:rank0@step4:param0", job=self.JOB, run="other")
        out = self.say("compare", "run", "other")
        self.assertRegex(out, r"replay       of both, up to step 6: they are the same; what made "
                              r"the difference does not come back")
        self.assertRegex(out, r"\n             other is not what its steps give now, first at step "
                              r"6, then and now: loss .*, state \w{16} and \w{16}, the same")
        self.assertNotIn(" run is not what", out)
        self.assertNotIn("first        ", out)

    def test_lost_job(self):
        """A run without its job is not computed again; the rest is told all the same."""
        self.train(job=self.JOB)
        self.train(job={**self.JOB, "train.seed": 2}, run="other")
        os.remove(self.path("other", "job.yaml"))
        self.assertRegex(self.say("compare", "run", "other"),
                         r"(?s)part at step 3 or before it.*\nunknown      which tensor differs "
                         r"first: other: .*job.yaml")


if __name__ == "__main__":
    dp.main()
