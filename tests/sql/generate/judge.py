# SPDX-License-Identifier: Apache-2.0
"""What DuckDB alone answers to a generated query, over the files and over the same rows in another order. It runs in a process of its own,
which is replaced when it doesn't answer: DuckDB may not hear an interrupt (aggregates over frames, ASOF joins), or end with its database.
"""
import pathlib
import pickle
import re
import select
import subprocess
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "lib"), str(pathlib.Path(__file__).resolve().parent)]
import queries  # noqa: E402
import tables  # noqa: E402

LIMIT_S = 3  # then the query is interrupted
DEAF_S = 30  # then the process is replaced
NATIVE = re.compile(r"(BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|(FLOAT|DOUBLE)\[\])$")
MICROS = ("((extract(year FROM {0}) * 12 + extract(month FROM {0})) * 30 + extract(day FROM {0})) * 86400000000::HUGEINT + extract(hour FROM {0}) * 3600000000 "
          "+ extract(minute FROM {0}) * 60000000 + extract(microsecond FROM {0})")


def read(duck, table):
    names = table.column_names
    duck.con.register("arrow_result", table.rename_columns([f"c{i}" for i in range(len(names))]))
    try:
        types = [r[1] for r in duck.con.execute("DESCRIBE SELECT * FROM arrow_result").fetchall()]
        cells = [f"c{i}" if NATIVE.match(t) else MICROS.format(f"c{i}") if t == "INTERVAL" else f"CAST(c{i} AS VARCHAR)" for i, t in enumerate(types)]
        rows = duck.con.execute(f"SELECT {', '.join(cells)} FROM arrow_result").fetchall()
    finally:
        duck.con.unregister("arrow_result")
    return queries.Result(names, [queries.no_enums(t) for t in types], rows)


def over_files(folder):
    duck = queries.Duck()
    duck.con.execute("SET memory_limit = '2GB'")
    for v in [*tables.views(folder), tables.attached(folder)]:
        duck.execute(v)
    return duck


def over_shuffled(folder):
    duck = queries.Duck()
    for v in ("SET preserve_insertion_order = false", "SET threads = 3", "SET memory_limit = '2GB'", "ATTACH ':memory:' AS st"):
        duck.execute(v)
    for v in tables.views(folder):
        name = v.split()[4]
        duck.execute(v.replace(f" VIEW {name} ", f" VIEW files_{name} "))
        for place in ("", "st."):
            duck.execute(f"CREATE TABLE {place}{name} AS SELECT * FROM files_{name} ORDER BY hash(id, x, 77)")
    return duck


class Answers:
    """In the process that answers."""

    def __init__(self, folder):
        self.folder, self.ducks = folder, {}

    def answer(self, sql, shuffled):
        """(Result, None), (None, error) or (None, None) when it took too long."""
        if shuffled not in self.ducks:
            self.ducks[shuffled] = (over_shuffled if shuffled else over_files)(self.folder)
        duck = self.ducks[shuffled]
        timer = threading.Timer(LIMIT_S, duck.con.interrupt)
        timer.start()
        try:
            return read(duck, duck.con.execute(sql).to_arrow_table()), None
        except Exception as e:  # noqa: BLE001: any error is an answer
            if type(e).__name__ in ("InterruptException", "OutOfMemoryException"):
                return None, None
            if type(e).__name__ in ("FatalException", "InternalException"):  # a bug of DuckDB's, after which the database is closed
                self.ducks.clear()
                return None, None
            return None, str(e)
        finally:
            timer.cancel()


class Judge:
    """reader: a connection of this process, for what brant gives and for shrinking."""

    def __init__(self, folder):
        self.folder, self.process, self.reader = folder, None, over_files(folder)

    def answer(self, sql, shuffled=False):
        """As Answers.answer; also (None, None) when nothing was heard for DEAF_S."""
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, __file__, str(self.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            pickle.dump((sql, shuffled), self.process.stdin)
            self.process.stdin.flush()
            if select.select([self.process.stdout], [], [], DEAF_S)[0]:
                return pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):  # it crashed
            pass
        self.close()
        return None, None

    def read(self, table):
        return read(self.reader, table)

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def main():
    answers, out = Answers(pathlib.Path(sys.argv[1])), sys.stdout.buffer
    while True:
        try:
            sql, shuffled = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answers.answer(sql, shuffled), out)
        out.flush()


if __name__ == "__main__":
    main()
