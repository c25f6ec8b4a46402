# SPDX-License-Identifier: Apache-2.0
"""brant on a Ray cluster: `brant.init("ray")`. An actor on each node keeps a brant-worker running there (ray_node.py), which joins this process
as any worker does; rows move between workers, never through Ray. Ray restarts actors, the engine makes again what was lost (docs/ray.md).

Order: connect → listen → actors → wait for their workers → queries → close: actors, then Ray if it was connected here.
Threads: one looks at the cluster every LOOK_S, for nodes that came and went and actors that are gone; the engine's thread tells which workers
are members. Bounds: those below; a call of Ray that doesn't come back keeps none of the waits from ending."""
import atexit
import collections
import json
import logging
import os
import secrets
import threading
import time
import urllib.parse

from brant import errors
from brant.session import Session

LOOK_S = 1.0          # between looks at the cluster
ASK_S = 5.0           # a look waits at most so long for what actors say
AGAIN_S = 10.0        # from an actor that is gone for good to the next one on its node
STOP_S = 12.0         # for all workers to end at close
MEMORY_PART = 0.8     # of a node's `memory` resource, for its workers: the rest is for their actors
MEMORY_LEAST = 128 << 20

log = logging.getLogger("brant.ray")


def _invalid(message):
    return errors.InvalidError(message, "INVALID", "USER")


def _ray():
    try:
        import ray
        return ray
    except ImportError:
        raise _invalid("brant.init(\"ray\") needs the package ray: pip install 'brant[ray]'") from None


def _connect(address, options):
    """True: it was connected here, so that close() ends it."""
    ray = _ray()
    named = address or os.environ.get("RAY_ADDRESS", "")
    if named.startswith("ray://"):
        raise _invalid(f"{named} is a Ray client's address: workers join this process, so it must run on a node of the cluster: run it there, "
                       "by `ray job submit` for one")
    if ray.is_initialized():
        if ray.util.client.ray.is_connected():
            raise _invalid("this process is a Ray client (ray://): workers join it, so it must run on a node of the cluster")
        if address or options:
            raise _invalid("Ray is connected already: call brant.init(\"ray\") without address and ray_options, or ray.shutdown() before")
        return False
    if address is None:
        try:
            ray.init(address="auto", **options)
            return True
        except ConnectionError:
            address = "local"
            options = {"include_dashboard": False, **options}
    ray.init(address=address, **options)
    return True


def _actor_class():
    """Made here, so that it travels by value: a node without brant can say so."""

    class BrantWorker:
        """Keeps a brant-worker on its node; __init__ runs again when Ray restarts the actor."""

        def __init__(self, config):
            import socket
            import sys
            import warnings
            self._keeper, self._restarted = None, False
            try:
                import ray
                from brant import ray_node
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what Ray calls on the way is deprecated
                    self._restarted = ray.get_runtime_context().was_current_actor_reconstructed
                config = {**config, "uri_host": ray.util.get_node_ip_address()}
                self._uri_host = config["uri_host"]
                self._keeper = ray_node.Keeper(config)
                self._problem = ""
            except Exception as e:
                what = "the package brant is missing" if isinstance(e, ModuleNotFoundError) and (e.name or "").split(".")[0] == "brant" else str(e)
                self._problem = f"{what} (for {sys.executable} on {socket.gethostname()}): install the same brant on every node"

        def state(self):
            import os
            own = {"actor": os.getpid(), "restarted": self._restarted, "problem": self._problem}
            return {**own, "host": self._uri_host, **self._keeper.state()} if self._keeper else own

        def stop(self):
            if self._keeper:
                self._keeper.stop()

    return BrantWorker


class _Place:
    """One worker's place on a node: its actor, and what that said last."""

    def __init__(self, node, title, threads, memory, gpus):
        self.node, self.title, self.threads, self.memory, self.gpus = node, title, threads, memory, gpus
        self.actor, self.asked, self.state, self.gone_at = None, None, {}, None


