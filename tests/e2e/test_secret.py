"""Only followers with the secret get in.  Each side says why; a crowd of strangers delays none.
The secret itself is in no argument, log line or file."""

import os
import resource
import shutil
import socket
import ssl
import stat
import subprocess
import time

import dp
from dp import DRIVER, FINISHED, PATIENCE, REFUSED, SMALL, STOPPED, USAGE

PLAIN_HELLO = b"DPT1\x00\x00\x00\x05hello"


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class Secret(dp.Case):
    def make(self, name="secret"):
        made = self.start([DRIVER, "--make-secret", name])
        self.assert_exit(made, FINISHED, rf"{name} holds a new secret")
        return name

    def stop(self, driver):
        driver.signal(dp.signal.SIGTERM)
        self.assert_exit(driver, STOPPED)

    def test_make(self):
        self.make()
        text = read(self.path("secret"))
        self.assertRegex(text, r"^dptrain-secret-1 [0-9a-f]{64}\n$")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("secret")).st_mode), 0o600)
        again = self.start([DRIVER, "--make-secret", "secret"])
        self.assert_exit(again, USAGE, r"secret is there already")
        self.assertEqual(read(self.path("secret")), text)
        self.assertNotEqual(read(self.path(self.make("other"))), text)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other", "secret"])

    def test_local(self):
        """--local hands the secret on; the key is in no argument, log line or file of the run."""
        self.make()
        key = read(self.path("secret")).split()[1]
        driver = self.driver("--local", "--secret-file", "secret", n=3)
        self.assert_exit(driver, FINISHED, r"listening on (\[::\]|0\.0\.0\.0):\d+")
        self.assertNotIn(key, driver.text)
        for folder, _, names in os.walk(self.path("runs")):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.assertNotIn(key.encode(), file.read())

    def test_none(self):
        """Without a secret file no other machine reaches the driver, which says so and how to mend
        it, unless all ranks are here."""
        closed = (r"without --secret-file the driver listens on this machine alone; .* give both "
                  r"sides it with copies of one file .*--make-secret F.* --insecure, and here "
                  r"--host (::|0\.0\.0\.0)")
        driver = self.driver(n=2)
        follower = self.follower()
        self.assert_exit(driver, FINISHED, r"listening on 127\.0\.0\.1:", closed)
        self.assert_exit(follower, FINISHED)
        for i, words in enumerate((["--local"], ["--ranks", "2", "--bind", "none"],
                                   ["--host", "127.0.0.1", "--local"])):
            driver = self.driver(*words, "--run-dir", f"run{i}", n=2)
            self.assert_exit(driver, FINISHED, r"listening on 127\.0\.0\.1:")
            self.assertNotRegex(driver.text, closed)

    def test_local_has_its_own(self):
        """Without --secret-file only the followers that --local started get in.  No argument and
        no environment shows the secret that they were given."""
        driver = self.driver("--local", n=3, job=dp.ENDLESS)
        self.wait_event("first_step")
        pids = [self.local_pid(rank) for rank in (1, 2)]
        for pid in (driver.pid, *pids):
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    self.assertNotRegex(file.read(), rb"[0-9a-f]{64}")
        for pid in pids:
            self.assertIn("--secret-file /proc/self/fd/", dp.marked(self.mark)[pid])
            self.assertIn("memfd:dptrain-secret", "".join(
                os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")))
        port = self.wait_port()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(PLAIN_HELLO)
            self.assertLessEqual(len(dp.hear_out(sock)), 7)
        driver.wait_line("only followers that --local started have this driver's secret; give both")
        self.assert_exit(self.follower(), REFUSED, "it has a secret and this side has none")
        os.kill(pids[0], dp.signal.SIGKILL)  # the one that is started in its place gets it, too
        self.wait_event("recovered")
        self.stop(driver)
        self.assertEqual(driver.text.count("other users of this machine can join"), 0)

    def test_user_shares(self):
        """Daemons of one user on one machine share a secret, whichever of them starts first."""
        os.mkdir(self.path("run"), 0o700)
        self.env["XDG_RUNTIME_DIR"] = self.path("run")
        port = dp.free_port()
        follower = self.follower(port=port)
        follower.wait_line("waiting for a driver")
        self.assertEqual(os.listdir(self.path("run")), ["dptrain-secret"])
        shared = read(self.path("run", "dptrain-secret"))
        driver = self.driver("--port", str(port), n=2, port=False)
        self.assert_exit(driver, FINISHED)
        self.assert_exit(follower, FINISHED)
        self.assertEqual(read(self.path("run", "dptrain-secret")), shared)
        for daemon in (driver, follower):
            self.assertNotIn("no secret", daemon.text)

        driver = self.driver(n=2, job={**SMALL, "train.epochs": 1})
        os.mkdir(self.path("other"), 0o700)
        other = self.follower(env={"XDG_RUNTIME_DIR": self.path("other")})
        self.assert_exit(other, REFUSED, "the secrets differ: .*has another XDG_RUNTIME_DIR")
        driver.wait_line("not let in: .*the secrets differ: it is of another user, or has another")
        none = self.follower(env={"XDG_RUNTIME_DIR": ""})
        self.assert_exit(none, REFUSED, "another user of this machine could play the driver, as no "
                         "secret proves it: XDG_RUNTIME_DIR is not set",
                         "it has a secret and this side has none: .*the same XDG_RUNTIME_DIR")
        driver.wait_line("it has not found this user's secret in XDG_RUNTIME_DIR; run it as this "
                         "user with the same XDG_RUNTIME_DIR, or give both sides --secret-file")
        self.assert_exit(self.follower(), FINISHED)
        self.assert_exit(driver, FINISHED)

    def test_driver_without_runtime_dir(self):
        """Only the follower finds a secret: it says what to do.  --insecure on both is one way."""
        os.mkdir(self.path("run"), 0o700)
        own = {"XDG_RUNTIME_DIR": self.path("run")}
        driver = self.driver(n=2, job={**SMALL, "train.epochs": 1})
        driver.wait_line("other users of this machine can join this job, as no secret keeps them "
                         "out: XDG_RUNTIME_DIR is not set")
        follower = self.follower(env=own)
        self.assert_exit(follower, REFUSED, "it speaks without TLS: it has not found this user's "
                         "secret in XDG_RUNTIME_DIR; run it as this user .* or both --insecure")
        self.assert_exit(self.follower("--insecure", env=own), FINISHED)
        self.assert_exit(driver, FINISHED)
        self.assertEqual(driver.text.count("other users of this machine"), 1)

    def test_changing_the_secret(self):
        """While both secrets are in use, each old and new follower finds a driver that takes it."""
        self.make("old")
        self.make("new")
        files = {name: [word for part in name.split("+") for word in ("--secret-file", part)]
                 for name in ("old", "new", "new+old", "old+new")}
        for of_driver, of_follower, status in (
                ("new+old", "old", FINISHED), ("new+old", "new", FINISHED),
                ("old", "new+old", FINISHED), ("new", "old+new", FINISHED),
                ("new", "old", REFUSED)):
            run = f"{of_driver}-{of_follower}"
            driver = self.driver(*files[of_driver], "--run-dir", run, n=2,
                                 job={**SMALL, "train.max_steps": 4})
            follower = self.follower(*files[of_follower])
            self.assert_exit(follower, status)
            if status == FINISHED:
                self.assert_exit(driver, FINISHED)
            else:
                self.stop(driver)
            is_second = of_follower.startswith({"old": "new", "new": "old"}.get(of_driver, "?"))
            self.assertEqual("trying the next --secret-file" in follower.text,
                             is_second and status == FINISHED, run)

    def test_no_core_dumps(self):
        """A process that holds a secret of a file leaves no core dump; another one may."""
        self.make()
        for words, is_hidden in ((("--secret-file", "secret"), True), ((), False)):
            driver = self.driver(*words, n=2)
            self.wait_port()
            with open(f"/proc/{driver.pid}/limits", encoding="ascii") as file:
                limit = next(line for line in file if line.startswith("Max core file size"))
            self.assertEqual(limit.split()[4:6] == ["0", "0"], is_hidden)
            self.stop(driver)

    def test_wrong_secret(self):
        self.make()
        self.make("other")
        driver = self.driver("--secret-file", "secret", "--insecure", n=2,
                             job={**SMALL, "train.epochs": 1})
        driver.wait_line("--insecure has no effect beside --secret-file")
        wrong = self.follower("--secret-file", "other")
        self.assert_exit(wrong, REFUSED, r"the secrets differ")
        driver.wait_line(r"not let in: 127.0.0.1:\d+: the secrets differ")
        self.assertEqual(self.events("join"), [])
        shutil.copy(self.path("secret"), self.path("copy"))
        right = self.follower("--secret-file", "copy")
        self.assert_exit(right, FINISHED)
        self.assert_exit(driver, FINISHED)

    def test_one_side_only(self):
        self.make()
        driver = self.driver("--secret-file", "secret", n=2)
        follower = self.follower()
        self.assert_exit(follower, REFUSED, r"it has a secret and this side has none")
        driver.wait_line(r"not let in: .*speaks without TLS: give that dpfollower --secret-file")
        self.stop(driver)
        driver = self.driver(n=2)
        follower = self.follower("--secret-file", "secret")
        self.assert_exit(follower, REFUSED, r"speaks without TLS: give dpdriver --secret-file")
        driver.wait_line(r"it has a secret and this side has none")
        self.stop(driver)

    def test_bad_files(self):
        self.make()
        os.chmod(self.path("secret"), 0o644)
        follower = self.follower("--secret-file", "secret", port=1)
        self.assert_exit(follower, USAGE, r"secret has mode 0644.*chmod 600 secret")
        driver = self.start([DRIVER, "--nranks", "2", "--secret-file", "secret"])
        self.assert_exit(driver, USAGE, r"secret has mode 0644.*chmod 600 secret")
        with open(self.path("short"), "w", encoding="ascii") as file:
            file.write("dptrain-secret-1 0011\n")
        os.chmod(self.path("short"), 0o600)
        driver = self.start([DRIVER, "--nranks", "2", "--secret-file", "short"])
        self.assert_exit(driver, USAGE, r"short holds no secret: it is cut short")
        self.assertNotIn("0011", driver.text.replace("0011)", ""))

    def other_tls(self, version, port):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("127.0.0.1", port)) as sock:
            with self.assertRaises((ssl.SSLError, OSError)):
                context.wrap_socket(sock)

    def test_strangers(self):
        """Other TLS, no TLS and garbage are each named, and none of these peers learns anything."""
        self.make()
        driver = self.driver("--secret-file", "secret", n=2, job={**SMALL, "train.epochs": 1})
        port = self.wait_port()
        self.other_tls(ssl.TLSVersion.TLSv1_3, port)
        driver.wait_line(r"not let in: .*offers no key")
        self.other_tls(ssl.TLSVersion.TLSv1_2, port)
        driver.wait_line(r"not let in: .*only TLS older than 1.3")
        for text, line in ((b"GET / HTTP/1.1\r\n\r\n", r"an HTTP request"),
                           (PLAIN_HELLO, r"speaks without TLS"),
                           (bytes(range(64)), r"neither TLS nor dptrain: starts with 00 01 02 03")):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(text)
                driver.wait_line(rf"127.0.0.1:{sock.getsockname()[1]}\b.*{line}")
                self.assertLessEqual(len(dp.hear_out(sock)), 7)  # at most a TLS alert
        follower = self.follower("--secret-file", "secret")
        self.assert_exit(follower, FINISHED)
        self.assert_exit(driver, FINISHED)

    def seconds_to_first_step(self, crowd, secret=("--secret-file", "secret")):
        """The time to the first step of a job of two ranks, beside `crowd` open connections."""
        socks = []
        run = f"run-{crowd}-{len(secret)}"
        driver = self.driver(*secret, "--run-dir", run, n=2, job={**SMALL, "train.epochs": 1})
        port = self.wait_port()
        try:
            for i in range(crowd):
                sock = socket.create_connection(("127.0.0.1", port))
                socks.append(sock)
                if i % 4:
                    sock.sendall((b"\x16\x03\x01\x02\x00\x01", b"x" * 1000, PLAIN_HELLO)[i % 4 - 1])
            start = time.monotonic()
            follower = self.follower(*secret, port=port)
            self.wait_event("first_step", run=run)
            seconds = time.monotonic() - start
            self.assert_exit(follower, FINISHED)
            self.assert_exit(driver, FINISHED)
        finally:
            for sock in socks:
                sock.close()
        if crowd:
            self.assertRegex(driver.text, r"\d+ more connections came to nothing")
            self.assertLess(driver.text.count(" warning: "), 0.1 * crowd)
        return seconds

    def test_crowd(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 3000:
            self.skipTest(f"{hard} file descriptors are too few")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            self.make()
            alone = self.seconds_to_first_step(0)
            crowded = self.seconds_to_first_step(1000)
            plain = self.seconds_to_first_step(0, secret=())
            plain_crowded = self.seconds_to_first_step(1000, secret=())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(f"first step after {alone:.2f} s alone, {crowded:.2f} s among 1,000 strangers")
        print(f"without a secret: {plain:.2f} s alone, {plain_crowded:.2f} s among them")
        # The driver sends silent strangers away after 10 s; nobody may have to wait for that.
        self.assertLess(crowded, max(8, 10 * alone))
        self.assertLess(plain_crowded, max(8, 10 * plain))

    def test_help(self):
        shown = subprocess.run([DRIVER, "--help"], env=self.env, timeout=PATIENCE,
                               capture_output=True, text=True, check=True).stdout
        self.assertIn("--make-secret", shown)
        self.assertIn("--secret-file", shown)


if __name__ == "__main__":
    dp.main()
