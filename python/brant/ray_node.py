# SPDX-License-Identifier: Apache-2.0
"""What a Ray actor of `brant.init("ray")` does on its node (ray_cluster.py places it): it keeps one brant-worker running. Without Ray's API.

Order: Keeper(config) starts the worker; state() at any time; stop() once. Threads: one that starts the worker and waits for its end, one that
reads what it prints, one that looks for the raylet; state and stop from any.
The worker ends with this process, however that ends: it holds the read end of a pipe whose write end only we have (--parent-fd). This process
ends with its parent, the node's raylet: Ray 2.60 leaves actors of a raylet that was killed running (measured: for more than a minute), on
a node that is dead to everybody else.
Bounds: a worker that ended is started anew after 0.5 s, doubling to 30 s while they end soon; stop() takes at most STOP_S."""
import collections
import os
import signal
import subprocess
import sys
import threading
import time

WAIT_FIRST_S, WAIT_MOST_S, SOON_S = 0.5, 30.0, 60.0
PARENT_LOOK_S = 0.5
STOP_S = 5.0          # for the worker to end by itself and take its files along
TAIL_LINES, LINE_CHARS = 20, 1000  # of what it printed, kept for messages


def find_program():
    """The path of brant-worker in this installation. Raises FileNotFoundError."""
    places = [os.environ.get("BRANT_BIN_DIR"), os.environ.get("BRANT_LIB_DIR"), os.path.dirname(os.path.abspath(__file__))]
    for place in filter(None, places):
        path = os.path.join(place, "brant-worker")
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"the program brant-worker is not in {' or '.join(filter(None, places))}: install the same brant as on the other nodes")


def environment(config):
    """Of the worker: this process's, the secret, the interpreter for users' functions."""
    env = {**os.environ, "BRANT_SECRET": config["secret"]}
    env.setdefault("BRANT_PYTHON", sys.executable)
    if env.get("OMP_NUM_THREADS") == str(config["threads"]):
        del env["OMP_NUM_THREADS"]  # Ray's, for one process with all the actor's CPUs; the pools of functions divide them
    return env


def command(config, parent_fd):
    args = [find_program(), "--join", config["join"], "--uri-host", config["uri_host"], "--threads", str(config["threads"]),
            "--memory", str(config["memory"]), "--parent-fd", str(parent_fd)]
    return args + (["--temp-dir", config["temp_dir"]] if config["temp_dir"] else [])


class Keeper:
    """config: join (host:port of the coordinator), uri_host (of this node), threads, memory (bytes), temp_dir or None, secret."""

    def __init__(self, config):
        self._config = config
        find_program()  # now, where the caller hears of it
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._process, self._life, self._starts, self._why = None, None, 0, ""
        self._tail = collections.deque(maxlen=TAIL_LINES)
        self._thread = threading.Thread(target=self._keep, name="brant-worker", daemon=True)
        self._thread.start()
        parent = os.getppid()
        if parent > 1:  # 1: in a container of its own, which ends with it
            threading.Thread(target=self._watch, args=(parent,), name="brant-raylet", daemon=True).start()

    def _watch(self, parent):
        while not self._stopping.wait(PARENT_LOOK_S):
            if os.getppid() != parent:
                print("brant: the raylet of this node is gone: its worker ends", file=sys.stderr, flush=True)
                self.stop()
                os._exit(1)

    def state(self):
        """pid (None: it doesn't run now), starts (so far), why (how the last one ended, "" if none did)."""
        with self._lock:
            p = self._process
            return {"pid": p.pid if p is not None and p.returncode is None else None, "starts": self._starts, "why": self._why}

    def stop(self):
        """End it, and start none again."""
        self._stopping.set()
        self._release()
        self._thread.join(STOP_S)
        with self._lock:
            p = self._process
        if p is not None and p.returncode is None:
            p.kill()
            self._thread.join(STOP_S)

    def _release(self):
        """The worker sees the end of its pipe."""
        with self._lock:
            life, self._life = self._life, None
        if life is not None:
            os.close(life)

    def _keep(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # children inherit it, whatever this process's runtime has blocked
        wait = WAIT_FIRST_S
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                why = self._run()
            except OSError as e:
                why = str(e)
            if self._stopping.is_set():
                return
            wait = WAIT_FIRST_S if time.monotonic() - began > SOON_S else min(2 * wait, WAIT_MOST_S)
            with self._lock:
                self._why = why
            print(f"brant: {why}; a new one is started in {wait:g} s", file=sys.stderr, flush=True)
            self._stopping.wait(wait)

    def _run(self):
        """One worker, to its end. Returns how it ended."""
        read, write = os.pipe()
        try:
            p = subprocess.Popen(command(self._config, read), env=environment(self._config), pass_fds=(read,), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        with self._lock:
            self._process, self._life, self._starts = p, write, self._starts + 1
        self._tail.clear()
        reader = threading.Thread(target=self._read, args=(p.stdout,), name="brant-worker-output", daemon=True)
        reader.start()
        if self._stopping.is_set():  # stop() came before there was a pipe to close
            self._release()
        p.wait()
        self._release()
        reader.join(1)  # its executors, which end with it, have the other end too
        code = p.returncode
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return f"brant-worker ended with {how}" + ("".join(f"\n  {line}" for line in self._tail))

    def _read(self, stream):
        with stream:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip("\n")[:LINE_CHARS]
                self._tail.append(text)
                print(text, file=sys.stderr, flush=True)
