# SPDX-License-Identifier: Apache-2.0
"""brant: a distributed DataFrame and SQL engine. The engine is libbrant; this package is a thin layer over it."""
import os as _os

if _os.environ.get("BRANT_LIB_DIR"):  # from a build tree: <build>/python/brant has the binding
    __path__.append(_os.path.join(_os.environ["BRANT_LIB_DIR"], "python", "brant"))

from brant import _native  # noqa: E402
from brant.errors import Error  # noqa: E402
from brant.session import Result, Session, init, shutdown  # noqa: E402

from brant import functions  # noqa: E402
from brant.dataframe import DataFrame  # noqa: E402
from brant.expr import Expr, coalesce, col, lit, sql_expr, when  # noqa: E402
from brant.grouped import GroupedDataFrame  # noqa: E402
from brant.io import (concat, from_arrow, from_glob_path, from_pandas, from_polars, from_pydict, from_pylist, range, read_arrow,  # noqa: E402
                      read_blob, read_csv, read_json, read_parquet, read_sql, read_text, read_warc, sql, table)
from brant.udf import cls, func, method  # noqa: E402
from brant.window import Window  # noqa: E402

__version__ = _native.version()
__all__ = ["DataFrame", "Error", "Expr", "GroupedDataFrame", "Result", "Session", "Window", "cls", "coalesce", "col", "concat", "from_arrow",
           "from_glob_path", "from_pandas", "from_polars", "from_pydict", "from_pylist", "func", "functions", "init", "lit", "method", "range", "read_arrow", "read_blob",
           "read_csv", "read_json", "read_parquet", "read_sql", "read_text", "read_warc", "shutdown", "sql", "sql_expr", "table", "when"]