class _Cluster:
    """The actors and the workers that they keep. config: of the actors' workers; per_node, threads, memory, gpus: as init got them."""

    def __init__(self, config, per_node, threads, memory, gpus):
        self._ray, self._class = _ray(), None
        self._config, self._per_node, self._threads, self._memory, self._gpus = config, per_node, threads, memory, gpus
        self._places = {}           # node id -> its _Places
        self._members = {}          # number of a worker -> (host, pid)
        self._lock = threading.Lock()   # of _places and _members
        self._looking = threading.Lock()
        self._closing, self._thread, self._told = threading.Event(), None, collections.Counter()

    # ---- who is a member: on the engine's thread

    def on_event(self, text):
        if '"worker_' not in text:
            return
        e = json.loads(text)
        if e["type"] == "worker_joined":
            with self._lock:
                self._members[e["worker"]] = (urllib.parse.urlsplit(e["uri"]).hostname, e["pid"])
        elif e["type"] == "worker_lost":
            with self._lock:
                self._members.pop(e["worker"], None)

    def _joined(self, place):
        return bool(place.state.get("pid")) and (place.state["host"], place.state["pid"]) in self._members.values()

    def number_of(self, host, pid):
        """The engine's number of a worker (docs/events.md), None if it is no member."""
        with self._lock:
            return next((n for n, member in self._members.items() if member == (host, pid)), None)

    # ---- nodes and actors

    def _share(self, node):
        """What each worker of a node gets: a list of (threads, memory, gpus), empty when the node has too little, and why."""
        has = node["Resources"]
        cpus, memory, gpus = int(has.get("CPU", 0)), int(has.get("memory", 0)), int(has.get("GPU", 0))
        count = self._per_node if self._threads else min(self._per_node, cpus)
        if count == 0:
            return [], ""  # a head that is there for others
        threads = self._threads or cpus // count
        bytes_each = self._memory or int(memory * MEMORY_PART) // count
        gpus_each = gpus // count if self._gpus is None else self._gpus
        for what, wanted, there in (("CPUs", threads * count, cpus), ("bytes of memory", bytes_each * count, memory),
                                    ("GPUs", gpus_each * count, gpus)):
            if wanted > there:
                return [], f"{count} worker(s) want {wanted} {what}, it has {there}"
        if bytes_each < MEMORY_LEAST:
            return [], f"{bytes_each >> 20} MiB of memory a worker are too few, {MEMORY_LEAST >> 20} MiB are needed"
        return [(threads, bytes_each, gpus_each)] * count, ""

    def _start(self, place):
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity
        if self._class is None:
            self._class = self._ray.remote(_actor_class())
        config = {**self._config, "threads": place.threads, "memory": place.memory}
        place.state, place.asked, place.gone_at = {}, None, None
        place.actor = self._class.options(num_cpus=place.threads, num_gpus=place.gpus, memory=place.memory, max_restarts=-1, max_concurrency=4,
                                          scheduling_strategy=Affinity(place.node, soft=False)).remote(config)

    def _say_once(self, key, message):
        self._told[key] += 1
        if self._told[key] == 1:
            log.warning("%s", message)

    def _follow_nodes(self):
        alive = {n["NodeID"]: n for n in self._ray.nodes() if n["Alive"]}
        for node in [n for n in self._places if n not in alive]:
            with self._lock:
                places = self._places.pop(node)
            for place in places:
                log.info("%s is gone", place.title)
                self._kill(place)
        for node_id, node in alive.items():
            if node_id in self._places:
                continue
            title = f"node {node['NodeManagerAddress']} ({node_id[:8]})"
            shares, why = self._share(node)
            if why:
                self._say_once(node_id, f"{title} gets no worker: {why}")
            places = [_Place(node_id, title, *share) for share in shares]
            for place in places:
                self._start(place)
            with self._lock:
                self._places[node_id] = places

    def _ask(self, wait):
        """What actors say whose workers are no members (yet)."""
        with self._lock:
            places = [p for ps in self._places.values() for p in ps if not self._joined(p)]
        for p in places:
            if p.actor is None and time.monotonic() - p.gone_at > AGAIN_S:
                self._start(p)
            if p.actor is not None and p.asked is None:
                p.asked = p.actor.state.remote()
        asked = {p.asked: p for p in places if p.asked is not None}
        if not asked:
            return
        done, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=wait)
        for ref in done:
            self._heard(asked[ref], ref)

    def _heard(self, place, ref):
        from ray.exceptions import ActorUnavailableError, RayError
        place.asked = None
        try:
            state = self._ray.get(ref, timeout=ASK_S)
        except ActorUnavailableError:  # it is being restarted: the next look asks again
            return
        except RayError as e:
            text = str(e).strip() or type(e).__name__
            place.state, place.actor, place.gone_at = {"problem": text}, None, time.monotonic()
            self._say_once((place.node, text[:80]), f"the actor on {place.title} is gone: {text}")
            return
        if state.get("problem"):
            self._say_once((place.node, state["problem"]), f"{place.title} has no worker: {state['problem']}")
        with self._lock:
            place.state = state

    def look(self, wait=ASK_S):
        with self._looking:
            if not self._closing.is_set():
                self._follow_nodes()
                self._ask(wait)

    def _kill(self, place):
        if place.actor is not None:
            try:
                self._ray.kill(place.actor, no_restart=True)
            except Exception as e:  # gone already, or Ray is
                log.debug("%s: %s", place.title, e)

    # ---- from start to close

    def workers(self):
        with self._lock:
            return [{"node": p.node, "host": p.state.get("host"), "pid": p.state.get("pid"), "actor": p.state.get("actor"),
                     "restarted": p.state.get("restarted", False), "starts": p.state.get("starts", 0), "threads": p.threads, "memory": p.memory,
                     "joined": self._joined(p), "problem": p.state.get("problem") or p.state.get("why") or ""}
                    for ps in self._places.values() for p in ps]

    def wait(self, seconds):
        """Until the workers of all nodes are members; if only some are by then, that will do. Raises when a node can't have one, or none is."""
        end = time.monotonic() + seconds
        while True:
            self.look(0.1)
            workers = self.workers()
            bad = [w for w in workers if w["problem"] and not w["joined"]]
            if bad:
                raise errors.LostError("\n".join(f"{self._title(w)}: {w['problem']}" for w in bad), "LOST", "USER")
            missing = [w for w in workers if not w["joined"]]
            if workers and not missing:
                return
            if time.monotonic() > end or (not workers and self._why_none()):
                break
            self._closing.wait(0.02)
        if not workers:
            raise errors.LostError("no node of this Ray cluster can have a worker: " + ("; ".join(self._why_none()) or "none has CPUs"), "LOST", "USER")
        text = "; ".join(f"{self._title(w)}: no worker within {seconds:g} s: are {w['threads']} CPUs and {w['memory'] >> 20} MiB free there "
                         "(ray status)? Less is asked for with threads= and memory=" for w in missing)
        if len(missing) == len(workers):
            raise errors.QueryTimeoutError(text, "TIMEOUT", "USER")
        log.warning("%s", text)

    def _title(self, worker):
        with self._lock:
            return next((p.title for p in self._places.get(worker["node"], ())), "node " + worker["node"][:8])

    def _why_none(self):
        return [f"node {n['NodeManagerAddress']}: {self._share(n)[1]}" for n in self._ray.nodes() if n["Alive"] and self._share(n)[1]]

    def follow(self):
        """Look at the cluster from now on."""
        self._thread = threading.Thread(target=self._follow, name="brant-ray", daemon=True)
        self._thread.start()

    def _follow(self):
        while not self._closing.wait(LOOK_S):
            try:
                self.look()
            except Exception as e:  # Ray's control store may be away for a while
                if not self._closing.is_set():
                    self._say_once(type(e).__name__, f"the Ray cluster can't be looked at: {e}")

    def stop(self):
        """Tell the actors to end their workers. Returns what finish() takes."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(ASK_S)
        with self._lock:
            places, self._places = [p for ps in self._places.values() for p in ps], {}
            there = [p for p in places if p.actor is not None and self._joined(p)]  # what others say may take long
        return places, [p.actor.stop.remote() for p in there] if self._ray.is_initialized() else []

    def finish(self, stopped):
        places, refs = stopped
        if not self._ray.is_initialized():  # it ended before us, and all actors with it
            return
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=STOP_S)
        for place in places:
            self._kill(place)


class RaySession(Session):
    """A session whose workers are kept by Ray actors. See brant.init; wait: seconds for the workers to be there."""

    def __init__(self, *, address=None, workers_per_node=1, threads=0, memory=0, gpus=None, temp_dir=None, host=None, wait=60, ray_options=None,
                 **options):
        wrong = sorted({"workers", "listen", "external_workers"} & set(options))
        if wrong:
            raise _invalid(f"init(\"ray\") takes no {', '.join(wrong)}: workers_per_node, threads and memory say what a node gives")
        if not isinstance(workers_per_node, int) or workers_per_node < 1:
            raise _invalid(f"workers_per_node={workers_per_node!r}: a whole number, at least 1, is wanted")
        if isinstance(memory, str):
            from brant.udf import bytes_of
            memory = bytes_of(memory)
        ours = _connect(address, dict(ray_options or {}))
        self._cluster, self._ours, self._closed = None, ours, False
        try:
            secret = options.pop("secret", None) or os.environ.get("BRANT_SECRET") or secrets.token_hex(32)
            host = host or _ray().util.get_node_ip_address()
            super().__init__(listen=(host, 0), external_workers=1, secret=secret, temp_dir=temp_dir, **options)
            self.interpreter = None
            join = f"[{host}]" if ":" in host else host
            config = {"secret": secret, "temp_dir": os.path.abspath(temp_dir) if temp_dir else None}
            self._cluster = _Cluster(config, workers_per_node, threads, memory, gpus)
            self.subscribe(self._cluster.on_event)
            config["join"] = f"{join}:{self._native.listen()}"
            self._cluster.wait(wait)
            self._cluster.follow()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)  # before Ray's own

    def workers(self):
        """The workers' places: a list of dicts: node, host, pid, actor (its pid), restarted (by Ray), starts (of the worker by this actor), threads,
        memory, joined, problem."""
        return self._cluster.workers()

    def close(self):
        """Cancel what runs, end the workers and their actors, and Ray if init connected it."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            stopped = self._cluster.stop() if self._cluster else None
            if hasattr(self, "_native"):
                super().close()
            if stopped:
                self._cluster.finish(stopped)
        finally:
            if self._ours:
                _ray().shutdown()
