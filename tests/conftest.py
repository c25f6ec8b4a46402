# SPDX-License-Identifier: Apache-2.0
"""Failures are on disk the moment they happen: a run whose pytest itself crashes or is killed still says what failed, and where it was.

BRANT_TEST_RECORD=<path> (scripts/test sets it): <path>.outcomes has lines "start", "passed", "failed", "error", "skipped",
"end" with the test's name, <path>.failures the texts of those that failed, with the last lines of what they printed. Without it nothing is
written.
"""
import os

RECORD = os.environ.pop("BRANT_TEST_RECORD", None)  # not for programs that tests start
SECTION_LINES = 60  # of what a failed test printed, a section


def _append(kind, text):
    with open(f"{RECORD}.{kind}", "a", encoding="utf-8", errors="backslashreplace") as f:
        f.write(text)


def _failed(report, name):
    parts = [f"==== {name}", report.longreprtext]
    for title, text in report.sections:
        parts += [f"---- {title}", *text.splitlines()[-SECTION_LINES:]]
    _append("failures", "\n".join(parts) + "\n\n")


def pytest_runtest_logstart(nodeid, location):
    if RECORD:
        _append("outcomes", f"start {nodeid}\n")


def pytest_runtest_logreport(report):
    if not RECORD:
        return
    if report.failed:
        _failed(report, f"{report.nodeid} ({report.when})")
    if report.when == "call" or not report.passed:
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        _append("outcomes", f"{outcome} {report.nodeid}\n")


def pytest_runtest_logfinish(nodeid, location):
    if RECORD:
        _append("outcomes", f"end {nodeid}\n")


def pytest_collectreport(report):
    if RECORD and report.failed:
        _failed(report, f"{report.nodeid} (collection)")
        _append("outcomes", f"error {report.nodeid}\n")
