-- SPDX-License-Identifier: Apache-2.0
-- # more of everything: combinations that cross stages in unusual ways
CREATE OR REPLACE VIEW seta_ids AS SELECT x, y, row_number() OVER (ORDER BY x, y) AS id FROM seta;
-- 3 stages
SELECT p.t, p.q, s.n FROM (FROM probe WHERE t IS NOT NULL) p ASOF RIGHT JOIN (SELECT n, n * 7 AS t, sym FROM series WHERE n % 40 = 0) s ON p.sym = s.sym AND p.t >= s.t;
-- 3 stages
SELECT p.t, p.q, s.n FROM (FROM probe WHERE t IS NOT NULL) p ASOF FULL JOIN (SELECT n, n * 7 AS t, sym FROM series WHERE n % 40 = 0) s ON p.sym = s.sym AND p.t >= s.t;
-- 1 stage
SELECT s.n, p.q FROM (SELECT * FROM series WHERE n < 60) s ASOF JOIN (VALUES (0, 'a'), (100, 'b'), (250, 'c')) p(t, q) ON s.t >= p.t;
-- 2 stages
SELECT v.x, s.n FROM (VALUES (5), (300), (NULL)) v(x) ASOF LEFT JOIN (SELECT n, n * 7 AS t FROM series) s ON v.x >= s.t;
-- 1 stage | one-task: positional join pairs rows by number
SELECT a.id, b.k FROM (SELECT id FROM facts WHERE id < 50) a POSITIONAL JOIN dims b;
-- 3 stages
SELECT count(*), sum(c) FROM (SELECT g, count(*) OVER (PARTITION BY g) AS c FROM facts QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) = 1);
-- 3 stages
SELECT k, sum(n) FROM (SELECT k, count(*) OVER (PARTITION BY k, g) AS n FROM facts) GROUP BY k;
-- 4 stages
SELECT g, avg(s) FROM (SELECT g, k, sum(x) AS s FROM facts GROUP BY g, k) GROUP BY ROLLUP (g);
-- 3 stages
SELECT * FROM (SELECT g, k, count(*) AS c FROM facts GROUP BY g, k) a JOIN (SELECT g, k, max(id) AS m FROM facts GROUP BY g, k) b USING (g, k);
-- 4 stages
SELECT * FROM (SELECT DISTINCT g, k FROM facts) a LEFT JOIN (SELECT DISTINCT k, g FROM facts WHERE ok) b ON a.g = b.g AND a.k IS NOT DISTINCT FROM b.k;
-- 5 stages
SELECT d.k, x.c, y.c FROM dims d LEFT JOIN (SELECT k, count(*) AS c FROM facts GROUP BY k) x ON d.k = x.k LEFT JOIN (SELECT g AS k, count(*) AS c FROM facts GROUP BY g) y ON y.k = d.k WHERE x.c IS NULL OR y.c > 100;
-- 9 stages
SELECT a.k, count(*) FROM (SELECT k FROM facts UNION ALL SELECT k FROM dims) a WHERE EXISTS (SELECT 1 FROM dims d WHERE d.k = a.k AND d.kind > 1) GROUP BY a.k;
-- 8 stages
SELECT g, (SELECT count(*) FROM dims d WHERE d.kind = f.g), sum(f.x) FROM facts f GROUP BY g;
-- 6 stages
SELECT id FROM facts f WHERE x = (SELECT max(x) FROM facts h WHERE h.g = f.g) AND id < 3000;
-- 5 stages
SELECT id FROM facts f WHERE x > ALL (SELECT w FROM dims d WHERE d.k = f.k) AND id < 300;
-- 5 stages
SELECT f.id, f.k NOT IN (SELECT k FROM dims d WHERE d.kind = f.g) FROM facts f WHERE f.id < 400;
-- 5 stages
SELECT f.id FROM facts f WHERE NOT EXISTS (SELECT 1 FROM dims d WHERE d.k > f.k AND d.kind = f.g) AND f.id < 500;
-- 6 stages
SELECT d.label, (SELECT list(x ORDER BY x, id) FROM (SELECT x, id FROM facts f WHERE f.k = d.k ORDER BY x DESC, id LIMIT 3)) FROM dims d;
-- 7 stages
SELECT d.label, f.id FROM dims d JOIN LATERAL (SELECT id FROM facts WHERE k = d.k AND id < 200 EXCEPT SELECT id FROM facts WHERE ok) f ON true;
-- 4 stages
SELECT d.label, r.v FROM dims d, LATERAL (SELECT unnest(range(d.kind))) r(v);
-- 2 stages
SELECT u.id, u.v, d.label FROM (SELECT id, unnest(l) AS v FROM facts WHERE id < 200) u LEFT JOIN dims d ON u.v = d.k;
-- 2 stages
SELECT v, count(*) FROM (SELECT unnest(l) AS v FROM facts) GROUP BY v;
-- 2 stages
SELECT b.q, count(DISTINCT a.id) FROM nested a, unnest(a.ls) u(b) GROUP BY b.q;
-- 4 stages
SELECT count(*) FILTER (WHERE n > 1), max(n) FROM (SELECT id, count(*) AS n FROM (SELECT id FROM facts UNION ALL SELECT id FROM facts WHERE ok) GROUP BY id);
-- 9 stages
WITH a AS MATERIALIZED (SELECT g, count(*) AS n FROM facts GROUP BY g), b AS MATERIALIZED (SELECT * FROM a WHERE n > 2000) SELECT a.g, b.n FROM a LEFT JOIN b USING (g) UNION ALL SELECT -1, (SELECT sum(n) FROM b) UNION ALL SELECT g, -n FROM a;
-- 1 stage | one-task: recursive CTE
WITH RECURSIVE t(n) AS (SELECT count(*) FROM dims UNION ALL SELECT n - 5 FROM t WHERE n > 0) SELECT * FROM t;
-- 4 stages | one-task: recursive CTE
WITH RECURSIVE t(k, n) AS (SELECT k, 0 FROM (SELECT DISTINCT k FROM facts WHERE k < 20) UNION ALL SELECT k + 1, n + 1 FROM t WHERE n < 3) SELECT t.n, count(*), count(d.label) FROM t LEFT JOIN dims d USING (k) GROUP BY t.n;
-- 3 stages | ordered
SELECT g, id FROM facts QUALIFY rank() OVER (PARTITION BY g ORDER BY id DESC) <= 2 ORDER BY g, id;
-- 3 stages | ordered
SELECT DISTINCT k, g FROM facts ORDER BY k DESC NULLS FIRST, g LIMIT 9;
-- 3 stages | ordered
SELECT k, list(id ORDER BY id)[1:3] AS ids, count(*) AS n FROM facts GROUP BY k ORDER BY n DESC, k LIMIT 7 OFFSET 2;
-- 3 stages | ordered
(SELECT id, x FROM facts WHERE g = 1 ORDER BY x, id LIMIT 5) UNION ALL (SELECT id, x FROM facts WHERE g = 2 ORDER BY x DESC, id LIMIT 5) ORDER BY id;
-- 2 stages | ordered | one-task: window without a common PARTITION BY
SELECT * FROM (SELECT id, sum(x) OVER (ORDER BY id ROWS 10 PRECEDING) AS s FROM facts) WHERE id % 1000 = 5 ORDER BY id;
-- 2 stages | ordered
SELECT name, s FROM facts WHERE s IS NOT NULL ORDER BY lower(s), reverse(name), name, id LIMIT 300;
-- 3 stages | ordered | one-task: window without a common PARTITION BY
SELECT a.id, b.id FROM seta_ids a JOIN seta_ids b ON a.x = b.x AND a.id < b.id ORDER BY ALL;
-- 2 stages
SELECT max(id) - min(id), count(*) * 2, sum(x) / count(*), 'total' FROM facts WHERE g = 3;
-- 2 stages
SELECT g, first(name ORDER BY id), max(name), max_by(id, x * 1000000 + id), count(DISTINCT k) * 1.0 / count(*) FROM facts GROUP BY g HAVING count(DISTINCT k) > 3;
-- 2 stages
SELECT year(ts) AS y, month(ts) AS m, count(*), sum(price), avg(price), max(ts) - min(ts) FROM facts GROUP BY y, m;
-- 2 stages
SELECT time_bucket(INTERVAL 1 WEEK, ts) AS w, count(*), quantile_cont(x, 0.5) FROM facts GROUP BY w;
-- 2 stages
SELECT CASE WHEN x < 4 THEN 'low' WHEN x < 12 THEN 'mid' ELSE 'high' END AS band, ok, count(*), sum(price) FROM facts GROUP BY ALL HAVING sum(price) > 0;
-- 4 stages
SELECT s, count(*) FROM facts WHERE s IS NOT NULL GROUP BY s HAVING count(*) > (SELECT avg(n) FROM (SELECT count(*) AS n FROM facts WHERE s IS NOT NULL GROUP BY s));
-- 2 stages
SELECT st.b, sum(st.a), count(DISTINCT st) FROM facts GROUP BY st.b;
-- 2 stages
SELECT id, x, x - avg(x) OVER (PARTITION BY g) AS off, x / sum(x) OVER (PARTITION BY g) AS share FROM facts WHERE id % 100 = 1;
-- 2 stages
SELECT * FROM (SELECT g, ok, price FROM facts) PIVOT (sum(price), count(*) FOR g IN (1, 2, 3));
-- 1 stage
SELECT * FROM (SELECT k, w FROM dims) UNPIVOT INCLUDE NULLS (v FOR n IN (k, w));
-- 3 stages
SELECT count(*) FROM '@/facts/*.parquet' f SEMI JOIN '@/dims/*.parquet' d ON f.k = d.k AND f.x > d.w;
-- 2 stages
SELECT * FROM '@/empty/*.parquet' e RIGHT JOIN setnone n ON e.a = n.x;
-- 3 stages
SELECT sum(a), count(b) FROM (SELECT a, b FROM empties UNION ALL SELECT x, y FROM setnone);
-- 4 stages
SELECT a, max(c) FROM empties GROUP BY a UNION ALL SELECT k, w FROM dims WHERE k > 70;
-- 3 stages
SELECT i.k, count(*), max(h.s) FROM store.items i LEFT JOIN store.holes h ON i.id = h.id AND h.k = 3 WHERE i.id < 150000 GROUP BY i.k;
-- 3 stages
SELECT t.m, i.k, count(*) FROM store.types t JOIN store.items i ON t.id = i.k GROUP BY t.m, i.k HAVING i.k < 12;
-- 2 stages
SELECT m, list(id ORDER BY id), mode(m), arg_max(m, id) FROM store.types WHERE id < 40 GROUP BY m;
-- 2 stages
SELECT m IN (SELECT m FROM store.types WHERE id = 2), m = 'ok', m::VARCHAR || '!', [m, 'sad'] FROM store.types WHERE id < 9;
-- 2 stages
SELECT u, bits, ttz, count(*) FROM store.types GROUP BY u, bits, ttz;
