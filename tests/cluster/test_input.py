# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear message, an exit code, nothing left over."""
import os
import shutil
import socket
import subprocess

import duckdb
import pyarrow.parquet as pq
import pytest
from harness import BUILD, assert_error


def lines(small):
    return f"'{small}/lineitem/*.parquet'"


def test_no_such_file(box):
    assert_error(box.sql("select * from '/nowhere/x.parquet'").end(), "No files found", "/nowhere/x.parquet")


def test_glob_without_files(box):
    assert_error(box.sql(f"select * from '{box.dir}/none*.parquet'").end(), "No files found", "none*.parquet")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99, -4, -1])
def test_truncated_file(box, small, part):
    """Cut at several places: empty, in the first pages, in the middle, in the footer, in the last magic bytes."""
    folder = box.dir / "cut"
    shutil.copytree(small / "orders", folder)
    victim = sorted(folder.glob("*.parquet"))[3]
    size = victim.stat().st_size
    os.truncate(victim, int(size * part) if part >= 0 else size + int(part))
    assert_error(box.sql(f"select count(*), sum(o_totalprice) from '{folder}/*.parquet'").end(), victim.name)


def test_broken_page(box, small):
    """Footers are whole, a page in the middle is not: the task fails, the message names the file."""
    folder = box.dir / "broken"
    shutil.copytree(small / "orders", folder)
    victim = sorted(folder.glob("*.parquet"))[5]
    meta = pq.read_metadata(victim)
    column = next(c for c in range(meta.num_columns) if meta.schema.column(c).name == "o_comment")
    chunk = meta.row_group(0).column(column)
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    with open(victim, "r+b") as f:
        f.seek(at)
        f.write(b"\xff" * 400)
    assert_error(box.sql(f"select max(o_comment) from '{folder}/*.parquet'").end(), victim.name)


def test_no_such_column(box, small):
    c = box.sql(f"select l_orderkey, nosuch from {lines(small)}").end()
    assert_error(c, '"nosuch" not found', "LINE 1")


def test_syntax_error_has_line_and_caret(box, small):
    c = box.sql(f"select count(*)\nfrom {lines(small)}\nwher l_tax > 0").end()
    assert_error(c, "syntax error", "LINE 3: wher l_tax > 0")
    assert any(line.strip() == "^" for line in c.text().splitlines()), c.text()


def test_cast_that_fails_in_one_row_of_one_file(box):
    folder = box.dir / "cast"
    folder.mkdir()
    con = duckdb.connect()
    for i in range(6):
        con.execute(f"copy (select case when {i} = 4 and r = 777 then 'twelve' else r::varchar end as v from range(2000) t(r)) "
                    f"to '{folder}/f{i}.parquet'")
    c = box.sql(f"select sum(v::int) from '{folder}/*.parquet'", options=["--set", "split_bytes=1"]).end()
    assert_error(c, "Could not convert string 'twelve'", "in task", "f4.parquet", "CAST(")
    assert "f1.parquet" not in c.text()


def tmpfs(box, size):
    if os.geteuid() != 0:
        pytest.skip("a full disk is a small tmpfs: needs root to mount it")
    box.temp.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", box.temp], check=True)


def test_full_disk(box, big):
    tmpfs(box, "24m")
    try:
        c = box.sql(f"select * from '{big}/lineitem/*.parquet' order by l_comment", workers=2, memory="128MiB",
                    stdout=subprocess.DEVNULL).end()
        assert_error(c, "space", "--temp-dir")
    finally:
        subprocess.run(["umount", box.temp], check=True)


def test_full_disk_under_duckdb(box, big):
    """One task whose window needs more than its memory, and there is no disk to put the rest."""
    tmpfs(box, "100m")
    try:
        c = box.sql("select count(*) from (select row_number() over (order by l_comment, l_orderkey) as r from "
                    f"'{big}/lineitem/*.parquet' where l_orderkey <= 2000000) where r % 7 = 1", workers=1, memory="128MiB").end()
        assert_error(c, "no space", "--temp-dir")
        assert "max_temp_directory_size" not in c.text()
    finally:
        subprocess.run(["umount", box.temp], check=True)


