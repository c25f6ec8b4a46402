# SPDX-License-Identifier: Apache-2.0
"""A real notebook's kernel (ipykernel), driven as Jupyter does: tables as output, progress that is updated in place and emptied, interrupts,
functions that are defined in cells."""
import queue
import re
import time

import pytest
from jupyter_client.manager import start_new_kernel

LIMIT_S = 60
ENDLESS = "select count(*) as n from range(100000000) a(i) join range(1000) b(j) on a.i % 7 <> b.j"


class Notebook:
    """Cells are run one after the other; of each all messages that a front end gets."""

    def __init__(self):
        self.manager, self.client = start_new_kernel()

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()

    def send(self, code):
        return self.client.execute(code)

    def messages(self, cell, until=lambda m: False):
        end, out = time.monotonic() + LIMIT_S, []
        while time.monotonic() < end:
            try:
                m = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if m["parent_header"].get("msg_id") != cell:
                continue
            out.append(m)
            if until(m) or m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
                return out
        raise TimeoutError(f"the cell is not done: {[m['msg_type'] for m in out]}")

    def run(self, code):
        out = self.messages(self.send(code))
        assert [m["content"]["traceback"] for m in out if m["msg_type"] == "error"] == []
        return out


@pytest.fixture(scope="module")
def notebook():
    n = Notebook()
    try:
        n.run("import brant\nfrom brant import col\nsession = brant.init(workers=2, threads=1, distribute='always')")
        yield n
        n.run("brant.shutdown()")
    finally:
        n.close()


def data(messages, kind="execute_result"):
    return [m["content"]["data"] for m in messages if m["msg_type"] == kind]


def text(messages):
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == "stdout")


def test_a_frame_is_a_table(notebook):
    (shown,) = data(notebook.run("df = brant.from_pydict({'name': ['<Ann>', 'Bob'], 'n': [1, None]})\ndf"))
    assert "<table>" in shown["text/html"] and "VARCHAR" in shown["text/html"] and "Ann" not in shown["text/html"]  # not run: its columns
    (shown,) = data(notebook.run("df.collect()"))
    html = shown["text/html"]
    assert re.search(r"<td>&lt;Ann&gt;</td><td[^>]*>1</td>", html) and "NULL" in html and "(2 rows)" in html
    assert "╭" in shown["text/plain"] and "<Ann>" in shown["text/plain"]
    assert "│ <Ann>" in text(notebook.run("df.show()"))
    (shown,) = data(notebook.run("df.schema"))
    assert "BIGINT" in shown["text/plain"]


def test_progress_is_updated_and_emptied(notebook):
    out = notebook.run("from brant import progress\nprogress.FIRST_S, progress.NOTEBOOK_REDRAW_S = 0.01, 0.01\n"
                       "n = brant.sql('select count(*) as n from range(60000000) a(i) join range(3) b(j) on a.i % 7 <> b.j').item()\nprint(n)")
    drawn = [m["content"] for m in out if m["msg_type"] in ("display_data", "update_display_data")]
    assert len(drawn) >= 2 and len({d["transient"]["display_id"] for d in drawn}) == 1
    assert "<progress" in drawn[0]["data"]["text/html"] and "tasks" in drawn[0]["data"]["text/html"] and drawn[-1]["data"]["text/html"] == ""
    assert text(out).strip().isdigit()


def test_an_interrupt_stops_the_query_alone(notebook):
    cell = notebook.send(f"session.subscribe(lambda e: print('began') if 'task_started' in e else None)\nbrant.sql('''{ENDLESS}''').show()")
    notebook.messages(cell, lambda m: m["msg_type"] == "stream" and "began" in m["content"]["text"])
    begin = time.monotonic()
    notebook.manager.interrupt_kernel()
    out = notebook.messages(cell)
    assert [m["content"]["ename"] for m in out if m["msg_type"] == "error"] == ["KeyboardInterrupt"]
    assert time.monotonic() - begin < 10
    assert text(notebook.run("print(brant.range(10).count_rows())")).endswith("10\n")


def test_functions_of_cells(notebook):
    notebook.run("scale = 3\ndef helper(x):\n    return x * scale")
    notebook.run("@brant.func\ndef times(x: int) -> int:\n    return helper(x)")
    out = notebook.run("print(sorted(brant.range(5).select(t=times(col('id'))).to_pydict()['t']))")
    assert text(out).endswith("[0, 3, 6, 9, 12]\n")
    cell = notebook.send("@brant.func\ndef wrong(x: int) -> float:\n    return 1 / (x - 3)  # of the cell\nbrant.range(5).select(wrong(col('id'))).collect()")
    error = [m["content"] for m in notebook.messages(cell) if m["msg_type"] == "error"][0]
    assert error["ename"] == "ExecutionError" and "ZeroDivisionError" in error["evalue"] and "# of the cell" in error["evalue"]


def test_names_are_completed(notebook):
    notebook.run("df = brant.range(3)")
    msg = notebook.client.complete("df.to_p", reply=True, timeout=LIMIT_S)
    assert any(m.endswith("to_pandas") for m in msg["content"]["matches"])
