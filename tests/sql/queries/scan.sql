-- SPDX-License-Identifier: Apache-2.0
-- # scans, filters, projections, unnest, over every kind of file
-- 1 stage
SELECT * FROM facts WHERE id < 300;
-- 1 stage
SELECT id, k + g, s || name, -d, x * 2, price * 3, big + 1, ts + INTERVAL 1 DAY, day - 3, NOT ok FROM facts WHERE g IN (2, 5) AND id % 10 = 3;
-- 1 stage
SELECT id, d FROM facts WHERE d = 'nan'::DOUBLE OR d = 'inf'::DOUBLE OR d = 0;
-- 1 stage
SELECT id FROM facts WHERE k IS NULL AND s IS NOT NULL AND day IS NULL;
-- 1 stage
SELECT id FROM facts WHERE s LIKE 'n1%' AND ts BETWEEN '2024-02-01' AND '2024-05-01' AND NOT ok;
-- 2 stages
SELECT count(*) FROM facts;
-- # the optimizer sees from statistics that there is nothing
-- 1 stage
SELECT id, name FROM facts WHERE id > 1000000;
-- 1 stage
SELECT id, name FROM facts WHERE false;
-- 1 stage
SELECT id, CASE WHEN d > 100 THEN 'big' WHEN d IS NULL THEN NULL WHEN isnan(d) THEN 'nan' ELSE s END FROM facts WHERE id < 500;
-- 1 stage
SELECT id, l, st, st.a, st.b, l[1], len(l) FROM facts WHERE id BETWEEN 5990 AND 6320;
-- 1 stage
SELECT id, tz, tz::DATE, date_trunc('hour', tz), tz AT TIME ZONE 'America/New_York' FROM facts WHERE id < 200;
-- 1 stage
SELECT * FROM empties;
-- 1 stage
SELECT a + 1, b || 'x', l FROM empties WHERE c > 1;
-- 1 stage
SELECT * FROM '@/hollow/*.parquet';
-- 1 stage
SELECT * FROM '@/hollow/none.parquet';
-- 1 stage
SELECT * FROM '@/one/*.parquet';
-- 1 stage
SELECT k, a, b FROM '@/one/*.parquet' WHERE a BETWEEN 3 AND 11;
-- 1 stage
SELECT * FROM '@/allnull/d.parquet';
-- 1 stage
SELECT * FROM '@/allnull/arrow.parquet';
-- 1 stage
SELECT id, coalesce(a, id), b IS NULL, c + 1, l, s FROM '@/allnull/d.parquet' WHERE a IS NULL;
-- 1 stage
SELECT id FROM '@/allnull/d.parquet' WHERE a IS NOT NULL;
-- 1 stage
SELECT d::VARCHAR, f::VARCHAR, d, f, 1 / d, -f, d = f FROM floatsl;
-- 1 stage
SELECT * FROM nested;
-- 1 stage
SELECT id, l[1], ll[3][1], s.b.c, s.b.d[1], m['k1'], map_keys(m), ls[1].p, ls[1].q[1], deep[id][1].deep['a'] FROM nested;
-- 1 stage
SELECT id, list_transform(l, lambda v: v + id), list_filter(ll, lambda v: len(v) > 1), list_sort(l), map_entries(m), struct_pack(a := s.a, l := ls) FROM nested;
-- 1 stage
SELECT * FROM '@/arrowed/*.parquet';
-- 1 stage
SELECT id, dict, dict = 'mid', large || '!', fixed[2], u64 - 1::UBIGINT, half * 2, ns + INTERVAL 1 SECOND, m['z'] FROM '@/arrowed/*.parquet' WHERE dict <> 'low' OR dict IS NULL;
-- 1 stage
SELECT * FROM '@/times/t.parquet';
-- 1 stage
SELECT id, day + 1, t + INTERVAL 1 HOUR, epoch_us(us), epoch_ns(ns), tz::VARCHAR, iv * 2, us - INTERVAL 3 MONTH FROM '@/times/t.parquet' WHERE id < 50;
-- 1 stage
SELECT id FROM '@/times/t.parquet' WHERE us > TIMESTAMP '1970-01-01' OR us = '-infinity';
-- 1 stage
SELECT * FROM '@/decimals/d.parquet';
-- 1 stage
SELECT id, d1 + d4, d9 * d4, d18 - d9, f38 / 3, d4 % 1, round(d18, 1), huge, d38 = huge FROM '@/decimals/d.parquet' WHERE id < 60;
-- 1 stage
SELECT * FROM '@/blobs/b.parquet';
-- 1 stage
SELECT id, octet_length(b), b || c, hex(c), u::VARCHAR, z || chr(0), length(z) FROM '@/blobs/b.parquet' WHERE c = 'a\x00b'::BLOB OR z = 'a' || chr(0) || '1';
-- 1 stage
SELECT * FROM '@/wide/*.parquet';
-- 1 stage
SELECT c599, c0, c301 + c302, c1 FROM '@/wide/*.parquet' WHERE c598 % 3 = 0;
-- 1 stage
SELECT id, s FROM '@/long/l.parquet';
-- 1 stage
SELECT id, length(s), s[1:3] FROM '@/long/l.parquet' WHERE length(s) > 100;
-- 1 stage
SELECT * FROM '@/names/n.parquet';
-- 1 stage
SELECT "a b", "quo""te" AS "x ""y""", "apo'strophe", "ünï" AS "日 本", "select", "dot.ted", c0, "semi;colon", "--dashes", upper, "new
line", "🙂", "st ruct"."in ner", "st ruct"."qu""ote"."x y" FROM '@/names/n.parquet' WHERE "a b" > 3 AND "select" < 150;
-- 1 stage
SELECT n, i FROM '@/odd/*.parquet';
-- 1 stage
SELECT n, i FROM '@/odd/apo''strophe.parquet';
-- 1 stage
SELECT n, i FROM '@/odd/quo"te.parquet';
-- 1 stage
SELECT n, i FROM '@/odd/gl*b.parquet';
-- 1 stage
SELECT n, i FROM '@/odd/[[]ab].parquet';
-- 1 stage
SELECT n, i FROM '@/odd/[ab].parquet';
-- 2 stages
SELECT n, sum(i) FROM read_parquet(['@/odd/with space.parquet', '@/odd/semi;colon.parquet', '@/odd/ünï-日本.parquet', '@/odd/back\slash.parquet', '@/odd/{a,b}.parquet']) GROUP BY n;
-- 2 stages
SELECT n, count(*), count(DISTINCT filename) FROM read_parquet('@/odd/*.parquet', filename = true) GROUP BY n;
-- 1 stage
SELECT filename, i FROM read_parquet('@/odd/*.parquet', filename = true) WHERE filename LIKE '%space%';
-- 1 stage
SELECT file_row_number, id FROM read_parquet('@/facts/*.parquet', file_row_number = true) WHERE file_row_number < 3;
-- 2 stages
SELECT file_row_number % 100 AS r, count(*), sum(id) FROM read_parquet('@/facts/*.parquet', file_row_number = true) GROUP BY r;
-- 1 stage
SELECT * FROM read_parquet('@/hive/**/*.parquet', hive_partitioning = true);
-- 1 stage
SELECT id, year, kind, code FROM '@/hive/**/*.parquet' WHERE year = 2021 AND kind = 'a b';
-- 2 stages
SELECT year, kind, code, count(*), sum(v) FROM '@/hive/**/*.parquet' GROUP BY ALL;
-- 1 stage
SELECT year + 1, code || 'x', typeof(year), typeof(code) FROM read_parquet('@/hive/**/*.parquet', hive_types = {'year': BIGINT, 'code': VARCHAR}) WHERE kind IS NULL;
-- 1 stage
SELECT * FROM read_parquet('@/hive/**/*.parquet', hive_partitioning = false);
-- 1 stage
SELECT * FROM read_parquet('@/byname/*.parquet', union_by_name = true);
-- 1 stage
SELECT a, d.x, e FROM read_parquet('@/byname/*.parquet', union_by_name = true) WHERE c > 3 OR b = 'b4';
-- 2 stages
SELECT b, count(*), sum(a), sum(c) FROM read_parquet('@/byname/*.parquet', union_by_name = true) GROUP BY b;
-- 1 stage
SELECT * FROM '@/order/*.parquet';
-- 1 stage
SELECT c, a FROM '@/order/*.parquet' WHERE a % 3 = 0;
-- 3 stages
SELECT count(*), sum(a), count(DISTINCT b) FROM uneven;
-- 1 stage
SELECT a, b FROM uneven WHERE a = 7;
-- # unnest
-- 1 stage
SELECT id, unnest(l) FROM facts WHERE id < 400;
-- 1 stage
SELECT id, unnest(l), unnest(ll), unnest(ss) FROM nested;
-- 1 stage
SELECT id, unnest(ls, recursive := true) FROM nested;
-- 1 stage
SELECT id, unnest(s) FROM nested;
-- 1 stage
SELECT id, u.v FROM nested, unnest(l) u(v);
-- 3 stages | one-task: window without a common PARTITION BY
SELECT id, u.v, u.n FROM nested LEFT JOIN LATERAL (SELECT unnest(l) AS v, generate_subscripts(l, 1) AS n) u ON true WHERE id < 30;
-- 3 stages | one-task: window without a common PARTITION BY
SELECT e.key, e.value FROM nested, unnest(map_entries(m)) u(e);
-- 4 stages
SELECT n.id, r.i FROM (SELECT id FROM nested WHERE id < 20) n, range(n.id) r(i);
-- 1 stage
SELECT id, name, value FROM (SELECT id, d, x, k::DOUBLE AS k FROM facts WHERE id < 100) UNPIVOT (value FOR name IN (d, x, k));
-- 2 stages
SELECT * FROM (SELECT g, ok, x FROM facts) PIVOT (sum(x) FOR ok IN (true, false) GROUP BY g);
-- # samples
-- 2 stages | one-task: a fixed number of sampled rows | shape
SELECT id FROM facts USING SAMPLE 25 ROWS;
-- 2 stages
SELECT count(*) BETWEEN 1 AND 20000 FROM facts TABLESAMPLE bernoulli(40%);
-- 2 stages
SELECT count(*) FROM facts TABLESAMPLE 100%;
-- 3 stages
SELECT count(*), count(DISTINCT r) > 1 FROM (SELECT random() AS r FROM facts);
