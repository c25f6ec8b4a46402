# SPDX-License-Identifier: Apache-2.0
"""pyarrow.flight reads partitions and results from the workers of a real session (docs/flight.md), while the caller holds the
result unread; what may not be read is refused, and the workers stay up."""
import pathlib
import re
import struct
import sys
import threading
import time

import duckdb
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import brantlib  # noqa: E402
import compare  # noqa: E402

SECRET = "a-secret-of-this-test"
FILES, EACH = 6, 20_000
END_MARK = struct.Struct("<IIIIQQ")  # src/shuffle/wire.h


def auth(secret=SECRET):
    return fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + secret.encode())], timeout=60)


class Cluster:
    """A session of three workers, with what its event stream tells."""

    def __init__(self, temp, data):
        self.events, self.more, self.connected = [], threading.Condition(), {}
        self.source = f"read_parquet('{data}/*.parquet')"
        self.session = brantlib.Session(workers=3, memory=256 << 20, temp_dir=temp)
        self.session.subscribe(self.hear)

    def hear(self, event):
        with self.more:
            self.events.append(event)
            self.more.notify_all()

    def wait(self, **want):
        """The first event with these fields, within a minute."""
        def first():
            return next((e for e in self.events if all(e.get(k) == v for k, v in want.items())), None)
        with self.more:
            assert self.more.wait_for(first, 60), f"no event {want}"
            return first()

    def uris(self):
        return [e["uri"] for e in list(self.events) if e["type"] == "worker_joined"]

    def clients(self):
        for uri in self.uris():
            if uri not in self.connected:
                self.connected[uri] = fl.connect(uri.replace("tcp://", "grpc://"))
        return list(self.connected.values())

    def duckdb(self, sql):
        return compare.rows_of(duckdb.sql(sql.format(t=self.source)).to_arrow_table())


def soon(condition):
    """Until condition() is true, at most 30 s."""
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Held:
    """A query whose result nobody reads; stage: the one that is waited for, the last if None."""

    def __init__(self, cluster, sql, stage=None):
        before = len(cluster.events)
        self.cluster, self.query = cluster, cluster.session.submit(sql.format(t=cluster.source))
        self.reader = self.query.reader()
        with cluster.more:
            assert cluster.more.wait_for(lambda: self.started(before), 60)
        self.id, self.stages = self.started(before)["query"], self.started(before)["stages"]
        self.stage = self.stages - 1 if stage is None else stage
        self.tasks = cluster.wait(type="stage_done", query=self.id, stage=self.stage)["tasks"]
        assert soon(lambda: len(flights(cluster.clients(), self)) == self.tasks)  # workers hear of it a little later

    def started(self, before):
        return next((e for e in self.cluster.events[before:] if e["type"] == "query_started"), None)

    def path(self, *more):
        return fl.FlightDescriptor.for_path(f"q{self.id:x}", f"s{self.stage}", *more)

    def close(self):
        self.reader = None
        self.query.cancel()
        self.query.free()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    temp, data = tmp_path_factory.mktemp("temp"), tmp_path_factory.mktemp("data")
    for f in range(FILES):
        ids = range(f * EACH, (f + 1) * EACH)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array([i % 1000 for i in ids], pa.int32()),
                                 "s": [None if i % 7 == 0 else f"row {i}" for i in ids]}), data / f"{f}.parquet")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("BRANT_SECRET", SECRET)  # a session takes it from there
        c = Cluster(temp, data)
    yield c
    for client in c.connected.values():
        client.close()
    c.session.close()
    assert list(temp.iterdir()) == []


@pytest.fixture
def hold(cluster):
    held = []

    def run(*args, **kwargs):
        held.append(Held(cluster, *args, **kwargs))
        return held[-1]

    yield run
    for h in held:
        h.close()


@pytest.fixture
def workers(cluster, hold):
    """Clients of all workers: after the first query, which starts them."""
    if not cluster.uris():
        cluster.session.run("select count(*) from " + cluster.source)
    assert len(cluster.clients()) == 3
    return cluster.clients()


