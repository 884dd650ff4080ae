#!/usr/bin/env python3
"""Tests of the GPU suite over stand-in programs, which answer as on a GPU, fail or hang: the suite
ends, reports the right verdicts, and leaves the right files behind.

    test_suite.py"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile

import pytorch_checks

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = [sys.executable, "-u", os.path.join(HERE, "suite.py")]
HANGS = "import time\nprint('its last words', flush=True)\ntime.sleep(10000)\n"
WITHOUT = ("--not", "sanitizer", "--not", "pytorch")  # PyTorch itself would train
ROBUST, SHORT = "600", "10"  # patience in seconds: if no program hangs, and if one does

# Each stand-in is a Python program that can use `argv`, `env` and `wait`.
PROGRAMS = {
    "gpu_probe": "print('cuda:0: NVIDIA Test, can be used')",
    "gpu_properties": """
print('a line of some library', file=sys.stderr)
print(json.dumps({"multiProcessorCount": 9, "nccl": 22809,
                  "cudnn_device": {"multiProcessorCount": 9}}))""",
    "gpu_ops": "print('case add')",
    "gpu_golden": "print('golden')",
    "gpu_profile": "print('all of these; in one recording a step takes 1 us')",
    "gpu_reduce": "print('all that nobody joined were ended in 1.0 ms')",
    "gpu_count.so": "",
    "dptrain-cuda.so": "",
    "dpfollower": "wait()",
    "dpdriver": """
if "--help-job" in argv:
    print(env["HELP_JOB"])
    sys.exit(0)
if "--check" in argv:
    print("they fit: yes")
    sys.exit(0)
at = lambda name: argv[argv.index(name) + 1]
folder = at("--run-dir")
os.makedirs(folder, exist_ok=True)
loss = 1 + 0.001 * ("bfloat16" in str(argv)) + 0.002 * ("float16" in str(argv)) + \\
    0.003 * ("train.tf32=true" in argv)
events = [{"event": "start", "device": at("--device") + ":0"},
          {"event": "form", "nranks": int(at("--nranks"))},
          {"event": "epoch", "train_loss": loss + 0.5}, {"event": "epoch", "train_loss": loss}]
def put(events):
    with open(folder + "/events.jsonl", "a") as file:
        file.writelines(json.dumps(e) + "\\n" for e in events)
if "--port-file" in argv:
    put(events)
    open(at("--port-file"), "w").write("1")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(4))
    put([{"event": "recovered", "nranks": 1, "steps_lost": 0}])
    while True:
        put(events[2:])
        time.sleep(0.01)
if "train.epochs=100000" in argv:
    put([{"event": "checkpoint", "step": step} for step in (4, 8)])
    wait()
for rank in range(int(at("--nranks")) if "GPU_COUNT_FILE" in env else 0):
    with open(f"{env['GPU_COUNT_FILE']}.{rank}", "w") as file:
        file.write('{"steps": 200, "heap": 0, "cudaFree": 0, "callers": {}}')
if "--inject" in argv:
    put([{"event": "recovered", "nranks": 2, "steps_lost": 1}])
plans = env.get("XDG_CACHE_HOME", folder) + "/dptrain/plans"
if not os.path.exists(plans):
    os.makedirs(plans)
    open(plans + "/1.plan", "w").close()
put(events + [{"event": "done", "validation_loss": loss}])""",
}
HELP_JOB = """strategy.name: a
    How.
      a   the first
          choice
      bc  another
      c   the last

strategy.compress: none
    How to compress. It is none, x or y, and applies only if
    strategy.name is a. A resumed run may change it.

strategy.zero: 0
    It is an integer from 0 to 1.

strategy.offload: none
    What. It is none.
"""
PREAMBLE = f"""#!{sys.executable}
import json, os, signal, sys, time
argv, env = sys.argv, os.environ
def wait():
    while True:
        time.sleep(1000)
