"""Bad arguments of both daemons: exit status 2, and one line that says what to do.
Also --check, and that a refused command leaves nothing behind."""

import os
import re
import resource
import socket
import subprocess

import dp
from dp import DRIVER, FAILED, FOLLOWER, PATIENCE, USAGE

# arguments, words of the error
DRIVER_CASES = [
    ([], r"--nranks is missing.*dpdriver --nranks 2 --local"),
    (["--local", "--job", "bad.yaml"], r"--nranks is missing"),
    (["--nranks", "0"], r'--nranks is 0, want an integer from 1 to 131072: this process is one of '
                        r'them, so 1 trains alone, and a job can have no more'),
    (["--nranks", "999999"], r'--nranks is 999999, want an integer from 1 to 131072: this process'),
    (["--nranks", "two"], r'--nranks is "two"'),
    (["--nranks", "2x"], r'--nranks is "2x"'),
    (["--nranks", ""], r"--nranks is empty"),
    (["--nranks"], r"--nranks needs a value: N"),
    (["--nrank", "1", "--nrnaks", "1"], r"unknown option --nrnaks; did you mean --nranks\?"),
    (["--nranks", "1", "--frobnicate"], r"unknown option --frobnicate; --help"),
    (["--nranks", "1", "extra"], r'"extra" is no option'),
    (["--nranks", "1", "--set", "train.epochs=1", "train.seed=2"],
     r'"train.seed=2" is no option: --set takes one KEY=VALUE at a time; write --set train.seed=2'),
    (["--nranks", "1", "--local=1"], r"--local takes no value"),
    (["--nranks", "1", "--port", "65536"], r'--port is 65536, want an integer from 0 to 65535'),
    (["--nranks", "1", "--port", "http"], r'--port is "http"'),
    (["--nranks", "1", "--threads", "0"], r'--threads is 0, want an integer from 1 to 4096'),
    (["--nranks", "1", "--log-format", "xml"], r'--log-format is "xml", want text or json'),
    (["--nranks", "1", "--device", "tpu"], r'--device is "tpu", want auto, cpu, cuda or cuda:I'),
    (["--nranks", "1", "--device", "cuda:99"], r"--device cuda:99: \S"),
    (["--nranks", "1", "--device", "cuda:"], r'--device is "cuda:", want'),
    (["--nranks", "1", "--iface", "no-such0"], r'interface "no-such0".*this host has'),
    (["--nranks", "1", "--host", "0.0.0.0"], r"--host 0.0.0.0: .*add --insecure"),
    (["--nranks", "1", "--host", "::"], r"--host ::: .*add --insecure"),
    (["--nranks", "1", "--host", "no.such.host.invalid"], r"cannot be resolved"),
    (["--nranks", "1", "--host", "fe80::1%lo"],
     r"--host: fe80::1%lo is a link-local IPv6 address.*another address of that machine"),
    (["--standby", "--root", "[fe80::1%eth0]:7000"], r"--root: fe80::1%eth0 is a link-local IPv6"),
    (["--nranks", "1", "--secret-file", "f"], r"--secret-file: f: .*No such file.*--make-secret"),
    (["--nranks", "1", "--secret-file", "bad.yaml"], r"chmod 600 bad.yaml"),
    (["--make-secret", "bad.yaml"], r"--make-secret: bad.yaml is there already"),
    (["--status", "--run-dir", "typo"], r"--status: there is no run directory typo, nor runs/typo"),
    (["--drain", "1", "--run-dir", "typo"], r"--drain: there is no run directory typo"),
    (["--drain", "1", "--status"], r"--status and --drain: one question at a time"),
    (["--drain", "1", "--trace", "1"], r"--drain and --trace: one question at a time"),
    (["--pause", "--go"], r"--pause and --go: one question at a time"),
    (["--set-live", "optimizer.lr"], r"--set-live optimizer.lr: want KEY=VALUE"),
    (["--trace", "61"], r"--trace.*61"),
    (["trace", "0"], r"--trace.*0"),
    (["--drain", ""], r"--drain .*empty"),
    (["--drain", "1 2"], r"--drain 1 2: want the number of a rank, spare1, or the name of a host"),
    (["--nranks", "2", "--inject", "kil:rank1@step5"],
     r'--inject: "kil:rank1@step5": unknown fault "kil", want kill, stop, delay, drop, flip or '
     r'skip'),
    (["--nranks", "2", "--inject", "kill:rank1@step5", "--inject", "stop:rank2@form"],
     r'--inject: "stop:rank2@form": there is no rank 2: the job has 2, the driver is 0'),
    (["--nranks", "1", "--test-shared-gpu=1"], r"--test-shared-gpu takes no value"),
    (["--nranks", "1", "--job", "missing.yaml"], r"missing.yaml.*No such file"),
    (["--nranks", "1", "--job", "."], r"job file \. is a folder, want a regular file"),
    (["--nranks", "1", "--job", "pipe"], r"job file pipe is a pipe"),
    (["--nranks", "1", "--job", "tab.yaml"], r"tab.yaml:2:\d+: a tab; YAML indents with spaces"),
    (["--nranks", "1", "--job", "bad.yaml"], r"bad.yaml:2:\d+: .*train.epoch.*train.epochs"),
    (["--nranks", "1", "--job", "nodata.yaml"], r"data"),
    (["--nranks", "1", "--job", "nomnist.yaml"], r"no/such/folder"),
    (["--nranks", "1", "--set", "train.epochs=0"], r"train.epochs"),
    (["--nranks", "1", "--set", "train.epoch=1"], r"unknown key .train.epoch.*train.epochs"),
    (["--nranks", "1", "--set", "train.epochs"], r"train.epochs"),
    (["--nranks", "1", "--set", "model.hidden=[4]"],
     r"without --job, --set changes the demo job \(model\.arch lenet, .*model\.hidden applies only "
     r"if model\.arch is mlp"),
    (["--nranks", "1", "--run-dir", "taken"], r"taken holds a run already; add --resume"),
    (["--nranks", "1", "--run-dir", "bad.yaml"], r"not a folder"),
    (["--nranks", "1", "--resume"], r"--resume: there is no run in runs/demo"),
    (["--resume"], r"--resume: there is no run in runs/demo"),
    (["--resume", "--run-dir", "typo"], r"--resume: there is no run in typo"),
    (["--resume", "--local", "--job", "bad.yaml"],
     r"--nranks is missing: no run in runs/demo tells how many processes --local starts"),
    (["--nranks", "1", "--resume", "--set", "name=mine"], r"there is no run in runs/mine"),
    (["--nranks", "1", "--resume", "--run-dir", "typo"], r"there is no run in typo.*--run-dir"),
    (["--nranks", "1", "--resume", "--check", "--run-dir", "typo"], r"there is no run in typo"),
]

