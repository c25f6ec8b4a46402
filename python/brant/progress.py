# SPDX-License-Identifier: Apache-2.0
"""The progress of a query while somebody waits for its rows: a line on a terminal's standard error, wiped at the end, or an output of a
notebook's cell. Nothing in pipes, nothing for what is quick, nothing with `progress=False`. A thread asks Query.stats() and draws; it lives
as long as the rows are read, and is quiet while the caller works on a batch."""
import sys
import threading
import time

FIRST_S = 0.4  # what is done before this shows nothing
REDRAW_S = 0.1
NOTEBOOK_REDRAW_S = 0.5
BAR_CELLS = 20


def place(wanted=None):
    """Where to draw: an object with draw(stats) and wipe(); None: nowhere. wanted: True, False, or None for "if somebody can see it"."""
    if wanted is False:
        return None
    if _in_notebook():
        return Notebook()
    stream = sys.stderr
    try:
        seen = stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # no such method, or closed
        seen = False
    return Terminal(stream) if seen or (wanted and stream is not None) else None


def _in_notebook():
    """Is this a notebook's kernel? IPython isn't imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def describe(stats):
    """(how much is done, 0 to 1, words about it)."""
    tasks = stats["tasks"]
    part = min(stats["tasks_done"] / tasks, 1.0) if tasks else 0.0
    words = [f"{stats['seconds']:.1f}s"]
    if stats["stages"]:
        words += [f"stages {stats['stages_done']}/{stats['stages']}", f"tasks {stats['tasks_done']}/{tasks} ({stats['tasks_running']} run)"]
    if stats["rows_read"]:
        words.append(f"{short(stats['rows_read'])} rows read")
    if stats["bytes_shuffled"]:
        words.append(f"{short(stats['bytes_shuffled'])}B moved")
    if stats["text"]:
        words.append(stats["text"])
    return part, ", ".join(words)


def short(n):
    """950, 12.3k, 4.5M, …"""
    for unit in ("", "k", "M", "G", "T"):
        if n < 1000 or unit == "T":
            return f"{n:.1f}{unit}" if unit else str(int(n))
        n /= 1000


class Terminal:
    """One line, drawn over itself."""

    redraw_s = REDRAW_S

    def __init__(self, stream):
        self.stream = stream

    def draw(self, stats):
        """Draw or draw again."""
        import shutil
        part, words = describe(stats)
        done = int(part * BAR_CELLS)
        columns = shutil.get_terminal_size().columns
        line = ("█" * done + "░" * (BAR_CELLS - done) + " " + words)[:max(columns - 1, 1)]
        self._write("\r\x1b[K" + line)

    def wipe(self):
        """Leave nothing behind."""
        self._write("\r\x1b[K")

    def _write(self, text):
        try:
            self.stream.write(text.encode(self.stream.encoding or "ascii", "replace").decode(self.stream.encoding or "ascii"))
            self.stream.flush()
        except (OSError, ValueError):  # a terminal that went away is no reason for a query to fail
            pass


class Notebook:
    """An output of the cell, updated in place, emptied at the end."""

    redraw_s = NOTEBOOK_REDRAW_S

    def __init__(self):
        self._handle = None

    def draw(self, stats):
        """Draw or draw again."""
        import html
        part, words = describe(stats)
        self._show(f"<progress value='{part:.3f}' max='1'></progress> <small>{html.escape(words)}</small>")

    def wipe(self):
        """Leave nothing behind."""
        self._show("")

    def _show(self, text):
        from IPython.display import HTML, display
        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))


class Progress:
    """Draws a query's progress while its reader waits: `with Progress(query, where) as p: p.waiting(True) … p.waiting(False)`."""

    def __init__(self, query, where):
        self._query, self._where = query, where
        self._lock = threading.Condition()
        self._waits = self._end = self._drawn = False
        self._thread = threading.Thread(target=self._run, name="brant-progress", daemon=True) if where is not None else None

    def __enter__(self):
        if self._thread is not None:
            self._waits = True
            self._thread.start()
        return self

    def __exit__(self, *exc):
        if self._thread is not None:
            with self._lock:
                self._end = True
                self._lock.notify()
            self._thread.join()

    def waiting(self, on):
        """Does the reader wait for rows (draw), or work on some (be quiet, and out of the way of what it prints)?"""
        if self._thread is None:
            return
        with self._lock:
            self._waits = on
            if not on:
                self._wipe()
            self._lock.notify()

    def _wipe(self):
        if self._drawn:
            self._where.wipe()
            self._drawn = False

    def _run(self):
        due = time.monotonic() + FIRST_S
        with self._lock:
            while not self._end:
                self._lock.wait(max(due - time.monotonic(), 0) if self._waits else None)
                if not self._waits or self._end or time.monotonic() < due:
                    continue
                self._where.draw(self._query.stats())
                self._drawn, due = True, time.monotonic() + self._where.redraw_s
            self._wipe()
