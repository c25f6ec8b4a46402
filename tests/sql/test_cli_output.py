# SPDX-License-Identifier: Apache-2.0
"""Standard output is the caller's: several results, and other programs, write to it one after the other."""
import socket
import subprocess

import brantlib

BRANT = str(brantlib.BUILD / "brant")


def test_results_append_to_a_file(tmp_path):
    out = tmp_path / "out"
    with open(out, "w") as f:
        f.write("before\n")
        f.flush()
        subprocess.run([BRANT, "sql", "--format", "json", "select 1 as a; select 2 as b"], stdout=f, check=True)
        subprocess.run([BRANT, "sql", "--format", "csv", "select 3 as c"], stdout=f, check=True)
    assert out.read_text() == 'before\n{"a":1}\n{"b":2}\nc\n3\n'


def test_results_go_to_a_socket():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run([BRANT, "sql", "--format", "csv", "select 42 as answer"], stdout=theirs.fileno(), check=True)
        theirs.close()
        assert ours.makefile().read() == "answer\n42\n"


def test_a_reader_that_has_enough_ends_it_quietly():
    p = subprocess.Popen([BRANT, "sql", "--format", "csv", "select * from range(5000000)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline() == b"range\n"
    p.stdout.close()
    assert p.wait(timeout=20) != 0
    assert len(p.stderr.read().splitlines()) <= 1
