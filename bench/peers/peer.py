# SPDX-License-Identifier: Apache-2.0
"""One engine, in a Python of its own: reads requests (a line of JSON each), answers with a line each.

    {"work": "tpch", "sql": …}, …          →  {"seconds": 1.2, "result": "file.arrow"} or {"error": "…"}

Started by run.py as `python peer.py ENGINE SETUP` with SETUP in JSON: tables {name: files}, scratch (a folder). Answers go to
descriptor 1 as it was; what engines print goes to standard error. A result that is to be compared is an Arrow file.
"""
import ctypes
import json
import os
import pathlib
import sys
import time

WORKERS = 2


class Engine:
    """`tables` are views when __init__ is over; nothing that it starts has to end by itself: run.py ends the whole tree of processes."""

    def __init__(self, setup):
        self.tables, self.scratch, self.setup = setup["tables"], pathlib.Path(setup["scratch"]), setup

    def version(self):
        raise NotImplementedError

    def tpch(self, sql):
        """The query's result as a pyarrow.Table."""
        raise NotImplementedError

    def moved(self, source, partitions, key, columns):
        """Rows through so many partitions by key; the number of values of each column behind that, as a pyarrow.Table."""
        raise NotImplementedError


def counts(columns):
    return ", ".join(f"count({c}) AS {c}" for c in columns)


class DuckDB(Engine):
    """One process of 2 threads. It has no shuffle: `moved` only counts."""

    def __init__(self, setup):
        super().__init__(setup)
        import duckdb
        self.con = duckdb.connect(config={"threads": WORKERS})
        for name, files in self.tables.items():
            self.con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")

    def version(self):
        import duckdb
        return duckdb.__version__

    def tpch(self, sql):
        t = self.con.execute(sql).arrow()
        return t if hasattr(t, "num_rows") else t.read_all()


