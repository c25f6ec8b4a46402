# SPDX-License-Identifier: Apache-2.0
"""Names, values and types of Python as SQL text. Everything that a user gives and that is no SQL by itself passes through here."""
import datetime
import decimal
import enum
import math
import re
import uuid

from brant import errors

# DuckDB's keywords, but for common names that are safe everywhere a column's name stands (year, name, value, …).
_KEYWORDS = frozenset((
    "abort absolute access add admin after aggregate all also alter always analyse analyze and anti any array as asc asof "
    "assertion assignment asymmetric at attach attribute authorization backward before begin between bigint binary bit boolean "
    "both by cache call called cascade cascaded case cast catalog centuries century chain char character characteristics check "
    "checkpoint close cluster coalesce collate collation column columns comments commit committed compression concurrently "
    "configuration conflict connection constraint constraints continue conversion copy cost create cross csv cube current cursor "
    "cycle database days deallocate dec decade decades decimal declare default defaults deferrable deferred definer delete "
    "delimiter delimiters depends desc describe detach dictionary disable discard distinct do domain double drop each else enable "
    "encoding encrypted end enum error escape event except exclude excluding exclusive execute exists explain export export_state "
    "extension extensions external extract false fetch filter first float following for force foreign forward freeze from full "
    "function functions generated glob global grant granted group grouping grouping_id groups handler having header hold hours "
    "identity if ignore ilike immediate immutable implicit import in include including increment indexes inherit inherits "
    "initially inline inner inout input insensitive insert install instead int integer intersect interval into invoker is isnull "
    "isolation join json lambda large last lateral leading leakproof left like limit listen load local lock locked logged macro "
    "map mapping match matched materialized maxvalue merge microsecond microseconds millennia millennium millisecond milliseconds "
    "minutes minvalue months move national natural nchar new next no none not nothing notify notnull nowait null nullif nulls "
    "numeric object of off offset oids old on only operator option options or order ordinality others out outer over overlaps "
    "overlay overriding owned owner parallel parser partial partition partitioned passing password percent persistent pivot "
    "pivot_longer pivot_wider placing plans policy position positional pragma preceding precision prepare prepared preserve "
    "primary prior privileges procedural procedure program publication qualify quarters quote range read real reassign recheck "
    "recursive ref references referencing refresh reindex relative release rename repeatable replace replica reset respect restart "
    "restrict returning returns revoke right rollback rollup row rows rule sample savepoint schema schemas scope scroll search "
    "seconds secret security select semi sequence sequences serializable server session set setof sets share show similar simple "
    "skip smallint snapshot some sorted sql stable standalone start statement statistics stdin stdout storage stored strict strip "
    "struct subscription substring summarize symmetric sysid system table tables tablesample tablespace temp template temporary "
    "then ties time timestamp to trailing transaction transform treat trigger trim true truncate trusted try_cast unbounded "
    "uncommitted unencrypted union unique unknown unlisten unlogged unpack unpivot until update use user using vacuum valid "
    "validate validator values varchar variable variadic varying verbose view views virtual volatile weeks when where whitespace "
    "window with within without work wrapper write xml xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces "
    "xmlparse xmlpi xmlroot xmlserialize xmltable years yes zone "
).split())
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
# Part of the grammar: as quoted names they are no functions.
_GRAMMAR = frozenset(["coalesce", "grouping", "try", "unnest"])
_FUNCTION = frozenset(["left", "right", "map", "first", "last", "list", "year", "month", "hash", "row", "range", "replace", "repeat", "hour",
                       "minute", "second", "day", "week", "quarter", "millisecond", "microsecond", "reverse", "trim", "nullif"])


def _invalid(message):
    return errors.InvalidError(message, "INVALID", "USER")


