-- SPDX-License-Identifier: Apache-2.0
-- Statements that tests/unit/test_plan_decompile.c plans, writes back as SQL, and runs both ways. Comments before a statement:
--   ordered           the rows come in the same order
--   shape             only types and the number of rows agree: the values are random
--   fails             both texts fail when they run
--   refused: TEXT     can't be written back, and the reason holds TEXT
-- @DIR@ is an empty directory of the test (with a folder pq/).

-- # setup
SET timezone = 'UTC';
SET threads = 1;
CREATE TYPE mood AS ENUM ('low', 'mid', 'high');
CREATE TABLE items AS SELECT
  i::INT AS id, (i % 6)::SMALLINT AS grp, CASE WHEN i % 9 = 0 THEN NULL ELSE 'n' || (i % 14) END AS name,
  CASE WHEN i % 7 = 0 THEN NULL ELSE i * 1.25 END::DOUBLE AS price, (i * 2.17)::DECIMAL(12,2) AS cents, (i * 7.3)::DECIMAL(30,4) AS big,
  i::HUGEINT * 200000000000000000000 AS huge, TIMESTAMP '2021-03-01' + INTERVAL (i * 5) HOUR AS ts, DATE '2021-03-01' + i::INT AS day,
  TIMESTAMPTZ '2021-03-01 00:00:00+00' + INTERVAL (i) MINUTE AS zoned, TIME '01:00:00' + INTERVAL (i) MINUTE AS clock, ('b' || i)::BLOB AS raw,
  ('{"id":' || i || ',"list":["x","y"]}')::JSON AS doc, [i, i + 2, NULL, i * 3]::INT[] AS tags, {'x': i::INT, 'label': 'l' || (i % 4)} AS pt,
  MAP {'a': i::INT, 'b' || (i % 3): (i * 4)::INT} AS attrs, (['low', 'mid', 'high'])[1 + i % 3]::mood AS mood, (i % 2 = 1) AS ok,
  [i, i + 1, i + 2]::INT[3] AS fixed, CASE WHEN i % 2 = 0 THEN union_value(num := i::INT) ELSE union_value(str := 's' || i)::UNION(num INT, str VARCHAR) END AS either,
  md5(i::VARCHAR)::UUID AS key, ('10' || (i % 2) || '1')::BIT AS flags
  FROM range(80) r(i);
CREATE TABLE sales AS SELECT (i * 2)::INT AS id, (i % 4)::SMALLINT AS grp, 'n' || (i % 11) AS name, i * 0.75::DOUBLE AS amount, TIMESTAMP '2021-03-01' + INTERVAL (i * 9) HOUR AS ts FROM range(50) r(i);
INSERT INTO sales VALUES (NULL, NULL, NULL, NULL, NULL);
CREATE TABLE pairs AS SELECT i % 8 AS k, i AS v FROM range(24) r(i);
CREATE TABLE keyed AS SELECT i::SMALLINT AS k, i * 10 AS v FROM range(5) r(i);
CREATE TABLE edges AS SELECT i AS a, i + 1 AS b FROM range(15) r(i) UNION ALL SELECT 2, 6;
CREATE TABLE nested AS SELECT i AS id, [{'p': i, 'q': [i, i * 2]}, {'p': i + 1, 'q': NULL}] AS list, {'in': {'z': i, 'w': 'w' || i}, 'out': i * 1.5} AS st FROM range(12) r(i);
CREATE TABLE words (w VARCHAR COLLATE NOCASE, n INT);
INSERT INTO words VALUES ('ant', 1), ('Ant', 2), ('bee', 3), ('BEE', 4), ('cow', 5);
CREATE TABLE derived (a INT, twice INT GENERATED ALWAYS AS (a * 2) VIRTUAL);
INSERT INTO derived SELECT i FROM range(8) r(i);
CREATE TABLE empty_table (a INT, b VARCHAR, c DECIMAL(9,3)[]);
CREATE TABLE gaps AS SELECT * FROM (VALUES (1, 10), (2, NULL), (3, 30), (NULL, 40), (4, 10), (5, 50)) v(k, x);
CREATE TABLE odd ("sel ect" INT, "a""b" VARCHAR, "t" INT, "c0" INT);
INSERT INTO odd VALUES (1, 'x', 3, 4), (2, 'y', 5, 6);
CREATE VIEW cheap AS SELECT id, grp, name, price FROM items WHERE id < 40;
CREATE MACRO plus_twice(x, y) AS x + y * 2;
CREATE MACRO first_items(n) AS TABLE SELECT id, name FROM items WHERE id < n;
COPY (SELECT * EXCLUDE (either, flags, mood, doc) FROM items WHERE id < 40) TO '@DIR@/pq/one.parquet' (ROW_GROUP_SIZE 2048);
COPY (SELECT * EXCLUDE (either, flags, mood, doc) FROM items WHERE id >= 40) TO '@DIR@/pq/two.parquet';
COPY (SELECT id, grp, name, price, ts FROM items) TO '@DIR@/hive' (FORMAT parquet, PARTITION_BY (grp));
COPY (SELECT id, grp, name AS "odd name" FROM items WHERE id < 10) TO '@DIR@/pq[1]*.parquet';
COPY (SELECT 1 AS a, 'one' AS b) TO '@DIR@/by_name_1.parquet';
COPY (SELECT 2::BIGINT AS a, 2.5 AS c) TO '@DIR@/by_name_2.parquet';
COPY (SELECT id, grp FROM items) TO '@DIR@/plain.csv' (HEADER);
COPY (SELECT 'bytes' AS s, 1 AS n) TO '@DIR@/bytes.parquet';

-- # arithmetic
SELECT id + 1, id - grp, id * grp, id / 4, id // 4, id % 5, -id, id & 6, id | 9, id << 1, id >> 2, ~id, id ^ 2, id ** 2, xor(id, 5), @id FROM items;
SELECT cents + 1, cents - 0.5, cents * 4, cents * cents, cents / 3, cents + big, cents * big, 2 - cents, -cents, cents % 7, cents // 3 FROM items;
SELECT (1 - cents) * (1 + cents) * cents, cents * cents * cents, (1 - 0.07) * cents, cents - cents * 0.25 FROM items;
SELECT cents::DECIMAL(38,2) * 3::DECIMAL(1,0), cents::DECIMAL(36,2) + 1::DECIMAL(36,2), big * 2, big + big, cents::DECIMAL(38,10) + 1 FROM items;
SELECT sum(cents * (1 - cents)), avg(cents), sum(big), 100.00 * sum(cents) / sum(big), sum(cents) * 0.001 FROM items;
SELECT huge + 1, huge * 2, huge, huge % 7, huge::DOUBLE FROM items;
SELECT grp::TINYINT + 1::TINYINT, grp * grp, grp + grp, id::BIGINT + grp::BIGINT, id + huge, id + price, cents + price, id::UTINYINT + 2::UTINYINT, id * 1000000000::BIGINT FROM items;
SELECT id // 0, id % 0, price / 0, 0 / 0::DOUBLE, id / 0 FROM items;
SELECT round(price, 1), floor(price), ceil(price), abs(price), sqrt(price), ln(price + 1), exp(grp), power(price, 2), sign(price), trunc(price), gcd(id, grp), factorial(grp::INT), bit_count(id), round(cents, 1), isnan(price), pi(), mod(id, 3), even(price), greatest(price, 3), least(id, 40) FROM items;

