-- SPDX-License-Identifier: Apache-2.0
-- # distinct, set operations, sorts, limits, windows, CTEs, constants
-- 2 stages
SELECT DISTINCT k FROM facts;
-- 2 stages
SELECT DISTINCT g, s, ok FROM facts;
-- 2 stages
SELECT DISTINCT d FROM floatsl;
-- 2 stages
SELECT DISTINCT l, st FROM facts;
-- 2 stages
SELECT DISTINCT * FROM seta;
-- 3 stages
SELECT DISTINCT ON (g) g, id, name FROM facts ORDER BY g, x DESC, id;
-- 3 stages
SELECT DISTINCT ON (k, ok) k, ok, id FROM facts ORDER BY k, ok, id DESC;
-- 2 stages
SELECT DISTINCT ON (k) k FROM facts;
-- 2 stages
SELECT DISTINCT a FROM empties;
-- 3 stages
SELECT count(*) FROM (SELECT DISTINCT name, g FROM facts);
-- # set operations
-- 3 stages
SELECT * FROM seta UNION SELECT * FROM setb;
-- 3 stages
SELECT * FROM seta UNION ALL SELECT * FROM setb;
-- 3 stages
SELECT * FROM seta EXCEPT SELECT * FROM setb;
-- 3 stages
SELECT * FROM seta EXCEPT ALL SELECT * FROM setb;
-- 3 stages
SELECT * FROM seta INTERSECT SELECT * FROM setb;
-- 3 stages
SELECT * FROM seta INTERSECT ALL SELECT * FROM setb;
-- 3 stages
SELECT x FROM seta EXCEPT SELECT x FROM setb;
-- 5 stages
SELECT * FROM seta EXCEPT SELECT * FROM setnone UNION ALL SELECT * FROM setnone;
-- 5 stages
(SELECT x FROM seta UNION SELECT k FROM facts) INTERSECT (SELECT x FROM setb UNION ALL SELECT NULL);
-- 3 stages
SELECT d FROM floatsl INTERSECT SELECT f FROM floatsr;
-- 3 stages
SELECT d FROM floatsl UNION SELECT -d FROM floatsr;
-- 3 stages
SELECT i32 FROM keysl INTERSECT SELECT f64 FROM keysr;
-- 3 stages
SELECT y AS a, x AS b FROM seta UNION ALL BY NAME SELECT x AS b, y AS c FROM setb;
-- # each branch runs in its own tasks
-- 3 stages
SELECT 'a' AS t, count(*) FROM seta UNION ALL SELECT 'b', count(*) FROM setb UNION ALL SELECT 'f', count(*) FROM facts UNION ALL SELECT 'e', count(*) FROM empties;
-- 4 stages
SELECT k, sum(n) FROM (SELECT k, 1 AS n FROM facts UNION ALL SELECT x, 100 FROM seta UNION ALL SELECT 5, 10000) GROUP BY k;
-- 4 stages | one-task: table function that can't be split
SELECT DISTINCT k FROM (SELECT k FROM facts UNION ALL SELECT x FROM seta UNION ALL SELECT * FROM range(3));
-- 3 stages
SELECT u.k, d.label FROM (SELECT k FROM dims UNION ALL SELECT x FROM seta) u JOIN dims d ON u.k = d.k;
-- # sorts: ties, many keys, NULLs, directions, collations
-- 2 stages | ordered
SELECT id, x FROM facts ORDER BY x, id;
-- 2 stages | ordered
SELECT g, k, id FROM facts ORDER BY g DESC, k NULLS FIRST, id DESC;
-- 2 stages | ordered
SELECT k FROM facts ORDER BY k DESC NULLS LAST;
-- 2 stages | ordered
SELECT ok, ok FROM facts ORDER BY ok;
-- 2 stages | ordered
SELECT s, id FROM facts WHERE id < 4000 ORDER BY s COLLATE NOCASE NULLS FIRST, id;
-- 2 stages | ordered
SELECT w, n FROM store.words ORDER BY w, n;
-- 2 stages | ordered
SELECT w, n FROM store.words ORDER BY w COLLATE de, n;
-- 2 stages | ordered
SELECT d, id FROM floatsl ORDER BY d DESC, id;
-- 2 stages | ordered
SELECT big, id FROM facts WHERE id < 5000 ORDER BY big DESC NULLS FIRST, id;
-- 2 stages | ordered
SELECT l, st, id FROM facts WHERE id < 3000 ORDER BY l DESC, st NULLS FIRST, id;
-- 2 stages | ordered
SELECT day, tz, ts FROM facts WHERE id < 3000 ORDER BY day NULLS FIRST, tz DESC;
-- 2 stages | ordered
SELECT b, c, id FROM '@/blobs/b.parquet' ORDER BY c NULLS FIRST, b DESC;
-- 2 stages | ordered
SELECT iv, ttz, t, id FROM '@/times/t.parquet' ORDER BY t DESC NULLS FIRST, iv, ttz, id;
-- 2 stages | ordered
SELECT id, length(s) FROM '@/long/l.parquet' ORDER BY s DESC;
-- 2 stages | ordered
SELECT * FROM empties ORDER BY a, b;
-- 2 stages | ordered
SELECT id FROM facts WHERE id = 17 ORDER BY id;
-- 3 stages | ordered
SELECT name, count(*) AS c FROM facts GROUP BY name ORDER BY c DESC, name;
-- 2 stages | ordered
SELECT a, b FROM uneven ORDER BY b, a;
-- 2 stages | ordered
SELECT x + id AS v, id FROM facts ORDER BY -x, 2;
-- 3 stages | ordered
SELECT k FROM (SELECT k FROM facts UNION ALL SELECT x FROM seta) ORDER BY ALL;
-- 2 stages | ordered | set: default_null_order=nulls_first
SELECT s FROM facts ORDER BY s;
-- # order inside is kept by what is above it
-- 2 stages | ordered
SELECT id + 1 FROM (SELECT id FROM facts ORDER BY id DESC) WHERE id % 2 = 0;
-- 2 stages | ordered | one-task: window without a common PARTITION BY
SELECT id, row_number() OVER (ORDER BY id DESC) FROM facts ORDER BY id;
-- # top-n and limits
-- 2 stages | ordered
SELECT id, x FROM facts ORDER BY x DESC, id LIMIT 10;
-- 2 stages | ordered
SELECT id, s FROM facts ORDER BY s NULLS FIRST, id DESC LIMIT 20 OFFSET 15;
-- 3 stages | ordered
SELECT k, count(*) AS c, sum(x) FROM facts GROUP BY k ORDER BY c DESC, k NULLS LAST LIMIT 5;
-- 1 stage | ordered
SELECT id FROM facts ORDER BY id LIMIT 0;
-- 2 stages | ordered
SELECT id FROM facts ORDER BY id LIMIT 100000 OFFSET 19990;
-- 2 stages | ordered
SELECT id FROM facts ORDER BY id LIMIT 5 OFFSET 30000;
-- 3 stages | ordered
SELECT id FROM facts ORDER BY id LIMIT (SELECT count(*) FROM dims);
-- 2 stages | ordered
SELECT id FROM facts ORDER BY id LIMIT 1%;
-- 1 stage
SELECT id FROM facts LIMIT 0;
-- 2 stages | shape
SELECT id FROM facts LIMIT 7;
-- 2 stages | shape
SELECT id FROM facts LIMIT 50 OFFSET 19980;
-- 2 stages | shape
SELECT id, name FROM facts OFFSET 19000;
-- 2 stages
SELECT count(*) FROM (SELECT id FROM facts LIMIT 1234);
-- 2 stages
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM facts LIMIT 500 OFFSET 100);
-- 3 stages | shape
SELECT k FROM facts GROUP BY k LIMIT 3;
-- 3 stages
SELECT f.id, d.label FROM (SELECT * FROM facts ORDER BY id LIMIT 5) f LEFT JOIN dims d USING (k);
-- 3 stages | ordered
SELECT * FROM (SELECT id, x FROM facts ORDER BY x, id LIMIT 10) UNION ALL SELECT * FROM (SELECT id, x FROM facts ORDER BY x DESC, id LIMIT 10) ORDER BY x, id;
-- # windows
-- 2 stages
SELECT id, row_number() OVER (PARTITION BY g ORDER BY id), sum(x) OVER (PARTITION BY g ORDER BY id), count(*) OVER (PARTITION BY g) FROM facts WHERE id < 4000;
-- 2 stages
SELECT id, k, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w, ntile(4) OVER (PARTITION BY k ORDER BY x, id) FROM facts WINDOW w AS (PARTITION BY k ORDER BY x);
-- 2 stages
SELECT id, lag(x, 2, -1) OVER w, lead(name) OVER w, first_value(id) OVER w, last_value(id) OVER w, nth_value(id, 3) OVER w FROM facts WHERE id < 5000 WINDOW w AS (PARTITION BY g, ok ORDER BY id);
-- 2 stages
SELECT id, sum(x) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING), avg(x) OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN INTERVAL 10 HOUR PRECEDING AND CURRENT ROW), count(*) OVER (PARTITION BY g ORDER BY k GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM facts WHERE id < 3000;
-- 2 stages | one-task: window without a common PARTITION BY
SELECT id, sum(x) OVER (ORDER BY id), row_number() OVER (ORDER BY id DESC), count(*) OVER () FROM facts;
-- 2 stages
SELECT id, s, max(x) OVER (PARTITION BY s), list(id) OVER (PARTITION BY s ORDER BY id ROWS 2 PRECEDING), count(DISTINCT g) OVER (PARTITION BY s) FROM facts WHERE id < 2000;
-- 2 stages
SELECT id, sum(x) FILTER (WHERE ok) OVER (PARTITION BY g), lag(s IGNORE NULLS) OVER (PARTITION BY g ORDER BY id), first_value(s IGNORE NULLS) OVER (PARTITION BY g ORDER BY id) FROM facts WHERE id < 3000;
-- 3 stages
SELECT id, sum(x) OVER (PARTITION BY g), sum(x) OVER (PARTITION BY k), sum(x) OVER (PARTITION BY g, k) FROM facts;
-- 3 stages
SELECT id, d, count(*) OVER (PARTITION BY d), row_number() OVER (PARTITION BY f ORDER BY id, d) FROM floatsl;
-- 2 stages
SELECT id, x FROM facts QUALIFY row_number() OVER (PARTITION BY g ORDER BY x DESC, id) <= 3;
-- 3 stages | one-task: window without a common PARTITION BY
SELECT g, sum(x), rank() OVER (ORDER BY sum(x) DESC), sum(sum(x)) OVER () FROM facts GROUP BY g;
-- 2 stages
SELECT n, sym, sum(v) OVER (PARTITION BY sym ORDER BY n), v - lag(v) OVER (PARTITION BY sym ORDER BY n) FROM series;
-- 2 stages | one-task: window without a common PARTITION BY
SELECT n, sum(v) OVER (PARTITION BY sym ORDER BY ts RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND INTERVAL 1 MINUTE FOLLOWING), avg(v) OVER (ORDER BY n ROWS 5 PRECEDING) FROM series;
-- 2 stages | one-task: window without a common PARTITION BY
SELECT a, row_number() OVER (PARTITION BY b), sum(c) OVER () FROM empties;
-- 3 stages
SELECT g, c, avg(c) OVER (PARTITION BY g) FROM (SELECT g, k, count(*) AS c FROM facts GROUP BY g, k);
-- # CTEs: used once, twice, inside each other, recursive
-- 4 stages
WITH c AS (SELECT k, count(*) AS n FROM facts GROUP BY k) SELECT a.k, a.n, b.n FROM c a JOIN c b ON a.k = b.k + 1;
-- 5 stages
WITH c AS MATERIALIZED (SELECT id, g, x FROM facts WHERE ok) SELECT g, sum(x), (SELECT count(*) FROM c) FROM c GROUP BY g;
-- 4 stages
WITH c AS MATERIALIZED (SELECT id, random() AS r FROM facts) SELECT count(*) FROM c a JOIN c b ON a.id = b.id WHERE a.r = b.r;
-- 8 stages
WITH a AS (SELECT g, sum(x) AS t FROM facts GROUP BY g), b AS (SELECT max(t) AS m, avg(t) AS v FROM a) SELECT a.g, a.t / b.m, b.v FROM a, b UNION ALL SELECT -1, count(*), max(t) FROM a;
-- 5 stages
WITH c AS MATERIALIZED (SELECT * FROM dims) SELECT x.label, y.label FROM c x JOIN c y ON x.kind = y.kind AND x.k < y.k UNION SELECT label, NULL FROM c;
-- 1 stage | one-task: recursive CTE
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 100) SELECT n, n * n FROM r;
-- 2 stages | one-task: recursive CTE
WITH RECURSIVE r(b, depth) AS (SELECT 0, 0 UNION SELECT e.b, depth + 1 FROM r JOIN edges e ON e.a = r.b WHERE depth < 12) SELECT b, min(depth) FROM r GROUP BY b;
-- 5 stages | one-task: recursive CTE
WITH RECURSIVE reach(a, b) AS (SELECT a, b FROM edges WHERE a < 6 UNION SELECT r.a, e.b FROM reach r JOIN edges e ON r.b = e.a), f AS (SELECT k, count(*) AS n FROM facts GROUP BY k)
SELECT r.a, count(*), sum(f.n) FROM reach r LEFT JOIN f ON f.k = r.b GROUP BY r.a;
-- # constants
-- 1 stage
SELECT 1 AS one, 'x' AS x, NULL AS n, [1, 2] AS l, {'a': 1} AS s, DATE '2024-01-01' AS d, 1.5 AS dec;
-- 1 stage
VALUES (1, 'a', NULL), (2, NULL, 1.5), (NULL, 'c', -2);
-- 2 stages
SELECT v.x, d.label FROM (VALUES (0), (3), (NULL), (6)) v(x) LEFT JOIN dims d ON d.k = v.x;
-- 2 stages
SELECT f.g, v.name, count(*) FROM facts f JOIN (VALUES (1, 'one'), (2, 'two'), (2, 'deux')) v(g, name) ON f.g = v.g GROUP BY ALL;
-- 1 stage
SELECT x, count(*) FROM (VALUES (1), (1), (NULL), (2)) v(x) GROUP BY x;
-- 1 stage | one-task: table function that can't be split
SELECT i, i * 2 FROM range(5, 50, 5) r(i);
-- 1 stage | one-task: table function that can't be split
SELECT i % 10, count(*), sum(i) FROM range(10000) r(i) GROUP BY 1;
-- 2 stages | one-task: table function that can't be split
SELECT r.i, d.label FROM range(0, 60, 6) r(i) LEFT JOIN dims d ON d.k = r.i;
-- 1 stage | one-task: table function that can't be split
SELECT * FROM generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-03', INTERVAL 7 HOUR);
-- 1 stage
SELECT 42 WHERE 1 = 0;
-- 1 stage
SELECT count(*), max(label) FROM dims WHERE 1 = 0;
-- 1 stage
SELECT current_date = current_date, now() IS NOT NULL, version() LIKE 'v%', pi(), typeof(random());
