# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of a server: what tc netem would do, and more: it counts the bytes of streams and strikes in their middle.

    r = Relay(("127.0.0.2", 7001), ("127.0.0.1", 7001))     # peers are told the first address, the second one is the server
    r.arm(100_000, "flip")                                   # once, after 100,000 bytes from the server to its readers from now on

A worker behind it is started with `--listen 127.0.0.1 --port P --uri-host 127.0.0.2`: the same port at another loopback address.

Faults: flip (one bit of the byte at that place), reset (RST of that connection), close (an orderly end there, everything before it
arrives), refuse (all connections reset, new ones too), silent (nothing passes any more, nobody is told), call (a function, before
the byte passes). `delay` holds back each piece that much longer, in both directions. Two threads a connection; each holds one
buffer of BUFFER_BYTES.
"""
import os
import socket
import struct
import threading
import time

BUFFER_BYTES = 256 << 10


class _Pipe(threading.Thread):
    """One direction of one connection."""

    def __init__(self, relay, source, sink, from_server):
        super().__init__(daemon=True)
        self.relay, self.source, self.sink, self.from_server = relay, source, sink, from_server

    def run(self):
        buffer = bytearray(BUFFER_BYTES)
        view = memoryview(buffer)
        try:
            while n := self.source.recv_into(buffer):
                if not self.relay._pass(self, view, n):
                    return
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(self.source, self.sink)


def _reset(*sockets):
    for s in sockets:
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.shutdown(socket.SHUT_RD)  # wakes a thread that reads it
        except OSError:
            pass
        s.close()


class Relay:
    def __init__(self, listen, target):
        self.listen, self.target = listen, target
        self.delay = 0.0  # seconds a piece
        self.bytes = 0  # from the server, so far
        self.fired = threading.Event()
        self.log = []
        self._lock = threading.Lock()
        self._armed = []  # [bytes from now, fault, argument] each
        self._refuse, self._silent, self._closed = False, threading.Event(), False
        self._pairs = []
        self._server = socket.create_server(listen, backlog=64)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    # ---- faults

    def arm(self, after_bytes, fault, argument=None):
        assert fault in ("flip", "reset", "close", "refuse", "silent", "call"), fault
        with self._lock:
            self._armed.append([after_bytes, fault, argument])

    def refuse(self):
        """All connections end, new ones too."""
        with self._lock:
            self._refuse = True
            pairs, self._pairs = self._pairs, []
        for a, b in pairs:
            _reset(a, b)

    def cut(self):
        """All connections end; new ones are fine."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for a, b in pairs:
            _reset(a, b)

    def silent(self):
        self._silent.set()

    def heal(self):
        self._refuse, self.delay = False, 0.0
        self._silent.clear()

    # ---- connections

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._closed:
                client.close()
                return
            if self._refuse:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            _Pipe(self, client, server, False).start()
            _Pipe(self, server, client, True).start()

    def _pass(self, pipe, view, n):
        """Hands n bytes on; False: this connection is over."""
        if self.delay:
            time.sleep(self.delay)
        strike = None
        if pipe.from_server:
            with self._lock:
                self.bytes += n
                for a in self._armed:
                    a[0] -= n
                due = [a for a in self._armed if a[0] < 0]
                if due:
                    strike = due[0]
                    self._armed.remove(strike)
                    for a in due[1:]:  # with the next piece
                        a[0] = 0
        if not strike:
            if not self._silent.is_set():
                pipe.sink.sendall(view[:n])
            return True
        at, fault, argument = strike[0] + n, *strike[1:]
        text = f"{fault} after {self.bytes - n + at} bytes from {self.listen[0]}:{self.listen[1]}"
        if fault == "flip":
            view[at] ^= 1 << (at % 8)
        elif fault == "call":
            pipe.sink.sendall(view[:at])
            argument()
            view, n = view[at:], n - at
        elif at:
            pipe.sink.sendall(view[:at])
        self.log.append((fault, text))
        self.fired.set()
        if fault == "reset":
            _reset(pipe.source, pipe.sink)
        elif fault == "close":
            pipe.sink.shutdown(socket.SHUT_WR)
            pipe.source.shutdown(socket.SHUT_RD)
        elif fault == "refuse":
            self.refuse()
        elif fault == "silent":
            self.silent()
        else:
            pipe.sink.sendall(view[:n])
            return True
        return False

    def close(self):
        self._closed = True
        try:
            socket.create_connection(self.listen, timeout=1).close()  # wakes accept
        except OSError:
            pass
        self._server.close()
        self.refuse()
        self._thread.join(5)


def free_port(*hosts):
    """One that is free at all these loopback addresses."""
    for _ in range(100):
        with socket.socket() as s:
            s.bind((hosts[0], 0))
            port = s.getsockname()[1]
        try:
            for h in hosts:
                with socket.socket() as s:
                    s.bind((h, port))
            return port
        except OSError:
            continue
    raise OSError(f"no free port at {hosts}, process {os.getpid()}")
