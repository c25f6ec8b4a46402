# SPDX-License-Identifier: Apache-2.0
"""Memory that the kernel bounds: who passes it is killed."""
import pathlib
import time

import pytest


class Cgroup:
    """A memory cgroup with a limit; v1 or v2, whatever is mounted."""

    def __init__(self, name, limit):
        self.v1, v2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        self.is_v1 = (self.v1 / "memory.limit_in_bytes").exists()
        if not self.is_v1 and "memory" not in ((v2 / "cgroup.controllers").read_text() if (v2 / "cgroup.controllers").exists() else ""):
            pytest.skip("no memory cgroup controller is mounted (v1 or v2)")
        self.dir = (self.v1 if self.is_v1 else v2) / name
        try:
            if not self.is_v1:
                (v2 / "cgroup.subtree_control").write_text("+memory")
            self.dir.mkdir()
        except OSError as e:
            pytest.skip(f"no cgroup can be made here: {e}")
        (self.dir / ("memory.limit_in_bytes" if self.is_v1 else "memory.max")).write_text(str(limit))
        if (self.dir / "memory.swap.max").exists():
            (self.dir / "memory.swap.max").write_text("0")

    def prefix(self):
        return ["sh", "-c", f"echo $$ > {self.dir}/cgroup.procs; exec \"$@\"", "sh"]

    def oom_kills(self):
        file = self.dir / ("memory.oom_control" if self.is_v1 else "memory.events")
        return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("oom_kill ")), 0)

    def remove(self):
        end = time.monotonic() + 10
        while (self.dir / "cgroup.procs").read_text().split():
            assert time.monotonic() < end, "processes are left in the cgroup"
            time.sleep(0.02)
        self.dir.rmdir()
