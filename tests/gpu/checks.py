"""checks - the checks of the GPU suite that train LeNet, or no network at all.

A check's docstring is printed as its title.  groups.py has the order in which all checks run."""

import json
import os
import re
import signal
import subprocess
import time

from process import PATIENCE, end, read, stacks_of, toolkit_program
from rig import LIBRARIES_TELL, SHORT, Hang, Skip, events_of


def losses(events):
    return [e["train_loss"] for e in events if e["event"] == "epoch"] + \
        [e["validation_loss"] for e in events if e["event"] == "done"]


def assert_near(what, seen, want, tolerance):
    assert len(seen) == len(want) > 1, f"{what}: {seen}, want {want}"
    for a, b in zip(seen, want):
        assert abs(a - b) <= tolerance * abs(b), f"{what}: {seen}, want {want} within {tolerance}"


# ---- one rank ----


def check(suite):
    """dpdriver --check --device cuda: driver and libraries fit"""
    text = suite.run("check", [suite.driver, "--check", "--nranks", "1", "--device", suite.device])
    assert "they fit: " in text, text


def properties(suite):
    """the GPU's properties, in gpu-properties.json"""
    text = suite.run("properties", [suite.tool("gpu_properties")], apart=True)
    found = json.loads(text)
    with open(os.path.join(suite.out, "gpu-properties.json"), "w", encoding="utf-8") as file:
        file.write(text)
    assert found["multiProcessorCount"] > 0 and found["nccl"] >= 22800, text
    assert found["cudnn_device"]["multiProcessorCount"] == found["multiProcessorCount"], text


def suspects(text):
    """The cases that were wrong, or else the case that ran when the process ended."""
    wrong = re.findall(r"^WRONG: case ([^,:]+)", text, re.MULTILINE)
    return wrong or re.findall(r"^case (\S+)$", text, re.MULTILINE)[-1:]


def ops(suite, name, dtype):
    """Run the operator table.  If it fails, the first wrong cases run again under
    compute-sanitizer, and the log has its output."""
    try:
        suite.run(name, [suite.tool("gpu_ops"), dtype], limit=2 * PATIENCE)
    except AssertionError as failure:
        cases = suspects(read(os.path.join(suite.work, name + ".log")))
        suite.say(f"    {name}: look at {' '.join(cases) or 'its log: no case ran'}")
        if sanitizer_of() and cases and not isinstance(failure, Hang):
            suite.observe(name + "_sanitized", sanitizing("memcheck") +
                          [suite.tool("gpu_ops"), dtype, *cases[:8]], limit=SHORT)
        raise


def ops_f32(suite):
    """every operator against the double-precision reference, in float32"""
    ops(suite, "ops_f32", "F32")


def ops_bf16(suite):
    """... in bfloat16"""
    ops(suite, "ops_bf16", "BF16")


def ops_f16(suite):
    """... in float16"""
    ops(suite, "ops_f16", "F16")


def golden(suite):
    """PyTorch's losses over 20 steps; a recorded step gives the bits of its kernels"""
    suite.run("golden", [suite.tool("gpu_golden"), suite.golden])


def like_cpu(suite):
    """training is that on the CPU"""
    seen, want = suite.reference(), suite.reference(on_cpu=True)
    start = next(e for e in seen if e["event"] == "start")
    assert start["device"].startswith(suite.device), f"it ran on {start['device']}"
    assert_near("losses", losses(seen), losses(want), 2e-3)


def recorded(suite):
    """recorded steps give the bits that their kernels give one by one, over a whole training"""
    # The smaller batch at the end of an epoch is recorded in epoch 2, and launched from epoch 3 on.
    seen = [losses(suite.train(f"record_{record}", 1, suite.device,
                               {"train.record": record, "train.epochs": 3,
                                "data.samples": 6 * 64 + 34}))
            for record in ("true", "false")]
    assert len(seen[0]) > 1 and seen[0] == seen[1], f"losses {seen[0]}, and unrecorded {seen[1]}"


