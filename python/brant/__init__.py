# SPDX-License-Identifier: Apache-2.0
"""brant: a distributed DataFrame and SQL engine. The engine is libbrant; this package is a thin layer over it."""
import os as _os

if _os.environ.get("BRANT_LIB_DIR"):  # from a build tree: <build>/python/brant has the binding
    __path__.append(_os.path.join(_os.environ["BRANT_LIB_DIR"], "python", "brant"))

from brant import _native  # noqa: E402
from brant.errors import Error  # noqa: E402
from brant.session import Result, Session, init, shutdown  # noqa: E402

__version__ = _native.version()
__all__ = ["Error", "Result", "Session", "init", "shutdown"]
