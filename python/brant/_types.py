# SPDX-License-Identifier: Apache-2.0
"""Names of the types in signatures, for readers, editors and type checkers: nothing imports this when it runs."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, List, Optional, Tuple, Union

from brant.expr import Expr, Order

Text = str                                                       # where a class has a method `str`
Path = Union[str, "os.PathLike[str]"]
Paths = Union[Path, Sequence[Path]]                              # a pattern or a directory is one path
Value = Any                                                      # an expression, or a value that becomes a constant
ColumnLike = Union[Expr, str]                                    # an expression, or a column's name
Columns = Union[ColumnLike, Sequence[ColumnLike]]
Condition = Union[Expr, str, bool]                               # an expression, or SQL text
Sorting = Union[ColumnLike, Order, Sequence[Union[ColumnLike, Order]]]
Aggregates = Union[Expr, Sequence[Expr], Mapping[str, Union[str, Sequence[str]]]]
Dtype = Any                                                      # DuckDB's name of a type, or a type of Python, numpy or pyarrow
Frame = Optional[Tuple[Any, Any]]                                # of a window: (start, end)

Params = Union[Mapping[str, Any], Sequence[Any], None]           # of a statement: for $name, or for ? and $1

__all__ = ["Aggregates", "Any", "Callable", "ColumnLike", "Columns", "Condition", "Dtype", "Frame", "Iterable", "Iterator", "List", "Mapping", "Params",
           "Path", "Paths", "Sequence", "Sorting", "Text", "Value"]