-- # text
SELECT name || '!', name LIKE 'n1%', name LIKE '%1', name LIKE '%1%', name LIKE 'n_', name NOT LIKE 'n1%', name ILIKE 'N1%', name NOT ILIKE '%2', name ~ 'n[12]', name SIMILAR TO 'n1.*', name GLOB 'n*', name LIKE 'n$_%' ESCAPE '$' FROM items;
SELECT regexp_matches(name, 'n1'), regexp_replace(name, 'n', 'z', 'g'), regexp_extract(name, 'n(\d+)', 1), regexp_extract_all(name, '\d'), regexp_split_to_array(name, '1'), regexp_extract(name, '(n)(\d+)', ['letter', 'digits']) FROM items;
SELECT upper(name), substring(name, 1, 1), name[1], name[1:2], left(name, 1), right(name, 1), lpad(name, 5, '*'), split_part(name, '1', 1), string_split(name, '1'), concat(name, id, NULL), concat_ws('-', name, id), format('{}-{}', id, name), printf('%d', id), replace(name, 'n', 'q'), trim(name, 'n'), instr(name, '1'), length(name), reverse(name), repeat(name, 2), ascii(name), contains(name, '1'), starts_with(name, 'n'), position('1' IN name) FROM items;
SELECT md5(name), sha256(name), hash(id), octet_length(raw), encode(name), base64(raw), hex(id), raw FROM items;
SELECT translate(name, 'n', 'z'), strip_accents(name), unicode(name), url_encode(name), levenshtein(name, 'n1'), jaccard(name || 'x', 'n1'), array_slice(name, 1, 2), bar(id, 0, 80) FROM items;
SELECT 'it''s', 'é漢字 🙂', chr(0) || 'x', 'a' || chr(0) || 'b' || chr(0), 'two
lines', '', ' -- no comment', '"quoted"', 'back\slash';
SELECT name COLLATE NOCASE = 'N1', name COLLATE NOACCENT FROM items;

-- # time
SELECT strftime(ts, '%Y-%m'), strptime('2021-05-06', '%Y-%m-%d'), try_strptime(name, '%Y'), date_trunc('month', ts), date_part('dow', ts), extract(epoch FROM ts), date_part(['year', 'month', 'day'], ts), date_diff('day', ts, TIMESTAMP '2022-01-01'), age(ts, TIMESTAMP '2019-01-01'), day + INTERVAL 1 MONTH, last_day(day), time_bucket(INTERVAL 3 DAY, ts), year(day), to_days(grp::INT), day - DATE '2019-01-01', ts - INTERVAL '1 month 2 days' FROM items;
SELECT zoned, zoned AT TIME ZONE 'UTC', clock, extract(hour FROM clock), zoned + INTERVAL 1 DAY, date_trunc('hour', zoned), zoned::VARCHAR, strftime(zoned, '%H'), to_timestamp(id), epoch_ms(ts), make_date(2021, 1, id % 28 + 1), make_timestamp(2021, 1, 1, 1, 1, 1.5), dayname(day), monthname(day), ts::TIME, isfinite(day) FROM items;
SELECT INTERVAL 1 DAY * id, ts + to_days(id), day + id, day - 5, day - day, ts - ts, clock + INTERVAL 3 HOUR, INTERVAL '3 days' / 2, -INTERVAL 1 MONTH, day::TIMESTAMPTZ, century(day) FROM items;
SELECT id FROM items WHERE ts >= '2021-03-05' AND ts < '2021-03-10'::DATE AND day IN ('2021-03-05', '2021-03-06', '2021-03-07');
SELECT id FROM items WHERE day BETWEEN DATE '2021-03-05' AND DATE '2021-04-01' AND zoned < '2021-03-01 00:40:00+00' AND clock > TIME '01:10:00';

-- # casts and conditions
SELECT CAST(id AS VARCHAR), TRY_CAST(name AS INT), id::DECIMAL(10,3), price::INT, ts::DATE, day::TIMESTAMP, id::DOUBLE, raw::VARCHAR, '12'::INT + id, id::BOOLEAN, tags::VARCHAR[], pt::VARCHAR, attrs::MAP(VARCHAR, BIGINT), mood::VARCHAR FROM items;
SELECT CAST(pt AS STRUCT(x VARCHAR, label VARCHAR)), CAST('mid' AS mood) = mood, coalesce(TRY_CAST(name AS DATE), day), TRY_CAST('4' || id AS DOUBLE), tags::VARCHAR FROM items;
SELECT CASE WHEN id < 10 THEN 'low' WHEN id < 20 THEN 'mid' ELSE name END, CASE grp WHEN 1 THEN 'one' WHEN 2 THEN 'two' END, if(id > 5, id, NULL), coalesce(name, 'none'), nullif(id, 5), ifnull(price, 0) FROM items;
SELECT id FROM items WHERE id BETWEEN 10 AND 20 AND NOT (grp BETWEEN 2 AND 3) AND name IS NOT NULL OR price IS NULL;
SELECT id FROM items WHERE id > 3 AND id < 9 OR price > 30.5 AND price <= 40;
SELECT id, grp + id > 5 AND grp + id <= 20, grp * 2 BETWEEN id AND 30 FROM items;
SELECT id, name IN ('n1', 'n2', NULL), id IN (1, 2, 3), id NOT IN (4, 5), (id, grp) IN ((1, 1), (2, 2)), grp IN (id, id + 1) FROM items;
SELECT id FROM items WHERE name IN ('n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9', 'n10', 'n11') AND id NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
SELECT id IS DISTINCT FROM grp, id IS NOT DISTINCT FROM grp, name IS NULL, price IS NOT NULL, ok AND id > 3, ok OR price > 2, NOT ok FROM items;
SELECT TRY(1 / (id - 5)), TRY(CAST(name AS INT)) FROM items;
SELECT row(id, name) = row(1, 'n1'), row(id, grp) < row(5, 2), (row(id, name))[1] FROM items;
SELECT alias(id), typeof(tags), typeof(pt), current_date = current_date, now() = now(), version() IS NOT NULL FROM items LIMIT 3;