"""


class World:
    """A bundle of stand-ins, and a folder of programs that comes first on PATH."""

    def __init__(self, folder):
        self.bundle, self.path = os.path.join(folder, "bundle"), os.path.join(folder, "path")
        self.out = os.path.join(folder, "out")
        for name, text in PROGRAMS.items():
            self.put(os.path.join(self.bundle, "bin"), name, text)
        os.makedirs(self.path)
        self.found("nvidia-smi", "print('the GPU')")

    def put(self, folder, name, text):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(PREAMBLE + text + "\n" if text else "")
        os.chmod(os.path.join(folder, name), 0o755)

    def found(self, name, text):
        self.put(self.path, name, text)

    def argv(self, args):
        return [*SUITE, "--bundle", self.bundle, "--out", self.out, *args]

    def env(self, patience):
        return {**os.environ, "DPTRAIN_PATIENCE": patience, "HELP_JOB": HELP_JOB,
                "PATH": self.path + os.pathsep + os.environ["PATH"]}

    def run(self, *args, patience=ROBUST, status=1):
        """Run the suite; {check: (verdict, why)}, and its whole output."""
        done = subprocess.run(self.argv(args), env=self.env(patience), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        assert done.returncode == status, f"status {done.returncode}, want {status}\n{done.stdout}"
        return verdicts_of(done.stdout), done.stdout

    def log(self):
        with open(os.path.join(self.out, "gpu-suite.log"), encoding="utf-8") as file:
            return file.read()


def verdicts_of(text):
    found = re.findall(r"^(ok|FAILED|skipped): (\w+): .*? \(\d+\.\d s\)(?:: (.*))?$", text, re.M)
    return {name: (verdict, why) for verdict, name, why in found}


def expect(what, seen, want):
    assert seen == want, f"{what}:\n{seen}\nwant\n{want}"
    print(f"ok: {what}", flush=True)


def expect_in(what, part, text):
    assert part in text, f"{what}: no {part!r} in\n{text}"
    print(f"ok: {what}", flush=True)


def named(verdicts, wanted):
    return [name for name, (verdict, _) in verdicts.items() if verdict == wanted]


def where_all_is_well(world):
    verdicts, text = world.run(*WITHOUT, status=0)
    expect("all checks pass", set(v for v, _ in verdicts.values()), {"ok"})
    names = list(verdicts)
    expect("one for each strategy", [name for name in names if re.match(
        "strategy_|compress_|zero_|offload_", name)],
        ["strategy_bc", "strategy_c", "compress_x", "compress_y", "zero_1"])
    expect("one rank comes before several", names.index("reduce_2") > names.index("quiet"), True)
    expect("what is left in the folder", sorted(os.listdir(world.out)),
           ["gpu-properties.json", "gpu-suite.log", "gpu-suite.tar.gz"])
    with tarfile.open(os.path.join(world.out, "gpu-suite.tar.gz")) as archive:
        expect_in("the rest is packed", "run-1/events.jsonl", archive.getnames())
    with open(os.path.join(world.out, "gpu-properties.json"), encoding="utf-8") as file:
        expect("what a library says is not in the JSON", json.load(file)["nccl"], 22809)
    expect_in("the profile's last line is shown", "a step takes 1 us", text)
    expect_in("the machine is in the log", "$ nvidia-smi\nthe GPU", world.log())


def what_ignores_precision(world):
    world.put(os.path.join(world.bundle, "bin"), "dpdriver", re.sub(
        r"loss = .*?\n.*?\n", "loss = 1\n", PROGRAMS["dpdriver"]))
    verdicts, _ = world.run(*WITHOUT)
    expect("precision that changes nothing is a failure", named(verdicts, "FAILED"),
           ["bfloat16", "float16", "tf32", "bfloat16_ranks_2"])


def too_much_is_lost(world):
    world.put(os.path.join(world.bundle, "bin"), "dpdriver", PROGRAMS["dpdriver"].replace(
        '"steps_lost": 1', '"steps_lost": 2'))
    verdicts, _ = world.run("--only", "replaced_gpt", "--only", "gpt_ranks_2")
    expect("two lost steps are a failure", named(verdicts, "FAILED"), ["replaced_gpt"])


def everything_hangs(world):
    for name in ("gpu_properties", "gpu_ops", "gpu_golden", "gpu_profile", "gpu_reduce",
                 "dpdriver"):
        world.put(os.path.join(world.bundle, "bin"), name, HANGS)
    world.found("nvidia-smi", "import subprocess\nsubprocess.run(['sleep', '10000'])")
    world.found("cuda-gdb", "print('#0  in a kernel', *argv[1:])")
    verdicts, text = world.run(*WITHOUT, patience=SHORT)
    expect("so many hang, and the rest is left out", named(verdicts, "FAILED"),
           ["check", "properties", "ops_f32", "golden", "resnet18", "vit_tiny", "reduce_2",
            "ranks_2", "resnet18_ranks_2"])
    expect("all others", {why for v, why in verdicts.values() if v != "FAILED"},
           {f"{n} checks of its group hung before" for n in (4, 2, 1)})
    expect_in("strategies are unknown", "no strategies are checked: ", text)
    log = world.log()
    expect_in("the last words", "did not end in time:\nits last words", text)
    expect_in("what is slow about the machine", "(took too long)", log)
    expect_in("where it stood, by /proc", "   thread ", log)
    expect_in("where it stood, by cuda-gdb", "#0  in a kernel -batch -p ", log)
    expect_in("the GPU's kernels are asked for", "info cuda kernels", log)
    limits = [int(n) for n in re.findall(r"\(at most (\d+) s\)", log)]
    expect("less patience after the first that hung", (limits[:2], max(limits[2:5])), ([10, 10], 3))


def a_debugger_that_hangs(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_ops", HANGS)
    world.put(os.path.join(world.bundle, "bin"), "gpu_golden", HANGS)
    world.found("cuda-gdb", HANGS)
    world.found("gdb", "print('#0  in gdb')")
    world.run("--only", "ops_f32", "--only", "golden", patience=SHORT)
    log = world.log()
    expect("it is tried once", log.count("/cuda-gdb on "), 1)
    expect("another is asked", log.count("#0  in gdb"), 2)


def ranks_that_need_something(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_reduce", """
if env.get("NCCL_CUMEM_ENABLE") != "0":
    print("gpu_reduce: is stuck in: rank 0: connecting", flush=True)
    wait()