def flights(workers, held):
    """{task: (client, FlightInfo)}; of the held query's stage, however many are open by now."""
    found = {}
    for w in workers:
        for info in w.list_flights(options=auth()):
            q, s, t = (p.decode() for p in info.descriptor.path)
            if (q, s) == (f"q{held.id:x}", f"s{held.stage}"):
                found[int(t[1:])] = (w, info)
    return found


def infos(workers, descriptor):
    """[(client, FlightInfo)] of the workers that have something of it."""
    found = []
    for w in workers:
        try:
            found.append((w, w.get_flight_info(descriptor, auth())))
        except KeyError as e:
            assert "no output of stage" in str(e) or "has no output here" in str(e)
    return found


def read(w, info):
    return w.do_get(info.endpoints[0].ticket, auth()).read_all()


ORDERED = "select id, s, k * 1.5 as x from {t} where id % 5 <> 3 order by s desc nulls last, id"


def test_result_in_order_by_the_example_of_the_docs(cluster, hold):
    cluster.session.set("sort_one_task_rows", 0)  # by ranges: several result tasks
    held = hold(ORDERED)
    cluster.session.set("sort_one_task_rows", 1000000)
    assert held.tasks > 1
    space = {}
    exec(re.search(r"```python\n(.*?)```", (ROOT / "docs" / "flight.md").read_text(), re.S)[1], space)
    got = space["read_stage"](cluster.uris(), held.id, held.stage, held.tasks, SECRET)
    with pytest.raises(LookupError, match=f"{held.tasks} of {held.tasks + 1}"):
        space["read_stage"](cluster.uris(), held.id, held.stage, held.tasks + 1, SECRET)
    want = cluster.duckdb(ORDERED)
    assert got.column_names == ["c0", "c1", "c2"]
    assert compare.difference(compare.rows_of(got), want, ordered=True) is None
    mine = held.reader.read_all()  # and nothing was taken away from the caller
    assert mine.column_names == ["id", "s", "x"]
    assert compare.difference(compare.rows_of(mine), want, ordered=True) is None


def test_list_and_info_agree(cluster, workers, hold):
    held = hold("select * from {t}")
    found = flights(workers, held)
    assert sorted(found) == list(range(held.tasks))
    rows = 0
    for task, (w, info) in found.items():
        assert len(info.endpoints) == 1 and info.endpoints[0].locations == []
        again = w.get_flight_info(info.descriptor, auth())
        assert (again.schema, again.total_records, again.total_bytes) == (info.schema, info.total_records, info.total_bytes)
        table = read(w, again)
        assert table.schema == info.schema == w.get_schema(info.descriptor, auth()).schema
        assert table.num_rows == info.total_records
        rows += table.num_rows
    assert rows == FILES * EACH
    by_worker = infos(workers, held.path())
    assert sum(i.total_records for _, i in by_worker) == rows
    got = pa.concat_tables(read(w, i) for w, i in by_worker)
    assert compare.difference(compare.rows_of(got), cluster.duckdb("select * from {t}"), ordered=False) is None


def test_partitions_of_a_stage(cluster, workers, hold):
    """A stage between, kept because its reader runs and runs; partition by partition."""
    held = hold("select count(*) from (select k, count(*) c, sum(id) x from {t} group by k) a, range(100000000) b(i), range(1000) d(j)"
                " where (a.x * i + a.c * j) % 7 = 8", stage=0)
    whole = pa.concat_tables(read(w, i) for w, i in infos(workers, held.path()))
    sums = {}
    partition = 0
    while True:
        descriptor = held.path(f"p{partition}")
        if partition and not_there(workers[0], descriptor, "partitions"):
            break
        keys = set()
        for w, info in infos(workers, descriptor):
            table = read(w, info)
            assert table.num_rows == info.total_records
            for key, count, x in compare.rows_of(table):
                keys.add(key)
                old = sums.get(key, (partition, 0, 0))
                assert old[0] == partition, "a key in two partitions"
                sums[key] = (partition, old[1] + int(count), old[2] + int(x))
        assert partition or keys
        partition += 1
    assert partition > 1
    assert sum(int(c) for c in whole.column(1).to_pylist()) == FILES * EACH
    assert sorted((k, c, x) for k, (_, c, x) in sums.items()) == sorted(
        (k, c, int(x)) for k, c, x in cluster.duckdb("select k, count(*), sum(id) from {t} group by k"))