def profile(suite):
    """where a step's time goes, kernel by kernel (the table is in the log)"""
    text = suite.run("profile", [suite.tool("gpu_profile"), "256" if suite.is_real else "2"])
    assert "all of these; in one recording a step takes" in text, text
    suite.say("    " + text.splitlines()[-1].strip())


def kept_plans(cache):
    """The inode of each plan's file: a plan that is kept anew is a new file."""
    folder = os.path.join(cache, "dptrain", "plans")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {name: os.stat(os.path.join(folder, name)).st_ino
            for name in names if name.endswith(".plan")}


def plans(suite):
    """plans kept on disk give the bits of those chosen anew; the fastest ones train like them"""
    env = {"XDG_CACHE_HOME": os.path.join(suite.work, "cache"), "CACHE_DIRECTORY": ""}
    anew = losses(suite.train("plans_anew", 1, suite.device, {"train.plan_cache": "false"}))
    kept = {}
    for name in ("plans_put", "plans_kept"):
        before, seen = kept, losses(suite.train(name, 1, suite.device, {}, env))
        kept = kept_plans(env["XDG_CACHE_HOME"])
        assert seen == anew, f"{name}: losses {seen}, want {anew}"
    if suite.is_real:
        assert kept and kept == before, f"chosen anew: {sorted(set(kept) ^ set(before)) or kept}"
    timed = suite.train("plans_timed", 1, suite.device, {"train.autotune": "true"}, env)
    assert_near("losses", losses(timed), anew, 2e-3)


def like_float32(name, what, sets, n_ranks=1):
    def check(suite):
        seen = losses(suite.train_explained(name, n_ranks, sets))
        want = losses(suite.reference())
        assert_near("losses", seen, want, 1e-1)
        if suite.is_real or name != "tf32":  # only NVIDIA's GPUs have it
            assert seen != want, f"the losses are float32's, bit by bit: {seen}"
    check.__doc__ = f"training {what} is near that in float32, and not the same"
    check.__name__ = name
    return check


def quiet(n_ranks, network="", job_of=lambda suite: {"data.samples": 300 * 64}):
    """A check that 200 steps of a network use no memory anew.  job_of(suite): keys of a job of one
    epoch without a pause, long enough for all the launches that are counted."""
    # The few reports a second to the daemon's loop use the heap; steps themselves do not.
    most_heap = 10 if n_ranks == 1 else 50  # several ranks' steps take longer, so more reports
    name = "_".join(["quiet"] + [network] * bool(network) + [str(n_ranks)] * (n_ranks > 1))

    def check(suite):
        if not suite.is_real:
            raise Skip("a simulated GPU has no CUDA runtime whose calls could be counted")
        counts = os.path.join(suite.work, f"counts-{name}")
        os.makedirs(counts, exist_ok=True)
        assert os.path.isfile(suite.tool("gpu_count.so")), "there is no gpu_count.so"
        env = {"LD_PRELOAD": suite.tool("gpu_count.so"),
               "GPU_COUNT_FILE": os.path.join(counts, "rank")}
        suite.train(name, n_ranks, suite.device, job_of(suite), env)
        found = [json.loads(read(os.path.join(counts, name))) for name in os.listdir(counts)]
        suite.note(f"counted: {found}")
        assert len(found) == n_ranks, \
            f"{len(found)} of {n_ranks} processes launched as many recorded steps as are counted"
        for rank in found:
            heap, callers = rank.pop("heap"), rank.pop("callers")
            bad = {name: n for name, n in rank.items() if name != "steps" and n}
            assert heap <= most_heap, f"{heap} allocations in {rank['steps']} steps, by {callers}"
            assert rank["steps"] == 200 and not bad, \
                f"in {rank['steps']} steps: {bad}, by {callers}"
    whose = (f" of {network}" if network else "") + (f" of {n_ranks} ranks" if n_ranks > 1 else "")
    check.__doc__ = f"200 steps{whose} without an allocation, a free or a wait"
    check.__name__ = name
    return check


# ---- several ranks, on one GPU ----

# Settings that switch off NCCL's host memory of CUDA's virtual memory management, or all memory of
# that kind: a small virtual machine may support neither.
UNSHARED = [{"NCCL_CUMEM_HOST_ENABLE": "0"}, {"NCCL_CUMEM_ENABLE": "0"}]