# By a verb's word; the options of the verbs above are the same in all else.
VERB_CASES = [
    (["trian"], r'"trian" is nothing that dpdriver does; did you mean train\?.*dpdriver --help'),
    (["mine.yaml"], r'"mine.yaml" is nothing.*a job file stands behind "train" or --job'),
    (["help", "statsu"], r"did you mean status\?"),
    (["train"], r"--nranks is missing"),
    (["train", "missing.yaml"], r"missing.yaml.*No such file"),
    (["train", "missing.yaml", "--nranks", "1", "more"], r'"more" is no option'),
    (["train", "--root", "a:1"], r'"dpdriver train" takes no --root, which belongs to standby'),
    (["evaluate", "nowhere"], r"nowhere"),
    (["evaluate", "--resume"], r'"dpdriver evaluate" takes no --resume, which belongs to train'),
    (["evaluate", "--predict", "o.npy"], r"takes no --predict, which belongs to predict"),
    (["predict"], r'"dpdriver predict" needs a word: dpdriver predict OUT.npy \[CHECKPOINT\]'),
    (["predict", "o.npy", "nowhere"], r"nowhere"),
    (["set-live"], r'"dpdriver set-live" needs a word: dpdriver set-live KEY=VALUE'),
    (["export"], r'"dpdriver export" needs a word: dpdriver export FILE.onnx \[CHECKPOINT\]'),
    (["export", "net.pb"], r"--export net.pb: want FILE.onnx for the network, or FILE.safetensors"),
    (["export", "net.onnx", "nowhere"], r"nowhere"),
    (["merge", "net.onnx"], r"--merge net.onnx: want FILE.safetensors"),
    (["sample", "nowhere"], r'"dpdriver sample" needs a word: dpdriver sample CHECKPOINT TEXT'),
    (["sample", "nowhere", "text"], r"--checkpoint nowhere: there is no checkpoint in nowhere"),
    (["sample", "nowhere", "text", "--tokens", "0"], r"--tokens is 0, want an integer from 1"),
    (["--sample", "text", "--temperature", "-1"], r"--temperature is -1, want a number from 0"),
    (["--sample", "text", "--top-p", "2"], r"--top-p is 2, want a number above 0 up to 1"),
    (["--sample="], r"empty"),
    (["--sample", "text", "--device", "cuda"], r"--device cuda: --sample computes on the CPU"),
    (["--sample", "text", "--export", "net.onnx"], r"--sample and --export: leave one of them out"),
    (["--tokens", "3", "--nranks", "1"], r"--tokens belongs to --sample"),
    (["--export", "net.onnx", "--resume"], r"--export and --resume: leave one of them out"),
    (["status", "typo"], r"--status: there is no run directory typo, nor runs/typo"),
    (["status", "--log-format", "text", "typo"], r"--status: there is no run directory typo"),
    (["status", "--job", "x"],
     r"takes no --job, which belongs to train, find-lr, evaluate, predict, export, merge, "
     r"sample and verify"),
    (["status", "--drain", "1"], r"takes no --drain, which belongs to drain"),
    (["drain"], r"needs a word: dpdriver drain WHO"),
    (["drain", "1", "typo"], r"--drain: there is no run directory typo"),
    (["trace"], r"needs a word: dpdriver trace SECONDS"),
    (["report"], r"needs a word: dpdriver report RUN"),
    (["report", "typo"], r"--report: there is no run directory typo, nor runs/typo"),
    (["report", "typo", "--job", "x"], r"\"dpdriver report\" takes no --job"),
    (["--report", "typo", "--status"], r"--report and --status: leave one of them out"),
    (["compare"], r"needs a word: dpdriver compare RUN1 RUN2"),
    (["compare", "typo"], r"--compare: 1 runs are given, want 2"),
    (["compare", "typo", "typo"], r"--compare: there is no run directory typo, nor runs/typo"),
    (["compare", "a", "b", "--job", "x"], r"\"dpdriver compare\" takes no --job"),
    (["--compare", "typo", "typo"], r"--compare: there is no run directory typo"),
    (["--compare", "a", "b", "--status"], r"--compare and --status: leave one of them out"),
    (["replay"], r"needs a word: dpdriver replay RUN --step N"),
    (["replay", "typo"], r"--replay needs --step"),
    (["replay", "typo", "--step", "0"], r"--step is 0, want an integer from 1"),
    (["replay", "typo", "--step", "1"], r"--replay: there is no run directory typo, nor runs/typo"),
    (["replay", "a", "--step", "1", "--job", "x"], r"\"dpdriver replay\" takes no --job"),
    (["replay", "a", "--step", "1", "--dump", "x.npy"], r"--dump x.npy: want FILE.safetensors"),
    (["--dump", "x.safetensors", "--nranks", "1"], r"--dump belongs to --replay"),
    (["--replay", "a", "--resume"], r"--replay and --resume: leave one of them out"),
    (["--step", "1", "--nranks", "1"], r"--step belongs to --replay and --verify"),
    (["verify"], r"needs a word: dpdriver verify 1,2,4"),
    (["verify", "2"], r"--verify 2: want 2 to 16 numbers of ranks, from 1 to 131072, such as 1,2"),
    (["verify", "1,2", "missing.yaml"], r"--verify: on 1 rank: .*missing.yaml"),
    (["verify", "typo"], r"--verify: there is no run directory typo, nor runs/typo"),
    (["verify", "1,2", "--key", "k"], r"--verify 1,2 takes no --key, .*belongs to --verify RUN"),
    (["--key", "k", "--nranks", "1"], r"--key belongs to --verify"),
    (["--sign", "missing", "--nranks", "1"], r"--sign: key missing"),
    (["verify", "1,2", "--sign", "k"], r'"dpdriver verify" takes no --sign'),
    (["--out", "x", "--nranks", "1"], r"--out belongs to --report and --init"),
    (["trace", "1", "typo"], r"--trace: there is no run directory typo"),
    (["drain", "1 2"], r"--drain 1 2: want the number of a rank"),
    (["standby"], r'"dpdriver standby" needs a word: dpdriver standby HOST:PORT'),
    (["--standby"], r"--standby needs --root"),
    (["--nranks", "1", "status"], r'"status" must be the first word: dpdriver status'),
    (["train", "--set", "a=1", "b=2"], r"--set takes one KEY=VALUE at a time; write --set b=2"),
    (["--resume", "--nranks", "2", "--set", "train.epochs=5"],
     r"error: --resume: there is no run in runs/demo"),
    (["standby", "[fe80::1%eth0]:7000"], r"--root: fe80::1%eth0 is a link-local IPv6"),
    (["standby", "h:1", "--nranks", "2"], r'"dpdriver standby" takes no --nranks'),
    (["secret"], r"needs a word: dpdriver secret FILE"),
    (["secret", "bad.yaml"], r"--make-secret: bad.yaml is there already"),
    (["keys", "optimiser"], r'no key of a job file has "optimiser" in its name, its help or its '
                            r'values; the closest is optimizer; "dpdriver keys" lists all'),
    (["keys", "train.epoch", "lr"], r'"lr" is no option'),
    (["keys", ""], r"the word for WORD is empty; write one, or leave it out"),
    (["--help-job", "--like", ""], r"--like is empty, want WORD"),
    (["secret", "s1", "--make-secret", "s2"],
     r"FILE is given twice: s1, and --make-secret s2; leave one out"),
    (["keys", "zzyzzyzzy"], r'"zzyzzyzzy" in its name, its help or its values; "dpdriver'),
    (["train", "--like", "lr"], r'"dpdriver train" takes no --like, which belongs to keys'),
]