class Brant(Engine):
    """2 local workers of 1 thread, all through stages."""

    def __init__(self, setup):
        super().__init__(setup)
        import brantlib
        self.session = brantlib.Session(workers=WORKERS, threads=1, distribute="always", temp_dir=self.scratch, memory=setup.get("memory", 0))
        for name, files in self.tables.items():
            self.session.run(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")

    def version(self):
        return self.session.lib.brant_version().decode()

    def tpch(self, sql):
        return self.session.run(sql)[0]

    def moved(self, source, partitions, key, columns):
        # of hashes: count(c) of a column without NULLs is count(*) to DuckDB, and the column would stay behind
        hashes = ", ".join(f"count(hash({c})) AS {c}" for c in columns)
        return self.session.run(f"SELECT {hashes} FROM repartition((SELECT * FROM {source}), {partitions}, {key})")[0]


class Daft(Engine):
    """In this process: its native runner. It has no shuffle: a repartition that is counted moves nothing."""

    def __init__(self, setup):
        super().__init__(setup)
        import daft
        self.daft = daft
        self.start()
        self.frames = {name: daft.read_parquet(files) for name, files in self.tables.items()}

    def start(self):
        self.daft.set_runner_native(num_threads=WORKERS)

    def version(self):
        return self.daft.__version__

    def tpch(self, sql):
        return self.daft.sql(sql, **self.frames).to_arrow()


def ray_cluster():
    """2 nodes of 1 CPU on this machine."""
    import ray
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster


class DaftRay(Daft):
    """On Ray, 2 nodes of 1 CPU."""

    def start(self):
        self.cluster = ray_cluster()
        self.daft.set_runner_ray(noop_if_initialized=True)

    def version(self):
        import ray
        return f"{self.daft.__version__}, ray {ray.__version__}"

    def moved(self, source, partitions, key, columns):
        col = self.daft.col
        return self.frames[source].repartition(partitions, key).agg(*[col(c).count().alias(c) for c in columns]).to_arrow()


class DaftFlight(DaftRay):
    """On Ray, with its Flight shuffle."""

    def start(self):
        super().start()
        self.daft.set_execution_config(shuffle_algorithm="flight_shuffle", flight_shuffle_dirs=[str(self.scratch)])


class Connect(Engine):
    """What speaks PySpark."""

    def open(self):
        raise NotImplementedError

    def __init__(self, setup):
        super().__init__(setup)
        self.spark = self.open()
        self.frames = {}
        for name, files in self.tables.items():
            self.frames[name] = self.spark.read.parquet(str(pathlib.Path(files).parent))
            self.frames[name].createOrReplaceTempView(name)

    def version(self):
        return self.spark.version

    def tpch(self, sql):
        return self.spark.sql(sql).toArrow()

    def moved(self, source, partitions, key, columns):
        from pyspark.sql import functions as f
        each = self.frames[source].repartition(partitions, key).groupBy(f.spark_partition_id().alias("p")).agg(*[f.count(c).alias(c) for c in columns])
        return each.agg(*[f.sum(c).alias(c) for c in columns]).toArrow()


class Spark(Connect):
    """local[2]: both workers are threads of one JVM. (Its executors of local-cluster get an option that Java 17 refuses.)"""

    def open(self):
        from pyspark.sql import SparkSession
        settings = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false",
                    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.local.dir": str(self.scratch),
                    "spark.sql.warehouse.dir": str(self.scratch / "warehouse")}
        builder = SparkSession.builder.master(f"local[{WORKERS}]").appName("bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


class Sail(Connect):
    """local-cluster: 2 workers, threads of one process. It drops a repartition whose partitions nobody asks for, and has no function that
    does."""

    def open(self):
        os.environ.update(SAIL_MODE="local-cluster", SAIL_CLUSTER__WORKER_INITIAL_COUNT=str(WORKERS), SAIL_CLUSTER__WORKER_MAX_COUNT=str(WORKERS),
                          SAIL_EXECUTION__DEFAULT_PARALLELISM=str(WORKERS), SAIL_CLUSTER__WORKER_TASK_SLOTS="64")
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession
        self.server = SparkConnectServer()
        self.server.start(background=True)
        return SparkSession.builder.remote("sc://%s:%s" % self.server.listening_address).getOrCreate()

    def version(self):
        import pysail
        return f"{pysail.__version__}, Spark Connect {self.spark.version}"

    def moved(self, source, partitions, key, columns):
        raise NotImplementedError


class Vane(Engine):
    """On Ray, 2 nodes of 1 CPU."""

    def __init__(self, setup):
        super().__init__(setup)
        os.environ.update(VANE_SESSION_DIR=str(self.scratch / "vane"), VANE_PROGRESS="0")
        import vane
        self.cluster = ray_cluster()
        vane.set_runner_ray(noop_if_initialized=True)
        self.vane, self.con = vane, vane.connect()
        self.con.execute("SET arrow_lossless_conversion = true")
        for name, files in self.tables.items():
            self.con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")

    def version(self):
        import ray
        return f"{self.vane.__version__}, ray {ray.__version__}"

    def tpch(self, sql):
        return self.con.sql(sql).to_arrow_table()

    def moved(self, source, partitions, key, columns):
        return self.con.sql(f"SELECT * FROM {source}").repartition(partitions, key).aggregate(counts(columns)).to_arrow_table()


ENGINES = {"duckdb": DuckDB, "brant": Brant, "daft": Daft, "daft-ray": DaftRay, "daft-flight": DaftFlight, "spark": Spark, "sail": Sail, "vane": Vane}


def said(e):
    """One line: of many (Ray's have a page of places) the last."""
    lines = [x.strip() for x in str(e).splitlines() if x.strip()]
    return f"{type(e).__name__}: {lines[-1] if lines else 'no message'}"[:500]


def answer(engine, request):
    work = request.pop("work")
    if work == "version":
        return {"version": engine.version()}
    if work in ("embed", "dedup"):
        import workloads
        run, arguments = getattr(workloads, work), [engine]
    else:
        run, arguments = getattr(engine, work), []
    out = request.pop("result", None)
    begin = time.perf_counter()
    table = run(*arguments, **request)
    seconds = time.perf_counter() - begin
    if isinstance(table, dict):  # of a workload, which has a time of its own
        return {"seconds": seconds, **table}
    if out:
        import pyarrow as pa
        with pa.OSFile(out, "wb") as f, pa.ipc.new_file(f, table.schema) as w:
            w.write_table(table)
    return {"seconds": seconds, "result": out}


def main():
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: daemons that it starts stay in its tree, so they are counted and ended
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    setup = json.loads(sys.argv[2])

    def reply(value):
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    try:
        engine = ENGINES[sys.argv[1]](setup)
        reply({"version": engine.version()})
    except BaseException as e:
        reply({"error": said(e)})
        raise
    for line in sys.stdin:
        try:
            reply(answer(engine, json.loads(line)))
        except NotImplementedError:
            reply({"error": "has none"})
        except Exception as e:
            reply({"error": said(e)})
    os._exit(0)


if __name__ == "__main__":
    main()
