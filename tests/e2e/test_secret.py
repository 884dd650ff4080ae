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

    def test_wrong_secret(self):
        self.make()
        self.make("other")
        driver = self.driver("--secret-file", "secret", n=2, job={**SMALL, "train.epochs": 1})
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
        self.assert_exit(follower, REFUSED, r"given --secret-file and this side was not")
        driver.wait_line(r"not let in: .*speaks without TLS: give that dpfollower --secret-file")
        self.stop(driver)
        driver = self.driver(n=2)
        follower = self.follower("--secret-file", "secret")
        self.assert_exit(follower, REFUSED, r"speaks without TLS: give dpdriver --secret-file")
        driver.wait_line(r"given --secret-file and this side was not")
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