def not_there(w, descriptor, why):
    try:
        w.get_flight_info(descriptor, auth())
    except KeyError as e:
        return why in str(e)
    return False


def test_chunks_and_the_end_mark(workers, hold):
    held = hold("select * from {t}")
    for w, info in infos(workers, held.path()):
        chunks = list(w.do_get(info.endpoints[0].ticket, auth()))
        rows, tasks = 0, []
        for c in chunks[:-1]:
            task, partition, _checksum = struct.unpack("<IIQ", c.app_metadata.to_pybytes())
            assert partition == 0 and task < held.tasks
            tasks.append(task)
            rows += c.data.num_rows
        assert tasks == sorted(tasks)
        assert chunks[-1].data is None
        end = END_MARK.unpack(chunks[-1].app_metadata.to_pybytes())
        assert end == (0xffffffff, 0xffffffff, len(set(tasks)), 0, len(chunks) - 1, rows)
        assert rows == info.total_records
        batches = w.do_get(info.endpoints[0].ticket, auth()).to_reader()
        assert sum(b.num_rows for b in batches) == rows


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed(cluster, workers, hold, codec):
    cluster.session.set("shuffle_compression", codec)
    held = hold("select * from {t}")
    cluster.session.set("shuffle_compression", "none")
    got = pa.concat_tables(read(w, i) for w, i in infos(workers, held.path()))
    assert compare.difference(compare.rows_of(got), cluster.duckdb("select * from {t}"), ordered=False) is None


TYPES = """select id, (id % 2 = 0) as b, id::tinyint as i8, id::ubigint as u64, id::hugeint as h, id / 3 as d, (id / 7)::decimal(12, 3) as m,
    date '2020-01-01' + id::int as day, timestamp '2020-01-01' + to_seconds(id) as ts, s, s::blob as bin, [id, null, 3] as l,
    {{'a': id, 'b': s}} as st, map([s], [id]) as mp from {t} where id < 100 and id % 7 <> 0 order by id"""


def test_types(cluster, workers, hold):
    held = hold(TYPES)
    got = pa.concat_tables(read(w, i) for w, i in infos(workers, held.path()))
    assert compare.difference(compare.rows_of(got), cluster.duckdb(TYPES), ordered=True) is None


def test_no_rows(workers, hold):
    held = hold("select id, s from {t} where id % 7 > 7")  # which statistics of row groups do not answer
    found = infos(workers, held.path())
    assert found
    for w, info in found:
        assert info.total_records == 0
        assert read(w, info).num_rows == 0
        assert read(w, info).schema.types == [pa.int64(), pa.string()]


def test_status(workers):
    assert [a.type for a in workers[0].list_actions(auth())] == ["status"]
    numbers = set()
    for w in workers:
        [result] = w.do_action("status", auth())
        status = brantlib.jsonlib.loads(result.body.to_pybytes())
        numbers.add(status["worker"])
    assert len(numbers) == 3
    with pytest.raises(pa.ArrowNotImplementedError, match='no action "shutdown"'):
        list(workers[0].do_action("shutdown", auth()))


def good(workers, held):
    return sum(read(w, i).num_rows for w, i in infos(workers, held.path()))


@pytest.mark.parametrize("secret", [None, "wrong", SECRET[:-1], SECRET + "x"])
def test_wrong_secret(workers, hold, secret):
    held = hold("select * from {t}")
    w, info = infos(workers, held.path())[0]
    options = auth(secret) if secret else fl.FlightCallOptions(timeout=60)
    for call in (lambda: w.do_get(info.endpoints[0].ticket, options).read_all(), lambda: list(w.list_flights(options=options)),
                 lambda: w.get_flight_info(held.path(), options), lambda: list(w.do_action("status", options))):
        with pytest.raises(fl.FlightUnauthenticatedError, match="no valid bearer token"):
            call()
    assert good(workers, held) == FILES * EACH


