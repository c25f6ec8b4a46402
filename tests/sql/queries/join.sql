-- SPDX-License-Identifier: Apache-2.0
-- # joins and subqueries, with their rules for NULL
-- 2 stages
SELECT f.id, f.k, d.label FROM facts f JOIN dims d ON f.k = d.k WHERE f.id < 3000;
-- 3 stages
SELECT d.label, count(*), sum(f.x) FROM facts f JOIN dims d USING (k) GROUP BY d.label;
-- 2 stages
SELECT f.id, d.label, d.w FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id % 7 = 0;
-- # the preserved side is the small one: never broadcast
-- 2 stages
SELECT d.label, f.id FROM dims d LEFT JOIN facts f ON f.k = d.k AND f.id < 500;
-- 2 stages
SELECT d.label, f.id FROM facts f RIGHT JOIN dims d ON f.k = d.k AND f.id < 500;
-- 3 stages
SELECT f.id, d.label FROM (FROM facts WHERE id % 11 = 0) f FULL JOIN dims d ON f.k = d.k;
-- 3 stages
SELECT f.id, d.label FROM (FROM facts WHERE id % 11 = 0) f FULL JOIN dims d ON f.k = d.k AND f.x > d.w;
-- 5 stages
SELECT d.* FROM dims d WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k AND f.ok);
-- 2 stages
SELECT d.* FROM dims d WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.k = d.k);
-- 2 stages
FROM dims SEMI JOIN facts USING (k);
-- 2 stages
FROM dims ANTI JOIN facts USING (k);
-- 2 stages
SELECT id, k FROM facts WHERE k IN (SELECT k FROM dims WHERE kind < 3) AND id < 2000;
-- # a NULL on the right: nothing is "not in"
-- 2 stages
SELECT id, k FROM facts WHERE k NOT IN (SELECT k FROM dims) AND id < 2000;
-- 2 stages
SELECT id, k FROM facts WHERE k NOT IN (SELECT k FROM dims WHERE k IS NOT NULL) AND id < 2000;
-- 1 stage
SELECT id, k FROM facts WHERE k NOT IN (SELECT k FROM dims WHERE k > 1000) AND id < 50;
-- 3 stages
SELECT id, k, k IN (SELECT k FROM dims WHERE kind < 2), k NOT IN (SELECT k FROM dims) FROM facts WHERE id < 300;
-- 1 stage
SELECT id, k IN (SELECT k FROM dims WHERE k > 1000) FROM facts WHERE id < 50;
-- 4 stages
SELECT x, y, x IN (SELECT x FROM setb), (x, y) IN (SELECT x, y FROM setb), y NOT IN (SELECT y FROM setb) FROM seta;
-- 6 stages
SELECT a.x, a.y, a.x IN (SELECT b.x FROM setb b WHERE b.y = a.y), a.x NOT IN (SELECT b.x FROM setb b WHERE b.y <> a.y) FROM seta a;
-- 3 stages
SELECT a.x FROM seta a WHERE a.x > ANY (SELECT x FROM setb WHERE x IS NOT NULL) AND a.x <= ALL (SELECT x FROM seta WHERE x IS NOT NULL);
-- 2 stages
SELECT a.x, a.x > ALL (SELECT x FROM setb), a.x <> ANY (SELECT x FROM setb) FROM seta a;
-- 2 stages
SELECT a.x, b.x, a.y FROM seta a JOIN setb b ON a.x IS NOT DISTINCT FROM b.x AND a.y = b.y;
-- 2 stages
SELECT a.x, a.y, b.x FROM seta a LEFT JOIN setb b ON a.x IS NOT DISTINCT FROM b.x AND a.y IS NOT DISTINCT FROM b.y;
-- 3 stages
SELECT a.x, b.x FROM seta a FULL JOIN setb b ON a.x = b.x AND a.y = b.y;
-- 2 stages
SELECT a.x, b.x FROM seta a JOIN setb b ON a.x = b.x AND a.y < b.y;
-- 2 stages
SELECT a.x, b.y FROM seta a, setb b WHERE a.x + 1 = b.x * 2;
-- # no equality
-- 2 stages
SELECT a.x, b.x FROM seta a JOIN setb b ON a.x < b.x;
-- 2 stages
SELECT a.x, b.x FROM seta a LEFT JOIN setb b ON a.x < b.x AND a.y > b.y;
-- 7 stages
SELECT a.x, b.x FROM seta a FULL JOIN setb b ON a.x < b.x - 7;
-- 2 stages
SELECT a.x, b.x FROM seta a RIGHT JOIN setb b ON a.x > b.x + 6 OR a.y = b.y || 'z';
-- 3 stages
SELECT d.label, count(*) FROM facts f JOIN dims d ON f.x BETWEEN d.w AND d.w + 2 GROUP BY d.label;
-- 3 stages
SELECT count(*), sum(a.x * b.x) FROM seta a CROSS JOIN setb b;
-- 4 stages
SELECT a.y, count(*) FROM seta a, setb b, seta c WHERE a.x = c.x GROUP BY a.y;
-- 3 stages
SELECT d.label, s.n FROM dims d, (SELECT count(*) AS n FROM facts) s;
-- 1 stage | one-task: positional join pairs rows by number
SELECT * FROM seta a POSITIONAL JOIN setb b;
-- 2 stages
SELECT p.ts, p.q, s.n, s.v FROM probe p ASOF JOIN series s ON p.sym = s.sym AND p.t >= s.n * 9 WHERE s.n IS NOT NULL;
-- 2 stages
SELECT p.t, p.sym, p.q, s.n FROM probe p ASOF LEFT JOIN series s ON p.sym = s.sym AND p.t > s.n * 5;
-- 2 stages
SELECT p.t, p.q, s.n FROM probe p ASOF JOIN (SELECT n, n * 7 AS t FROM series) s ON p.t >= s.t;
-- 2 stages
SELECT p.t, p.q, s.n FROM probe p ASOF LEFT JOIN (SELECT n, n * 7 AS t FROM series) s USING (t);
-- # several joins over the same and other keys
-- 3 stages
SELECT d.label, e.label, count(*) FROM facts f JOIN dims d ON f.k = d.k JOIN dims e ON f.g = e.k GROUP BY ALL;
-- 3 stages
SELECT a.id, b.id, c.id FROM keysl a JOIN keysr b ON a.i32 = b.i32 JOIN keysl c ON b.i32 = c.i32 WHERE a.id < 100;
-- 3 stages
SELECT a.id, b.id, c.id FROM keysl a LEFT JOIN keysr b ON a.i32 = b.i32 LEFT JOIN keysr c ON b.i64 = c.i64;
-- 5 stages
SELECT a.id, b.id, c.id FROM keysl a FULL JOIN keysr b ON a.i32 = b.i32 FULL JOIN keysl c ON b.i32 = c.id;
-- # keys of different types are equal, but their hashes differ
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.i32 = b.f64;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.f32 = b.f64;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.i8 = b.i64;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.u8 = b.i32;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.d9 = b.d30;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.d9 = b.i64;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.d30 = b.f64;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.s = b.i32;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.day = b.ts;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.ts = b.tz;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.ts = b.ns;
-- 2 stages
SELECT a.id, b.id FROM keysl a JOIN keysr b ON a.li = b.li AND a.st = b.st;
-- 2 stages
SELECT a.id, b.id FROM keysl a LEFT JOIN keysr b ON a.i64 = b.f32 AND a.day = b.day;
-- 4 stages
SELECT a.id, a.i64 IN (SELECT f64 FROM keysr), a.day IN (SELECT ts FROM keysr), a.f32 NOT IN (SELECT d9 FROM keysr) FROM keysl a;
-- 2 stages
SELECT a.id FROM keysl a WHERE a.i32 NOT IN (SELECT i64 FROM keysr);
-- # NaN equals NaN, -0.0 equals 0.0
-- 2 stages
SELECT a.id, b.id, a.d, b.d FROM floatsl a JOIN floatsr b ON a.d = b.d;
-- 2 stages
SELECT a.id, b.id, a.d, b.f FROM floatsl a JOIN floatsr b ON a.d = b.f;
-- 3 stages
SELECT a.id, b.id, a.f FROM floatsl a FULL JOIN floatsr b ON a.f = b.f AND a.id = b.id;
-- 2 stages
SELECT a.id, a.d IN (SELECT f FROM floatsr) FROM floatsl a;
-- # joins with nothing
-- 2 stages
SELECT d.label, e.b FROM dims d LEFT JOIN empties e ON d.k = e.a;
-- 2 stages
SELECT d.label, e.b FROM dims d JOIN empties e ON d.k = e.a;
-- 3 stages
SELECT d.label, e.b FROM empties e FULL JOIN dims d ON d.k = e.a;
-- 4 stages
SELECT d.k, d.k IN (SELECT a FROM empties), d.k NOT IN (SELECT a FROM empties), (SELECT max(a) FROM empties) FROM dims d;
-- 2 stages
SELECT d.label FROM dims d, empties;
-- 2 stages
SELECT f.id, e.b FROM facts f LEFT JOIN (SELECT * FROM dims WHERE false) d ON f.k = d.k LEFT JOIN empties e ON true WHERE f.id < 20;
-- # correlated subqueries and lateral
-- 10 stages
SELECT d.label, (SELECT count(*) FROM facts f WHERE f.k = d.k), (SELECT max(f.x) FROM facts f WHERE f.k = d.k AND f.g > d.kind) FROM dims d;
-- 3 stages
SELECT d.label FROM dims d WHERE d.w < (SELECT avg(f.x) FROM facts f WHERE f.k = d.k);
-- 3 stages
SELECT a.x, (SELECT string_agg(b.y, ',' ORDER BY b.y) FROM setb b WHERE b.x = a.x) FROM seta a;
-- 5 stages
SELECT f.id, (SELECT label FROM dims d WHERE d.k = f.k AND d.kind < 4) FROM facts f WHERE f.id < 1000;
-- # a scalar subquery of several rows
-- 2 stages | fails: More than one row
SELECT f.id, (SELECT label FROM dims d WHERE d.k = f.k) FROM facts f;
-- 3 stages
SELECT (SELECT max(id) FROM facts), (SELECT label FROM dims WHERE k = 6), (SELECT label FROM dims WHERE k = -1);
-- 6 stages
SELECT d.label, t.id, t.x FROM dims d, LATERAL (SELECT f.id, f.x FROM facts f WHERE f.k = d.k ORDER BY f.x DESC, f.id LIMIT 2) t;
-- 6 stages
SELECT d.label, t.n, t.m FROM dims d LEFT JOIN LATERAL (SELECT count(*) AS n, min(id) AS m FROM facts f WHERE f.k = d.k AND f.g = d.kind) t ON t.n > 1;
-- 8 stages
SELECT a.x, t.v FROM seta a, LATERAL (SELECT a.x + b.x AS v FROM setb b WHERE b.y = a.y UNION ALL SELECT a.x) t;
-- 9 stages
SELECT o.label FROM dims o WHERE EXISTS (SELECT 1 FROM facts f WHERE f.k = o.k AND EXISTS (SELECT 1 FROM dims e WHERE e.kind = f.g AND e.w > o.w));
-- 9 stages
SELECT a.x FROM seta a WHERE (SELECT count(*) FROM setb b WHERE b.x = a.x) > 1 OR EXISTS (SELECT 1 FROM setb c WHERE c.y = a.y AND c.x IS NULL);
-- # skew: one key holds most rows
-- 4 stages
SELECT count(*), sum(a.x) FROM facts a JOIN (SELECT k, count(*) AS c FROM facts GROUP BY k) b ON a.k = b.k;
-- 3 stages
SELECT count(*) FROM (FROM facts WHERE id < 2000) a JOIN (FROM facts WHERE id >= 19000) b ON a.k = b.k;
-- # joined by values of 5 MB, and by many columns
-- 2 stages
SELECT a.id, b.id, length(a.s) FROM '@/long/l.parquet' a JOIN '@/long/l.parquet' b ON a.s = b.s;
-- 3 stages
SELECT count(*), sum(a.c599) FROM '@/wide/*.parquet' a JOIN '@/wide/*.parquet' b USING (c1, c2, c3, c4, c5, c300);
-- 2 stages
SELECT a.*, b.* FROM dims a JOIN dims b ON a.k = b.k AND a.label <> b.label;
-- 3 stages
SELECT u.id, count(*) FROM (SELECT id, unnest(l) AS v FROM nested) u JOIN dims d ON u.v = d.k GROUP BY u.id;