def reduced(n_ranks):
    def check(suite):
        name, argv = f"reduce_{n_ranks}", [suite.tool("gpu_reduce"), str(n_ranks)]
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,REG"}
        try:
            text = suite.run(name, argv, env)
        except AssertionError:
            if n_ranks == 2:
                find_way(suite, name, argv + [str(1 << 20)], env)
            raise
        for line in text.splitlines():
            if " ms" in line and "NCCL INFO" not in line:
                suite.say("    " + line)
        assert "that nobody joined were ended in" in text, text
    check.__doc__ = f"all-reduces of {n_ranks} processes, recorded and not; an abort ends one"
    check.__name__ = f"reduce_{n_ranks}"
    return check


def find_way(suite, name, argv, env):
    """Find the settings with which several ranks on one GPU work on this machine.  The checks that
    follow get them."""
    for unshared in UNSHARED:
        what = " ".join(f"{k}={v}" for k, v in unshared.items())
        status, _ = suite.observe(f"{name}_{'_'.join(unshared)}", argv, {**env, **unshared}, SHORT)
        if status == 0:
            suite.ranks_env = unshared
            suite.say(f"    {name}: with {what} it works: so run the other checks of several ranks")
            return
        how = f"ended with {status}" if status is not None else "did not end in time"
        suite.say(f"    {name}: with {what} it {how} (in the log)")


def like_one_rank(n_ranks):
    def check(suite):
        seen = suite.train_explained(f"{n_ranks}_ranks", n_ranks, {})
        form = next(e for e in seen if e["event"] == "form")
        assert form["nranks"] == n_ranks, f"{form}"
        assert_near("losses", losses(seen), losses(suite.reference()), 2e-3)
    check.__doc__ = f"{n_ranks} ranks on one GPU train as one does"
    check.__name__ = f"ranks_{n_ranks}"
    return check


class Killing:
    """A driver that trains beside a follower, which is killed.  All waiting together takes at most
    `limit` seconds."""

    def __init__(self, suite, limit):
        self.suite, self.until = suite, time.monotonic() + suite.limit(limit)
        self.run_dir = suite.new_run()
        self.log_path = os.path.join(suite.work, "killed.log")
        self.processes = []

    def start(self, argv):
        self.suite.note(f"$ {' '.join(argv)}")
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **LIBRARIES_TELL, **self.suite.ranks_env}))
        return self.processes[-1]

    def events(self, kind):
        try:
            return [e for e in events_of(self.run_dir) if e["event"] == kind]
        except (FileNotFoundError, ValueError):
            return []

    def wait_for(self, what, condition):
        while True:
            got = condition()
            if got:
                return got
            driver = self.processes[0]
            assert driver.poll() is None, f"the driver ended ({driver.returncode}) before {what}"
            if time.monotonic() >= self.until:
                for process in self.processes:
                    self.suite.note(stacks_of(process.pid, self.suite.left))
                self.suite.give_up(f"waited in vain for {what}")
            time.sleep(0.02)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                self.suite.note(end(process))
        self.suite.note(read(self.log_path))


def kill(suite, job):
    """Train a job, which goes on for ever, on two ranks, kill one, and stop the other later."""
    k = Killing(suite, PATIENCE)
    sets = {**job, "train.epochs": 100000, "cluster.min_ranks": 1, "cluster.replace_timeout": 0}
    argv = [a for a in suite.command(2, suite.device, sets, k.run_dir) if a != "--local"]
    port_file = k.run_dir + ".port"
    try:
        driver = k.start(argv + ["--port-file", port_file])
        port = k.wait_for("the port", lambda: read(port_file))
        follower = k.start([suite.follower, "--root", f"127.0.0.1:{port}", "--once", "--device",
                            suite.device, "--threads", "1",
                            *[a for a in argv if a == "--test-shared-gpu"]])
        k.wait_for("an epoch", lambda: k.events("epoch"))
        follower.kill()
        start = time.monotonic()
        recovered = k.wait_for("the recovery", lambda: k.events("recovered"))[0]
        seconds = time.monotonic() - start
        suite.say(f"    recovered after {seconds:.2f} s")
        assert recovered["nranks"] == 1 and recovered["steps_lost"] <= 1, f"{recovered}"
        n_epochs = len(k.events("epoch"))
        k.wait_for("training to go on", lambda: len(k.events("epoch")) > n_epochs)
        driver.send_signal(signal.SIGTERM)
        k.wait_for("the driver's end", lambda: driver.poll() is not None)
        assert driver.returncode == 4, f"the driver ended with {driver.returncode}"
        # A simulated GPU beside other work may be slow: the time counts on a real GPU only.
        assert seconds < 15 or not suite.is_real, f"recovered after {seconds:.1f} s, want < 15"
    finally:
        k.end()


