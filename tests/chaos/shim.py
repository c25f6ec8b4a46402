# SPDX-License-Identifier: Apache-2.0
"""shim.c, compiled by the test that needs it; the environment of a process that is to be struck."""
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).with_name("shim.c")


class Shim:
    def __init__(self, folder):
        self.folder, self.library = pathlib.Path(folder), pathlib.Path(folder) / "chaos.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"], check=True)
        self.fired_file = self.folder / "chaos.fired"

    def env(self, call, match, do, nth=1, name=None):
        self.fired_file.unlink(missing_ok=True)
        e = {"LD_PRELOAD": str(self.library), "CHAOS_CALL": call, "CHAOS_MATCH": match, "CHAOS_DO": do, "CHAOS_NTH": str(nth),
             "CHAOS_FIRED": str(self.fired_file)}
        return {**e, "CHAOS_NAME": name} if name else e

    def fired(self):
        return self.fired_file.exists()