FOLLOWER_CASES = [
    ([], r"--root is missing.*127.0.0.1:7000"),
    (["--root", "127.0.0.1:1", "--device", "cuda:99"], r"--device cuda:99: \S"),
    (["--root", "localhost"], r"--root: .*want HOST:PORT"),
    (["--root", "localhost:x"], r'--root: .*port is "x"'),
    (["--root", "::1:7000"], r"needs brackets"),
    (["--root", "127.0.0.1:1", "--rank", "0"], r"--rank is 0, which is the driver's"),
    (["--root", "127.0.0.1:1", "--rank", "-1"], r'--rank is "-1"'),
    (["--root", "127.0.0.1:1", "--rank", "one"], r'--rank is "one", want any, or a number'),
    (["--root", "127.0.0.1:1", "--data", "nowhere"], r"--data nowhere is not a folder"),
    (["--root", "127.0.0.1:1", "--wait", "-1"], r'--wait is -1, want an integer from 0 to 1'),
    (["--root", "127.0.0.1:1", "--secret-file", "f"],
     r"--secret-file: f: .*No such file.*--make-secret"),
    (["--root", "127.0.0.1:1", "--iface", "nope"], r'interface "nope"'),
    (["--root", "[fe80::1%eth0]:7000"], r"fe80::1%eth0 is a link-local IPv6 address.*ip address"),
    (["--root", "[fe80::1]:7000"], r"\[fe80::1\]:7000: fe80::1 is a link-local IPv6 address"),
    (["--root", "192.0.2.1:7000"], r"not on this machine.*--secret-file.*--insecure"),
    (["--root", "127.0.0.1:1", "--relay"], r"--relay belongs to --ranks, .*or leave --relay out"),
    (["--rooot", "127.0.0.1:1"], r"did you mean --root\?"),
    (["--root", "http://localhost:7000"], r"want HOST:PORT"),
]

