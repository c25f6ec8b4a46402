# SPDX-License-Identifier: Apache-2.0
"""What the engine raises: one class a kind of error, each a brant.Error."""

CODES = ["OK", "INVALID", "NOT_FOUND", "IO", "NO_SPACE", "PERMISSION", "OUT_OF_MEMORY", "UNSUPPORTED", "CORRUPT", "NETWORK", "TIMEOUT",
         "CANCELLED", "FETCH", "LOST", "VERSION", "EXECUTION", "INTERNAL"]
BLAMES = ["NONE", "USER", "TASK", "FETCH", "EXECUTOR", "WORKER", "INTERNAL"]


class Error(Exception):
    """An error of the engine. code: one of CODES; blame: whose fault, one of BLAMES; sys_errno and worker: 0 when there is none."""

    def __init__(self, message, code="INTERNAL", blame="NONE", sys_errno=0, worker=0):
        super().__init__(message)
        self.code, self.blame, self.sys_errno, self.worker = code, blame, sys_errno, worker


class InvalidError(Error, ValueError):
    """Bad input: syntax, unknown column, wrong option."""


class NotFoundError(Error, LookupError):
    """No such file, table or query."""


class ExecutionError(Error):
    """A run-time error of the SQL or of a function: a cast that fails, error()."""


class OutOfMemoryError(Error, MemoryError):
    """A named budget was exhausted."""


class UnsupportedError(Error, NotImplementedError):
    """Right input that this version can't do."""


class QueryTimeoutError(Error, TimeoutError):
    """A bounded wait ran out."""


class CancelledError(Error):
    """Somebody asked for it to stop."""


class LostError(Error):
    """A worker or executor died, more often than is made good."""


_CLASSES = {"INVALID": InvalidError, "NOT_FOUND": NotFoundError, "EXECUTION": ExecutionError, "OUT_OF_MEMORY": OutOfMemoryError,
            "UNSUPPORTED": UnsupportedError, "TIMEOUT": QueryTimeoutError, "CANCELLED": CancelledError, "LOST": LostError}


def make(message, code, blame, sys_errno, worker):
    """The exception for an error of the engine, by its numbers (include/brant.h)."""
    name = CODES[code] if code < len(CODES) else "INTERNAL"
    return _CLASSES.get(name, Error)(message, name, BLAMES[blame] if blame < len(BLAMES) else "NONE", sys_errno, worker)
