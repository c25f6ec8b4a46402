# SPDX-License-Identifier: Apache-2.0
"""Faults: what happens, to whom, and at which event of the query. README.md has the whole list.

    kill-worker:actor@task_done.s0#3        SIGKILL of the worker whose report brought the third task_done of stage 0
    flip:w2@bytes#200000                    one bit of what worker 2 sends, after 200,000 bytes (a relay stands before it)
    stop-worker:owner@stage_done#1          SIGSTOP of a worker that has outputs when the first stage is done

A run takes one query with its faults to the end: the answer, what was lost, what ran again and why.
"""
import dataclasses
import os
import re
import signal
import threading
import time

import brantlib

TEXT = re.compile(r"^([a-z-]+):(actor|other|owner|w\d+|all)@([a-z_]+)(?:\.s(\d+))?#(\d+)$")
RELAY = ("flip", "reset", "close", "refuse", "silent")
SIGNALS = ("kill-worker", "term-worker", "stop-worker", "pause-worker", "kill-executor", "stop-executor")
FILES = ("unlink-files", "flip-files", "cut-files", "empty-files")
OTHERS = ("join-worker", "fill-disk", "delay", "link-refuse", "link-reset", "cancel")
DEADLINE_S = 100  # of one query under faults


@dataclasses.dataclass
class Fault:
    what: str
    victim: str
    event: str
    stage: int | None
    nth: int

    @staticmethod
    def parse(text):
        m = TEXT.match(text)
        if not m or m[1] not in RELAY + SIGNALS + FILES + OTHERS:
            raise ValueError(f"not a fault: {text}")
        return Fault(m[1], m[2], m[3], int(m[4]) if m[4] else None, int(m[5]))

    def __str__(self):
        return f"{self.what}:{self.victim}@{self.event}{'' if self.stage is None else f'.s{self.stage}'}#{self.nth}"

    def needs_relay(self):
        return self.event == "bytes" or self.what in RELAY + ("delay",)


