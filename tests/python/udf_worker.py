# SPDX-License-Identifier: Apache-2.0
"""A worker and an executor in Python, as small as can be: they start a real udf_process.py and speak the wire of src/udf/frames.h with it."""
import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys

import pyarrow as pa

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "python" / "brant" / "udf_process.py"
HEAD = struct.Struct("<QQQQ")
ERROR_HEAD = struct.Struct("<QQQIIII")
WAIT_S = 30


class Ended(Exception):
    """The process closed its end."""


def _all(sock, n):
    data = b""
    while len(data) < n:
        if not select.select([sock], [], [], WAIT_S)[0]:
            raise TimeoutError("the process says nothing")
        part = sock.recv(n - len(data))
        if not part:
            raise Ended
        data += part
    return data


class Connection:
    """To the process, as an executor has it."""

    def __init__(self, process, arrow_type):
        self.sock, other = socket.socketpair()
        process.tokens += 1
        process.tell(b"C" + process.tokens.to_bytes(8, "little"), [other.fileno()])
        other.close()
        self.batches = self.rows = 0
        self.type = arrow_type

    def open(self):
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, pa.schema([pa.field("c0", self.type)])).close()
        self.frame(1, json.dumps({"version": 1, "function": 1, "name": "f", "attempt": "q1.s0.t0.a0", "arguments": [], "result": str(self.type),
                                  "result_schema": sink.getvalue().to_pybytes().hex()}).encode())
        return self.answer()

    def frame(self, kind, data, fds=()):
        m = struct.pack("<IB", 1 + len(data), kind) + data
        n = socket.send_fds(self.sock, [m], fds) if fds else 0
        self.sock.sendall(m[n:])

    def send(self, columns, rows, by_fd=None):
        batch = pa.record_batch(columns, names=[f"c{i}" for i in range(len(columns))])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as w:
            w.write_batch(batch)
        stream = sink.getvalue()
        by_fd = stream.size > 65536 if by_fd is None else by_fd
        head = HEAD.pack(self.batches, self.rows, rows, stream.size if by_fd else 0)
        if by_fd:
            fd = os.memfd_create("test")
            os.write(fd, stream)
            self.frame(3, head, [fd])
            os.close(fd)
        else:
            self.frame(3, head + stream.to_pybytes())
        self.batches += 1
        self.rows += rows

    def answer(self):
        """("opened",), ("result", head, array) or ("error", head, type, message, traceback)."""
        if not select.select([self.sock], [], [], WAIT_S)[0]:
            raise TimeoutError("the process says nothing")
        first, fds, _, _ = socket.recv_fds(self.sock, 5, 4)
        if not first:
            raise Ended
        first += _all(self.sock, 5 - len(first))
        n, kind = struct.unpack("<IB", first)
        body = _all(self.sock, n - 1)
        if kind == 2:
            return ("opened",)
        if kind == 4:
            head = HEAD.unpack_from(body)
            data = body[HEAD.size:]
            if head[3]:
                with open(fds[0], "rb", closefd=True) as f:
                    data = f.read(head[3]) if f.seek(0) == 0 else b""
            return "result", head, pa.ipc.open_stream(data).read_all().column(0).combine_chunks()
        head = ERROR_HEAD.unpack_from(body)
        at, texts = ERROR_HEAD.size, []
        for size in head[4:]:
            texts.append(body[at:at + size].decode())
            at += size
        return ("error", head, *texts)

    def call(self, columns, rows=None):
        self.send(columns, len(columns[0]) if rows is None else rows)
        return self.answer()


class Process:
    """A udf_process.py with a function loaded."""

    def __init__(self, payload, python=sys.executable, name="f"):
        self.control, other = socket.socketpair()
        self.tokens = 0
        at = os.dup(other.fileno())  # its number may be 3
        self.popen = subprocess.Popen([python, str(SCRIPT)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[3],
                                      preexec_fn=lambda: os.dup2(at, 3))
        os.close(at)
        other.close()
        fd, self.status = os.memfd_create("payload"), os.memfd_create("status")
        os.write(fd, payload)
        os.ftruncate(self.status, 4096)
        self.tell(b"S" + json.dumps({"version": "0", "worker": 1, "process": 1, "function": 1, "name": name, "payload_bytes": len(payload),
                                     "return_type": "", "options": {}}).encode(), [fd, self.status])
        os.close(fd)

    def tell(self, data, fds):
        socket.send_fds(self.control, [struct.pack("<II", len(data), len(fds)) + data], fds)

    def heard(self):
        """The next message to the worker."""
        n, _ = struct.unpack("<II", _all(self.control, 8))
        return _all(self.control, n)

    def now(self):
        """token, since_us, first_row, rows, batches, loading."""
        return struct.unpack("<QQQQQQ", os.pread(self.status, 48, 0))

    def close(self):
        self.control.close()
        self.popen.wait(WAIT_S)
        os.close(self.status)
        return self.popen.stderr.read().decode()
