# SPDX-License-Identifier: Apache-2.0
"""What generated queries are made of: columns with their categories, relations, queries."""
import dataclasses

CATEGORY = {"INTEGER": "int", "BIGINT": "int", "TINYINT": "int", "UBIGINT": "int", "SMALLINT": "int", "HUGEINT": "int", "DOUBLE": "dbl", "FLOAT": "dbl",
            "VARCHAR": "str", "BLOB": "blob", "UUID": "uuid", "DATE": "date", "TIMESTAMP": "ts", "TIMESTAMPTZ": "tz", "TIME": "time",
            "INTERVAL": "iv", "INTEGER[]": "il", "VARCHAR[]": "sl", "BOOLEAN": "bool", "TIMETZ": "ttz", "UHUGEINT": "int", "TIMESTAMP_NS": "ts",
            "INTEGER[2]": "ar", "JSON": "js", "BIT": "bit"}
# columns whose arithmetic can't overflow, whose dates can be moved
SMALL = ("k", "kt", "g", "z", "kb", "kd", "p", "x", "kf", "kr", "kh", "dt", "ts", "tz", "kw")
NUMERIC = ("int", "dec", "dbl")
ORDERED = ("int", "dec", "dbl", "str", "date", "ts", "bool", "iv", "enum", "uuid", "time", "tz", "ttz", "ar", "js", "bit")
MAKEABLE = ("int", "dec", "dbl", "str", "bool", "date", "ts", "iv", "il", "sl", "st")


@dataclasses.dataclass(frozen=True)
class Column:
    sql: str
    cat: str
    small: bool = False
    approx: bool = False


@dataclasses.dataclass
class Relation:
    """What stands in FROM: its text, its columns (qualified), and which of them together tell rows apart (None: all of them)."""
    sql: str
    columns: list
    unique: list = None

    def identity(self):
        return self.unique or [c.sql for c in self.columns if not c.approx]


@dataclasses.dataclass
class Query:
    sql: str
    columns: list  # of Column, their names
    ordered: bool = False
    unique: list = None
