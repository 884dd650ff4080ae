"""--relay: the ranks of an agent reach the driver through one connection of the agent's."""

import os
import resource
import select
import signal
import socket
import threading

import dp
import training
from dp import ENDLESS, EXACT, FINISHED, REFUSED, SMALL, STOPPED, USAGE
from test_launch import OtherProgram, three_ports, torchrun
from test_ranks import children

# Ranks whose machine is lost are not replaced, and the others go on.
SMALLER = {**ENDLESS, "cluster.min_ranks": 2, "cluster.replace_timeout": 1}
JOB = {"data.samples": 512, "data.validation_samples": 256, "train.global_batch": 64,
       "train.epochs": 4, **dp.LIGHT}


def connections(port):
    """The established connections at a driver's port."""
    n = 0
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                local, state = line.split()[1:4:2]
                n += state == "01" and int(local.rsplit(":", 1)[1], 16) == port
    return n


def closed(socks):
    """The numbers of those that the other side has closed."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN | select.POLLRDHUP)
    files = {fd for fd, _ in poll.poll(0)}
    return [i for i, sock in enumerate(socks) if sock.fileno() in files]


class Relay(training.Case):
    def setUp(self):
        super().setUp()
        self.secret = ["--secret-file", self.make("secret")]

    def make(self, name):
        self.assert_exit(self.start([dp.DRIVER, "--make-secret", name]), FINISHED)
        return name

    def agent(self, first, n, *args, secret=None, **kwargs):
        return self.follower("--ranks", str(n), "--rank", str(first), "--relay",
                             *(secret or self.secret), *args, **kwargs)

    def job(self, n, *args, job=ENDLESS, **kwargs):
        return self.driver(*self.secret, *args, n=n, job=job, **kwargs)

    def wait_connections(self, n):
        dp.wait_for(f"{n} connections", lambda: connections(self.wait_port()) == n)

    def wait_children(self, agent, n):
        return dp.wait_for("children", lambda: (got := children(agent.pid)) and len(got) == n
                           and got)

    def stop(self, driver, *agents):
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, STOPPED)
        for agent in agents:
            agent.signal(signal.SIGTERM)
            self.assert_exit(agent, STOPPED)

    # ---- training

    def test_trains_as_without(self):
        """The bits are the same, and the driver has one connection for each agent."""
        job = {**JOB, **dp.PATIENT}
        calm = self.undisturbed(job, 5, *EXACT)
        driver = self.job(5, *EXACT, *dp.freezing(3, 9), job=job)
        agents = [self.agent(first, 2, *EXACT) for first in (1, 3)]
        frozen = self.wait_children(agents[1], 2)[1]
        self.wait_frozen(frozen)
        self.assertEqual(connections(self.wait_port()), 2)
        self.wake(frozen)
        for daemon in (driver, *agents):
            self.assert_exit(daemon, FINISHED)
        agents[0].wait_line(r"^dpfollower: relay: one connection to the driver at 127\.0\.0\.1:")
        for agent in agents:  # the end of the job is none that a relay warns of
            self.assertNotIn("warning: relay", agent.text)
        self.assertEqual((self.losses(), self.weights()), calm)

    def test_without_a_secret(self):
        driver = self.driver(n=3, job=SMALL)
        agent = self.follower("--ranks", "2", "--relay")
        for daemon in (driver, agent):
            self.assert_exit(daemon, FINISHED)

    def test_next_driver(self):
        """Processes that stay go on to the next driver through their agent."""
        port = dp.free_port()
        agent = self.agent(1, 2, port=port, once=False)
        for run in ("first", "second"):
            driver = self.driver("--port", str(port), "--run-dir", run, *self.secret, n=3,
                                 port=False)
            self.assert_exit(driver, FINISHED)
        agent.signal(signal.SIGTERM)
        self.assert_exit(agent, STOPPED)

    def test_ports_of_torchrun(self):
        """The ranks pass by a program that is no driver, as without a relay."""
        port = three_ports()
        with OtherProgram(port + 1) as other:
            job = {**torchrun(0, 3, port), "TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "3"}
            driver = self.start([dp.DRIVER, *self.secret, *dp.sets(SMALL)], env=job)
            driver.wait_line(rf":{port + 2} for 2 followers")
            agent = self.start([dp.FOLLOWER, "--once", "--ranks", "2", "--rank", "1", "--relay",
                                *self.secret], env=job)
            for daemon in (driver, agent):
                self.assert_exit(daemon, FINISHED)
            self.assertGreater(other.n_met, 0)

    # ---- losses

    def test_a_rank_is_killed(self):
        """The driver learns of it at once, and the agent starts it again."""
        driver = self.job(3)
        agent = self.agent(1, 2, once=False)
        self.wait_event("first_step")
        before = self.wait_children(agent, 2)
        os.kill(before[2], signal.SIGKILL)
        agent.wait_line(r"rank 2 \(process 2 of 2\) was killed by SIGKILL: starting it again")
        self.wait_event("recovered")
        driver.wait_line(r"rank 2 \(\S+\) was lost, .*: (?!no sign of life)")
        after = self.wait_children(agent, 2)
        self.assertEqual(after[1], before[1])
        self.assertEqual(self.events("form")[-1]["nranks"], 3)
        self.wait_connections(1)
        self.stop(driver, agent)

    def test_the_agent_is_killed(self):
        """Its ranks are lost together, and the others go on."""
        driver = self.job(4, job=SMALLER)
        stays, dies = self.agent(1, 1, once=False), self.agent(2, 2, once=False)
        self.wait_event("first_step")
        dies.kill()
        dies.wait_exit()
        dp.wait_for("two ranks", lambda: self.events("form")[-1]["nranks"] == 2)
        self.wait_event("recovered")
        self.stop(driver, stays)

    def test_the_agent_is_stopped(self):
        """As if its machine had died: the driver hears nothing more of its ranks."""
        driver = self.job(4, job={**SMALLER, "cluster.heartbeat_timeout": 3})
        stays, stops = self.agent(1, 1, once=False), self.agent(2, 2, once=False)
        self.wait_event("first_step")
        stops.signal(signal.SIGSTOP)
        driver.wait_line(r"rank [23] \(\S+\) was lost, .*: no sign of life")
        dp.wait_for("two ranks", lambda: self.events("form")[-1]["nranks"] == 2)
        self.wait_event("recovered")
        stops.signal(signal.SIGCONT)
        self.stop(driver, stays, stops)

    def test_a_rank_is_stopped(self):
        """It holds up no other rank of its agent."""
        driver = self.job(3, job={**SMALLER, "cluster.heartbeat_timeout": 3})
        agent = self.agent(1, 2, once=False)
        self.wait_event("first_step")
        stopped = self.wait_children(agent, 2)[2]
        os.kill(stopped, signal.SIGSTOP)
        driver.wait_line(r"rank 2 \(\S+\) was lost, .*: no sign of life")
        self.wait_event("recovered")
        self.assertEqual(self.events("form")[-1]["nranks"], 2)
        self.assertNotRegex(driver.text, "rank 1 .*was lost")
        os.kill(stopped, signal.SIGCONT)
        self.stop(driver, agent)

    def test_the_driver_is_killed(self):
        """The ranks go to the standby through their agent, and lose nothing."""
        port = dp.free_port()
        job = {**training.JOB, "train.epochs": 4}
        driver = self.driver("--port", str(port), *self.secret, "--inject", "kill:rank0@step40",
                             n=4, job=job, port=False)
        standby = self.start([dp.DRIVER, "--standby", "--root", f"127.0.0.1:{port}", "--port", "0",
                              "--port-file", self.path("port"), *self.secret])
        standby.wait_line("as its standby")
        agents = [self.agent(1, 2, port=port), self.agent(3, 1, port=port)]
        driver.wait_exit()
        self.wait_event("recovered")
        self.wait_connections(2)
        for daemon in (standby, *agents):
            self.assert_exit(daemon, FINISHED)
        self.assertEqual(self.losses(), self.expected(job, 4))

    # ---- refusals

    def test_wrong_secret(self):
        driver = self.job(3)
        agent = self.agent(1, 2, secret=["--secret-file", self.make("other")])
        self.assert_exit(agent, REFUSED, r"(?m)^\[rank 1\] dpfollower: .*the secrets differ",
                         r"(?m)^\[rank 2\] dpfollower: .*the secrets differ")
        driver.wait_line(r"not let in: 127.0.0.1:\d+: the secrets differ")
        self.stop(driver)

    def test_next_secret(self):
        """While a secret is being changed, the relay offers the next one."""
        driver = self.driver(*self.secret, n=3, job=SMALL)
        agent = self.agent(1, 2, secret=["--secret-file", self.make("new"), *self.secret])
        for daemon in (driver, agent):
            self.assert_exit(daemon, FINISHED)
        agent.wait_line("relay: the driver does not have this secret; trying the next")

    def test_no_secret(self):
        """Only the driver has one: both sides say so."""
        driver = self.job(3)
        agent = self.agent(1, 2, secret=["--insecure"])
        self.assert_exit(agent, REFUSED, *(
            rf"(?m)^\[rank {rank}\] dpfollower: .*it has a secret, and this side has none: give "
            "both sides --secret-file" for rank in (1, 2)))
        driver.wait_line(r"not let in: .*it has no secret, and this side has one: give both sides")
        self.stop(driver)

    def test_no_driver(self):
        """The error is that of a process which connects by itself."""
        agent = self.agent(1, 2, "--wait", "1", port=dp.free_port())
        self.assert_exit(agent, REFUSED, r"no driver at \S+ within 1 s: connection refused "
                                         r"\(ECONNREFUSED\); \d+ attempts")

    def test_a_driver_that_takes_no_relays(self):
        """A driver without a secret, and an older one, close the connection that is no TLS."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                while True:
                    try:
                        peer, _ = server.accept()
                    except OSError:
                        return
                    with peer:
                        peer.recv(8)
            threading.Thread(target=answer, daemon=True).start()
            agent = self.agent(1, 2, "--wait", "1", port=server.getsockname()[1])
            self.assert_exit(agent, REFUSED, r"the program there takes no relays: a driver of an "
                                             r"older version must be updated; or leave --relay out")
            server.shutdown(socket.SHUT_RDWR)

    def test_sockets_of_one_address(self):
        """One address has half of the sockets that --relays leaves strangers, and its oldest go."""
        n_all = 2 + 1 + 20  # relays, rank 0, and as many others as the files allow
        limit = 32 + 2 + 2 * 16 + 20
        driver = self.driver(
            *self.secret, "--relays", "2", n=1000, job=ENDLESS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        port = self.wait_port()
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(n_all)]
        oldest = list(range(n_all - (2 + 10)))
        dp.wait_for("places for others", lambda: closed(socks) == oldest)
        for sock in socks:
            sock.close()
        self.stop(driver)

    def test_without_ranks(self):
        agent = self.follower("--relay", port=1)
        self.assert_exit(agent, USAGE, "--relay belongs to --ranks")


if __name__ == "__main__":
    dp.main()
