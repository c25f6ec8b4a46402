# SPDX-License-Identifier: Apache-2.0
"""TPC-H on workers that Ray actors keep and on local workers, side by side: three workers of one thread each on this machine, query by query in
turn, so that what else the machine does meets both. Also what starting and closing takes.

    deps/fetch.sh ray && BRANT_LIB_DIR=$PWD/build PYTHONPATH=$PWD/python build/deps/venv-ray/bin/python bench/ray_beside_local.py [scale] [rounds]
"""
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "lib"))
import tpch  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 2560 << 20}  # 2 GiB for the worker


def seconds(what, fn):
    began = time.monotonic()
    value = fn()
    print(f"{what}: {time.monotonic() - began:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return value


def cluster(temp):
    from ray.cluster_utils import Cluster
    c = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "temp_dir": temp})
    c.add_node(**NODE)
    c.add_node(**NODE)
    return c


def main(temp):
    import brant
    import ray
    from brant.ray_cluster import RaySession
    scale, rounds = (sys.argv[1:] + ["0.1", "3"][len(sys.argv) - 1:])[:2]
    tpch.make_data(scale)
    nodes = seconds("three Ray nodes started", lambda: cluster(temp))
    seconds("Ray connected", lambda: ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR"))
    sessions = {"ray": seconds("session on Ray, its workers joined", lambda: RaySession(distribute="always", progress=False)),
                "local": brant.Session(workers=3, threads=1, memory=2 << 30, distribute="always", progress=False)}
    seconds("local session, its workers joined", lambda: sessions["local"].execute("SELECT count(*) FROM range(10)").arrow())
    for s in sessions.values():
        for view in tpch.views(scale):
            s.execute(view)
    took = {name: {} for name in sessions}
    for r in range(int(rounds)):
        for n, text in tpch.queries().items():
            for name in sorted(sessions, reverse=(r + n) % 2 == 0):
                began = time.monotonic()
                sessions[name].execute(text).arrow()
                took[name].setdefault(n, []).append(time.monotonic() - began)
    for name, by_query in took.items():
        print(f"{name}: 22 queries, sum of the medians {sum(map(statistics.median, by_query.values())):.2f} s, of the fastest "
              f"{sum(map(min, by_query.values())):.2f} s, load {os.getloadavg()[0]:.1f}")
    seconds("session on Ray closed", sessions["ray"].close)
    sessions["local"].close()
    ray.shutdown()
    nodes.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="brt-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # short: for sockets
        main(temp)