def check_text(text, what):
    """Text that can stand in a statement: without NUL and lone surrogates."""
    if "\0" in text:
        raise _invalid(f"{what} has a NUL character: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(f"{what} is not valid Unicode: {text!r}") from None
    return text


def quote(name):
    """A name as SQL: in quotes when it needs them."""
    if _PLAIN.match(name) and name not in _KEYWORDS:
        return name
    return '"' + check_text(name, "a name").replace('"', '""') + '"'


def quote_function(name):
    """A function's name, perhaps with its schema before it."""
    if name in _GRAMMAR or name in _FUNCTION:
        return name
    return ".".join(quote(p) for p in name.split("."))


def string(text):
    """A string as SQL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(f"a string is not valid Unicode: {text!r}") from None
    quoted = "'" + text.replace("'", "''") + "'"
    return "(" + quoted.replace("\0", "' || chr(0) || '") + ")" if "\0" in text else quoted


def literal(value):
    """A value as SQL text, of the type that it has in Python."""
    if value is None or _is_missing(value):
        return "NULL"
    if isinstance(value, enum.Enum):
        return literal(value.value)
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":
        return _numpy(value)
    if module == "pyarrow" and hasattr(value, "as_py"):
        return f"CAST({literal(value.as_py())} AS {type_name(value.type)})"
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    if module in ("polars", "pandas", "pyarrow") and hasattr(value, "__iter__"):
        return literal(value.to_pylist() if hasattr(value, "to_pylist") else list(value))
    raise _invalid(f"a {type(value).__module__}.{type(value).__qualname__} can't be written as a constant: {value!r:.100}")


def _is_missing(value):
    return type(value).__name__ in ("NAType", "NaTType", "MaskedConstant")


def _numpy(value):
    import numpy as np
    if isinstance(value, np.ndarray):
        return literal([value[i] for i in range(len(value))]) if value.dtype.kind in "mM" else literal(value.tolist())
    if isinstance(value, (np.datetime64, np.timedelta64)):
        if np.isnat(value):
            return "NULL"
        unit = np.datetime_data(value.dtype)[0]
        if isinstance(value, np.timedelta64):
            return literal(value.astype("timedelta64[us]").item())
        if unit in ("D", "M", "Y", "W"):
            return literal(value.astype("datetime64[D]").item())
        kind = "TIMESTAMP_NS" if unit in ("ns", "ps", "fs", "as") else "TIMESTAMP"
        return f"{kind} '{str(value.astype('datetime64[ns]' if kind == 'TIMESTAMP_NS' else 'datetime64[us]')).replace('T', ' ')}'"
    if isinstance(value, (np.str_, np.bytes_)):
        return literal(str(value) if isinstance(value, np.str_) else bytes(value))
    if isinstance(value, np.bool_):
        return literal(bool(value))
    if isinstance(value, np.float64):
        return literal(float(value))
    if isinstance(value, (np.integer, np.floating)):
        return f"CAST({literal(value.item())} AS {type_name(value.dtype)})"
    raise _invalid(f"a numpy {type(value).__name__} can't be written as a constant: {value!r}")


def _float(value):
    if math.isnan(value) or math.isinf(value):
        return f"CAST('{'nan' if math.isnan(value) else 'inf' if value > 0 else '-inf'}' AS DOUBLE)"
    text = float.__repr__(value)
    return text if "e" in text else text + "e0"


def _int(value):
    if -2**63 < value < 2**63:
        return int.__repr__(value)
    if value == -2**63:
        return f"CAST('{value}' AS BIGINT)"
    if -2**127 <= value < 2**127:
        return f"CAST('{value}' AS HUGEINT)"
    if 0 <= value < 2**128:
        return f"CAST('{value}' AS UHUGEINT)"
    raise _invalid(f"an integer has at most 128 bits: {value}")


def _decimal(value):
    if not value.is_finite():
        return _float(float(value))
    digits, exponent = len(value.as_tuple().digits), value.as_tuple().exponent
    scale = max(0, -exponent)
    width = max(digits + max(0, exponent), scale, 1)
    if width > 38:
        raise _invalid(f"a decimal has at most 38 digits: {value}")
    return f"CAST('{value:f}' AS DECIMAL({width}, {scale}))"


def _datetime(value):
    nanos = getattr(value, "nanosecond", 0)
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc)
        return f"TIMESTAMPTZ '{value.replace(tzinfo=None).isoformat(' ')[:26]}+00:00'"
    if nanos:
        return f"TIMESTAMP_NS '{value.isoformat(' ')}'"
    return f"TIMESTAMP '{value.isoformat(' ')}'"


def _time(value):
    if value.tzinfo is not None:
        return f"CAST('{value.isoformat()}' AS TIMETZ)"
    return f"TIME '{value.isoformat()}'"


def _timedelta(value):
    return f"INTERVAL '{value.days} days {value.seconds} seconds {value.microseconds} microseconds'"


def _dict(value):
    if not value or not all(isinstance(k, str) for k in value):
        return "MAP {" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return "{" + ", ".join(f"{string(check_text(k, 'a field name'))}: {literal(v)}" for k, v in value.items()) + "}"


_WRITERS = [
    (bool, lambda v: "TRUE" if v else "FALSE"), (int, _int), (float, _float), (str, lambda v: string(str(v))),
    ((bytes, bytearray, memoryview), lambda v: "CAST('" + "".join(f"\\x{b:02X}" for b in bytes(v)) + "' AS BLOB)"),
    (decimal.Decimal, _decimal), (datetime.datetime, _datetime), (datetime.date, lambda v: f"DATE '{v.isoformat()}'"),
    (datetime.time, _time), (datetime.timedelta, _timedelta), (uuid.UUID, lambda v: f"CAST('{v}' AS UUID)"),
    (dict, _dict), ((list, tuple, set, frozenset, range), lambda v: "[" + ", ".join(literal(x) for x in v) + "]")]

_PYTHON_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bytes: "BLOB", decimal.Decimal: "DECIMAL(38, 9)",
                 datetime.datetime: "TIMESTAMP", datetime.date: "DATE", datetime.time: "TIME", datetime.timedelta: "INTERVAL",
                 uuid.UUID: "UUID"}
_NUMPY_TYPES = {"bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint8": "UTINYINT",
                "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "float16": "FLOAT", "float32": "FLOAT",
                "float64": "DOUBLE", "object": "VARCHAR"}
_ARROW_TYPES = {"bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "uint8": "UTINYINT",
                "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "halffloat": "FLOAT", "float": "FLOAT", "double": "DOUBLE",
                "string": "VARCHAR", "large_string": "VARCHAR", "string_view": "VARCHAR", "binary": "BLOB", "large_binary": "BLOB",
                "binary_view": "BLOB", "date32[day]": "DATE", "date64[ms]": "DATE", "null": '"NULL"', "month_day_nano_interval": "INTERVAL"}


def type_name(dtype):
    """DuckDB's name for a type of Python, numpy or pyarrow; a string is one already."""
    if isinstance(dtype, str):
        return _type_text(dtype)
    if dtype in _PYTHON_TYPES if isinstance(dtype, type) else False:
        return _PYTHON_TYPES[dtype]
    import typing
    origin, args = typing.get_origin(dtype), typing.get_args(dtype)
    if origin is list and len(args) == 1:
        return type_name(args[0]) + "[]"
    if origin is dict and len(args) == 2:
        return f"MAP({type_name(args[0])}, {type_name(args[1])})"
    if isinstance(dtype, dict) and dtype:
        return "STRUCT(" + ", ".join(f"{quote(k)} {type_name(v)}" for k, v in dtype.items()) + ")"
    module = (dtype if isinstance(dtype, type) else type(dtype)).__module__.partition(".")[0]
    if module == "numpy":
        import numpy as np
        name = np.dtype(dtype).name
        if name in _NUMPY_TYPES:
            return _NUMPY_TYPES[name]
        return {"M": "TIMESTAMP_NS" if "[ns]" in name else "TIMESTAMP", "m": "INTERVAL", "U": "VARCHAR", "S": "BLOB"}.get(
            np.dtype(dtype).kind) or _no_type(dtype)
    if module == "pyarrow":
        return _arrow_type(dtype)
    return _no_type(dtype)


def _no_type(dtype):
    raise _invalid(f"no type of the engine for {dtype!r}: give DuckDB's name for it, as 'DECIMAL(10, 2)'")


def _type_text(text):
    """A type given as text: it must be one, alone."""
    stripped = text.strip()
    if not re.fullmatch(r"""(?:[A-Za-z_]\w*|"(?:[^"]|"")+"|'(?:[^']|'')*'|\d+|[\s(),\[\].])+""", stripped) or stripped.count("(") != stripped.count(")"):
        raise _invalid(f"{text!r} is not the name of a type")
    return stripped


def _arrow_type(t):
    import pyarrow as pa
    import pyarrow.types as is_
    if str(t) in _ARROW_TYPES:
        return _ARROW_TYPES[str(t)]
    if is_.is_timestamp(t):
        return "TIMESTAMPTZ" if t.tz else {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}[t.unit]
    if is_.is_time(t):
        return "TIME"
    if is_.is_duration(t):
        return "INTERVAL"
    if is_.is_decimal(t) and t.precision <= 38 and 0 <= t.scale <= t.precision:
        return f"DECIMAL({t.precision}, {t.scale})"
    if is_.is_fixed_size_binary(t):
        return "BLOB"
    if is_.is_dictionary(t):
        return type_name(t.value_type)
    if is_.is_fixed_size_list(t):
        return f"{type_name(t.value_type)}[{t.list_size}]"
    if is_.is_map(t):
        return f"MAP({type_name(t.key_type)}, {type_name(t.item_type)})"
    if is_.is_list(t) or is_.is_large_list(t) or str(t).startswith(("list_view", "large_list_view")):
        return type_name(t.value_type) + "[]"
    if is_.is_struct(t) and t.num_fields:
        return "STRUCT(" + ", ".join(f"{quote(t.field(i).name)} {type_name(t.field(i).type)}" for i in range(t.num_fields)) + ")"
    if isinstance(t, pa.ExtensionType) or isinstance(t, pa.BaseExtensionType):
        return {"arrow.uuid": "UUID", "arrow.json": "JSON"}.get(t.extension_name) or type_name(t.storage_type)
    return _no_type(t)
