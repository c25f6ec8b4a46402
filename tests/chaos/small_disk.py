# SPDX-License-Identifier: Apache-2.0
"""A small file system of its own (tmpfs; needs root), to be filled."""
import os
import pathlib
import subprocess


class Disk:
    def __init__(self, path, bytes):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={bytes},mode=0700", "chaos", str(self.path)], check=True)

    def free(self):
        st = os.statvfs(self.path)
        return st.f_bavail * st.f_frsize

    def remove(self):
        subprocess.run(["umount", "-l", str(self.path)], check=True)
        self.path.rmdir()


def mounted(under):
    """Mount points below a directory."""
    return [line.split()[1] for line in open("/proc/mounts") if line.split()[1].startswith(f"{under}/")]