def test_full_disk_leaves_the_session_usable(box, big, small):
    tmpfs(box, "24m")
    try:
        import brantlib
        with brantlib.Session(workers=2, memory=128 << 20, temp_dir=box.temp) as s:
            with pytest.raises(brantlib.BrantError) as e:
                s.run(f"select * from '{big}/lineitem/*.parquet' order by l_comment")
            assert e.value.code == "NO_SPACE", e.value
            assert s.run(f"select count(*) from {lines(small)}")[0][0][0].as_py() == 600572
        box.assert_clean()
    finally:
        subprocess.run(["umount", box.temp], check=True)


def as_nobody():
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_temp_dir_without_rights(box, small):
    for d in [box.dir, *box.dir.parents][:3]:
        os.chmod(d, os.stat(d).st_mode | 0o055)
    c = box.sql(f"select count(*) from {lines(small)}", prefix=as_nobody()).end()
    assert_error(c, str(box.temp), "--temp-dir")


def test_temp_dir_is_a_file(box, small):
    f = box.dir / "file"
    f.write_text("x")
    assert_error(box.sql(f"select count(*) from {lines(small)}", temp=f).end(), str(f), "--temp-dir")


def test_port_in_use(box, small):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        c = box.sql(f"select count(*) from {lines(small)}", options=["--listen", f"127.0.0.1:{port}"]).end()
    assert_error(c, f"127.0.0.1:{port}", "in use", "another port")


def test_no_worker_program(box, small):
    empty = box.dir / "bin"
    empty.mkdir()
    c = box.sql(f"select count(*) from {lines(small)}", env={"BRANT_BIN_DIR": str(empty)}).end()
    assert_error(c, "brant-worker", str(empty), "BRANT_BIN_DIR")


def test_worker_program_that_fails(box, small):
    """A worker that ends at once is told at once, not after a wait for it to join."""
    bad = box.dir / "bin"
    bad.mkdir()
    (bad / "brant-worker").write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
    (bad / "brant-worker").chmod(0o755)
    c = box.sql(f"select count(*) from {lines(small)}", env={"BRANT_BIN_DIR": str(bad)}).end()
    assert c.code == 1 and "exit code 127" in c.text() and c.text().count("brant: error: ") == 1, c.text()
    assert c.seconds < 20
    box.assert_clean()


def of_another_version(box, program):
    """The programs, one of them with other version bytes in it."""
    there = box.dir / "mixed"
    there.mkdir()
    for name in ("brant-worker", "brant-executor"):
        data = (BUILD / name).read_bytes()
        version = subprocess.run([BUILD / "brant", "--version"], capture_output=True, check=True).stdout.split()[1]
        if name == program:
            assert data.count(version + b"\0") > 0
            data = data.replace(version + b"\0", b"9" * len(version) + b"\0")
        (there / name).write_bytes(data)
        (there / name).chmod(0o755)
    return {"BRANT_BIN_DIR": str(there), "LD_LIBRARY_PATH": str(BUILD / "deps" / "duckdb")}


def test_worker_program_of_another_version(box, small):
    c = box.sql(f"select count(*) from {lines(small)}", env=of_another_version(box, "brant-worker")).end()
    told = [line for line in c.text().splitlines() if line.startswith("brant: error: ")]  # the worker's own log may come behind it
    assert c.code == 1 and len(told) == 1 and "99999" in told[0] and "install the same version" in told[0], c.text()
    box.assert_clean()


def test_executor_program_of_another_version(box, small):
    c = box.sql(f"select count(*) from {lines(small)}", workers=1, env=of_another_version(box, "brant-executor")).end()
    assert c.code == 1 and c.text().count("brant: error: ") == 1, c.text()
    assert "brant-executor is version 99999" in c.text() and "mixed" in c.text(), c.text()
    assert c.seconds < 20
    box.assert_clean()