-- # constants
SELECT 1::TINYINT, 2::SMALLINT, 3, 4::BIGINT, 5::HUGEINT, 170141183460469231731687303715884105727::HUGEINT, (-170141183460469231731687303715884105727)::HUGEINT, 340282366920938463463374607431768211455::UHUGEINT, 255::UTINYINT, 65535::USMALLINT, 4294967295::UINTEGER, 18446744073709551615::UBIGINT, 9223372036854775808::UBIGINT, (-128)::TINYINT, (-2147483648)::INT, (-9223372036854775808)::BIGINT, -1::HUGEINT, 18446744073709551616::HUGEINT;
SELECT 1.25::DECIMAL(5,2), -0.05::DECIMAL(4,2), 0::DECIMAL(4,4), 0.5::DECIMAL(1,1), 12345678901234567890123.45::DECIMAL(30,2), -12345678901234567890123.45::DECIMAL(30,2), 99999999999999999999999999999999999999::DECIMAL(38,0), '-0.99999999999999999999999999999999999999'::DECIMAL(38,38), 123456789012345678::DECIMAL(18,0);
SELECT 0.1::FLOAT, 1e300, '-0.0'::DOUBLE, 'nan'::DOUBLE, 'inf'::FLOAT, '-inf'::DOUBLE, 5e-324::DOUBLE, 1.7976931348623157e308, 0.1 + 0.2::DOUBLE, 3.4028235e38::FLOAT, 1 / 3::DOUBLE, [1.5, 'nan'::DOUBLE, 'inf'::DOUBLE];
SELECT 1 / '-0.0'::DOUBLE = '-inf'::DOUBLE, 16777217::FLOAT, 123456789.125::DOUBLE::VARCHAR, 1e15::DOUBLE::VARCHAR, 9007199254740993::DOUBLE::VARCHAR, 0.3::DOUBLE = 0.1::DOUBLE + 0.2::DOUBLE;
SELECT DATE '2020-02-29', DATE '0044-03-15 (BC)', 'infinity'::DATE, '-infinity'::DATE, DATE '0001-01-01', DATE '9999-12-31', DATE '10000-01-01', DATE '1969-12-31', DATE '1900-02-28', DATE '2000-02-29';
SELECT TIMESTAMP '2020-01-01 01:02:03.456789', TIMESTAMP '1969-12-31 23:59:59.999999', TIMESTAMP '0001-01-01 00:00:00', TIMESTAMP '12345-06-07 08:09:10', TIMESTAMP '0500-01-01 (BC) 00:00:00', 'infinity'::TIMESTAMP, '-infinity'::TIMESTAMP, TIMESTAMP_NS '2020-01-01 00:00:00.123456789', TIMESTAMP_NS '1969-12-31 23:59:59.999999999', TIMESTAMP_S '2020-01-01 00:00:01', TIMESTAMP_MS '1950-01-01 00:00:00.123';
SELECT TIMESTAMPTZ '2020-01-01 00:00:00+05', TIMESTAMPTZ '2020-06-01 12:34:56.789-03:30', 'infinity'::TIMESTAMPTZ, TIMESTAMPTZ '15000-01-01 00:00:00+00', TIME '10:11:12.5', TIME '00:00:00', TIME '23:59:59.999999', TIMETZ '10:00:00-02:30', TIMETZ '00:00:00+15:59:59', TIMETZ '23:59:59.5-15:59:59';
SELECT INTERVAL '1 year 2 months 3 days 04:05:06.789', INTERVAL '-1 month', INTERVAL '-3 days 5 hours', INTERVAL '0 days', INTERVAL '100 years';
SELECT TIME_NS '10:11:12.123456789', [TIME_NS '00:00:00'], INTERVAL '2147483647 days', INTERVAL '-9223372036854775807 microseconds', DATE '5877642-06-25 (BC)', TIMESTAMP '294246-12-31 00:00:00', TIMESTAMP_NS '2262-04-11 00:00:00';
SELECT 'a\xAA\x00'::BLOB, ''::BLOB, '\x27\x22\x5C'::BLOB, '550e8400-e29b-41d4-a716-446655440000'::UUID, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::UUID, '00000000-0000-0000-0000-000000000001'::UUID, 'mid'::mood, true, false, NULL, NULL::INT[], NULL::STRUCT(a INT), NULL::mood, '{"a": 1}'::JSON, NULL::JSON;
SELECT [1, NULL, 3], []::INT[], {'a': 1, 'b': 'x'}, {'a': {'b': [1, 2]}}, MAP {'a': 1, 'b': NULL}, MAP([1, 2], ['x', 'y']), array_value(1, 2, 3), [[1], [2, 3]], row(1, 'a'), {'A b': 1, 'c"d': 2}, union_value(k := 1), [{'a': 1}, {'a': NULL}], [DATE '2020-01-01'], ['mid'::mood], MAP {}::MAP(INT, INT), [NULL], [[]::INT[], NULL], {'q': NULL};
SELECT row(1, row('a', NULL::INT)), [row(1, 2), row(3, 4)], {'r': [1::UTINYINT]}, 'x'::UNION(a INT, b VARCHAR), 5::UNION(a INT, b VARCHAR), [union_value(k := 'z')], MAP {[1, 2]: {'a': 1}};
SELECT NULL AS n, [NULL, NULL], {'a': NULL}, coalesce(NULL, NULL);
-- refused: BIT
SELECT '0101'::BIT;
SELECT '01000001'::BIT, '0100000101000010'::BIT;
-- refused: BIT
SELECT id FROM items WHERE flags = '1011'::BIT;
-- refused: BIGNUM
SELECT 123::BIGNUM;
SELECT flags, bit_count(flags) FROM items;

-- # nested values
SELECT pt.x, pt.label, pt['x'], struct_extract(pt, 'label'), pt.x + 1, struct_pack(p := id, q := name), {'a': id, 'b': {'c': name}}, struct_insert(pt, z := id), struct_update(pt, x := 5), row(id, name), struct_keys(pt) FROM items;
SELECT pt FROM items WHERE pt.x > 50 AND pt.label = 'l1';
SELECT st.in.z, st.in, st.out FROM nested WHERE st.in.w <> 'w3';
SELECT st.in.w FROM nested;
SELECT attrs['a'], attrs['zz'], map_keys(attrs), map_values(attrs), map_entries(attrs), cardinality(attrs), element_at(attrs, 'a'), map_contains(attrs, 'b2'), map_from_entries([('a', id)]), map_concat(attrs, MAP {'z': 1}) FROM items;
SELECT tags[1], tags[-1], tags[1:2], tags[2:], tags[:2], tags[:], len(tags), list_contains(tags, id), list_sort(tags), list_reverse_sort(tags), list_distinct(tags), list_sum(tags), list_concat(tags, [1]), array_to_string(tags, ','), list_position(tags, id), flatten([tags, tags]), list_slice(tags, 1, 4, 2), tags[:-:2], tags[3:1:-1], list_has_any(tags, [1, 2]), tags || [9], list_sort(tags, 'DESC', 'NULLS FIRST') FROM items;
SELECT list_aggregate(tags, 'sum'), list_aggregate(tags, 'string_agg', '-'), list_aggr(tags, 'quantile_cont', 0.5), list_aggregate(tags, 'quantile_disc', [0.25, 0.75]), list_avg(tags), list_histogram(tags), list_unique(tags), list_resize(tags, 2), list_grade_up(tags), list_where(tags, [true, false, true, true]), list_select(tags, [1, 2]), list_zip(tags, tags) FROM items;
SELECT list_transform(tags, lambda x: x + id), list_filter(tags, lambda x: x > grp), list_reduce([id, 2, 3], lambda p, x: p + x), list_transform(tags, lambda x, i: x * i), [x * 2 FOR x IN tags IF x > 3], list_transform([tags, tags], lambda y: list_transform(y, lambda z: z + id + len(y))), list_reduce([id, 2], lambda p, x: p * x, 10), list_filter(tags, lambda x, i: i < 2), list_transform(tags, lambda x: 1) FROM items;
SELECT list_transform(list_transform(tags, lambda x: x + grp), lambda x: list_filter([x, id], lambda y: y > x - 1)), list_transform([1, 2, 3], lambda x: list_reduce([id, x, grp], lambda p, q: p * 10 + q)) FROM items;
SELECT list_transform(tags, lambda x: (x, id)), list_sort(list_transform(tags, lambda x: {'v': x, 'w': id})), [x + id FOR x, i IN tags IF i < 2 AND x > grp] FROM items;
SELECT list_filter(list, lambda z: z.p > 3), list_transform(list, lambda z: z.q[1]), list[1].p FROM nested;
SELECT fixed, fixed[1], array_distance(fixed::FLOAT[3], [1, 2, 3]::FLOAT[3]), list_value(id, grp, 3), fixed || [4] FROM items;
SELECT doc->'id', doc->>'list', doc->'$.list[0]', json_extract(doc, '$.id'), json_extract_string(doc, 'list'), json_array_length(doc, 'list'), json_type(doc), to_json(pt), json_object('a', id), json(doc), json_extract(doc, ['$.id', '$.list']), id::VARCHAR::JSON FROM items;
SELECT either, either.num, union_tag(either), union_extract(either, 'str') FROM items;
SELECT union_value(k := id), union_value(t := name)::UNION(n INT, t VARCHAR), CASE WHEN ok THEN id::UNION(num INT, str VARCHAR) ELSE either END FROM items;
SELECT row(id, name) FROM items UNION ALL SELECT row(id::BIGINT, 'z') FROM sales;
SELECT r FROM (SELECT row(id, row(grp, name)) r FROM items LIMIT 30) UNION ALL SELECT row(NULL::BIGINT, row(1::BIGINT, 'z'));
SELECT r, r[1] FROM (SELECT row(id, cents) r FROM items UNION ALL SELECT row(NULL, 1.5)) WHERE r[1] > 70 OR r[1] IS NULL;
SELECT mood, mood = 'mid', mood::VARCHAR, enum_code(mood), mood > 'mid' FROM items WHERE mood <> 'low';
SELECT id FROM items WHERE tags = [3, 5, NULL, 9] OR pt = {'x': 5, 'label': 'l1'} OR attrs['a'] = 7 OR fixed = [9, 10, 11]::INT[3];
SELECT id FROM items WHERE mood IN ('low', 'high') AND key IS NOT NULL AND raw = 'b3'::BLOB OR either.num = 4;
SELECT id FROM items WHERE huge > 5000000000000000000000 AND big < 250.5 AND price = 1.25 OR price IN (3.75, 5.0, 6.25) OR cents IN (2.17, 4.34);
SELECT struct_extract(pt, 'x'), pt.* FROM items;
SELECT pt = {'x': 3, 'label': 'l3'}, tags = [1, 2], pt < {'x': 50, 'label': 'a'}, pt IN ({'x': 3, 'label': 'l3'}) FROM items;
SELECT unnest({'a': id, 'b': grp}), unnest(tags) FROM items;

