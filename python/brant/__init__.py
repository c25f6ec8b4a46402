# SPDX-License-Identifier: Apache-2.0
"""brant: a distributed DataFrame and SQL engine. The engine is libbrant; this package is a thin layer over it. Its parts, the engine's library
among them, are loaded when they are first used."""
import os as _os

if _os.environ.get("BRANT_LIB_DIR"):  # from a build tree: <build>/python/brant has the binding
    __path__.append(_os.path.join(_os.environ["BRANT_LIB_DIR"], "python", "brant"))

TYPE_CHECKING = False
if TYPE_CHECKING:  # for editors and checkers; what Python itself does is below
    from brant.dataframe import DataFrame
    from brant.errors import Error
    from brant.expr import Expr, coalesce, col, lit, sql_expr, when
    from brant.grouped import GroupedDataFrame
    from brant.io import (concat, from_arrow, from_glob_path, from_pandas, from_polars, from_pydict, from_pylist, range, read_arrow,
                          read_blob, read_csv, read_json, read_parquet, read_sql, read_text, read_warc, sql, table)
    from brant.joins import broadcast
    from brant.session import Result, Session, init, shutdown
    from brant.udf import cls, func, method
    from brant.window import Window

_NAMES = {  # module: its public names
    "dataframe": "DataFrame",
    "errors": "Error",
    "expr": "Expr coalesce col lit sql_expr when",
    "grouped": "GroupedDataFrame",
    "io": "concat from_arrow from_glob_path from_pandas from_polars from_pydict from_pylist range read_arrow read_blob read_csv read_json "
          "read_parquet read_sql read_text read_warc sql table",
    "joins": "broadcast",
    "session": "Result Session init shutdown",
    "udf": "cls func method",
    "window": "Window",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {*_NAMES, "display", "functions", "literal", "plan", "progress"}
__all__ = sorted([*_HOME, "functions"])


def __getattr__(name):
    import importlib
    if name in _HOME:
        value = getattr(importlib.import_module(f"brant.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"brant.{name}")
    elif name == "__version__":
        value = importlib.import_module("brant.session")._native.version()
    else:
        raise importlib.import_module("brant.foreign").missing("brant", name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__, *_MODULES, "__version__"})
