# SPDX-License-Identifier: Apache-2.0
"""A coordinator in this process and workers that are started here, so that their pids, addresses and directories are ours.

Events of the engine come on its own thread, inside the callback of brant_subscribe: a fault that follows an event is carried out in
that callback, so the engine is at exactly that place when it happens. What takes longer (a worker that goes on again once it was
declared lost, another one that joins) follows a later event, or is done by a thread of its own.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
for folder in ("lib", "cluster"):
    sys.path.insert(0, str(HERE.parent / folder))
import brantlib  # noqa: E402
import harness  # noqa: E402
import paths  # noqa: E402
from harness import Command, wait_for  # noqa: E402
from relay import Relay, free_port  # noqa: E402

MEMORY = "128MiB"  # the least: the store has a quarter of it
SECRET = "chaos"
RELAY_HOST = "127.0.0.2"


MODES = ["staged", "eager"]


def descriptors():
    """{number: what it is} of this process; no pipes: pyarrow keeps one for signals from its first use on."""
    found = {}
    for n in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink(f"/proc/self/fd/{n}")
            if not what.startswith("pipe:"):
                found[n] = what
        except OSError:
            pass  # the listing's own
    return found


class Worker:
    """One that this test started. number: what the coordinator calls it, once it has joined."""

    def __init__(self, cluster, index, temp, prefix, env, options):
        self.index, self.temp, self.relay, self.number, self.incarnation = index, pathlib.Path(temp), None, None, None
        self.numbers, self.stopped, self.gone = [], False, False
        port = free_port("127.0.0.1", RELAY_HOST)
        net = ["--listen", "127.0.0.1", "--port", port]
        if cluster.relays:
            self.relay = Relay((RELAY_HOST, port), ("127.0.0.1", port))
            net += ["--uri-host", RELAY_HOST]
        self.port = port
        if cluster.network:
            net = []
        self.command = Command(cluster.box, [harness.WORKER, "--join", cluster.join_for(self), "--temp-dir", self.temp, "--memory",
                                             cluster.memory, "--threads", 1, "--host-id", f"host{index}", *net, *options],
                               prefix=prefix, env={"BRANT_SECRET": SECRET, "BRANT_LOG": "warn", **env})
        cluster.box.commands.append(self.command)

    @property
    def pid(self):
        return self.command.pid

    def alive(self):
        return self.command.p.poll() is None

    def executors(self):
        return harness.children(self.pid, "brant-executor")

    def signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def stop(self):
        """Worker and executors, as a machine that hangs."""
        for pid in [self.pid, *self.executors()]:
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                pass
        self.stopped = True

    def go_on(self):
        for pid in [self.pid, *self.executors()]:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.stopped = False

    def files(self):
        """Shuffle files on disk that are finished."""
        return list(paths.sizes(self.temp, f"brant-*-w{self.pid}/shuffle/**/*.map"))


class Cluster:
    def __init__(self, box, workers=4, mode="staged", memory=MEMORY, relays=False, link_relay=False, settings=None, temps=None,
                 env=None, options=(), network=None, seed=0):
        """temps: {index: directory} of workers with a disk of their own. link_relay: a relay between each worker and the coordinator.
        network: what gives prefix(index) and join (namespaces)."""
        self.box, self.memory, self.relays, self.network = box, memory, relays, network
        self.events, self.watchers, self.errors = [], [], []
        self.random = random.Random(seed)
        self.temps, self.env, self.options = temps or {}, env or {}, options
        self.workers, self.links, self._deferred = [], [], []
        self._link_relay = link_relay
        self._new, self.submit_lock, self.submitting = threading.Condition(), threading.Lock(), None
        self.port = 7077 if network else free_port("127.0.0.1")
        os.environ["BRANT_TEST_MARK"], os.environ["BRANT_SECRET"] = box.mark, SECRET
        self.fds = descriptors()
        self.session = brantlib.Session(workers=0, external_workers=workers, listen_port=self.port, temp_dir=box.temp,
                                        listen_host=network.host if network else None, mode=mode,
                                        secret=SECRET, settings=settings)
        box.sessions.append(self.session)
        try:
            self.session.subscribe(self._take)
            for _ in range(workers):
                self.add()
            self.session.run("select 1 as one")  # opens the port
            self.wait_joined(workers)
        except BaseException:
            self.close(check=False)
            raise

    # ---- workers

    def join_for(self, worker):
        if self.network:
            return self.network.join
        if not self._link_relay:
            return f"127.0.0.1:{self.port}"
        port = free_port("127.0.0.3")
        self.links.append(Relay(("127.0.0.3", port), ("127.0.0.1", self.port)))
        worker.link = self.links[-1]
        return f"127.0.0.3:{port}"

    def add(self):
        """Starts one more; it joins when it is ready. The engine's thread, on which faults strike, blocks all signals: a child would too."""
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            return self._add()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _add(self):
        index = len(self.workers) + 1
        prefix = self.network.prefix(index) if self.network else ()
        w = Worker(self, index, self.temps.get(index, self.box.temp), prefix, self.env.get(index, {}), self.options)
        self.workers.append(w)
        return w

    def wait_joined(self, count, seconds=30):
        wait_for(lambda: sum(e["type"] == "worker_joined" for e in list(self.events)) >= count, seconds, f"{count} workers joined")

    def by_number(self, number):
        return next((w for w in self.workers if number in w.numbers), None)

    def live(self):
        return [w for w in self.workers if w.number and not w.gone and not w.stopped and w.alive()]

    # ---- events

    def _take(self, e):
        """On the engine's thread."""
        try:
            if e["type"] == "worker_joined":
                w = next((w for w in self.workers if w.pid == e["pid"]), None)
                if w:
                    w.number, w.incarnation, w.gone = e["worker"], e["incarnation"], False
                    w.numbers.append(w.number)
            elif e["type"] == "worker_lost":
                w = self.by_number(e["worker"])
                if w and w.number == e["worker"]:
                    w.gone = True
            for f in list(self.watchers):
                f(e)
            with self._new:
                self.events.append(e)
                self._new.notify_all()
        except BaseException as x:  # noqa: BLE001: nothing may be thrown through the engine
            self.errors.append(x)

    def wait(self, since, condition, seconds, what):
        """The first event from number `since` on for which condition(event) is true."""
        at = since
        with self._new:
            while True:
                while at < len(self.events):
                    if condition(self.events[at]):
                        return self.events[at]
                    at += 1
                if not self._new.wait(seconds):
                    raise AssertionError(f"no event within {seconds} s: {what}")

    # ---- the end

    def left(self):
        """Of directories and processes, and of descriptors in this process."""
        extra = [f"descriptor {k} of the coordinator's process: {v}" for k, v in descriptors().items() if k not in self.fds]
        files = [str(p) for t in {self.box.temp, *map(pathlib.Path, self.temps.values())} for p in paths.found(t, "**/*") if p.name != "filler"]
        return [f"{pid} {st[0]} ({st[1]})" for pid, st in harness.marked(self.box.mark).items()] + files + extra

    def close(self, check=True, leftovers=True, swept=()):
        """Ends the session; every worker ends by itself; what killed ones left is removed by the next worker on that directory."""
        for w in self.workers:
            if w.stopped:
                w.go_on()
        self.session.close()
        os.environ.pop("BRANT_TEST_MARK", None)
        os.environ.pop("BRANT_SECRET", None)
        try:
            for w in self.workers:
                if check:
                    self._end(w)
                else:
                    w.command.p.kill()
                    w.command.end(5)
        finally:
            for r in [w.relay for w in self.workers if w.relay] + self.links:
                r.close()
        if not check:
            return
        if self.errors:
            raise self.errors[0]
        codes = {w.index: w.command.code for w in self.workers}
        assert all(c in (0, 3, -signal.SIGKILL) for c in codes.values()), (codes, [w.command.text() for w in self.workers])
        if not leftovers:
            return
        self.sweep([w for w in [*self.workers, *swept] if w.command.code == -signal.SIGKILL])
        try:
            wait_for(lambda: not self.left(), 10, "nothing is left over")
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.left()[:20]}") from None

    def _end(self, w):
        """It ends with the session; one that is looking for a coordinator just now (60 s) is told to."""
        try:
            w.command.p.wait(5)
        except subprocess.TimeoutExpired:
            w.signal(signal.SIGTERM)
        w.command.end(30)

    def sweep(self, killed):
        """What a killed worker left is removed by the next worker that starts there."""
        for temp in {w.temp for w in killed}:
            if not any(temp.iterdir()):
                continue
            port = free_port("127.0.0.1")
            c = Command(self.box, [harness.WORKER, "--join", f"127.0.0.1:{port}", "--temp-dir", temp, "--memory", MEMORY],
                        env={"BRANT_SECRET": SECRET, "BRANT_LOG": "warn"})
            self.box.commands.append(c)
            line = c.p.stderr.readline().decode()
            assert "no coordinator" in line, f"the worker that sweeps says: {line}"
            c.signal(signal.SIGTERM)
            c.end(10)
