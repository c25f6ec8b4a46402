-- SPDX-License-Identifier: Apache-2.0
-- # tables of an attached database file, types that Parquet doesn't have, settings, other sources
-- 2 stages
SELECT count(*), sum(id), min(name), max(k) FROM store.items;
-- 2 stages
SELECT k, count(*), sum(x) FROM store.items GROUP BY k;
-- 1 stage
SELECT id, name FROM store.items WHERE id % 30000 = 7;
-- 1 stage | one-task: scan that can't be split
SELECT rowid, id FROM store.items WHERE id > 299990;
-- 3 stages
SELECT count(*), sum(id), count(DISTINCT k), sum((s = 'changed')::INT) FROM store.holes;
-- 2 stages
SELECT k, count(*), min(id), max(id) FROM store.holes GROUP BY k;
-- 1 stage | one-task: scan that can't be split
SELECT rowid, id, s FROM store.holes WHERE id % 5000 = 1;
-- 1 stage
SELECT * FROM store.gone;
-- 2 stages
SELECT count(*), max(id) FROM store.gone;
-- 1 stage
SELECT * FROM store.none;
-- 2 stages
SELECT h.id, i.name FROM store.holes h JOIN store.items i ON h.id = i.id WHERE i.k = 3 AND h.k = 2;
-- 2 stages
SELECT f.g, count(*), sum(i.x) FROM facts f JOIN store.items i ON f.id = i.id GROUP BY f.g;
-- 1 stage
SELECT * FROM store.types;
-- 2 stages
SELECT m, count(*), min(id), max(m) FROM store.types GROUP BY m;
-- 2 stages | ordered
SELECT id, m FROM store.types ORDER BY m DESC NULLS FIRST, id;
-- 1 stage
SELECT id, m FROM store.types WHERE m > 'sad' AND m <> 'it''s';
-- 2 stages
SELECT a.id, b.id FROM store.types a JOIN store.types b ON a.m = b.m AND a.id = b.id + 6;
-- 2 stages
SELECT ml, ms, mm, count(*) FROM store.types GROUP BY ALL;
-- 6 stages
SELECT DISTINCT m FROM store.types UNION SELECT 'ok' UNION ALL SELECT NULL;
-- 2 stages | one-task: window without a common PARTITION BY
SELECT id, lag(m) OVER (ORDER BY id), first(m) OVER (PARTITION BY bits ORDER BY id) FROM store.types;
-- 2 stages
SELECT bits, u, arr, count(*), max(huge), sum(uhuge::DOUBLE) > 1 FROM store.types GROUP BY bits, u, arr;
-- 1 stage
SELECT uu, ttz, ns, iv, t, ub, dec, bl, js, big FROM store.types WHERE id < 50;
-- 2 stages | ordered
SELECT id, huge, uhuge, bits FROM store.types ORDER BY uhuge DESC, huge, bits;
-- 1 stage
SELECT js->>'a', js->'a', json_extract(js, '$.a')::INT FROM store.types WHERE id < 20;
-- 2 stages
SELECT u.num, u.str, union_tag(u), count(*) FROM store.types GROUP BY ALL;
-- 2 stages
SELECT a.id FROM store.types a WHERE a.uu IN (SELECT uu FROM store.types WHERE id % 7 = 0) AND a.arr[1] > 3;
-- 1 stage
SELECT * FROM store.good;
-- 1 stage
SELECT "sel ect", "a""b", rowid FROM store."odd name" WHERE "sel ect" > 30;
-- 2 stages
SELECT w, count(*), sum(n) FROM store.words GROUP BY w;
-- 1 stage
SELECT a, twice, a + twice FROM store.derived WHERE twice > 100;
-- 2 stages
SELECT i.id, o.id FROM store.items i JOIN store.other.items o ON i.id = o.id * 1000;
-- 1 stage
SELECT store.twice(id), name FROM store.items WHERE id < 5;
-- 3 stages
SELECT name, n FROM (SELECT name, count(*) AS n FROM store.items GROUP BY name) WHERE name IN (SELECT 'item ' || k FROM dims);
-- # settings that change results
-- 2 stages | set: TimeZone=Asia/Tokyo
SELECT tz::DATE AS local_day, count(*), min(tz), max(tz::VARCHAR) FROM facts WHERE id < 3000 GROUP BY local_day;
-- 1 stage | set: TimeZone=America/New_York
SELECT id, tz, date_trunc('day', tz), extract(hour FROM tz), ts::TIMESTAMPTZ FROM facts WHERE id < 300;
-- 2 stages | set: TimeZone=Asia/Tokyo
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.ts = b.tz - INTERVAL 9 HOUR;
-- 2 stages | ordered | set: default_order=DESC
SELECT id, k FROM facts ORDER BY k, id;
-- 1 stage | set: ieee_floating_point_ops=false
SELECT id, d / (k % 2), d % 0 FROM facts WHERE id < 500;
-- 2 stages | set: default_collation=NOCASE
SELECT upper(s) = s, count(*) FROM facts GROUP BY 1;
-- 1 stage | set: calendar=japanese
SELECT id, extract(year FROM tz), strftime(tz, '%Y') FROM facts WHERE id < 20;
-- # other sources
-- 1 stage
SELECT * FROM read_csv('@/text/a.csv');
-- 2 stages
SELECT count(*), sum(b), max(c) FROM '@/text/a.csv' WHERE id % 2 = 0;
-- 1 stage
SELECT id, o.x, o.y[1] FROM '@/text/a.json' WHERE k = 2;
-- 1 stage
SELECT * FROM read_json('@/text/array.json');
-- 3 stages
SELECT t.k, count(*), sum(f.x) FROM '@/text/a.json' t JOIN facts f ON f.id = t.id GROUP BY t.k;
-- 1 stage | whole: the plan holds a constant that is not valid UTF-8 (BIT, BIGNUM)
SELECT g, m, bits FROM facts JOIN store.types USING (id) WHERE bits = '1011'::BIT AND g < 4;
-- 1 stage | one-task: table function that can't be split
SELECT name, total_compressed_size > 0 FROM parquet_schema('@/dims/d.parquet'), (SELECT sum(total_compressed_size) AS total_compressed_size FROM parquet_metadata('@/dims/d.parquet'));
-- 1 stage | one-task: table function that can't be split
SELECT regexp_extract(file, '[^/]*$') FROM glob('@/odd/*.parquet');
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT * FROM (SUMMARIZE SELECT id, name FROM '@/one/*.parquet' CROSS JOIN (SELECT 1 AS id, 'x' AS name));
-- 2 stages
SELECT * FROM query('SELECT g, count(*) FROM facts GROUP BY g');
-- 1 stage
SELECT * FROM query_table('dims') WHERE kind = 1;
-- local: it stands for several statements
PIVOT (SELECT g, ok, x FROM facts) ON ok USING sum(x) GROUP BY g;
-- 2 stages
FROM facts SELECT g, count(*) GROUP BY g;
-- # errors keep what DuckDB says
-- 1 stage | fails: Could not convert string
SELECT s::INT FROM facts;
-- 1 stage | fails: my own error
SELECT CASE WHEN id = 12345 THEN error('my own error') ELSE id END FROM facts;
-- 1 stage | fails: "no_such_column" not found
SELECT no_such_column FROM facts;
-- 1 stage | fails: no_such_table
SELECT * FROM no_such_table;
-- 2 stages | fails: out of range
SELECT sum(id::TINYINT) FROM (SELECT (id % 300)::INT AS id FROM facts);