print("all that nobody joined were ended in 1.0 ms")""")
    verdicts, text = world.run("--only", "several", patience="30")
    expect("only the check that found out fails", named(verdicts, "FAILED"), ["reduce_2"])
    expect_in("the first way is told", "with NCCL_CUMEM_HOST_ENABLE=0 it did not end", text)
    expect_in("the second", "with NCCL_CUMEM_ENABLE=0 it works", text)
    expect_in("the others go that way", "$ NCCL_CUMEM_ENABLE=0 " + world.bundle + "/bin/dpdriver",
              world.log())
    expect_in("who is stuck is looked at", "-- process", world.log())


def cut_off(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_ops", HANGS)
    world.put(os.path.join(world.bundle, "bin"), "dpdriver", PROGRAMS["dpdriver"].replace(
        "    put([{", "    wait()\n    put([{"))
    for name in ("ops_f32", "killed"):
        verdicts, text = world.run("--minutes", "0.2", "--only", name)
        expect(f"{name} is cut off", verdicts[name], ("skipped", "cut off by --minutes"))
        expect_in("which is no failure", "0 passed, 0 failed, ", text)


def cases_that_are_wrong(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_ops", """
print("case add\\nWRONG: case add, node x: no\\ncase max\\nWRONG: case max: gradient\\ncase tanh")
sys.exit(1)""")
    world.found("compute-sanitizer", "print('asked', argv[1:])")
    _, text = world.run("--only", "ops_f16")
    expect_in("the cases are named", "ops_f16: look at add max\n", text)
    expect_in("and run again", "/bin/gpu_ops', 'F16', 'add', 'max']", world.log())


def a_sanitizer(world):
    sees_all = """