def test_no_executor_program(box, small):
    alone = box.dir / "alone"
    alone.mkdir()
    shutil.copy(BUILD / "brant-worker", alone)
    c = box.sql(f"select count(*) from {lines(small)}", workers=1, env={"BRANT_BIN_DIR": str(alone)}).end()
    assert c.code == 1 and c.text().count("brant: error: ") == 1, c.text()
    assert "brant-executor must be beside brant-worker" in c.text(), c.text()
    box.assert_clean()


def test_memory_too_small(box, small):
    assert_error(box.sql(f"select count(*) from {lines(small)}", memory="1MB").end(), "--memory", "128MiB", code=2)


@pytest.mark.parametrize("option", ["--workers=x", "--memory=lots", "--threads=-1", "--nosuch", "--listen=nocolon", "--format=xml"])
def test_bad_options(box, option):
    c = box.brant("sql", option, "select 1").end()
    assert_error(c, option.split("=")[0], code=2)


def test_file_that_changes_during_the_query(box, small):
    """Replaced by other rows of the same number after stage 0 has read it: rows of two states must not be mixed silently."""
    folder = box.dir / "files"
    shutil.copytree(small / "lineitem", folder)
    victim = sorted(folder.glob("*.parquet"))[0]
    c = box.sql(f"select l_orderkey, l_linenumber, count(*) from '{folder}/*.parquet' group by all order by all limit 3",
                options=["--set", "two_step_aggregate=false"], events=True)
    c.events.wait("task_done", stage=0)
    os.utime(victim)
    c.end()
    assert_error(c, victim.name, "changed", "run the query again")


def test_file_that_is_removed_during_the_query(box, small):
    folder = box.dir / "files"
    shutil.copytree(small / "lineitem", folder)
    victim = sorted(folder.glob("*.parquet"))[0]
    c = box.sql(f"select l_orderkey, l_linenumber, count(*) from '{folder}/*.parquet' group by all order by all limit 3", events=True)
    c.events.wait("task_done", stage=0)
    victim.unlink()
    assert_error(c.end(), victim.name)


def test_script_stops_at_the_first_error(box):
    c = box.brant("sql", "--format", "csv", "select 1 as a; select nope; select 2 as b").end()
    assert_error(c, "nope")
    assert c.out == b"a\n1\n"


def test_attached_file_is_read_by_executors(box):
    """No noise, also from the second query on, when executors have it attached already."""
    db = box.dir / "some.duckdb"
    con = duckdb.connect(str(db))
    con.execute("create table t as select range as i, 'x' || range as s from range(300000)")
    con.close()
    c = box.sql(f"attach '{db}' as d; select count(*), sum(i) from d.t; select max(s) from d.t where i < 10;"
                f"detach d; attach '{db}' as d; select min(i) from d.t", workers=2).end()
    assert c.code == 0 and c.err == b"", c.text()
    assert c.out.decode().split() == ["count_star(),sum(i)", "300000,44999850000", "max(s)", "x9", "min(i)", "0"]
    box.assert_clean()


def test_name_that_is_attached_to_another_file(box):
    for name, value in (("a", 1), ("b", 2)):
        con = duckdb.connect(str(box.dir / f"{name}.duckdb"))
        con.execute(f"create table t as select {value} as v from range(1000)")
        con.close()
    c = box.sql(f"attach 'a.duckdb' as d; select sum(v) from d.t; detach d; attach 'b.duckdb' as d; select sum(v) from d.t", workers=2,
                cwd=box.dir).end()
    assert c.code == 0 and c.err == b"", c.text()
    assert c.out.decode().split() == ["sum(v)", "1000", "sum(v)", "2000"]


def test_normal_run_prints_nothing(box, small):
    c = box.sql(f"select l_returnflag, count(*) from {lines(small)} group by all order by all").end()
    assert c.code == 0 and c.err == b"", c.text()
    box.assert_clean()
