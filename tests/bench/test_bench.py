"""Tests of the benchmarks' logic: rates from events, the order of runs, limits, tables.

They need neither PyTorch nor a GPU; without PyTorch a stand-in takes its name."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import accuracy
import bench
import goodput
import gpu
import strategies

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    for name in ("torch", "numpy"):
        sys.modules.setdefault(name, mock.MagicMock())
import torch_gpu

BATCH = 256
DECIDING = [("batch 256", "float32", who) for who in ("ours, tuned", "eager", "graph")]


def epochs_of(*each):
    """The events of epochs of (samples, seconds, median step's ms), with 0.25 s between them."""
    events = [dict(event="first_step", time=101.5, rss_mib=[90, 80])]
    now, step = 100.0, 0
    for samples, seconds, ms in each:
        now += seconds + 0.25
        step += -(-samples // BATCH)
        events.append(dict(event="epoch", step=step, samples=samples, train_seconds=seconds,
                           samples_per_second=samples / seconds, step_ms_median=ms, time=now,
                           comm_exposed_ms_median=ms / 10, train_loss=0.5))
    return events + [dict(event="done")]


class Records(unittest.TestCase):
    def test_prose_is_wrapped_and_tables_are_not(self):
        row, word = "| " + "x" * 120 + " |", "some " * 30
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
            bench.record(f"## A\n\n{word}\n\n{row}\n\n- {word}\n- b\n", file.name)
            lines = file.read().split("\n")
        self.assertEqual(lines[:3], ["", "## A", ""])
        self.assertIn(row, lines)
        self.assertEqual([len(line) for line in lines if line.startswith("some ")], [99, 49])
        self.assertEqual([line[:4] for line in lines[-4:]], ["- so", "  so", "- b", ""])


class Rates(unittest.TestCase):
    def test_the_first_epoch_is_not_steady(self):
        said = bench.read_events(epochs_of((60000, 0.35, 0.3), *16 * [(60000, 0.03, 0.12)]), 100)
        self.assertAlmostEqual(said["samples_per_second"] / BATCH, 60000 / BATCH / (0.03 + 0.25))
        self.assertAlmostEqual(said["step_ms"], 0.12)
        self.assertAlmostEqual(said["comm_exposed_ms"], 0.012)
        self.assertAlmostEqual(said["between_epochs_ms"], 250)
        self.assertAlmostEqual(said["first_step_s"], 1.5)
        self.assertEqual(said["rss_mib"], 90)

    def test_a_run_within_the_first_is_all_of_it(self):
        said = bench.read_events(epochs_of((51200, 4.0, 20)), 100)
        self.assertAlmostEqual(said["samples_per_second"], 12800)
        self.assertEqual(said["step_ms"], 20)
        self.assertIsNone(said["between_epochs_ms"])

    def test_a_short_rest_counts_with_the_first(self):
        said = bench.read_events(epochs_of((60000, 5.0, 20), (2560, 0.1, 10)), 100)
        self.assertAlmostEqual(said["samples_per_second"], 62560 / 5.1)
        self.assertEqual(said["step_ms"], 20)

    def test_an_epoch_weighs_as_many_steps_as_it_has(self):
        """An epoch that max_steps cuts short does not move the median."""
        said = bench.read_events(epochs_of((60000, 9, 9), (60000, 1, 3), (256, 1, 1), (256, 1, 1)),
                                 100)
        self.assertEqual(said["step_ms"], 3)


class Ends(unittest.TestCase):
    def start(self, code):
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def test_who_does_not_end_is_ended_with_all_beside_it(self):
        both = [self.start("import time\ntime.sleep(1e6)") for _ in range(2)]
        with self.assertRaisesRegex(bench.Late, "it had not ended after 0 s"):
            bench.finish(both, 0.01)
        self.assertEqual([p.poll() for p in both], [-9, -9])

    def test_a_failure_says_what_was_said(self):
        with self.assertRaisesRegex(RuntimeError, "no such thing"):
            bench.finish([self.start("raise SystemExit('no such thing')")])
        self.assertEqual(bench.finish([self.start("print('a\\n{\"b\": 1}')")]), {"b": 1})


def arguments(*argv, kinds=gpu.KINDS):
    args = gpu.parse(list(argv))
    args.kinds = kinds
    return args


class Order(unittest.TestCase):
    def test_goals_come_first_and_what_may_harm_last(self):
        runs = gpu.plan(arguments())
        self.assertEqual(runs[:9], [(n, key) for n in (1, 2, 3) for key in DECIDING])
        self.assertEqual(runs[9:11], [(1, gpu.PROFILE), (1, gpu.CEILINGS)])
        self.assertEqual(runs[11:13], [(1, ("batch 256", "float32", who))
                                       for who in ("ours", "compiled")])
        self.assertEqual(runs[-1], (1, gpu.EXPOSURE))

    def test_everything_is_run_as_often_as_it_should(self):
        runs = gpu.plan(arguments("--rounds", "2", "--others", "4"))
        self.assertEqual(len(runs), len(set(runs)))
        for case in gpu.CASES:
            for precision in gpu.PRECISIONS:
                for who in (*gpu.OURS, *gpu.KINDS):
                    key = (case, precision, who)
                    self.assertEqual(sum(what == key for _, what in runs),
                                     2 if key in DECIDING else
                                     0 if who == "compiled" and precision != "float32" else 4, key)

    def test_compiling_waits_for_the_other_cases(self):
        runs = [what for _, what in gpu.plan(arguments())]
        compiled = [i for i, what in enumerate(runs) if gpu.is_compiled(what)]
        self.assertEqual(compiled, [12, len(runs) - 2])

    def test_what_is_left_out(self):
        runs = gpu.plan(arguments("--case", "batch 64", "--precision", "tf32", kinds=()))
        self.assertEqual(runs, [(1, gpu.PROFILE), (1, ("batch 64", "tf32", "ours")),
                                (1, ("batch 64", "tf32", "ours, tuned")), (1, gpu.EXPOSURE)])
        runs = gpu.plan(arguments("--rehearse", kinds=("eager",)))
        self.assertEqual([what for _, what in runs], [
            *DECIDING[:2], gpu.CEILINGS, ("batch 256", "float32", "ours"), gpu.EXPOSURE])


class Clocked(gpu.Bench):
    """A Bench whose runs take `seconds` each, or end as `ends` says for them."""

    def __init__(self, clock, seconds, *argv, ends=None):
        self.clock, self.seconds, self.ends, self.limits = clock, seconds, ends or {}, []
        with mock.patch("time.monotonic", clock):
            super().__init__(arguments(*argv))

    def run(self, what, limit):
        self.limits.append((what, limit))
        self.clock.return_value += min(self.seconds, limit)
        if what in self.ends:
            raise self.ends[what]
        return dict(steps_per_second=10.0)

    def all(self):
        with mock.patch("time.monotonic", self.clock), mock.patch("sys.stderr"), \
                mock.patch.object(gpu, "report", self.report), \
                mock.patch.object(gpu, "libraries_of", return_value="they fit: 1 GPU can"):
            self.text = self.go()
        return self

    def report(self, args, results, failures, libraries):
        return f"{sum(len(runs) for runs in results.values())} runs, {len(failures)} failures"


class Limits(unittest.TestCase):
    def setUp(self):
        self.clock = mock.Mock(return_value=1000.0)

    def test_no_run_goes_on_after_the_minutes(self):
        b = Clocked(self.clock, 50, "--minutes", "8").all()
        self.assertEqual([limit for _, limit in b.limits],
                         [200, 200, 200, 200, 200, 200, 180, 130, 80, 30])
        self.assertEqual([len(b.results[key]) for key in DECIDING], [3, 3, 3])
        self.assertEqual(b.clock.return_value, 1480)
        self.assertEqual(len(b.failures), len(gpu.plan(b.args)) - 10)
        self.assertEqual(b.failures[0], "ceilings, round 1: no time was left")
        self.assertEqual(b.failures[-1], "2 ranks, round 1: no time was left")

    def test_compiling_may_take_longer(self):
        b = Clocked(self.clock, 1).all()
        self.assertEqual({limit for what, limit in b.limits if gpu.is_compiled(what)}, {300})
        self.assertEqual({limit for what, limit in b.limits if not gpu.is_compiled(what)}, {200})
        self.assertEqual(b.failures, [])

    def test_gpus_are_those_that_dpdriver_can_use(self):
        b = Clocked(self.clock, 1)
        b.n_gpus = 3
        self.assertEqual(b.all().n_gpus, 1)

    def test_who_was_late_is_not_tried_again(self):
        b = Clocked(self.clock, 1, ends={DECIDING[0]: bench.Late("x\nit had not ended")}).all()
        self.assertEqual(sum(what == DECIDING[0] for what, _ in b.limits), 1)
        self.assertEqual(b.failures, [
            "batch 256, float32, ours, tuned, round 1: it had not ended",
            "batch 256, float32, ours, tuned, round 2: not tried again",
            "batch 256, float32, ours, tuned, round 3: not tried again"])
        self.assertEqual(len(b.results[DECIDING[1]]), 3)

    def test_a_failure_of_any_kind_is_that_run_s_own(self):
        b = Clocked(self.clock, 1, ends={DECIDING[1]: KeyError("loss"), gpu.PROFILE: OSError(),
                                         gpu.CEILINGS: RuntimeError("a\nlast line\n")}).all()
        self.assertEqual(b.failures, [
            *(f"batch 256, float32, eager, round {n}: KeyError 'loss'" for n in (1, 2, 3)),
            "profile, round 1: OSError no reason given", "ceilings, round 1: last line"])
        self.assertEqual(len(b.results[DECIDING[2]]), 3)


class Stopped(unittest.TestCase):
    def test_a_signal_leaves_what_there_is(self):
        """After a signal, and with --out after each run, the results so far are written."""
        before = signal.getsignal(signal.SIGTERM)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        with tempfile.NamedTemporaryFile("r") as out:
            seen = []

            class Signalled(Clocked):
                def run(self, what, limit):
                    seen.append(pathlib.Path(out.name).read_text(encoding="utf-8"))
                    if what == DECIDING[2]:
                        os.kill(os.getpid(), signal.SIGTERM)
                    return super().run(what, limit)
            b = Signalled(mock.Mock(return_value=0.0), 1, "--out", out.name).all()
            self.assertEqual(seen, ["", "1 runs, 0 failures", "2 runs, 0 failures"])
            self.assertEqual(out.read(), "2 runs, 1 failures")
        self.assertEqual(b.text, "2 runs, 1 failures")
        self.assertEqual(b.failures, ["batch 256, float32, graph, round 1, and what comes behind "
                                      "it: stopped by a signal"])


def ours(*rates, gap=None):
    return [dict(steps_per_second=rate, between_epochs_ms=gap) for rate in rates]


def theirs(*rates):
    return [dict(steps_per_second=rate, layout="NHWC", version="9.9", cudnn=91900, gpu="H999")
            for rate in rates]


class Pays(unittest.TestCase):
    """A step takes a + b / rate."""

    def pays_below(self, base, other):
        rates = (1000, 100)
        seconds = [{rate: a + b / rate for rate in rates} for a, b in (base, other)]
        return strategies.pays_below((10, seconds[0]), (10, seconds[1]), rates)

    def test_fewer_bytes_pay_below_a_rate(self):
        self.assertAlmostEqual(self.pays_below((0.02, 4), (0.03, 1)), 300)
        self.assertEqual(self.pays_below((0.02, 4), (0.01, 1)), float("inf"))

    def test_more_bytes_do_not(self):
        self.assertEqual(self.pays_below((0.02, 4), (0.01, 8)), 0)
        self.assertEqual(self.pays_below((0.02, 4), (0.03, 8)), 0)


class Learning(unittest.TestCase):
    """A run that is quick and does not learn meets no goal."""

    def run_ours(self, loss, *argv):
        with mock.patch.object(bench, "run_ours", return_value=dict(samples_per_second=2560.0,
                                                                    loss=loss)):
            return gpu.Bench(arguments(*argv)).run(DECIDING[0], 1)

    def test_ours(self):
        for loss in (0.02, 0.0):
            self.assertEqual(self.run_ours(loss)["steps_per_second"], 10)
        self.assertEqual(self.run_ours(2.2, "--rehearse")["steps_per_second"], 10)
        for loss in (2.3, None, float("nan")):
            with self.assertRaisesRegex(RuntimeError, f"it does not learn: loss {loss}"):
                self.run_ours(loss)


class Report(unittest.TestCase):
    def setUp(self):
        self.args = arguments("--rehearse")

    def test_rows_say_rounds_medians_and_goals(self):
        results = {DECIDING[1]: theirs(1000, 1200), DECIDING[2]: theirs(7000),
                   ("batch 64", "float32", "ours"): ours(5),
                   DECIDING[0]: ours(8000, 10000, 9600, gap=0.5)}
        self.assertEqual(list(gpu.rows(results))[2:], [
            "| batch 256 | float32 | ours, tuned | 3 | 9,600 (8,000 to 10,000) |  |",
            "| batch 256 | float32 | PyTorch eager, NHWC | 2 | 1,100 (1,000 to 1,200) "
            "| 8.73 (meets 8.0) |",
            "| batch 256 | float32 | PyTorch graph, NHWC | 1 | 7,000 (7,000 to 7,000) "
            "| 1.37 (misses 1.5) |",
            "| batch 64 | float32 | ours | 1 | 5 (5 to 5) |  |"])

    def test_the_profile_and_what_is_missing_are_in_it(self):
        text = gpu.report(self.args, {DECIDING[0]: ours(8000, gap=0.5), DECIDING[1]: theirs(1000),
                                      gpu.PROFILE: ["  us  of step\n1.25  conv1"]},
                          ["2 ranks, round 1: no time was left"], "NCCL: 9")
        for part in ("GPU: H999\n", "PyTorch 9.9 with cuDNN 91900", "pass 0.50 ms (at most 0.50)",
                     "\n```\n  us  of step\n1.25  conv1\n```\n", "\n```\nNCCL: 9\n```\n",
                     "\nNot measured:\n\n- 2 ranks, round 1: no time was left\n"):
            self.assertIn(part, text)

    def test_nothing_measured_is_a_report_too(self):
        text = gpu.report(self.args, {}, ["PyTorch: none"], "")
        self.assertIn("no PyTorch", text)
        self.assertIn("- PyTorch: none\n", text)


class Seen:
    """Records calls by name, in order."""

    def __init__(self):
        self.calls = []

    def note(self, name, result=None):
        return lambda *args, **kwargs: (self.calls.append((name, *args, *kwargs.items())),
                                        result)[1]

    @contextlib.contextmanager
    def within(self, name):
        self.calls.append((name,))
        yield
        self.calls.append(("end of " + name,))


class TheirSteps(unittest.TestCase):
    def test_a_graph_is_captured_behind_steps_aside_and_then_only_replayed(self):
        seen = Seen()
        side, current = (SimpleNamespace(wait_stream=seen.note(name)) for name in ("side", "main"))
        cuda = SimpleNamespace(
            Stream=lambda: side, current_stream=lambda: current,
            stream=lambda s: seen.within("aside"), graph=lambda g: seen.within("capture"),
            CUDAGraph=lambda: SimpleNamespace(replay=seen.note("replay")))

        class Step:
            optimizer = SimpleNamespace(zero_grad=seen.note("zero_grad"))
            __call__ = staticmethod(seen.note("step", "loss"))
        replay = torch_gpu.captured(Step(), cuda)
        self.assertEqual(seen.calls, [
            ("side", current), ("aside",), *11 * [("step",)], ("end of aside",), ("main", side),
            ("zero_grad", ("set_to_none", True)), ("capture",), ("step",), ("end of capture",)])
        seen.calls.clear()
        self.assertEqual([replay(), replay()], ["loss", "loss"])
        self.assertEqual(seen.calls, 2 * [("replay",)])

    def test_gradients_are_gone_before_the_forward(self):
        seen = Seen()
        step = object.__new__(torch_gpu.Step)
        step.order = "order"
        step.optimizer = SimpleNamespace(zero_grad=seen.note("zero_grad"), step=seen.note("step"))
        step.images = SimpleNamespace(index_select=seen.note("images", "x"))
        step.labels = SimpleNamespace(index_select=seen.note("labels", "y"))
        step.loss_of = seen.note("forward", SimpleNamespace(backward=seen.note("backward"),
                                                            detach=lambda: 2.5))
        self.assertEqual(step(), 2.5)
        self.assertEqual(seen.calls, [
            ("zero_grad", ("set_to_none", True)), ("images", 0, "order"), ("labels", 0, "order"),
            ("forward", "x", "y"), ("backward",), ("step",)])

    def test_sgd_is_fused_where_gradients_lie_as_their_weights(self):
        def weight(*grad):
            return SimpleNamespace(stride=lambda: (9, 1, 3, 1),
                                   grad=SimpleNamespace(stride=lambda: grad))
        for version, grad, want in (("2.4.1+cu130", (9, 1, 3, 1), True),
                                    ("2.15.0a0", (9, 1, 3, 1), True),
                                    ("2.15.0", (9, 9, 3, 1), False),
                                    ("1.13.0a0", (9, 1, 3, 1), False)):
            with mock.patch.object(torch_gpu, "torch", SimpleNamespace(__version__=version)):
                self.assertIs(torch_gpu.can_fuse([weight(9, 1, 3, 1), weight(*grad)]), want)

    def test_a_gpu_is_timed_by_its_own_events(self):
        """No wait comes between the events; the median is over the times between neighbours."""
        seen, marks = Seen(), iter(range(100))
        ms = [1.0, 9.0, 2.0]

        def event(enable_timing):
            self.assertTrue(enable_timing)
            n = next(marks)
            return SimpleNamespace(n=n, record=seen.note(f"mark {n}"),
                                   elapsed_time=lambda later: ms[n] if later.n == n + 1 else None)
        with mock.patch.object(torch_gpu, "torch", SimpleNamespace(cuda=SimpleNamespace(
                Event=event, synchronize=seen.note("synchronize")))):
            seconds = torch_gpu.timed("cuda", seen.note("work"), repeats=3)
        self.assertAlmostEqual(seconds, 2e-3)
        self.assertEqual(seen.calls[3:], [
            ("mark 0",), ("work",), ("mark 1",), ("work",), ("mark 2",), ("work",), ("mark 3",),
            ("synchronize",)])


class Accuracy(unittest.TestCase):
    """Which figures of accuracy.py decide, and the goals that they meet."""

    def setUp(self):
        self.data = tempfile.NamedTemporaryFile()
        self.addCleanup(self.data.close)

    def main(self, network, figures, *argv, theirs=None):
        """The exit status and the report, if each run ends with its figure."""
        def train(_args, _work, *key):
            value = figures[key[0]] if isinstance(figures, dict) else figures
            deciding = dict(validation_loss=value) if network == "gpt" else \
                dict(validation_accuracy=value / 100)
            return [dict(dict(validation_loss=0.5, validation_accuracy=0.5, train_loss=1,
                              samples_per_second=1), **deciding)]
        printed = io.StringIO()
        with mock.patch.object(accuracy, "train", train), mock.patch("sys.stderr"), \
                mock.patch.object(accuracy, "measure_torch", return_value=theirs or {}), \
                mock.patch.dict(accuracy.RECIPES[network], data=self.data.name), \
                contextlib.redirect_stdout(printed):
            return accuracy.main(["--network", network, *argv]), printed.getvalue()

    def test_a_gpt_s_loss_is_at_most_the_goal_in_each_precision(self):
        for float32, bfloat16, status in ((1.9, 1.9, 0), (1.901, 1.8, 1), (1.8, 1.901, 1),
                                          (1.8, float("nan"), 1)):
            said, text = self.main("gpt", dict(float32=float32, bfloat16=bfloat16))
            self.assertEqual(said, status)
            for name, value in (("float32", float32), ("bfloat16", bfloat16)):
                self.assertIn(f"| {name} | normal | 1 | 1 | {value:.3f} ({value:.3f} to "
                              f"{value:.3f}) |  | {'meets' if value <= 1.9 else 'misses'} |  |  |",
                              text)

    def test_pytorch_s_loss_stands_beside_a_gpt_s_and_decides_nothing(self):
        said, text = self.main("gpt", 1.85, "--precision", "bfloat16",
                               theirs={("bfloat16", "normal"): [[1.5]]})
        self.assertEqual(said, 0)
        self.assertIn("| 1.850 (1.850 to 1.850) |  | meets | +0.350 |  |", text)
        self.assertIn("| bfloat16 | normal | PyTorch | 1 | 1.500 (1.500 to 1.500) |", text)

    def test_an_accuracy_is_as_near_to_pytorch_s_as_its_goal_says(self):
        beside = {("bfloat16", "pytorch"): [[75.0]]}
        for value, status in ((74.1, 0), (75.9, 0), (73.9, 1), (76.1, 1)):
            self.assertEqual(self.main("resnet18", value, "--torch", "python", theirs=beside)[0],
                             status)
        for value, status in ((98.5, 0), (98.9, 0), (98.3, 1)):  # beside the earlier results
            self.assertEqual(self.main("lenet", value, "--init", "pytorch")[0], status)

    def test_the_last_three_epochs_are_compared_where_there_are_three(self):
        args = accuracy.parse([])
        key, runs = ("float32", "pytorch"), [[90.0, 97.0, 98.0, 99.0]]
        self.assertEqual(accuracy.row(args, key, 2, runs, {key: [[98.0, 98.0, 98.6]]}),
                         "| float32 | pytorch | 2 | 1 | 99.00 (99.00 to 99.00) | 98.00 | misses "
                         "| +0.40 | -0.20 |")

    def test_the_job_is_the_example_s_with_the_run_s_values(self):
        args = accuracy.parse(["--network", "gpt"])
        words = accuracy.job_words(args, "run", "normal", 3, "bfloat16")
        self.assertEqual(os.path.basename(words[1]), "shakespeare-gpt.yaml")
        self.assertTrue(os.path.exists(words[1]))
        for text in ("train.seed=3", "precision=bfloat16", "train.epochs=2",
                     "train.validate_every=2", f"data.path={args.data}"):
            self.assertIn(text, words)

    def test_unknown_precisions_are_refused(self):
        for argv in (["--network", "gpt", "--precision", "float32,float8"],
                     ["--precision", "bfloat16"], ["--network", "resnet18"]):
            with mock.patch("sys.stderr"), self.assertRaises(SystemExit) as end:
                accuracy.parse(argv)
            self.assertEqual(end.exception.code, 2)


class Turns(unittest.TestCase):
    """The turns of goodput.py: when losses come, and which steps count."""

    def test_losses_come_in_the_middle_of_intervals_and_not_at_the_end_of_turns(self):
        for every, times in ((60, [30, 90]), (15, [7.5 + 15 * k for k in range(8)]),
                             (40, [20, 60, 100]), (39, [19.5, 55, 97.5])):
            with self.subTest(every=every):
                self.assertEqual(goodput.losses_of(120, 60, every, False),
                                 [(at, "rank") for at in times])
        self.assertEqual(goodput.losses_of(120, 60, 0, False), [])
        self.assertEqual(goodput.losses_of(9, 4, 3, False),  # a short turn's end is short, too
                         [(1.5, "rank"), (4.5, "rank"), (7, "rank")])

    def test_the_driver_is_lost_half_way_and_not_beside_a_rank(self):
        for every in (15, 60):
            losses = goodput.losses_of(300, 60, every, True)
            at, = (at for at, what in losses if what == "driver")
            self.assertLess(abs(at - 150), every)
            self.assertEqual(min(abs(at - other) for other, what in losses if what == "rank"),
                             every / 4)
            self.assertEqual(losses, sorted(losses))

    def test_calm_parts_lead_to_losses_and_do_not_cross_turns(self):
        for every, want in ((60, [(0, 0, 30), (1, 0, 30)]),
                            (30, [(0, 0, 15), (0, 30, 45), (1, 0, 15), (1, 30, 45)]),
                            (40, [(0, 0, 20), (0, 40, 60), (1, 20, 40)]),
                            (39, [(0, 0, 19.5), (0, 39, 55), (1, 18, 37.5)]),
                            (120, [(0, 0, 60)])):
            with self.subTest(every=every):
                losses = goodput.losses_of(120, 60, every, True)
                self.assertEqual(goodput.calm_spans(losses, 60, every), want)

    def test_steps_count_between_marks(self):
        marks = [(10 + k, 16 * k) for k in range(8)]
        for begin, end, want in ((10, 17, (112, 7)), (10.5, 15.2, (64, 4)), (10.1, 10.9, (0, 0))):
            self.assertEqual(goodput.steps_between(marks, begin, end), want)

    def test_a_row_compares_the_turns(self):
        found = dict(every=15, spares=2, driver=False, losses=4, own=(600, 30), bits=(7, True),
                     calm=[(600, 30), (900, 30)], paces=[(570, 30), (765, 30)],
                     starts=[0.88, 0.9], recovered=[0.4, 0.5, 0.6], lost=1)
        self.assertEqual(goodput.row(found),
                         "| a loss every 15 s, 2 spares | 1,335 | 1,500 | 89.0 % | 88.0 to 90.0 % "
                         "| 85.0 to 95.0 % | 111.2 % | 4 | 1.65 | 0.50 | 0.60 | 1 "
                         "| equal at 7 steps |")
        calm = dict(found, every=0, losses=0, own=(0, 0), recovered=[], lost=0)
        self.assertEqual(goodput.row(calm), "| no loss, 2 spares | 1,335 | 1,500 | 89.0 % | 88.0 "
                         "to 90.0 % | 85.0 to 95.0 % |  | 0 |  |  |  | 0 | equal at 7 steps |")
        for each in (found, calm):
            self.assertEqual(goodput.row(each).count("|"),
                             goodput.HEAD.split("\n", maxsplit=1)[0].count("|"))

    def test_all_starts_count(self):
        one = dict(losses=2, calm=[(100, 10)], paces=[(90, 10)], own=(50, 5), bits=(3, True),
                   recovered=[0.3], lost=1)
        two = dict(one, paces=[(110, 10)], bits=(4, False), recovered=[0.4], lost=0)
        self.assertEqual(goodput.together((15, 2, False), [one, two]), dict(
            every=15, spares=2, driver=False, losses=4, calm=[(100, 10), (100, 10)],
            paces=[(90, 10), (110, 10)], starts=[0.9, 1.1], own=(100, 10), bits=(7, False),
            recovered=[0.3, 0.4], lost=1))

    def test_the_bits_differ_if_one_hash_does_or_none_can_be_compared(self):
        for mine, want in (({20: "a", 40: "b", 60: "c"}, (2, True)),
                           ({20: "a", 40: "c"}, (2, False)), ({60: "c"}, (0, False))):
            self.assertEqual(goodput.same_bits({20: "a", 40: "b"}, mine), want)

    def test_turns_are_equally_long(self):
        for argv in (["--minutes", "2.5", "--starts", "1"], ["--minutes", "5", "--starts", "2"]):
            args = goodput.parse([*argv, "--every", "15"])
            self.assertEqual((args.n_turns, args.turn), (3, 50))
        for argv in (["--minutes", "0.5"], ["--minutes", "4"], ["--starts", "0"], ["--turn", "0"],
                     ["--every", "0"], ["--every", "15", "--every", "-1"]):
            with mock.patch("sys.stderr"), self.assertRaises(SystemExit) as end:
                goodput.parse(argv)
            self.assertEqual(end.exception.code, 2)

    def test_the_second_pair_of_turns_is_reversed(self):
        args = SimpleNamespace(n_turns=3, turn=30)
        taken = []
        calm, other = (SimpleNamespace(take_turn=lambda *what, name=name: taken.append(
            (name, *what[:2]))) for name in ("calm", "other"))
        goodput.in_turns(args, calm, other, [(15, "rank"), (50, "driver")], 1)
        self.assertEqual(taken, [("calm", 30, ()), ("other", 30, [(15, "rank")]),
                                 ("other", 30, [(20, "driver")]), ("calm", 30, ()),
                                 ("calm", 30, ()), ("other", 30, [])])


if __name__ == "__main__":
    unittest.main()
