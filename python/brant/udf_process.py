# SPDX-License-Identifier: Apache-2.0
"""A process of a pool: `python udf_process.py`, started by a worker with a socket at descriptor 3. src/udf/README.md has the duties, frames.h the
wire to executors, process.c the messages of the worker. One thread: it serves any number of connections, one batch at a time, in turn."""
import sys

if __name__ == "__main__" and sys.path and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder: names in it must not stand for others'

import collections  # noqa: E402
import ctypes  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import mmap  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402

CHANNEL_FD = 3
FRAME_MAX_BYTES, INLINE_BYTES, TEXT_MAX_BYTES = 1 << 20, 64 << 10, 64 << 10
BATCH_MAX_BYTES = 1 << 31
OPEN, OPENED, BATCH, RESULT, ERROR, CLOSE = 1, 2, 3, 4, 5, 6
READ_BYTES, MAX_FDS = 1 << 18, 32
LOG_MAX = 20  # lines that on_error="log" writes, a process
HEAD = struct.Struct("<QQQQ")
ERROR_HEAD = struct.Struct("<QQQIIII")
STATUS = struct.Struct("<QQQQQQ")


def _beside(name):
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("_brant_" + name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_brant_" + name] = module
    spec.loader.exec_module(module)
    return module


run = _beside("udf_run")


class Link:
    """A socket with what came and what waits to go. head(bytearray) -> (bytes of the head, of the whole message) or None."""

    def __init__(self, sock, length):
        sock.setblocking(False)
        self.sock, self.length = sock, length
        self.data, self.fds, self.out = bytearray(), collections.deque(), collections.deque()
        self.ended = False

    def read(self):
        try:
            data, fds, flags, _ = socket.recv_fds(self.sock, READ_BYTES, MAX_FDS)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.ended = True
            return
        for fd in fds:
            os.set_inheritable(fd, False)
            self.fds.append(fd)
        self.data += data
        if not data or flags & socket.MSG_CTRUNC:
            self.ended = True

    def message(self):
        """One whole message (a bytes object), or None."""
        n = self.length(self.data)
        if n is None or len(self.data) < n:
            return None
        m = bytes(memoryview(self.data)[:n])
        del self.data[:n]
        return m

    def send(self, parts, fds=()):
        self.out.append((b"".join(parts), fds))
        self.flush()

    def flush(self):
        while self.out and not self.ended:
            data, fds = self.out[0]
            try:
                n = socket.send_fds(self.sock, [data], fds) if fds else self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.ended = True
                return
            for fd in fds:
                os.close(fd)
            if n < len(data):
                self.out[0] = (data[n:], ())
            else:
                self.out.popleft()

    def close(self):
        for _, fds in self.out:
            for fd in fds:
                os.close(fd)
        for fd in self.fds:
            os.close(fd)
        self.sock.close()


def _frame_length(data):
    if len(data) < 4:
        return None
    n = int.from_bytes(data[:4], "little")
    if not 1 <= n <= FRAME_MAX_BYTES:
        raise ValueError("a frame of a size out of bounds")
    return 4 + n


def _channel_length(data):
    return None if len(data) < 8 else 8 + int.from_bytes(data[:4], "little")


class Connection(Link):
    """To an executor."""

    def __init__(self, sock, token):
        super().__init__(sock, _frame_length)
        self.token, self.schema, self.sql, self.function = token, None, "", None
        self.frames = collections.deque()

    def take(self):
        self.read()
        while (m := self.message()) is not None:
            self.frames.append(m)

    def frame(self, kind, parts, fds=()):
        n = 1 + sum(len(p) for p in parts)
        self.send([n.to_bytes(4, "little"), bytes([kind]), *parts], fds)

    def error(self, f, batch=0, first_row=0, rows=0):
        if f.row is not None:
            first_row, rows = first_row + f.row, 1
        texts = [_cut(f.type_name), _cut(f.message), _cut(f.trace)]
        self.frame(ERROR, [ERROR_HEAD.pack(batch, first_row, rows, f.kind, *[len(t) for t in texts]), *texts])


def _cut(text):
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_MAX_BYTES:
        return data
    half = TEXT_MAX_BYTES // 2 - 16
    return (data[:half].decode("utf-8", "ignore") + "\n  …\n" + data[-half:].decode("utf-8", "ignore")).encode()


class Process:
    def __init__(self):
        fd = os.dup(CHANNEL_FD)  # the function may close what it likes
        os.close(CHANNEL_FD)
        self.worker = Link(socket.socket(fileno=fd), _channel_length)
        self.poller = select.poll()
        self.poller.register(self.worker.sock, select.POLLIN)
        self.connections = collections.OrderedDict()  # descriptor -> Connection
        self.functions, self.status = {}, None  # id -> Function, or why it can't be loaded
        self.batches, self.opened, self.logged, self.first_row = 0, 0, 0, 0

    # ---- the worker

    def say(self, data):
        self.worker.send([struct.pack("<II", len(data), 0), data])

    def from_worker(self):
        self.worker.read()
        while (m := self.worker.message()) is not None:
            body = m[8:]
            if body[:1] == b"S":
                payload, status = self.worker.fds.popleft(), self.worker.fds.popleft()
                self.status = mmap.mmap(status, mmap.PAGESIZE)
                os.close(status)
                self.add(json.loads(body[1:]), payload)
                self.say(b"R")
            elif body[:1] == b"F":
                self.add(json.loads(body[1:]), self.worker.fds.popleft())
            elif body[:1] == b"C":
                c = Connection(socket.socket(fileno=self.worker.fds.popleft()), int.from_bytes(body[1:9], "little"))
                self.connections[c.sock.fileno()] = c
                self.poller.register(c.sock, select.POLLIN)
        if self.worker.ended:
            sys.exit(0)

    def add(self, setup, payload_fd):
        """A function: the first one, or another of the same pool."""
        name = setup["options"].get("shown", setup["name"])
        STATUS.pack_into(self.status, 0, 0, 0, 0, 0, 0, 1)
        payload = mmap.mmap(payload_fd, setup["payload_bytes"], prot=mmap.PROT_READ) if setup["payload_bytes"] else b""
        os.close(payload_fd)
        try:
            self.functions[setup["function"]] = run.Function(name, payload, self.log)
        except BaseException as e:  # noqa: B902: whatever its module or its __init__ does
            self.functions[setup["function"]] = run.failure_of(e, run.LOAD, what=f"function {name} cannot be loaded: ")
        STATUS.pack_into(self.status, 0, 0, 0, 0, 0, self.batches, 0)

    def log(self, name, f):
        """on_error="log": in the worker's log."""
        self.logged += 1
        if self.logged > LOG_MAX:
            return
        more = " (its further errors are not logged)" if self.logged == LOG_MAX else ""
        row = "" if f.row is None else f", row {self.first_row + f.row}"
        self.say(b"L" + f"function {name}{row}: {f.type_name}: {f.message}{more}".encode("utf-8", "replace")[:2000])

    # ---- executors

    def drop(self, fd):
        c = self.connections.pop(fd)
        self.poller.unregister(fd)
        c.close()
        if self.opened and not self.connections and any(isinstance(f, run.Failure) for f in self.functions.values()):
            sys.exit(0)  # the next one tries anew

    def on_open(self, c, body):
        self.opened += 1
        try:
            asked = json.loads(body)
            function = self.functions[asked["function"]]
            if isinstance(function, run.Failure):
                c.error(function)
                return
            c.function = function
            c.sql = asked["result"]
            c.schema = run.result_schema(asked["result_schema"])
        except Exception as e:  # pyarrow may be missing
            c.error(run.failure_of(e, run.LOAD, what="function cannot run: "))
            return
        c.frame(OPENED, [])

    def batch_of(self, c, fd_bytes, inline):
        import pyarrow as pa
        if not fd_bytes:
            return pa.ipc.open_stream(pa.py_buffer(inline)).read_next_batch()
        fd = c.fds.popleft()
        try:
            if fd_bytes > BATCH_MAX_BYTES or os.fstat(fd).st_size < fd_bytes:
                raise ValueError("a batch of a size out of bounds")
            mapped = mmap.mmap(fd, fd_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_next_batch()

    def on_batch(self, c, body):
        import pyarrow as pa
        batch, first_row, rows, fd_bytes = HEAD.unpack_from(body)
        self.first_row = first_row
        STATUS.pack_into(self.status, 0, c.token, time.monotonic_ns() // 1000, first_row, rows, self.batches, 0)
        try:
            arguments = self.batch_of(c, fd_bytes, memoryview(body)[HEAD.size:])
            if c.schema is None or (arguments.num_columns and arguments.num_rows != rows):
                raise ValueError("a batch of another number of rows than its head says, or before OPEN")
            result = c.function.run(arguments.columns, rows, c.schema.field(0).type, c.sql)
            del arguments
            out = pa.record_batch([result], schema=c.schema)
            self.send_result(c, HEAD, batch, first_row, rows, out)
        except run.Failure as f:
            c.error(f, batch, first_row, rows)
        except Exception as e:
            c.error(run.failure_of(e, run.PROTOCOL), batch, first_row, rows)
        self.batches += 1
        STATUS.pack_into(self.status, 0, 0, 0, 0, 0, self.batches, 0)

    def send_result(self, c, head, batch, first_row, rows, out):
        import pyarrow as pa
        if pa.ipc.get_record_batch_size(out) + 4096 <= INLINE_BYTES:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, out.schema) as w:
                w.write_batch(out)
            stream = sink.getvalue()
            if stream.size <= INLINE_BYTES:
                c.frame(RESULT, [head.pack(batch, first_row, rows, 0), stream.to_pybytes()])
                return
        fd = os.memfd_create("brant-udf-result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)  # the executor seals it
        try:
            with pa.OSFile(f"/proc/self/fd/{fd}", "wb") as sink, pa.ipc.new_stream(sink, out.schema) as w:
                w.write_batch(out)
            n = os.fstat(fd).st_size
            if n > BATCH_MAX_BYTES:
                raise run.Failure(run.RESULT, "ValueError", f"function {c.function.name} returned {n} bytes for one batch, more than "
                                  f"{BATCH_MAX_BYTES}: use a smaller batch_size")
        except BaseException:
            os.close(fd)
            raise
        c.frame(RESULT, [head.pack(batch, first_row, rows, n)], (fd,))

    def work(self, c):
        m = c.frames.popleft()
        kind, body = m[4], m[5:]
        if kind == OPEN:
            self.on_open(c, body)
        elif kind == BATCH:
            self.on_batch(c, body)
        elif kind == CLOSE:
            c.ended = True
        else:
            c.error(run.Failure(run.PROTOCOL, "ValueError", f"a frame of kind {kind}"))

    # ---- the loop

    def wait(self, busy):
        for fd, c in self.connections.items():
            self.poller.modify(fd, select.POLLIN | (select.POLLOUT if c.out else 0))
        self.poller.modify(self.worker.sock, select.POLLIN | (select.POLLOUT if self.worker.out else 0))
        for fd, events in self.poller.poll(0 if busy else None):
            if fd == self.worker.sock.fileno():
                if events & select.POLLOUT:
                    self.worker.flush()
                if events & ~select.POLLOUT:
                    self.from_worker()
                continue
            c = self.connections.get(fd)
            if c is None:
                continue
            if events & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                c.ended = True  # nobody waits for what is left
                continue
            if events & select.POLLOUT:
                c.flush()
            if events & select.POLLIN:
                try:
                    c.take()
                except ValueError:
                    c.ended = True
        for fd in [fd for fd, c in self.connections.items() if c.ended]:
            self.drop(fd)

    def next(self):
        """The connection that has waited longest of those with something to do."""
        if not self.functions:
            return None
        for fd, c in self.connections.items():
            if c.frames and not c.out:
                self.connections.move_to_end(fd)
                return c
        return None

    def serve(self):
        while True:
            c = self.next()
            self.wait(c is not None)
            if c is not None and not c.ended:
                self.work(c)


def main():
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit(0)
    Process().serve()


if __name__ == "__main__":
    main()
