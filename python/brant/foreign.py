# SPDX-License-Identifier: Apache-2.0
"""Names that others have for what is called differently here: the error for a name that isn't there says what to write."""

_FRAME = {
    "withColumn": "with_column(name, value)", "withColumns": "with_columns({name: value})", "assign": "with_columns(name=value)",
    "withColumnRenamed": "rename({old: new})", "toDF": "rename(function or dict)", "selectExpr": "select(brant.sql_expr(…))",
    "groupBy": "group_by(…)", "orderBy": "sort(…, desc=…)", "sort_values": "sort(…, desc=…)", "dropDuplicates": "distinct(…)",
    "unionAll": "union_all(other)", "unionByName": "union_all_by_name(other)", "vstack": "concat(other)", "append": "concat(other)",
    "crossJoin": "cross_join(other)", "merge": "join(other, on=…, how=…)", "joinAsof": "join_asof(other, on=…, by=…)",
    "merge_asof": "join_asof(…)", "subtract": "except_distinct(other)", "exceptAll": "except_all(other)",
    "intersectAll": "intersect_all(other)", "minus": "except_distinct(other)", "query": "where('SQL text')",
    "loc": "where(…) and select(…)", "iloc": "df[start:stop]", "remove": "where(~…)", "fillna": "fill_null(value, 'column', …)",
    "na": "fill_null(…), drop_null(…)", "fill_nan": "with_columns(x=col('x').fill_nan(…))",
    "replace": "with_columns(x=brant.when(…, …).otherwise(…))", "astype": "with_columns(x=col('x').cast(type))",
    "cast": "with_columns(x=col('x').cast(type))", "take": "limit(n).to_pylist()", "first": "limit(1).to_pylist()",
    "tail": "sort(…, desc=True).limit(n): rows have no last ones without an order", "slice": "df[start:stop]", "gather_every": "where(…)",
    "top_k": "sort(…, desc=True).limit(n)", "nlargest": "sort(…, desc=True).limit(n)", "bottom_k": "sort(…).limit(n)",
    "nsmallest": "sort(…).limit(n)", "shape": "count_rows() and len(df.columns)", "height": "count_rows()", "width": "len(df.columns)",
    "isEmpty": "count_rows() == 0", "is_empty": "count_rows() == 0", "empty": "count_rows() == 0", "size": "count_rows()",
    "printSchema": "print(df.schema)", "info": "print(df.schema)", "glimpse": "show()", "null_count": "summarize()",
    "value_counts": "group_by('x').count().sort('count', desc=True)", "nunique": "count_distinct(…)", "n_unique": "count_distinct(…)",
    "approxQuantile": "agg(col('x').approx_percentiles(…))", "quantile": "agg(col('x').quantile(q))", "std": "stddev(…)",
    "toPandas": "to_pandas()", "toArrow": "to_arrow()", "to_dicts": "to_pylist()", "to_dict": "to_pydict()",
    "rows": "to_pylist(), iter_rows(named=False)", "toLocalIterator": "iter_rows()", "iterrows": "iter_rows()",
    "itertuples": "iter_rows(named=False)", "iter_slices": "iter_batches(n)",
    "to_numpy": "iter_batches(n, format='numpy'), to_pandas().to_numpy()", "values": "to_pandas().values",
    "to_list": "to_pydict()['column']", "to_torch_dataloader": "torch.utils.data.DataLoader(df.to_torch_iter_dataset(), …)",
    "lazy": "nothing: frames are lazy", "cache": "persist()", "checkpoint": "persist()",
    "write": "write_parquet(path), write_csv(path), write_json(path)", "to_parquet": "write_parquet(path)", "to_csv": "write_csv(path)",
    "to_json": "write_json(path)", "write_ndjson": "write_json(path)", "sink_parquet": "write_parquet(path)", "sink_csv": "write_csv(path)",
    "map": "select(fn(col(…))) with @brant.func", "apply": "select(fn(col(…))) with @brant.func",
    "map_rows": "select(fn(col(…))) with @brant.func", "mapPartitions": "select(fn(col(…))) with @brant.func.batch",
    "map_partitions": "select(fn(col(…))) with @brant.func.batch", "mapInPandas": "select(fn(col(…))) with @brant.func.batch",
    "map_batches": "select(fn(col(…))) with @brant.func.batch", "flatMap": "select(fn(col(…))) with a function that yields",
    "createOrReplaceTempView": "brant.sql('… FROM df …'): variables are tables there",
    "createTempView": "brant.sql('… FROM df …'): variables are tables there",
    "registerTempTable": "brant.sql('… FROM df …'): variables are tables there", "coalesce": "into_partitions(n)",
    "num_partitions": "explain()", "rdd": "iter_batches(), @brant.func", "sampleBy": "sample(…) of each group",
    "randomSplit": "where(col('k').hash() % 10 < 8)", "hint": "brant.broadcast(df)",
    "with_row_index": "with_row_number('index', order_by=…), or with_row_id()",
    "with_row_count": "with_row_number('row', order_by=…), or with_row_id()", "reset_index": "with_row_number('index', order_by=…)",
    "add_monotonically_increasing_id": "with_row_id()", "pivot_table": "pivot(…)", "wide_to_long": "unpivot(…)", "get_column": "df['name']",
    "partition_by": "write_parquet(path, partition_cols=[…]), group_by(…)", "unnest": "select(col('s').struct.get('field'))",
    "group_by_dynamic": "group_by(col('t').dt.truncate('hour'))", "resample": "group_by(col('t').dt.truncate('hour'))",
    "rolling": "col('x').mean().over(order_by='t', rows=(-2, 0))",
}
_GROUPED = {
    "show": "agg(…), count(), sum(…) first", "collect": "agg(…), count(), sum(…) first", "to_pandas": "agg(…), count(), sum(…) first",
    "apply": "agg(col('x').agg_list()) and a function over the lists",
    "map_groups": "agg(col('x').agg_list()) and a function over the lists", "nunique": "count_distinct(…)", "n_unique": "count_distinct(…)",
    "size": "count()", "std": "stddev(…)", "collect_list": "agg_list(…)", "pivot": "df.pivot(group_by, pivot_col, value_col, agg_fn)",
    "transform": "col('x').mean().over('key')", "all": "agg_list()", "tail": "head(n, order_by=…, desc=True)",
}
_EXPR = {
    "isNull": "is_null()", "isNotNull": "not_null()", "isna": "is_null()", "notna": "not_null()", "astype": "cast(type)",
    "fillna": "fill_null(value)", "isNaN": "is_nan()", "eqNullSafe": "eq_null_safe(other)", "is_between": "between(a, b)",
    "is_not_nan": "not_nan()", "nunique": "count_distinct()", "contains": ".str.contains(text), .list.contains(value)",
    "startswith": ".str.startswith(text)", "endswith": ".str.endswith(text)", "like": ".str.like(pattern)", "ilike": ".str.ilike(pattern)",
    "rlike": ".str.match(pattern)", "substr": ".str.slice(start, length)", "lower": ".str.lower()", "upper": ".str.upper()",
    "split": ".str.split(separator)", "replace": ".str.replace(old, new); of values: brant.when(…)",
    "len": "count(), .str.length(), .list.length()", "length": "count(), .str.length(), .list.length()", "getItem": "[…]",
    "getField": ".struct.get(name)", "map_elements": "a function with @brant.func", "map_batches": "a function with @brant.func.batch",
    "map_dict": "brant.when(…)", "replace_strict": "brant.when(…)", "cum_sum": "sum().over(order_by=…)", "cumsum": "sum().over(order_by=…)",
    "cum_count": "count().over(order_by=…)", "cum_max": "max().over(order_by=…)", "cum_min": "min().over(order_by=…)",
    "diff": "x - x.lag().over(order_by=…)", "pct_change": "x / x.lag().over(order_by=…) - 1",
    "rolling_mean": "mean().over(order_by=…, rows=(-2, 0))", "rolling_sum": "sum().over(order_by=…, rows=(-2, 0))", "mode": "call('mode')",
    "unique": "df.distinct(…), agg_set()", "value_counts": "df.group_by(…).count()", "sort": "df.sort(…), agg_list().order_by(…)",
    "sort_by": "agg_list().order_by(…)", "head": "df.limit(n)", "when": "brant.when(condition, value).otherwise(value)",
    "otherwise": "brant.when(condition, value).otherwise(value)", "asc_nulls_first": "asc(nulls_first=True)",
    "desc_nulls_last": "desc(nulls_first=False)", "collect_list": "agg_list()", "collect_set": "agg_set()", "year": ".dt.year()",
    "month": ".dt.month()", "day": ".dt.day()", "hour": ".dt.hour()", "to_list": "df.to_pydict()['column']",
    "tolist": "df.to_pydict()['column']", "to_numpy": "df.to_pandas()['column'].to_numpy()", "arr": ".list",
}
_STRINGS = {
    "to_uppercase": "upper()", "to_lowercase": "lower()", "strip_chars": "strip(characters)", "strip_chars_start": "lstrip(…)",
    "strip_chars_end": "rstrip(…)", "replace_all": "replace(old, new)", "strptime": "to_datetime(format)",
    "to_time": "to_datetime(format).dt.time()", "json_path_match": "json(path)", "json_decode": "json(path)",
    "pad_start": "lpad(length, pad)", "pad_end": "rpad(length, pad)", "title": "capitalize()", "cat": "concat(others), col(…).agg_concat()",
    "get": "slice(place, 1)", "findall": "extract_all(pattern)", "count": "count_matches(pattern)", "fullmatch": "match('^(…)$')",
    "search": "match(pattern)", "to_integer": "…cast('BIGINT')", "concat_ws": "concat(…)",
}
_DATES = {
    "dayofweek": "day_of_week() (Monday is 0)", "day_name": "strftime('%A')", "month_name": "strftime('%B')", "dayofyear": "day_of_year()",
    "weekofyear": "week()", "floor": "truncate(unit)", "round": "truncate(unit)", "tz_convert": "in_time_zone(zone)",
    "tz_localize": "in_time_zone(zone)", "total_days": "total_seconds() / 86400", "replace_time_zone": "in_time_zone(zone)",
    "month_end": "last_day()", "month_start": "truncate('month')", "add_months": "… + brant.sql_expr('INTERVAL 1 MONTH')",
}
_LISTS = {
    "size": "length()", "n_unique": "distinct().list.length()", "any": "contains(True)", "all": "~….list.contains(False)",
    "set_union": "concat(other).list.distinct()", "gather": "get(place)", "element": "get(place)",
}
_MODULE = {
    "F": "from brant import functions as f", "scan_parquet": "read_parquet(path): frames are lazy",
    "scan_csv": "read_csv(path): frames are lazy", "scan_ndjson": "read_json(path)", "read_ndjson": "read_json(path)",
    "read_ipc": "read_arrow(path)", "read_table": "table(name)", "from_dict": "from_pydict(data)", "from_dicts": "from_pylist(rows)",
    "from_records": "from_pylist(rows)", "createDataFrame": "from_pandas(data), from_pylist(rows), …",
    "from_numpy": "from_pydict({name: array})", "arange": "range(n)", "merge": "df.join(other, on=…)", "expr": "sql_expr(text)",
    "element": "col('l').list.map(lambda x: …)", "SQLContext": "sql('… FROM df …')", "SparkSession": "init(…)",
    "udf": "func, func.batch, cls", "udaf": "df.group_by(…).agg(col('x').agg_list()) and a function over the lists", "set_runner_ray": "init('ray')",
    "set_runner_native": "init(…)", "set_execution_config": "Session.set(name, value)", "connect": "init(…), Session(…)",
    "DataType": "a name of DuckDB's ('DECIMAL(10, 2)'), a type of Python or pyarrow", "concat_str": "functions.concat_ws(…)",
    "read_excel": "from_pandas(pandas.read_excel(path))", "read_delta": "from_arrow(…)", "read_deltalake": "from_arrow(…)",
    "count": "functions.count()", "sum": "functions.sum('x'), col('x').sum()", "mean": "functions.mean('x'), col('x').mean()",
    "max": "functions.max('x'), col('x').max()", "min": "functions.min('x'), col('x').min()", "len": "functions.count()",
    "struct": "functions.struct(…)", "date_range": "range(n) and an expression of dates",
}
_NAMES = {"DataFrame": _FRAME, "GroupedDataFrame": _GROUPED, "Expr": _EXPR, "Strings": _STRINGS, "Dates": _DATES, "Lists": _LISTS, "brant": _MODULE}
_SHOWN = {
    "Strings": ".str", "Dates": ".dt", "Lists": ".list", "Structs": ".struct", "Maps": ".map", "Expr": "an expression", "brant": "brant",
    "DataFrame": "a DataFrame", "GroupedDataFrame": "a grouped DataFrame",
}


def missing(where: str, name: str) -> AttributeError:
    """The error for a name that isn't there."""
    text = f"{_SHOWN.get(where, where)} has no {name}"
    if name.startswith("_"):
        return AttributeError(text)
    here = _NAMES.get(where, {}).get(name)
    if here:
        return AttributeError(f"{text}: write {here}")
    if where == "DataFrame":
        return AttributeError(f"{text}; a column is df[{name!r}] or col({name!r})")
    if where in ("Expr", "Strings", "Dates", "Lists"):
        return AttributeError(f"{text}; any function of the engine is col(…).call({name!r}, …), or functions.{name}(col(…), …)")
    return AttributeError(text)
