"""The links between CPU ranks over libfabric: cluster.fabric.  The provider is tcp;ofi_rxm, which
every machine has.  The sums, and so the losses and the weights, must be those of the same job by
TCP."""

import os
import signal
import unittest

import dp
import training
from dp import ENDLESS, FAILED, FINISHED, PATIENT, STOPPED, freezing
from training import JOB

STEP = 70
OVER = {"cluster.fabric": "tcp;ofi_rxm", "cluster.shared_memory": "off"}
GOES_OVER = "the links between ranks go over tcp;ofi_rxm"


@unittest.skipUnless(os.environ.get("DPTRAIN_FABRIC"), "this build has no libfabric")
class Fabric(training.Case):
    def assert_as_by_tcp(self, n):
        """The same bits; the calm run shares memory, and has no fabric."""
        losses, weights = self.undisturbed({**JOB, **PATIENT}, n)
        self.assertEqual(self.final_losses(), losses)
        self.assertEqual(self.weights(), weights)

    def test_a_rank_is_killed(self):
        """It does not close its endpoint.  The others hold messages to it, and wait for its own."""
        self.assert_killed({**JOB, **PATIENT, **OVER})

    def test_a_rank_is_killed_with_encrypted_links(self):
        os.mkdir(self.path("runtime"), 0o700)
        self.env["XDG_RUNTIME_DIR"] = self.path("runtime")  # in which they share a secret
        self.assert_killed({**JOB, **PATIENT, **OVER, "cluster.encrypt": "on"},
                           "encrypted: AES-128-GCM by OpenSSL")

    def assert_killed(self, job, *says):
        driver, victim, other, third, spare = self.start_ranks(job, *freezing(2, STEP), n=4,
                                                               spares=1)
        for pattern in (GOES_OVER, *says):
            driver.wait_line(pattern)
        spare.wait_line("as a spare")
        self.wait_frozen(other.pid)
        victim.kill()
        self.wake(other.pid)
        for daemon in (driver, other, third, spare):
            self.assert_exit(daemon, FINISHED)
        self.assert_recovered(nranks=4)
        self.assertEqual([event["rank"] for event in self.events("lost")], [1])
        self.assertIn(GOES_OVER, spare.text)
        self.assert_as_by_tcp(4)

    def test_signals_are_ours(self):
        """libpsm2 takes SIGTERM when libfabric is loaded.  A follower still leaves, and the driver
        still writes a checkpoint."""
        job = {**ENDLESS, **PATIENT, **OVER, "cluster.min_ranks": 2}
        driver, leaver, other = self.start_ranks(job)
        leaver.wait_line(GOES_OVER)
        self.wait_event("first_step")
        leaver.signal(signal.SIGTERM)
        self.assert_exit(leaver, STOPPED)
        self.wait_event("recovered")
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED, "SIGTERM: stopping")
        self.assert_exit(other, STOPPED)
        self.assertGreater(self.events("checkpoint")[-1]["step"], 0)

    def test_a_provider_that_is_missing(self):
        driver = self.run_driver("--local", n=2, job={**JOB, "cluster.fabric": "no_such"},
                                 status=FAILED)
        self.assertRegex(driver.text, r"rank \d .*cluster.fabric: no_such: libfabric has no "
                                      r'provider "no_such" here .*fi_info -t FI_EP_RDM')


class Auto(training.Case):
    def test_no_network(self):
        """Without a fast network auto is TCP, which is not told."""
        driver = self.run_driver("--local", n=2, job={**JOB, "train.epochs": 1,
                                                      "cluster.fabric": "auto"})
        self.assertNotIn("the links between ranks go over", driver.text)


if __name__ == "__main__":
    dp.main()
