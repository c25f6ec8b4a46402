# SPDX-License-Identifier: Apache-2.0
"""What editors and people see of the package: types and words at every public name; and the answers to names that others have."""
import builtins
import inspect
import pathlib
import re

import brant
import pytest
from brant import col, expr, foreign, functions, namespaces, udf

CLASSES = [brant.DataFrame, brant.GroupedDataFrame, brant.Expr, expr.Call, expr.Case, brant.Window, brant.Session, brant.Result,
           namespaces.Strings, namespaces.Dates, namespaces.Lists, namespaces.Structs, namespaces.Maps]


def public():
    for name in brant.__all__:
        value = getattr(brant, name)
        if inspect.isfunction(value):
            yield name, value
    for name in ("count", "unnest", "struct", "list_", "monotonically_increasing_id"):
        yield f"functions.{name}", getattr(functions, name)
    yield "func", udf._Func.__call__
    yield "func.batch", udf._Func.batch
    for c in CLASSES:
        assert inspect.getdoc(c), c
        for name in dir(c):
            value = inspect.getattr_static(c, name)
            value = value.fget if isinstance(value, property) else value
            if not name.startswith("_") and inspect.isfunction(value):
                yield f"{c.__name__}.{name}", value
    yield "Session", brant.Session.__init__
    yield "DataFrame", brant.DataFrame.__init__


def test_all_have_types_and_words():
    seen = 0
    for name, function in public():
        seen += 1
        assert name.endswith(("Session", "DataFrame")) and function.__name__ == "__init__" or inspect.getdoc(function), f"{name} has no docstring"
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, f"{name} doesn't say what it gives"
        for p in signature.parameters.values():
            assert p.name == "self" or p.annotation is not inspect.Parameter.empty, f"{name}: {p.name} has no type"
    assert seen > 300
    assert (pathlib.Path(brant.__file__).parent / "py.typed").exists()


def test_the_types_in_signatures_are_there():
    """Each name in an annotation is one of _types.py, of the module's own imports for checkers, or Python's."""
    from brant import _types, aggregates
    known = set(_types.__all__) | {"Any", "None", "bool", "int", "float", "str", "list", "dict", "tuple", "type", "frozenset", "pa", "pandas", "polars",
                                   "Table", "RecordBatch", "RecordBatchReader", "LazyFrame", "Schema", "Session", "Result"}
    known |= {c.__name__ for c in CLASSES} | {"Order"}
    assert aggregates.Aggregates in brant.Expr.__mro__
    for name, function in public():
        for annotation in function.__annotations__.values():
            assert set(re.findall(r"[A-Za-z_]\w*", annotation)) <= known, f"{name}: {annotation}"


def test_names_of_others_have_an_answer():
    df = brant.range(3)
    for wrong, words in (
        (lambda: df.withColumn("a", 1), r"a DataFrame has no withColumn: write with_column\("),
        (lambda: df.groupBy("id"), r"group_by\("),
        (lambda: df.id, r"a column is df\['id'\]"), (lambda: df.group_by("id").apply(len), "agg_list"),
        (lambda: col("a").isNull(), r"is_null\(\)"),
        (lambda: col("a").str.to_uppercase(), r"\.str has no to_uppercase: write upper\(\)"), (lambda: brant.scan_parquet("x"), "read_parquet"),
        (lambda: col("a").soundex(), r"col\(…\)\.call\('soundex'"), (lambda: brant.nothing, "brant has no nothing$"),
        (lambda: df.write.parquet("x"), "write_parquet"),
        (lambda: col("t").dt.day_name(), "strftime"), (lambda: col("l").list.gather(1), r"get\(place\)"),
    ):
        with pytest.raises(AttributeError, match=words):
            wrong()
    with pytest.raises(TypeError, match="with_column"):
        df["n"] = 3
    with pytest.raises(TypeError, match=r"agg\(col\('id'\)"):
        df.group_by("id")["id"]
    assert not hasattr(df, "__array__") and not hasattr(col("a"), "shape") and not hasattr(brant, "__wrapped__")


def test_answers_name_what_is_there():
    """And nothing stands in the lists that is there by its own name."""
    owners = {"DataFrame": brant.DataFrame, "GroupedDataFrame": brant.GroupedDataFrame, "Expr": brant.Expr, "Strings": namespaces.Strings,
              "Dates": namespaces.Dates, "Lists": namespaces.Lists}
    for where, names in foreign._NAMES.items():
        owner = owners.get(where, brant)
        for name, answer in names.items():
            assert where == "brant" and name not in brant.__all__ or where != "brant" and not hasattr(owner, name), f"{where}.{name} is there"
            first = re.match(r"(\w+)\(", answer)
            if first and not hasattr(builtins, first[1]) and not hasattr(brant, first[1]):
                assert hasattr(owner, first[1]), f"{where}.{name}: {answer}"


def test_a_frame_of_what_python_has():
    import pandas
    import polars
    with brant.Session(distribute="never") as s:
        for data in ({"a": [1, 2]}, [{"a": 1}, {"a": 2}], pandas.DataFrame({"a": [1, 2]}), polars.DataFrame({"a": [1, 2]})):
            assert brant.DataFrame(data, session=s).to_pydict() == {"a": [1, 2]}
    with pytest.raises(brant.Error, match="no Arrow data"):
        brant.DataFrame(3)