BAD_YAML = "model: {arch: lenet}\ntrain: {epoch: 3}\ndata: {format: digits}\n"
TAB_YAML = "model:\n\tarch: lenet\ndata: {format: digits}\n"
NODATA_YAML = "model: {arch: lenet}\n"
NOMNIST_YAML = ("model: {arch: lenet}\n"
                "data: {format: mnist, path: no/such/folder, validation: t10k}\n")


class Args(dp.Case):
    def check(self, program, args, pattern):
        result = subprocess.run([program, *args], cwd=self.folder, env=self.env, timeout=PATIENCE,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, USAGE, f"{args}: {result.stderr}")
        self.assertRegex(result.stderr, pattern, f"{args}")
        self.assertIn(": error: ", result.stderr)
        self.assertEqual(result.stderr.count(": error: "), 1, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_driver(self):
        for name, text in (("bad", BAD_YAML), ("nodata", NODATA_YAML), ("nomnist", NOMNIST_YAML),
                           ("tab", TAB_YAML)):
            with open(self.path(name + ".yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        os.makedirs(self.path("taken/checkpoints"))
        os.mkfifo(self.path("pipe"))
        for args, pattern in VERB_CASES:
            with self.subTest(args=args):
                self.check(DRIVER, args, pattern)
        for args, pattern in DRIVER_CASES:
            with self.subTest(args=args):
                extra = [] if "--port" in args or args[-1:] == ["--nranks"] else ["--port", "0"]
                self.check(DRIVER, args + extra, pattern)

    def test_too_few_files(self):
        """The error comes before a follower connects, not when the last ones find no room."""
        relay = r", or let the followers .*dpfollower --ranks N --relay there, and --relays"
        for args, most, who, remedy in (
                (["--nranks", "100"], 100, "99 followers need 163", relay),
                (["--nranks", "100", "--relays", "50"], 100, "99 followers by relays need 114", ""),
                (["--nranks", "1"], 25, "this job needs 32", "")):
            result = subprocess.run(
                [DRIVER, *args, "--port", "0"], cwd=self.folder, env=self.env,
                timeout=PATIENCE, capture_output=True, text=True, check=False,
                preexec_fn=lambda n=most: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertRegex(result.stderr, rf"{who} open files here, and this process may have "
                                            rf"{most}: raise its hard limit .*\){remedy}")
            self.assertEqual("--relays" in result.stderr, bool(remedy))
        self.assertEqual(os.listdir(self.folder), [])

    def test_follower(self):
        for args, pattern in FOLLOWER_CASES:
            with self.subTest(args=args):
                self.check(FOLLOWER, args, pattern)

    def test_nothing_is_made(self):
        """A refused command leaves nothing behind in the current folder."""
        for args in (["--nranks", "0"], ["--nranks", "1", "--set", "x=1"],
                     ["--nranks", "1", "--check"]):
            subprocess.run([DRIVER, *args], cwd=self.folder, env=self.env, timeout=PATIENCE,
                           capture_output=True, check=False)
        self.assertEqual(os.listdir(self.folder), [])

    def test_output_is_full(self):
        """A command whose output could not be printed fails."""
        few = ("--check", "--nranks", "4", "--set", "train.global_batch=3")
        for argv in ((DRIVER, "--help"), (DRIVER, "--help-job"), (FOLLOWER, "--version"),
                     (DRIVER, *few)):
            with self.subTest(argv=argv[1:]), open("/dev/full", "w", encoding="ascii") as full:
                result = subprocess.run(argv, env=self.env, cwd=self.folder, timeout=PATIENCE,
                                        stdout=full, stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertIn("standard output cannot be written: No space left", result.stderr)
        self.assertIn("train.global_batch is 3, fewer than the 4 ranks: 1 rank will have no "
                      "samples", result.stderr)

    def test_verbs(self):
        """A verb's word and its option do the same; the help of each verb has its options alone."""
        def told(*args):
            result = subprocess.run([DRIVER, *args], cwd=self.folder, env=self.env, check=False,
                                    timeout=PATIENCE, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""), f"{args}")
            return result.stdout

        self.assertEqual(told("keys"), told("--help-job"))
        self.assertEqual(told("keys", "Batch"), told("--help-job", "--like", "batch"))
        verbs = re.findall(r"^  ([\w-]+) +.*", told("help").split("\n\n")[2], re.MULTILINE)
        self.assertEqual(verbs, ["train", "find-lr", "evaluate", "predict", "export", "merge",
                                 "sample", "standby", "drain", "status", "trace",
                                 "set-live", "checkpoint-now", "pause", "go", "report", "compare",
                                 "replay", "verify", "secret", "init", "keys", "help"])
        self.assertLessEqual(len(told("help").splitlines()), 51)
        options, daily = {}, {}
        for verb in verbs:
            summary, whole = told(verb, "--help"), told("help", verb)
            self.assertEqual(told(verb, "help"), whole)
            daily[verb] = set(re.findall(r"^  (--[\w-]+)", summary, re.MULTILINE))
            options[verb] = set(re.findall(r"^  (--[\w-]+)", whole, re.MULTILINE))
            if verb != "help":
                self.assertLess(daily[verb], options[verb])
                self.assertIn(f'"dpdriver help {verb}" has {len(options[verb] - daily[verb])} more '
                              f'option', summary)
                self.assertIn("Exit status", whole)
                self.assertLessEqual(len(summary.splitlines()), 40, verb)
        self.assertEqual(set.union(*options.values()),
                         set(re.findall(r"^  (--[\w-]+)", told("--help"), re.MULTILINE)))
        self.assertEqual(options["status"], {"--run-dir", "--status", "--watch", "--log-format",
                                             "--help", "--version"})
        self.assertEqual(daily["status"], {"--run-dir", "--watch", "--help"})
        self.assertLess({"--nranks", "--job", "--resume", "--local"}, daily["train"])
        self.assertIn("--resume", options["train"])
        self.assertNotIn("--resume", options["evaluate"])
        self.assertEqual(told("--status", "--help"), told("status", "--help"))

    def test_help_and_version(self):
        for program, words in ((DRIVER, ("--nranks N", "--resume", "Exit status")),
                               (FOLLOWER, ("--root HOST:PORT", "--wait", "Exit status"))):
            shown = subprocess.run([program, "--help"], env=self.env, timeout=PATIENCE,
                                   capture_output=True, text=True, check=True).stdout
            for word in words:
                self.assertIn(word, shown)
            self.assertLessEqual(max(len(line) for line in shown.splitlines()), 90)
            shown = subprocess.run([program, "--version"], env=self.env, timeout=PATIENCE,
                                   capture_output=True, text=True, check=True).stdout
            self.assertRegex(shown, r"^dp(driver|follower) \d+\.\d+\.\d+\n$")
        shown = subprocess.run([DRIVER, "--help-job"], env=self.env, timeout=PATIENCE,
                               capture_output=True, text=True, check=True).stdout
        for key in ("train.global_batch", "optimizer.lr", "checkpoint.keep", "cluster.deadlines"):
            self.assertIn(key, shown)

    def test_check(self):
        """--check opens the job and trains nothing."""
        result = subprocess.run([DRIVER, "--nranks", "2", "--check"], cwd=self.folder, env=self.env,
                                timeout=PATIENCE, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"parameters +129068 in 8 tensors")
        self.assertRegex(result.stdout, r"training samples +20000: \d+ steps per epoch")
        self.assertRegex(result.stdout, r"validation samples +4000")
        self.assertEqual(os.listdir(self.folder), [])

    def test_check_bfloat16(self):
        """--check says how this CPU computes in bfloat16."""
        with open("/proc/cpuinfo", encoding="ascii") as file:
            own = "no AVX512-BF16" if "avx512f" in file.read() else "no AVX-512"
        for isa, words in (("AVX2", "no AVX-512"), ("AVX512_CORE", own)):
            result = subprocess.run([DRIVER, "--check", "--set", "precision=bfloat16"],
                                    cwd=self.folder, env={**self.env, "ONEDNN_MAX_CPU_ISA": isa},
                                    timeout=PATIENCE, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, rf"(?m)^bfloat16 +widened to float32 before .*{words}")

    def test_check_ranks(self):
        """Without --nranks the job has as many ranks as it needs at least.  A rank without samples
        is told of."""
        result = subprocess.run([DRIVER, "--check", "--set", "cluster.min_ranks=2", "--set",
                                 "train.global_batch=1"],
                                cwd=self.folder, env=self.env, timeout=PATIENCE,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ranks +2,")
        self.assertIn("fewer than the 2 ranks: 1 rank will have no samples", result.stderr)

    def test_threads_with_shares(self):
        """With fixed shares all ranks have the same number of threads, whatever --threads says."""
        for threads, is_told in ((3, True), (2, False)):
            result = subprocess.run([DRIVER, "--check", "--threads", str(threads), "--set",
                                     "strategy.shards=2", "--set", "strategy.share_threads=2"],
                                    cwd=self.folder, env=self.env, timeout=PATIENCE,
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("--threads 3 has no effect: with strategy.shards" in result.stderr,
                             is_told, result.stderr)

    def test_check_bad_data(self):
        with open(self.path("nomnist.yaml"), "w", encoding="utf-8") as file:
            file.write(NOMNIST_YAML)
        self.check(DRIVER, ["--check", "--job", "nomnist.yaml"], r"no/such/folder")

    def test_port_in_use(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            driver = self.start([DRIVER, "--nranks", "1", "--port", str(port)])
            self.assert_exit(driver, FAILED, rf"127.0.0.1:{port}.*EADDRINUSE.*--port 0")
        self.assertEqual(os.listdir(self.folder), [])

    def test_bad_port_file(self):
        driver = self.start([DRIVER, "--nranks", "1", "--port", "0", "--port-file", "no/such/f"])
        self.assert_exit(driver, USAGE, r"--port-file.*no/such/f")
        os.mkdir(self.path("taken"))
        driver = self.start([DRIVER, "--nranks", "1", "--port", "0", "--port-file", "taken"])
        self.assert_exit(driver, USAGE, r"--port-file.*taken")
        self.assertEqual(os.listdir(self.folder), ["taken"])
        self.assertEqual(os.listdir(self.path("taken")), [])

    def test_port_file_of_nobody(self):
        """A driver that cannot have its run directory leaves no port behind."""
        with open(self.path("file"), "w", encoding="ascii"):
            pass
        driver = self.start([DRIVER, "--nranks", "1", "--port", "0", "--port-file", "port",
                             "--run-dir", "file"])
        self.assert_exit(driver, USAGE, r"not a folder")
        self.assertEqual(os.listdir(self.folder), ["file"])


if __name__ == "__main__":
    dp.main()