-- # aggregates
SELECT grp, count(*), count(price), count(DISTINCT name), sum(id), sum(cents), sum(price), avg(id), min(name), max(ts), sum(DISTINCT grp), count(*) FILTER (WHERE id > 50), sum(id) FILTER (WHERE price IS NULL), bool_and(ok), bit_or(id), product(grp), stddev(price), var_pop(price), corr(id, price), median(price), first(id ORDER BY id), last(id ORDER BY id), arg_min(name, id), arg_max(name, id), arg_max(name, id, 2), min(id, 3), max(id, 2) FROM items GROUP BY grp;
SELECT grp, string_agg(name, ',' ORDER BY id DESC), list(id ORDER BY id DESC), array_agg(DISTINCT grp), list(name ORDER BY name NULLS FIRST, id), group_concat(name, '|' ORDER BY id), histogram(grp), list(DISTINCT name ORDER BY name), string_agg(DISTINCT name, '-' ORDER BY name), first(name ORDER BY price DESC NULLS LAST, id), string_agg(name, '''' ORDER BY id), string_agg(name ORDER BY id) FROM items GROUP BY grp;
SELECT quantile_cont(price, 0.3), quantile_disc(id, [0.1, 0.9]), quantile_cont(price, [0.25]), median(id), mad(price), quantile_disc(name, 0.5), percentile_cont(0.2) WITHIN GROUP (ORDER BY price), quantile_cont(ts, 0.5), skewness(price), kurtosis(price), entropy(grp), sum(huge), favg(price), fsum(price), bitstring_agg(grp), bit_xor(id), count(name), max(pt), min(tags), quantile_disc(tags, 0.5), regr_slope(price, id), covar_pop(price, id) FROM items;
SELECT percentile_cont(0.2) WITHIN GROUP (ORDER BY price DESC), percentile_disc([0.1, 0.2]) WITHIN GROUP (ORDER BY id DESC), quantile_disc(cents, 0.3), quantile_cont(cents, [0.1, 0.5]), mode() WITHIN GROUP (ORDER BY grp) FROM items;
SELECT grp, percentile_cont(0.4) WITHIN GROUP (ORDER BY price DESC) FILTER (WHERE id > 9) FROM items GROUP BY grp;
SELECT approx_count_distinct(id), approx_quantile(price, 0.5), reservoir_quantile(id, 0.5) >= 0, reservoir_quantile(id, 0.5, 500) >= 0, approx_top_k(grp, 2), bitstring_agg(id, 0, 200), approx_quantile(price, [0.1, 0.9]) FROM items;
SELECT grp, ok, sum(id), grouping(grp), grouping(grp, ok) FROM items GROUP BY ROLLUP (grp, ok);
SELECT grp, ok, mood, count(*), grouping_id(grp, ok, mood) FROM items GROUP BY CUBE (grp, ok, mood);
SELECT grp, ok, count(*) FROM items GROUP BY GROUPING SETS ((grp), (ok), (), (grp, ok));
SELECT grp AS g1, grp AS g2, count(*) FROM items GROUP BY GROUPING SETS ((g1), (g2));
SELECT grp, ok, mood, grouping(grp), count(DISTINCT id), sum(id) FILTER (WHERE price > 3) FROM items GROUP BY GROUPING SETS ((grp, ok), (mood), ()) HAVING count(*) > 2;
SELECT count(*), count(*) FILTER (WHERE false) FROM items WHERE false;
SELECT sum(id), grp FROM items WHERE false GROUP BY grp;
SELECT sum(id) FROM items WHERE false GROUP BY GROUPING SETS ((), (grp));
SELECT sum(id), count(*) FROM items GROUP BY GROUPING SETS ((), ());
SELECT count(*) FROM items;
SELECT 1 FROM items;
SELECT count(*), max(id) FROM items WHERE id < 0;
SELECT mood, count(*) FROM items GROUP BY mood HAVING count(*) > 3;
SELECT id % 3, 'k', grp, count(*) FROM items GROUP BY ALL;
SELECT grp, 2, grp, sum(id) FROM items GROUP BY 1, 2, 3;
SELECT pt, count(*) FROM items GROUP BY pt;
SELECT sum(grp), sum(id::BIGINT), sum(id::HUGEINT), avg(grp), avg(cents), avg(day), avg(ts), sum(ok::INT) FROM items;
SELECT sum(CASE WHEN ok THEN 1 ELSE 0 END) * 100.0 / count(*) FROM items;
SELECT count(*) FROM (SELECT DISTINCT pt, tags, attrs FROM items);
SELECT max(pt), min(tags), arg_max(pt, id), list(pt ORDER BY pt DESC)[1:2] FROM items;
SELECT histogram(id, [10, 50, 70]), histogram_exact(grp, [1, 2]), min_by(id, price), count_if(ok), geomean(price + 1), bool_or(ok) FROM items WHERE grp = 1;
SELECT min(id), max(id), count(id), avg(id), sum(id), sum(id + 1), sum(id + 2) FROM items GROUP BY grp;
SELECT CASE WHEN price IS NULL THEN 'n' WHEN price > 50 THEN 'big' END c, count(*) FILTER (WHERE grp = 1 AND price > 2), sum(CASE WHEN grp IN (1, 2) THEN id END) FROM items GROUP BY 1 HAVING c IS NOT NULL;
SELECT last(id), first(id), list(id), any_value(name) FROM items;
SELECT DISTINCT grp, ok FROM items;
-- ordered
SELECT DISTINCT ON (grp) grp, id, name FROM items ORDER BY grp, id DESC;
SELECT DISTINCT ON (grp) grp, id FROM items ORDER BY id;
SELECT DISTINCT ON (grp % 2, ok) grp % 2 AS g, ok, first(id) OVER (ORDER BY id) FROM items ORDER BY grp % 2, ok, id DESC;
SELECT min(COLUMNS(*)) FROM sales;
SELECT * FROM (SUMMARIZE sales);
-- refused: summary
SELECT * FROM summary((FROM sales));

-- # windows
SELECT id, sum(id) OVER (ORDER BY id), sum(id) OVER (PARTITION BY grp ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING), avg(price) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING), count(*) OVER (), count(*) OVER (PARTITION BY grp), sum(id) OVER (ORDER BY grp RANGE BETWEEN 1 PRECEDING AND CURRENT ROW), sum(id) OVER (ORDER BY grp GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING), sum(id) OVER (ORDER BY grp DESC RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING), sum(id) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM items;
SELECT id, sum(id) OVER (ORDER BY grp RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW), sum(id) OVER (ORDER BY grp GROUPS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES), sum(id) OVER (ORDER BY grp ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP), count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND INTERVAL 12 HOURS FOLLOWING), sum(price) OVER (ORDER BY day RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND CURRENT ROW), sum(id) OVER (ORDER BY cents RANGE BETWEEN 2.5 PRECEDING AND 1 FOLLOWING), sum(id) OVER (ORDER BY id RANGE BETWEEN grp PRECEDING AND grp + 1 FOLLOWING) FROM items;
SELECT id, row_number() OVER (ORDER BY id), rank() OVER (ORDER BY grp), dense_rank() OVER (ORDER BY grp DESC NULLS FIRST), percent_rank() OVER (ORDER BY price), cume_dist() OVER (ORDER BY price), ntile(4) OVER (ORDER BY id), lag(id) OVER (ORDER BY id), lead(id, 2, -1) OVER (ORDER BY id), lag(name, 1, 'z' IGNORE NULLS) OVER (ORDER BY id), first_value(name IGNORE NULLS) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 5 FOLLOWING), last_value(price) OVER (PARTITION BY grp ORDER BY id), nth_value(id, 3) OVER (ORDER BY id), first_value(id ORDER BY price DESC) OVER (PARTITION BY grp ORDER BY id), fill(price) OVER (ORDER BY id), lead(id, grp::INT) OVER (ORDER BY id), lead(name, 1, NULL) OVER (ORDER BY id), lag(price, -1) OVER (ORDER BY id) FROM items;
SELECT id, count(DISTINCT grp) OVER (PARTITION BY ok ORDER BY id ROWS BETWEEN 5 PRECEDING AND CURRENT ROW), sum(id) FILTER (WHERE ok) OVER (PARTITION BY grp ORDER BY id), string_agg(name, ',' ORDER BY id DESC) OVER (PARTITION BY grp), list(id ORDER BY name, id) OVER (PARTITION BY ok), sum(DISTINCT grp) OVER (ORDER BY id), arg_max(name, id) OVER (ORDER BY id ROWS 3 PRECEDING), quantile_cont(price, 0.5) OVER (ORDER BY id ROWS 4 PRECEDING), rank(ORDER BY price) OVER (PARTITION BY grp ORDER BY id), row_number(ORDER BY id DESC) OVER (PARTITION BY grp), mode(grp) OVER (ORDER BY id), cume_dist(ORDER BY id DESC) OVER (PARTITION BY grp) FROM items;
SELECT id, sum(price) OVER (ORDER BY price NULLS FIRST RANGE BETWEEN 3 PRECEDING AND 3 FOLLOWING), max(ts) OVER (ORDER BY ts DESC RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW), list(id) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 7 HOURS PRECEDING AND INTERVAL 7 HOURS FOLLOWING) FROM items;
SELECT id, count(*) OVER (ORDER BY zoned RANGE BETWEEN INTERVAL 5 MINUTES PRECEDING AND INTERVAL 1 MINUTE FOLLOWING), sum(id) OVER (ORDER BY huge RANGE BETWEEN 200000000000000000000 PRECEDING AND CURRENT ROW), sum(id) OVER (ORDER BY -id RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) FROM items;
SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN grp PRECEDING AND grp FOLLOWING), nth_value(id, 2 IGNORE NULLS) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING EXCLUDE CURRENT ROW), sum(id) OVER (ORDER BY grp GROUPS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) FROM items;
SELECT id, grp FROM items QUALIFY row_number() OVER (PARTITION BY grp ORDER BY id DESC) <= 2;
SELECT grp, id FROM items QUALIFY rank() OVER (PARTITION BY grp ORDER BY price DESC) = 1;
SELECT grp, sum(id) s, rank() OVER (ORDER BY sum(id) DESC) FROM items GROUP BY grp;
SELECT grouping(grp), sum(sum(id)) OVER (ORDER BY grp) FROM items GROUP BY ROLLUP (grp);
SELECT id, sum(id) OVER w, rank() OVER w FROM items WINDOW w AS (PARTITION BY grp ORDER BY id);
SELECT id, row_number() OVER () FROM items;
SELECT tags, row_number() OVER (ORDER BY tags, id) FROM items;

-- # joins
SELECT items.id, sales.amount FROM items JOIN sales ON items.id = sales.id;
SELECT items.id, sales.amount FROM items LEFT JOIN sales ON items.id = sales.id AND sales.amount > 5;
SELECT items.id, sales.amount FROM items RIGHT JOIN sales ON items.id = sales.id;
SELECT items.id, sales.amount FROM items FULL JOIN sales ON items.id = sales.id AND items.grp = sales.grp;
SELECT items.id, sales.id, sales.amount FROM items LEFT JOIN sales ON items.id = sales.id AND items.price > sales.amount;
SELECT items.id, sales.id FROM items JOIN sales ON items.id < sales.id AND items.grp = sales.grp;
SELECT items.id, sales.id FROM items JOIN sales ON items.id < sales.id AND items.price > sales.amount;
SELECT items.id, sales.id FROM items JOIN sales ON items.id IS NOT DISTINCT FROM sales.id OR items.grp = sales.grp;
SELECT items.id, sales.id FROM items LEFT JOIN sales ON items.id + sales.id = 50 OR sales.amount > 35;
SELECT items.id, sales.id FROM items RIGHT JOIN sales ON items.id > sales.id + 60 OR sales.grp = 1 AND items.grp = 2;
SELECT items.id, sales.id FROM items FULL JOIN sales ON items.id + sales.id = 50 OR sales.amount > 35;
SELECT items.id, sales.id FROM items FULL JOIN sales ON items.id + 1 = sales.id + 2 AND items.name <> sales.name;
SELECT count(*) FROM items, sales;
SELECT items.id, sales.name FROM items, sales WHERE items.grp = 1 AND sales.grp = 1;
SELECT id FROM items SEMI JOIN sales USING (id);
SELECT id FROM items ANTI JOIN sales USING (id);
SELECT id FROM items SEMI JOIN sales ON items.id < sales.id - 60;
SELECT items.id FROM items SEMI JOIN sales ON items.id + sales.id = 50 OR sales.amount > 35 AND items.grp = 1;
SELECT items.id FROM items ANTI JOIN sales ON items.id + sales.id = 50 OR sales.amount > 36 AND items.grp = 1;
SELECT items.id FROM items ANTI JOIN sales ON items.id > sales.id AND items.grp = sales.grp;
SELECT keyed.k, keyed.v FROM keyed SEMI JOIN items ON keyed.k = items.grp AND items.id > 70;
SELECT keyed.k, keyed.v FROM keyed ANTI JOIN items ON keyed.k = items.grp AND items.id < 3;
SELECT count(*) FROM items a, items b, items c WHERE a.grp = b.grp AND b.grp = c.grp AND a.id < b.id;
SELECT items.id FROM items JOIN sales USING (id) JOIN pairs ON pairs.k = sales.grp WHERE pairs.v > 3 AND items.price < 80;
SELECT x.grp, y.c FROM (SELECT DISTINCT grp FROM items) x LEFT JOIN (SELECT grp, count(*) c FROM sales GROUP BY grp) y ON x.grp = y.grp;
SELECT * FROM keyed POSITIONAL JOIN gaps;
SELECT items.id, sales.id, sales.ts FROM items ASOF JOIN sales ON items.ts >= sales.ts;
SELECT items.id, sales.id, sales.ts FROM items ASOF LEFT JOIN sales ON items.grp = sales.grp AND items.ts < sales.ts;
SELECT items.id, sales.id FROM items ASOF RIGHT JOIN sales ON items.grp = sales.grp AND items.ts > sales.ts;
SELECT items.id, sales.id FROM items ASOF FULL JOIN sales ON items.grp = sales.grp AND items.ts > sales.ts;
SELECT count(*) FROM items AS c0(c0, c1, c2), sales AS t WHERE c0.c0 = t.id;
SELECT "sel ect", "a""b", "t", "c0" AS "order" FROM odd WHERE "c0" > 4;
SELECT w1.n, w2.n FROM words w1 JOIN words w2 ON w1.w = w2.w;
SELECT a.k, b.x FROM gaps a JOIN gaps b ON a.x = b.x AND a.k <> b.k;

-- # mark and single joins
SELECT id FROM items WHERE id IN (SELECT id FROM sales);
SELECT id FROM items WHERE id NOT IN (SELECT id FROM sales);
SELECT id FROM items WHERE id NOT IN (SELECT id FROM sales WHERE id IS NOT NULL);
SELECT id, id IN (SELECT id FROM sales), id NOT IN (SELECT id FROM sales WHERE id IS NOT NULL), price IN (SELECT amount FROM sales), id IN (SELECT id FROM sales WHERE false), name IN (SELECT name FROM sales) FROM items;
SELECT k, x, x IN (SELECT x FROM gaps WHERE x > 20), x NOT IN (SELECT x FROM gaps), x IN (SELECT x FROM gaps WHERE x IS NOT NULL), x IN (SELECT NULL::INT), k IN (SELECT x FROM gaps WHERE false) FROM gaps;
SELECT k, x, x IN (SELECT b.x FROM gaps b WHERE b.k = a.k), x IN (SELECT b.x FROM gaps b WHERE b.k IS NOT DISTINCT FROM a.k + 1), x NOT IN (SELECT b.x FROM gaps b WHERE b.k > a.k) FROM gaps a;
SELECT id, grp IN (SELECT sales.grp FROM sales WHERE sales.id < items.id), name NOT IN (SELECT name FROM sales WHERE sales.grp = items.grp) FROM items;
SELECT id, EXISTS (SELECT 1 FROM sales WHERE sales.id = items.id), NOT EXISTS (SELECT 1 FROM sales WHERE sales.grp = items.grp AND sales.amount > items.price) FROM items;
SELECT id FROM items WHERE EXISTS (SELECT 1 FROM sales WHERE sales.id = items.id AND sales.amount > items.grp);
SELECT id FROM items WHERE NOT EXISTS (SELECT 1 FROM sales WHERE sales.grp = items.grp AND sales.amount > items.id);
SELECT EXISTS (SELECT * FROM items WHERE id > 1000), NOT EXISTS (SELECT * FROM items), (SELECT id FROM items ORDER BY id LIMIT 1);
SELECT id, (id, grp) IN (SELECT id, grp FROM sales), (id, grp) NOT IN (SELECT id, grp FROM sales WHERE id IS NOT NULL) FROM items;
SELECT id FROM items WHERE (id, grp) IN (SELECT id, grp FROM sales);
SELECT id FROM items WHERE (id, grp) NOT IN (SELECT id, grp FROM sales WHERE grp IS NOT NULL);
SELECT k, x, (k, x) IN (SELECT k, x FROM gaps WHERE k < 4), (k, x) NOT IN (SELECT k, x FROM gaps WHERE x > 20) FROM gaps;
SELECT id, id > ALL (SELECT amount FROM sales WHERE amount < 20), grp = ANY (SELECT grp FROM sales), id < ANY (SELECT id FROM sales) FROM items;
SELECT id, id > ANY (SELECT amount FROM sales WHERE sales.grp = items.grp), id >= ALL (SELECT amount FROM sales WHERE sales.grp = items.grp) FROM items;
SELECT id FROM items WHERE price < ANY (SELECT amount FROM sales WHERE sales.grp = items.grp);
SELECT k, x > ANY (SELECT x FROM gaps), x <> ALL (SELECT x FROM gaps WHERE k > 2), x = ALL (SELECT x FROM gaps WHERE false) FROM gaps;
SELECT id, price IN (SELECT amount FROM sales WHERE sales.id > items.id), grp IN (SELECT grp FROM sales WHERE sales.amount < items.price) FROM items;
SELECT id, (SELECT max(amount) FROM sales WHERE sales.grp = items.grp), (SELECT count(*) FROM sales WHERE sales.id = items.id), (SELECT sum(amount) FROM sales), (SELECT amount FROM sales WHERE sales.id = items.id) FROM items;
-- fails
SELECT id, (SELECT amount FROM sales WHERE sales.grp = items.grp) FROM items;
-- fails
SELECT k, (SELECT x FROM gaps b WHERE b.x > a.x) FROM gaps a;
SELECT k, (SELECT v FROM pairs WHERE pairs.k = keyed.k ORDER BY v LIMIT 1) FROM keyed;
SELECT id FROM items WHERE price > (SELECT avg(amount) FROM sales WHERE sales.grp = items.grp);
SELECT id, (SELECT string_agg(x.name, ',' ORDER BY x.id) FROM sales x WHERE x.grp = items.grp AND x.id > items.id) FROM items;
SELECT id, (SELECT list(amount ORDER BY amount) FROM sales WHERE sales.amount < items.price AND sales.grp = items.grp) FROM items;
SELECT id, (SELECT max(amount) FROM sales WHERE sales.amount < items.price), (SELECT count(*) FROM sales WHERE sales.amount < items.price OR sales.grp = items.grp) FROM items;
SELECT * FROM items t1 WHERE t1.id = (SELECT max(t2.id) FROM items t2 WHERE t2.grp = t1.grp);
SELECT id FROM items WHERE (SELECT count(*) FROM sales WHERE sales.grp = items.grp AND EXISTS (SELECT 1 FROM pairs WHERE pairs.k = sales.grp AND pairs.v > items.id)) > 3;
SELECT id, (SELECT sum(x.amount) FROM sales x WHERE x.grp = items.grp AND x.amount > (SELECT avg(y.amount) FROM sales y WHERE y.grp = x.grp AND y.id < items.id)) FROM items;
SELECT id FROM items WHERE grp IN (SELECT grp FROM sales WHERE sales.id IN (SELECT v FROM pairs WHERE pairs.k = items.grp));
SELECT (SELECT id FROM items WHERE id = 3), (SELECT count(*) FROM sales), (SELECT max(id) FROM items WHERE id < 0);
SELECT (SELECT sum(id) FROM items WHERE items.grp = sales.grp HAVING count(*) > 3), id FROM sales;
SELECT id FROM items ORDER BY (SELECT max(amount) FROM sales WHERE sales.grp = items.grp) NULLS FIRST, id;
SELECT id FROM items WHERE id IN (SELECT unnest([1, 2, 3]));
SELECT id FROM items WHERE id = (SELECT 5) AND name IS NOT NULL;
SELECT k, x, x IN (SELECT b.x + 0 FROM gaps b WHERE b.k < a.k) AS i, (SELECT count(*) FROM gaps b WHERE b.x > a.x OR b.k = a.k) AS n FROM gaps a WHERE k IS NOT NULL OR x IN (SELECT v FROM keyed);
SELECT k FROM gaps a WHERE x NOT IN (SELECT v FROM keyed WHERE keyed.k <> a.k) OR k IN (SELECT k FROM pairs WHERE v > a.x);
SELECT a.k, (SELECT min(b.k) FROM gaps b WHERE b.x = (SELECT max(c.x) FROM gaps c WHERE c.k <= a.k AND c.k >= b.k)) FROM gaps a;
SELECT a.k, s.v FROM gaps a LEFT JOIN LATERAL (SELECT v FROM keyed WHERE keyed.k = a.k AND EXISTS (SELECT 1 FROM pairs WHERE pairs.k = a.k AND pairs.v > keyed.v)) s ON true;
SELECT k, row_number() OVER (ORDER BY k) AS rn FROM gaps WHERE k > (SELECT min(k) FROM pairs WHERE pairs.v < gaps.x);

-- # lateral and unnest
SELECT items.id, z.m FROM items, LATERAL (SELECT max(amount) m FROM sales WHERE sales.grp = items.grp) z;
SELECT items.id, z.amount FROM items LEFT JOIN LATERAL (SELECT amount FROM sales WHERE sales.grp = items.grp ORDER BY amount DESC LIMIT 2) z ON true;
SELECT sales.id, z.* FROM sales LEFT JOIN LATERAL (SELECT items.id, items.price FROM items WHERE items.grp = sales.grp AND items.id > sales.id ORDER BY items.id LIMIT 1) z ON true;
SELECT * FROM (SELECT 1 a UNION ALL SELECT 2) x, LATERAL (SELECT x.a * 10 b UNION ALL SELECT x.a * 20) y;
SELECT items.id, g FROM items, LATERAL generate_series(1, items.grp) x(g);
SELECT z.s FROM sales, LATERAL (SELECT sum(g) s FROM generate_series(1, sales.id) q(g)) z;
SELECT items.id, x FROM items, unnest(items.tags) u(x);
SELECT x, ord FROM items, unnest(tags) WITH ORDINALITY u(x, ord);
SELECT id, unnest(list), unnest([1, 2, 3]) FROM nested;
SELECT id, unnest(list, recursive := true) FROM nested;
SELECT id, x.p, y FROM nested, unnest(list) u(x), unnest(x.q) v(y);
SELECT unnest(tags) + 1, id FROM items WHERE id < 3;
SELECT sum(x) FROM (SELECT unnest(tags) x, id FROM items) WHERE id > 5;
SELECT * FROM range(5) WITH ORDINALITY;
SELECT * FROM generate_series(1, 10) g(x) WHERE x % 2 = 0;
SELECT * FROM range(DATE '2020-01-01', DATE '2020-01-10', INTERVAL 1 DAY);
SELECT generate_series(1, grp) FROM items;
SELECT * FROM unnest([1, 2, 3]) WITH ORDINALITY u(x, o);

-- # sets
SELECT a, b FROM (SELECT 1 a, 'x' b) UNION ALL SELECT 2, 'y' UNION ALL SELECT NULL, NULL;
SELECT id, grp FROM items UNION ALL SELECT id, grp FROM sales;
SELECT grp FROM items UNION SELECT grp FROM sales;
SELECT id FROM items EXCEPT SELECT id FROM sales;
SELECT grp FROM items EXCEPT ALL SELECT grp FROM sales;
SELECT id FROM items INTERSECT SELECT id FROM sales;
SELECT grp FROM items INTERSECT ALL SELECT grp FROM sales;
SELECT id, name FROM items UNION ALL BY NAME SELECT name, id, amount FROM sales;
SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT NULL;
(SELECT id FROM items ORDER BY id LIMIT 3) UNION ALL (SELECT id FROM sales ORDER BY id DESC NULLS LAST LIMIT 3);
SELECT grp, count(*) c FROM items GROUP BY grp UNION ALL SELECT NULL, count(*) FROM items;

-- # order and limits
-- ordered
SELECT id FROM items ORDER BY price DESC NULLS LAST, id LIMIT 7 OFFSET 3;
-- ordered
SELECT id, price FROM items ORDER BY price NULLS FIRST, name DESC, id;
SELECT id FROM (SELECT id FROM items ORDER BY id DESC LIMIT 10) WHERE id % 2 = 0;
-- ordered
SELECT id FROM items ORDER BY id LIMIT 10%;
SELECT id FROM items ORDER BY id LIMIT (SELECT 5);
SELECT id FROM items ORDER BY id LIMIT (SELECT count(*) / 10 FROM items)::INT OFFSET (SELECT 2);
SELECT id FROM items ORDER BY id LIMIT (SELECT 12.5)%;
-- ordered
SELECT id FROM items ORDER BY id OFFSET 75;
SELECT id FROM items LIMIT 0;
SELECT id FROM items LIMIT 5 OFFSET 10;
SELECT id FROM items ORDER BY random() LIMIT 0;
-- ordered
SELECT items.id FROM items JOIN sales ON items.id = sales.id ORDER BY sales.amount DESC LIMIT 5;
-- ordered
SELECT pt, count(*) FROM items GROUP BY pt ORDER BY pt;
-- ordered
SELECT name FROM items ORDER BY name COLLATE NOCASE, id;
SELECT * FROM (FROM items SELECT id, name LIMIT 3) CROSS JOIN (SELECT 1 one);
SELECT id FROM (SELECT id, random() r FROM items) WHERE r <= 1;
-- shape
SELECT id, random(), uuid() FROM items;
-- shape
SELECT id FROM items USING SAMPLE 10 ROWS;
SELECT count(*) FROM items USING SAMPLE 10 ROWS;
SELECT count(*) <= 80 FROM items TABLESAMPLE BERNOULLI (30%) REPEATABLE (7);
SELECT count(*) FROM (SELECT * FROM items TABLESAMPLE RESERVOIR (20 ROWS) REPEATABLE (3));
SELECT sum(id) FROM items TABLESAMPLE 100%;
SELECT sum(id) FROM items TABLESAMPLE SYSTEM (100%);
SELECT sum(id) FROM '@DIR@/pq/*.parquet' TABLESAMPLE SYSTEM (100%) REPEATABLE (4);
SELECT count(*) <= 80 FROM items TABLESAMPLE SYSTEM (50%);

-- # common table expressions
WITH x AS MATERIALIZED (SELECT grp, sum(id) s FROM items GROUP BY grp) SELECT x1.grp, x2.s FROM x x1 JOIN x x2 ON x1.grp = x2.grp + 1;
WITH x AS (SELECT id FROM items WHERE id < 5), y AS (SELECT id * 2 id FROM x) SELECT * FROM y UNION ALL SELECT * FROM x;
WITH x AS MATERIALIZED (SELECT id, grp FROM items WHERE id < 30), y AS MATERIALIZED (SELECT grp, count(*) n FROM x GROUP BY grp) SELECT x.id, y.n FROM x JOIN y USING (grp) WHERE x.id IN (SELECT n FROM y);
WITH w AS (SELECT *, row_number() OVER (ORDER BY id) rn FROM items) SELECT a.id, b.id FROM w a LEFT JOIN w b ON a.rn = b.rn + 1;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM r;
WITH RECURSIVE r(a, b, depth) AS (SELECT a, b, 1 FROM edges WHERE a = 0 UNION SELECT r.a, e.b, depth + 1 FROM r JOIN edges e ON r.b = e.a WHERE depth < 12) SELECT * FROM r;
WITH RECURSIVE r(a, d) USING KEY (a) AS (SELECT 0, 0 UNION SELECT e.b, r.d + 1 FROM r JOIN edges e ON r.a = e.a) SELECT * FROM r;
WITH RECURSIVE r(a, d) USING KEY (a) AS (SELECT 0, 0 UNION SELECT e.b, r.d + 1 FROM r JOIN edges e ON r.a = e.a LEFT JOIN recurring.r AS seen ON seen.a = e.b WHERE seen.a IS NULL) SELECT * FROM r;
WITH RECURSIVE fib(i, x, y) AS (SELECT 0, 0, 1 UNION ALL SELECT i + 1, y, x + y FROM fib WHERE i < 20) SELECT i, x FROM fib WHERE i > 10;
WITH RECURSIVE r(n, s) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, s || n FROM r WHERE n < 5), q AS (SELECT * FROM r) SELECT q.n, (SELECT max(items.id) FROM items WHERE items.grp = q.n) FROM q;
WITH RECURSIVE walk(node, path) AS (SELECT 0, [0] UNION ALL SELECT e.b, list_append(path, e.b) FROM walk JOIN edges e ON walk.node = e.a WHERE NOT list_contains(path, e.b) AND len(path) < 6) SELECT * FROM walk;
WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 4), b(n, m) AS (SELECT 0, 0 UNION ALL SELECT b.n + 1, (SELECT max(a.n) FROM a WHERE a.n <= b.n + 1) FROM b WHERE b.n < 3) SELECT * FROM b;

-- # values, views, macros, tables
SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) v(x, y);
VALUES (1, 2.5), (3, 4);
SELECT * FROM (VALUES (1::TINYINT, 'x', DATE '2020-01-01', [1], {'q': 1}), (NULL, NULL, NULL, NULL, NULL)) v(a, b, c, d, e) WHERE a IS NULL OR c > DATE '2019-01-01';
SELECT x + random() * 0 FROM (VALUES (1), (2)) v(x);
SELECT * FROM cheap WHERE grp = 2;
SELECT plus_twice(id, grp) FROM items;
SELECT * FROM first_items(7);
SELECT * FROM derived;
SELECT twice FROM derived WHERE a > 3;
SELECT rowid, id FROM items WHERE rowid < 5;
SELECT * FROM empty_table;
SELECT a, b, c FROM empty_table WHERE a > 3;
SELECT items.id, empty_table.b FROM items LEFT JOIN empty_table ON items.id = empty_table.a;
SELECT COLUMNS('id|grp') FROM items;
SELECT * EXCLUDE (tags) REPLACE (id + 1 AS id) FROM items;
SELECT w, count(*) FROM words GROUP BY w;
SELECT w, n FROM words WHERE w IN ('ANT', 'bee');
SELECT n, w, rank() OVER (ORDER BY w) FROM words;
SELECT upper(w), w || 'z', w LIKE 'Ant' FROM words;
SELECT column_name FROM information_schema.columns WHERE table_name = 'sales';
SELECT table_name FROM duckdb_tables() WHERE table_name = 'items';
SELECT * FROM pragma_table_info('sales');
SELECT * FROM (DESCRIBE sales);
SELECT * FROM (SHOW TABLES);
SELECT * FROM repeat_row(1, 'x', num_rows = 3);
SELECT * FROM repeat('r', 2);
SELECT * FROM duckdb_types() WHERE type_name = 'int128' ORDER BY ALL LIMIT 1;
SELECT * EXCLUDE (bignum) FROM test_all_types();
SELECT * FROM (SELECT bool, tinyint, hugeint, uhugeint, dec_4_1, dec38_10, time_tz, timestamp_ns, struct, map, fixed_int_array, "union" FROM test_all_types()) WHERE tinyint < 0;
SELECT * FROM items WHERE false;
SELECT id, NULL FROM items WHERE 1 = 0;
SELECT id FROM items WHERE id > 100000;

-- # pivot
PIVOT items ON mood IN ('low', 'mid') USING sum(id), count(*) GROUP BY grp;
PIVOT (SELECT grp, ok, id FROM items) ON grp IN (1, 2, 3) USING max(id);
FROM items PIVOT (sum(id) AS s, max(price) AS m FOR grp IN (1, 2, 3) GROUP BY ok);
PIVOT (SELECT id % 25 p, grp, price FROM items) ON p IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24) USING sum(price) GROUP BY grp;
PIVOT (SELECT id % 25 p, grp, price FROM items) ON p IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24) USING sum(price), count(*) GROUP BY grp;
-- refused: MULTI
PIVOT items ON ok USING sum(id) GROUP BY grp;
UNPIVOT (SELECT id, grp, price::INT price FROM items) ON grp, price INTO NAME n VALUE v;
SELECT * FROM (SELECT id, grp::INT grp FROM items) UNPIVOT INCLUDE NULLS (v FOR n IN (id, grp));

-- # Parquet
SELECT id, name FROM '@DIR@/pq/one.parquet';
SELECT * FROM read_parquet('@DIR@/pq/*.parquet');
SELECT id, name FROM read_parquet(['@DIR@/pq/one.parquet', '@DIR@/pq/two.parquet']) WHERE id > 30 AND name = 'n1';
SELECT id, filename, file_row_number FROM read_parquet('@DIR@/pq/*.parquet', filename = true, file_row_number = true);
SELECT id, source FROM read_parquet('@DIR@/pq/*.parquet', filename = 'source') WHERE source LIKE '%one%';
SELECT id, filename FROM '@DIR@/pq/*.parquet' WHERE filename LIKE '%one.parquet';
SELECT id, file_row_number, file_index FROM '@DIR@/pq/*.parquet' WHERE file_row_number < 7;
SELECT pt.x, tags[1], attrs['a'] FROM '@DIR@/pq/*.parquet' WHERE pt.label = 'l1';
SELECT count(*) FROM '@DIR@/pq/*.parquet';
SELECT min(id), max(ts) FROM '@DIR@/pq/*.parquet';
SELECT * FROM read_parquet('@DIR@/hive/*/*.parquet', hive_partitioning = true);
SELECT grp, count(*) FROM read_parquet('@DIR@/hive/**/*.parquet') WHERE grp IN (1, 3) GROUP BY grp;
SELECT id, grp FROM read_parquet('@DIR@/hive/**/*.parquet', hive_types = {'grp': 'VARCHAR'}) WHERE grp = '2';
SELECT id, grp FROM read_parquet('@DIR@/hive/**/*.parquet', hive_partitioning = true, hive_types_autocast = 0) WHERE grp >= '4';
SELECT * FROM read_parquet('@DIR@/hive/**/*.parquet', hive_partitioning = false);
SELECT x.id, y.name FROM '@DIR@/pq/one.parquet' x JOIN '@DIR@/pq/two.parquet' y ON x.grp = y.grp;
SELECT * FROM read_parquet('@DIR@/by_name_*.parquet', union_by_name = true);
SELECT c, a, filename FROM read_parquet('@DIR@/by_name_*.parquet', union_by_name = true) WHERE a > 0;
SELECT s, n FROM read_parquet('@DIR@/bytes.parquet', binary_as_string = true);
SELECT id, "odd name" FROM read_parquet('@DIR@/pq[[]1]*.parquet');
SELECT id, name, ts, pt FROM '@DIR@/pq/*.parquet' QUALIFY row_number() OVER (PARTITION BY grp ORDER BY id DESC) <= 2;
-- ordered
SELECT * FROM '@DIR@/pq/*.parquet' ORDER BY id DESC LIMIT 5;
SELECT count(*) FROM (SELECT id FROM '@DIR@/pq/*.parquet' USING SAMPLE 20 ROWS);
SELECT num_rows FROM parquet_file_metadata('@DIR@/pq/one.parquet');
SELECT name FROM parquet_schema('@DIR@/pq/one.parquet');
SELECT count(*) FROM parquet_metadata('@DIR@/pq/one.parquet');
-- refused: explicit schema
SELECT * FROM read_parquet('@DIR@/bytes.parquet', schema = MAP {0: {name: 'n2', type: 'INTEGER', default_value: NULL}});

-- # other sources and refusals
SELECT length(content) FROM read_text('@DIR@/plain.csv');
SELECT file FROM glob('@DIR@/pq/*');
-- refused: CSVReaderSerialize
SELECT * FROM read_csv('@DIR@/plain.csv');
-- refused: TYPE
SELECT get_type(id) FROM items;
-- refused: GEOMETRY
SELECT NULL::GEOMETRY, id FROM items;