def test_tickets_hold_no_secret(workers, hold):
    held = hold("select * from {t}")
    for w, info in infos(workers, held.path()):
        ticket = info.endpoints[0].ticket.ticket
        assert SECRET.encode() not in ticket
        other = ticket + b"\x22\x05wrong"  # field 4: the secret
        with pytest.raises(Exception, match="the ticket does not have this cluster's secret"):
            w.do_get(fl.Ticket(other), auth()).read_all()
        whole = ticket + b"\x22" + bytes([len(SECRET)]) + SECRET.encode()
        assert w.do_get(fl.Ticket(whole), auth()).read_all().num_rows == info.total_records


def test_ticket_of_another_worker(workers, hold):
    held = hold("select * from {t}")
    found = infos(workers, held.path())
    assert len(found) > 1
    with pytest.raises(Exception, match=r"the ticket is for worker \d+ \(incarnation \d+\), this is worker \d+"):
        read(found[0][0], found[1][1])
    assert good(workers, held) == FILES * EACH


def test_ticket_of_a_dropped_query(cluster, workers, hold):
    held = Held(cluster, "select * from {t}")
    found = infos(workers, held.path())
    held.close()
    for w, info in found:
        assert soon(lambda: not_there(w, held.path(), "has no output here to read"))
        with pytest.raises(Exception, match=f"query {held.id:x}, version .* is not on this worker.*its query has ended"):
            read(w, info)
    assert flights(workers, held) == {}
    assert good(workers, hold("select * from {t}")) == FILES * EACH


@pytest.mark.parametrize("ticket", [b"", b"\xff", b"nonsense", b"\x0a\x00", b"\x0a\x05\x08\x01"])
def test_bad_tickets(workers, hold, ticket):
    held = hold("select * from {t}")
    for w in workers:
        with pytest.raises(Exception, match="ticket|message"):
            w.do_get(fl.Ticket(ticket), auth()).read_all()
    assert good(workers, held) == FILES * EACH


@pytest.mark.parametrize("path", [["x"], ["q1"], ["q", "s"], ["qz", "s0"], ["q1", "s0", "p"], ["q1", "s0", "p1", "t1"], ["q1", "s99999999999"],
                                  ["q11111111111111111", "s0"], ["q1", "s-1"], ["q1", "s0", "t0", "p0", "x"]])
def test_bad_paths(workers, path):
    with pytest.raises(pa.ArrowInvalid, match="is no path of an output"):
        workers[0].get_flight_info(fl.FlightDescriptor.for_path(*path), auth())


def test_other_descriptors(workers, hold):
    held = hold("select * from {t}")
    w = workers[0]
    with pytest.raises(pa.ArrowInvalid, match="must be a path"):
        w.get_flight_info(fl.FlightDescriptor.for_command(b"select 1"), auth())
    with pytest.raises(pa.ArrowInvalid, match="more than 95 bytes"):
        w.get_flight_info(fl.FlightDescriptor.for_path("q" + "1" * 100), auth())
    with pytest.raises(KeyError, match="query fade has no output here to read"):
        w.get_flight_info(fl.FlightDescriptor.for_path("qfade", "s0"), auth())
    with pytest.raises(KeyError, match=f"has {held.tasks} tasks and 1 partitions"):
        infos(workers, held.path())[0][0].get_flight_info(held.path("t1000"), auth())
    w, info = infos(workers, held.path())[0]
    assert w.get_flight_info(held.path(), auth()).descriptor == held.path()
    assert read(w, w.get_flight_info(held.path(), auth())).num_rows == info.total_records


def test_many_readers_at_once(workers, hold):
    held = hold("select * from {t}")
    got, lock = [], threading.Lock()

    def one():
        n = good(workers, held)
        with lock:
            got.append(n)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [FILES * EACH] * 8


def test_reader_that_goes_away(workers, hold):
    held = hold("select * from {t}")
    for w, info in infos(workers, held.path()):
        r = w.do_get(info.endpoints[0].ticket, auth())
        r.read_chunk()
        r.cancel()
    assert good(workers, held) == FILES * EACH
