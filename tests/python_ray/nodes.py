# SPDX-License-Identifier: Apache-2.0
"""Ray nodes under test, and which processes of brant run."""
import os
import signal

import harness

NODE = {"num_cpus": 1, "memory": 1 << 30, "object_store_memory": 80 << 20}


class Nodes:
    """A Ray cluster of raylets on this machine. The first one is the head."""

    def __init__(self, temp):
        self._temp, self._cluster, self._wanted = temp, None, 0

    @property
    def address(self):
        return self._cluster.address

    def add(self, **more):
        from ray.cluster_utils import Cluster
        self._wanted += 1
        if self._cluster is None:
            self._cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "temp_dir": str(self._temp), **more})
            return self._cluster.head_node
        return self._cluster.add_node(**NODE, **more)

    def complete(self):
        """Three nodes again, whatever a test did."""
        while len(self._cluster.list_all_nodes()) < 3:
            self._cluster.add_node(**NODE)

    def kill(self, node_id):
        """SIGKILL for the raylet of a node, then Ray's test cluster forgets it."""
        node = next(n for n in self._cluster.list_all_nodes() if n.node_id == node_id)
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        return node

    def forget(self, node):
        self._cluster.remove_node(node, allow_graceful=False)

    def others(self):
        """Ids of the nodes that aren't the head."""
        return [n.node_id for n in self._cluster.list_all_nodes() if n is not self._cluster.head_node]

    def close(self):
        import ray
        ray.shutdown()
        if self._cluster:
            self._cluster.shutdown()

    def wait_clean(self):
        harness.wait_for(lambda: not of_brant(), 20, "workers, executors, functions and actors to end")


def of_brant():
    """Processes of brant: {pid: name}: workers, executors, processes of functions, their actors."""
    found = {}
    for pid, (name, _, _) in harness.marked(os.environ["BRANT_TEST_MARK"]).items():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if name.startswith("brant-") or b"udf_process" in line or b"ray::BrantWorker" in line:
            found[pid] = name
    return found