def killed(suite):
    """kill -9 of a rank in the midst of training: the other goes on alone, from the same step"""
    kill(suite, {})


# ---- compute-sanitizer ----


def sanitizer_of():
    """The path of compute-sanitizer, on PATH or in the toolkit."""
    return toolkit_program("compute-sanitizer")


def sanitizing(tool):
    """compute-sanitizer and its options.  It does not report failing calls of the API: our code
    does that, and cuDNN tries calls that fail."""
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [sanitizer_of(), "--tool", tool, *quiet]


def own_kernels(plugin):
    """The beginnings of our kernels' mangled names.  The plugin's file holds the names of the
    kernels that it registers."""
    with open(plugin, "rb") as file:
        found = re.findall(rb"\0_Z(\d+)(\w+)", file.read())
    names = {f"_Z{n.decode()}{rest[:int(n)].decode()}" for n, rest in found if len(rest) >= int(n)}
    assert len(names) > 10, f"{plugin} names no kernels: {sorted(names)}"
    return sorted(names)


def only_own(suite):
    """compute-sanitizer's options that restrict it to our kernels.  A fault of such a kernel proves
    that they work."""
    options = []
    for name in own_kernels(plugin_of(suite)):
        options += ["--kernel-name", f"kns={name}"]
    _, text = suite.observe("stray", [*sanitizing("memcheck"), *options, suite.tool("gpu_ops"),
                                      "STRAY"], limit=SHORT)
    assert "Invalid __global__ write" in text, f"memcheck does not see a stray kernel:\n{text}"
    return options


def plugin_of(suite):
    for folder in (suite.tools, os.path.join(suite.tools, "..", "lib")):
        path = os.path.join(folder, "dptrain-cuda.so")
        if os.path.isfile(path):
            return path
    raise AssertionError(f"no dptrain-cuda.so in {suite.tools}, nor in ../lib")


def sanitized(name, tool, what, own_only=True):
    def check(suite):
        if not sanitizer_of():
            raise Skip("no compute-sanitizer on PATH or in the toolkit")
        argv = sanitizing(tool) + ["--error-exitcode", "1"]
        if own_only:
            argv += only_own(suite)
        suite.run(name, argv + [suite.tool("gpu_ops")], limit=2 * PATIENCE)
    check.__doc__ = f"compute-sanitizer {tool} finds nothing in the operator table: {what}"
    check.__name__ = name
    return check


# Within a group, the checks that tell most in the least time come first.
ONE_RANK = [
    check, properties, ops_f32, golden, like_cpu, recorded, profile, ops_bf16, ops_f16,
    like_float32("bfloat16", "in bfloat16", {"precision": "bfloat16"}),
    like_float32("float16", "in float16", {"precision": "float16"}),
    like_float32("tf32", "in TF32", {"train.tf32": "true"}),
    plans, quiet(1)]
SEVERAL_RANKS = [
    reduced(2), like_one_rank(2), killed, quiet(2),
    like_float32("bfloat16_ranks_2", "of 2 ranks that sum in bfloat16",
                 {"precision": "bfloat16", "train.grad_dtype": "bfloat16"}, 2),
    reduced(3), like_one_rank(3)]
SANITIZER = [
    sanitized("memcheck", "memcheck", "our kernels"),
    sanitized("racecheck", "racecheck", "our kernels"),
    sanitized("memcheck_all", "memcheck", "the libraries', too", own_only=False)]
