# SPDX-License-Identifier: Apache-2.0
"""A network of namespaces: the coordinator in ours, each worker in one of its own, all on one bridge. Needs root."""
import os
import subprocess
import uuid

import pytest

NET = "10.79.{}.{}"


def sh(*args):
    subprocess.run([str(a) for a in args], check=True, capture_output=True)


class Network:
    def __init__(self, workers):
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        tag = uuid.uuid4().hex[:6]
        self.third = int(tag[:2], 16)
        self.bridge, self.names = f"br{tag}", [f"chaos{tag}w{i}" for i in range(1, workers + 1)]
        self.host = NET.format(self.third, 1)
        self.join = f"{self.host}:7077"
        try:
            sh("ip", "link", "add", self.bridge, "type", "bridge")
            sh("ip", "addr", "add", f"{self.host}/24", "dev", self.bridge)
            sh("ip", "link", "set", self.bridge, "up")
            for i, n in enumerate(self.names, 1):
                sh("ip", "netns", "add", n)
                sh("ip", "link", "add", f"v{tag}{i}", "type", "veth", "peer", "name", "eth0", "netns", n)
                sh("ip", "link", "set", f"v{tag}{i}", "master", self.bridge, "up")
                self.inside(i, "ip", "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                self.inside(i, "ip", "link", "set", "eth0", "up")
                self.inside(i, "ip", "link", "set", "lo", "up")
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            self.remove()
            pytest.skip(f"no network namespaces here: {getattr(e, 'stderr', e)}")

    def address(self, i):
        return NET.format(self.third, i + 1)

    def prefix(self, i):
        """Of a command that runs at worker i."""
        return ["ip", "netns", "exec", self.names[i - 1]]

    def inside(self, i, *args):
        sh(*self.prefix(i), *args)

    # ---- faults

    def rules(self, i, *rules):
        """nftables at worker i: `ip saddr 10.79.1.3 drop`, `tcp … reject with tcp reset`, …"""
        self.inside(i, "nft", "add table inet chaos")
        self.inside(i, "nft", "add chain inet chaos in { type filter hook input priority 0; }")
        self.inside(i, "nft", "add chain inet chaos out { type filter hook output priority 0; }")
        for r in rules:
            self.inside(i, "nft", f"add rule inet chaos {r}")

    def silent(self, i):
        """Every packet vanishes."""
        self.rules(i, "in iifname eth0 drop", "out oifname eth0 drop")

    def refuse(self, i, other):
        """What comes from worker `other` is answered with a reset, also on old connections."""
        self.rules(i, f"in ip saddr {self.address(other)} tcp flags & rst == 0 reject with tcp reset")

    def ignore(self, i, other):
        """What comes from worker `other` vanishes."""
        self.rules(i, f"in ip saddr {self.address(other)} drop")

    def slow(self, i, rate="20mbit"):
        self.inside(i, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")

    def down(self, i):
        self.inside(i, "ip", "link", "set", "eth0", "down")

    def remove(self):
        for n in self.names:
            subprocess.run(["ip", "netns", "del", n], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
        left = [n for n in self.names if os.path.exists(f"/run/netns/{n}")]
        assert not left, f"namespaces left over: {left}"