class Striker:
    """One fault of one run: waits for its event, strikes once, keeps what it did."""

    def __init__(self, run, fault):
        self.run, self.fault, self.seen = run, fault, 0
        self.fired, self.hit, self.at_event = None, [], None  # when; workers hit; text

    # ---- whom

    def victims(self, actor=None):
        c, v = self.run.cluster, self.fault.victim
        live = c.live()
        if self.fault.what in FILES:
            live = [w for w in live if w.files()]
        if v == "all":
            return live
        if v.startswith("w"):
            return [w for w in live if w.index == int(v[1:])]
        if v == "actor" and actor in live:
            return [actor]
        owners = [w for w in live if w.number in self.run.committed_by]
        choice = owners if v == "owner" and owners else [w for w in live if w is not actor] or live
        return [c.random.choice(choice)] if choice else []

    # ---- when

    def arm(self):
        f = self.fault
        if f.event == "bytes":
            for w in self.victims():
                if f.what in RELAY:
                    w.relay.arm(f.nth, f.what)
                else:
                    w.relay.arm(f.nth, "call", lambda w=w: self.strike(w, f"byte {f.nth} of w{w.index}"))
                self.hit.append(w)
        elif f.event == "start":
            self.strike(None, "the start")

    def disarm(self):
        if self.fault.event != "bytes" or self.fault.what not in RELAY:
            return
        for w in self.hit:
            for entry in [x for x in w.relay.log if x[0] == self.fault.what]:
                self.fired, self.at_event = self.fired or time.monotonic(), entry[1]
                w.relay.log.remove(entry)
                break

    def take(self, e):
        f = self.fault
        if self.fired or e["type"] != f.event or (f.stage is not None and e.get("stage") != f.stage):
            return
        self.seen += 1
        if self.seen == f.nth:
            actor = self.run.cluster.by_number(e.get("worker"))
            where = "".join(f" {k[0]}{e[k]}" for k in ("stage", "task", "attempt", "worker") if k in e)
            self.strike(actor, f"{f.event} {f.nth}:{where}")

    # ---- what

    def strike(self, actor, where):
        f, hit = self.fault, self.victims(actor)
        if f.event == "bytes":
            hit = [actor]
        self.fired, self.at_event = time.monotonic(), where
        if f.what in ("join-worker", "cancel"):
            hit = []
            self.run.cluster.add() if f.what == "join-worker" else self.run.cancel()
        elif not hit:
            self.fired = None
            return
        for w in hit:
            getattr(self, "_" + f.what.replace("-", "_"))(w)
        self.hit = hit

    def _kill_worker(self, w):
        w.signal(signal.SIGKILL)

    def _term_worker(self, w):
        w.signal(signal.SIGTERM)

    def _stop_worker(self, w):
        """Until it has been declared lost."""
        w.stop()
        self.run.on_event(lambda e: e["type"] == "worker_lost" and e["worker"] == w.number, w.go_on)

    def _pause_worker(self, w):
        """For one or two seconds: not long enough to be lost."""
        w.stop()
        seconds = 1 + self.run.cluster.random.random()
        self.run.later(seconds, w.go_on)

    def _each_executor(self, w, number):
        for pid in w.executors():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def _kill_executor(self, w):
        self._each_executor(w, signal.SIGKILL)

    def _stop_executor(self, w):
        self._each_executor(w, signal.SIGSTOP)

    def _relay(self, w, fault):
        w.relay.arm(0, fault)

    def _flip(self, w):
        self._relay(w, "flip")

    def _reset(self, w):
        self._relay(w, "reset")

    def _close(self, w):
        self._relay(w, "close")

    def _refuse(self, w):
        w.relay.refuse()

    def _silent(self, w):
        w.relay.silent()

    def _delay(self, w):
        w.relay.delay = 0.002

    def _link_refuse(self, w):
        w.link.refuse()

    def _link_reset(self, w):
        """What it has to the coordinator is cut; it may come back."""
        w.link.cut()

    def _files(self, w, do):
        files = w.files()
        if not files:
            self.fired = None  # it never happened
        for p in files:
            try:
                do(p)
            except FileNotFoundError:
                pass
        self.at_event += f", {len(files)} files of w{w.index}"

    def _unlink_files(self, w):
        self._files(w, os.unlink)

    def _flip_files(self, w):
        def flip(p):
            at = self.run.cluster.random.randrange(64, max(65, p.stat().st_size))
            with open(p, "r+b") as f:
                f.seek(at)
                b = f.read(1)
                f.seek(at)
                f.write(bytes([b[0] ^ 0x10]))
        self._files(w, flip)

    def _cut_files(self, w):
        self._files(w, lambda p: os.truncate(p, p.stat().st_size // 2))

    def _empty_files(self, w):
        self._files(w, lambda p: os.truncate(p, 0))

    def _fill_disk(self, w):
        """What is left of the small file system behind this worker's directory."""
        with open(w.temp / "filler", "ab", buffering=0) as f:
            try:
                while f.write(bytes(1 << 20)):
                    pass
            except OSError:
                pass


class Run:
    """One query with its faults."""

    def __init__(self, cluster, query, faults=(), replace=False):
        """replace: a worker joins for each one that was lost."""
        self.cluster, self.query, self.replace = cluster, query, replace
        self.strikers = [Striker(self, f if isinstance(f, Fault) else Fault.parse(f)) for f in faults]
        self.events, self.committed_by, self._hooks, self._timers = [], {}, [], []
        self.table = self.stats = self.error = self.cancelled = None
        self._cancel, self._started, self._number = threading.Event(), threading.Event(), None

    def on_event(self, condition, do):
        self._hooks.append((condition, do))

    def later(self, seconds, do):
        t = threading.Timer(seconds, do)
        t.start()
        self._timers.append(t)

    def cancel(self):
        """Not on the engine's thread: its callbacks call nothing."""
        self.cancelled = time.monotonic()
        self._cancel.set()

    def _take(self, e):
        """Events of this query, and of workers."""
        if "query" in e:
            if e["type"] == "query_started" and self._number is None and self.cluster.submitting is self:
                self._number = e["query"]
                self._started.set()
            if e["query"] != self._number:
                return
        self.events.append(e)
        if e["type"] == "task_done":
            self.committed_by.setdefault(e["worker"], set()).add((e["stage"], e["task"]))
        for s in self.strikers:
            s.take(e)
        for h in [h for h in self._hooks if h[0](e)]:
            self._hooks.remove(h)
            h[1]()
        if e["type"] == "worker_lost" and self.replace:
            self.cluster.add()

    def go(self, sql=None):
        """The query to its end; fills table, stats, error."""
        session, started = self.cluster.session, time.monotonic()
        for k, v in self.query.settings.items():
            session.set(k, v)
        self.cluster.watchers.append(self._take)
        try:
            for s in self.strikers:
                s.arm()
            with self.cluster.submit_lock:  # one at a time, so that it's known whose events come
                self.cluster.submitting = self
                q = session.submit(sql or self.query.sql)
                assert self._started.wait(30), "the query did not start: is it distributed?"
            watchdog = threading.Thread(target=lambda: (self._cancel.wait(DEADLINE_S), q.cancel()))
            watchdog.start()
            try:
                self.table = q.table()
            finally:
                self.ended = time.monotonic()
                self._cancel.set()
                watchdog.join()
                self.stats = q.stats()
                q.free()
        except brantlib.BrantError as e:
            self.error = e
            if time.monotonic() - started >= DEADLINE_S:
                self.error = brantlib_hang(e)
        finally:
            self.seconds = time.monotonic() - started
            self.cluster.watchers.remove(self._take)
            for s in self.strikers:
                s.disarm()
            for t in self._timers:
                t.cancel()
                t.join()
            for w in self.cluster.workers:
                if w.stopped:
                    w.go_on()
            if self.cluster.errors:
                raise self.cluster.errors[0]
        return self

    # ---- what happened

    def handed_out(self):
        """It failed because an output that can't be made the same way twice was lost when rows made from it had been given to the caller."""
        return self.error is not None and self.query.indeterminate and self.error.code == "LOST" and "handed out" in self.error.message

    def fired(self):
        return all(s.fired for s in self.strikers)

    def of(self, type):
        return [e for e in self.events if e["type"] == type]

    def lost_workers(self):
        return {e["worker"] for e in self.of("worker_lost")}

    def again(self):
        """{(stage, task): [workers that committed it, in order]} of tasks that were committed more than once."""
        done, cancelled = {}, set()
        for e in self.events:
            attempt = (e.get("stage"), e.get("task"), e.get("attempt"))
            if e["type"] == "task_cancelled":
                cancelled.add(attempt)
            elif e["type"] == "task_done" and attempt not in cancelled:  # else it crossed the cancel on its way, and nobody took it
                done.setdefault(attempt[:2], []).append(e["worker"])
        return {k: v for k, v in done.items() if len(v) > 1}

    def attempts_lost(self):
        """Attempts that were sent and did not commit."""
        done = {(e["stage"], e["task"], e["attempt"]) for e in self.of("task_done")}
        return sorted({(e["stage"], e["task"], e["attempt"]) for e in self.of("task_assigned")} - done)

    def unjustified(self):
        """Tasks that were committed again though the worker with the first output was there to the end and nothing of it was hurt."""
        hurt = {w.number for s in self.strikers for w in s.hit} | self.lost_workers()
        if self.query.indeterminate:
            return []
        return [f"s{s} t{t} of worker {w[0]}" for (s, t), w in sorted(self.again().items()) if not set(w[:-1]) & hurt]

    def summary(self):
        where = "; ".join(f"{s.fault} fired at {s.at_event}" if s.fired else f"{s.fault} never fired" for s in self.strikers)
        lost = [f"worker {e['worker']} ({e['why']})" for e in self.of("worker_lost")]
        lost += [f"executor of worker {e['worker']}" for e in self.of("executor_lost")]
        return (f"{where} | lost: {', '.join(lost) or 'nobody'}, {len(self.attempts_lost())} attempts | again: {len(self.again())} tasks "
                f"| failed: {sorted({e['code'] for e in self.of('task_failed')})} | {self.seconds:.1f} s")


def brantlib_hang(e):
    h = type("Hang", (Exception,), {})(f"a hang: cancelled after {DEADLINE_S} s: {e}")
    h.code, h.message = "HANG", str(h)
    return h