print("asked", argv[1:])
sees = "kns=_Z8kernel_7" in argv or "--kernel-name" not in argv
print("Invalid __global__ write" if "STRAY" in argv and sees else "nothing")
sys.exit("racecheck" in argv)"""
    names = "".join(f"\0_Z{len(n)}{n}IfEvPKT_" for n in map("kernel_{}".format, range(20)))
    with open(os.path.join(world.bundle, "bin", "dptrain-cuda.so"), "w", encoding="utf-8") as file:
        file.write(names)
    world.found("compute-sanitizer", sees_all)
    verdicts, text = world.run("--only", "sanitizer")
    expect("what it finds is a failure", named(verdicts, "FAILED"), ["racecheck"])
    asked = [line for line in world.log().splitlines()
             if line.startswith(f"$ {world.path}/compute-sanitizer") and "STRAY" not in line]
    expect("of our kernels, then of all", [line.count("--kernel-name kns=_Z") for line in asked],
           [20, 20, 0])
    expect_in("racecheck is asked for", "--tool racecheck --error-exitcode 1 --kernel", asked[1])
    expect_in("its words are shown", "asked [", text)
    world.found("compute-sanitizer", sees_all.replace("kernel_7", "another"))
    verdicts, _ = world.run("--only", "sanitizer")
    expect("one that sees none of our kernels is a failure", named(verdicts, "FAILED"),
           ["memcheck", "racecheck"])


def one_that_a_signal_ends(world):
    world.put(os.path.join(world.bundle, "bin"), "dpdriver", "os.kill(os.getpid(), signal.SIGSEGV)")
    world.found("cuda-gdb", "print('asked', *argv[1:])")
    _, text = world.run("--only", "recorded")
    expect_in("its signal is told", "/dpdriver ended with -11", text)
    expect("it runs under a debugger, in a folder that is new", re.findall(
        "^asked .* -ex thread apply all bt --args .*/run-1-again ", world.log(), re.M) != [], True)


def answers_that_nobody_expects(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_properties", "print('no JSON')")
    world.put(os.path.join(world.bundle, "bin"), "dpdriver",
              PROGRAMS["dpdriver"].replace('"form"', '"other"'))
    verdicts, _ = world.run("--only", "properties", "--only", "ranks_2", "--only", "golden")
    expect("no exception ends the suite", [v for v, _ in verdicts.values()],
           ["FAILED", "ok", "FAILED"])
    expect("each is in the log", world.log().count("Traceback (most recent call last)"), 2)


def a_driver_that_hangs(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_probe", HANGS)
    _, text = world.run(patience=SHORT)
    expect_in("nothing else is tried", "FAILED: gpu_probe did not end in time", text)
    expect_in("the log has the machine, too", "$ nvidia-smi\n", world.log())


def stopped(world):
    world.put(os.path.join(world.bundle, "bin"), "gpu_ops", HANGS)
    with subprocess.Popen(world.argv(["--only", "golden", "--only", "ops_bf16"]),
                          env=world.env(ROBUST), text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        lines = []
        for line in child.stdout:
            lines.append(line)
            if line.startswith("ok: golden"):
                child.send_signal(signal.SIGTERM)
    expect_in("who stops it gets what there is", "1 passed, 0 failed, 1 skipped", "".join(lines))
    expect("and the archive", "gpu-suite.tar.gz" in os.listdir(world.out), True)


def tests_of_pytorch(world):
    del world
    for script, test in pytorch_checks.TESTS.values():
        case, name = test.split(".")
        with open(os.path.join(pytorch_checks.FOLDER, script), encoding="utf-8") as file:
            text = file.read()
        expect_in(f"{script} has {test}", f"class {case}(", text)
        expect_in(f"{script} has {test}", f"def {name}(", text)


def run(scene):
    with tempfile.TemporaryDirectory() as folder:
        scene(World(folder))


SCENES = (everything_hangs, where_all_is_well, what_ignores_precision, too_much_is_lost,
          a_debugger_that_hangs, ranks_that_need_something, cut_off, cases_that_are_wrong,
          a_sanitizer, one_that_a_signal_ends, answers_that_nobody_expects,
          a_driver_that_hangs, stopped, tests_of_pytorch)
with concurrent.futures.ThreadPoolExecutor(3) as pool:  # the scenes mostly wait
    done = {pool.submit(run, scene): scene.__name__ for scene in SCENES}
failed = [f"{done[f]}: {f.exception()}" for f in done if f.exception()]
sys.exit("\n".join(failed) if failed else 0)
