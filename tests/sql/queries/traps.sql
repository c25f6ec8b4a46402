-- SPDX-License-Identifier: Apache-2.0
-- # what distributed engines get wrong (docs/plan-json.md, its end), and values that are equal without looking alike
CREATE OR REPLACE VIEW alike AS SELECT id, CASE id % 4 WHEN 0 THEN INTERVAL 1 MONTH WHEN 1 THEN INTERVAL 30 DAYS WHEN 2 THEN INTERVAL 720 HOURS ELSE NULL END AS iv,
  CASE WHEN id % 2 = 0 THEN '-0.0'::DOUBLE ELSE 0.0::DOUBLE END AS z, CASE WHEN id % 2 = 0 THEN 'nan'::DOUBLE ELSE '-nan'::DOUBLE END AS n,
  CASE WHEN id % 2 = 0 THEN 'Straße' ELSE 'STRASSE' END AS s, CASE WHEN id % 3 = 0 THEN 'é' ELSE 'e' || chr(769) END AS e FROM facts WHERE id < 200;
-- 2 stages
SELECT iv, count(*), sum(id) FROM alike GROUP BY iv;
-- 2 stages
SELECT z, n, count(*) FROM alike GROUP BY z, n;
-- 3 stages
SELECT count(*), sum(a.id) FROM alike a JOIN alike b ON a.iv = b.iv AND a.id = b.id + 1;
-- 3 stages
SELECT count(*) FROM alike a JOIN alike b ON a.z = b.z AND a.n = b.n AND a.id = b.id + 1;
-- 2 stages
SELECT [z], {'a': n}, count(*) FROM alike GROUP BY [z], {'a': n};
-- 2 stages
SELECT e, count(*), min(s), max(s) FROM alike GROUP BY e;
-- 2 stages
SELECT e COLLATE NFC AS k, count(*) FROM alike GROUP BY k;
-- 3 stages
SELECT count(DISTINCT iv), count(DISTINCT z), count(DISTINCT n), count(DISTINCT s COLLATE NOCASE) FROM alike;
-- 2 stages
SELECT DISTINCT iv, z FROM alike;
-- 4 stages
SELECT iv FROM alike INTERSECT SELECT iv + INTERVAL 0 DAYS FROM alike;
-- 3 stages
SELECT id, count(*) OVER (PARTITION BY iv), count(*) OVER (PARTITION BY z, n) FROM alike;
-- # the preserved side is never broadcast, the global NULL is known everywhere
-- 3 stages
SELECT d.k, d.label, f.id FROM dims d LEFT JOIN (SELECT k, max(id) AS id FROM facts GROUP BY k) f ON d.k = f.k;
-- 4 stages
SELECT count(*), count(d.k) FROM (SELECT k FROM dims LIMIT 3) d RIGHT JOIN facts f ON d.k = f.k;
-- 2 stages
SELECT d.label FROM dims d ANTI JOIN (SELECT * FROM facts WHERE id < 40) f ON d.k = f.k AND f.x > 3;
-- 2 stages
SELECT d.k FROM dims d WHERE d.k NOT IN (SELECT k FROM facts WHERE id = 6);
-- 2 stages
SELECT d.k FROM dims d WHERE d.k NOT IN (SELECT k FROM facts WHERE k IS NOT NULL);
-- 2 stages
SELECT d.k, d.w NOT IN (SELECT f.x FROM facts f WHERE f.k = d.k) FROM dims d;
-- 2 stages
SELECT k FROM facts WHERE NOT (k IN (SELECT k FROM dims WHERE kind < 3) OR id > 400);
-- # no row twice, none lost, when the two sides of a join come out of different numbers of tasks
-- 4 stages
SELECT a.k, a.c, b.c, e.c FROM (SELECT k, count(*) AS c FROM facts GROUP BY k) a JOIN (SELECT k, count(*) AS c FROM dims GROUP BY k) b ON a.k = b.k FULL JOIN (SELECT x AS k, count(*) AS c FROM seta GROUP BY x) e ON e.k = a.k;
-- 3 stages
SELECT f.id, g.n FROM facts f JOIN (SELECT g, k, count(*) AS n FROM facts GROUP BY g, k) g ON f.g = g.g AND f.k = g.k WHERE f.id % 97 = 0;
-- 4 stages
SELECT a.g, a.n, b.n FROM (SELECT g, count(*) AS n FROM facts GROUP BY g) a LEFT JOIN (SELECT g::DOUBLE AS g, count(*) AS n FROM facts WHERE g > 2 GROUP BY g) b ON a.g = b.g;
-- 2 stages
SELECT count(*) FROM facts a, facts b WHERE a.id = b.id AND a.g = b.g AND a.k IS NOT DISTINCT FROM b.k;
-- # each branch of a union once; windows and aggregates over all of it
-- 7 stages
SELECT t, count(*), sum(n) OVER (PARTITION BY t) FROM (SELECT g AS t, count(*) AS n FROM facts GROUP BY g UNION ALL SELECT g, count(*) FROM facts WHERE ok GROUP BY g UNION ALL SELECT 1, 1) GROUP BY t, n;
-- 4 stages
SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS r, v FROM (SELECT k, id AS v FROM facts WHERE id < 300 UNION ALL SELECT x, -1 FROM seta UNION ALL SELECT k, -kind - 2 FROM dims WHERE label NOT LIKE '%again') QUALIFY r <= 2 AND k > 40;
-- 3 stages | ordered
SELECT * FROM (SELECT id, 'a' AS t FROM facts WHERE id < 50 UNION ALL SELECT id, 'b' FROM facts WHERE id BETWEEN 25 AND 75) ORDER BY id DESC, t LIMIT 60 OFFSET 10;
-- # a limit that is met stops what nobody else needs: these have 20,000³ rows
-- 3 stages | shape
SELECT a.id, b.id, c.id FROM facts a, facts b, facts c LIMIT 12;
-- 3 stages | shape
SELECT * FROM (SELECT a.id + b.id + c.id AS i FROM facts a, facts b, facts c) WHERE i % 2 = 1 LIMIT 5 OFFSET 3;
-- 3 stages
SELECT count(*) FROM (SELECT a.id FROM facts a, facts b, facts c LIMIT 1000);
-- # batches above 16 MiB, everywhere
-- 2 stages
SELECT id, s FROM '@/long/l.parquet' WHERE id IN (SELECT id FROM '@/long/l.parquet' WHERE id % 2 = 0);
-- 2 stages | ordered
SELECT s, id FROM '@/long/l.parquet' ORDER BY s DESC, id;
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT length(string_agg(s, '' ORDER BY id)), max(s), length(list(s)::VARCHAR) FROM '@/long/l.parquet';
-- 2 stages
SELECT k, string_agg(s, '|' ORDER BY id), list(s ORDER BY id) FROM (SELECT id % 2 AS k, * FROM '@/long/l.parquet') GROUP BY k;
-- # rows of an ORDER BY in the order of ranges, not of completion
-- 3 stages | ordered
SELECT b, count(*) AS c FROM uneven GROUP BY b ORDER BY c, b DESC;
-- 5 stages | ordered | set: sort_one_task_rows=0 | set: partitions=5
SELECT a, b FROM uneven ORDER BY a DESC, b;
-- 5 stages | ordered | set: sort_one_task_rows=0 | set: partitions=6
SELECT 0 AS same, id FROM facts ORDER BY same, id;
-- 5 stages | ordered | set: sort_one_task_rows=0
SELECT k, s, id FROM facts ORDER BY k NULLS FIRST, s DESC NULLS LAST, id;
-- 5 stages | ordered | set: sort_one_task_rows=0 | set: partitions=4
SELECT s FROM '@/long/l.parquet' ORDER BY s;
-- 8 stages | ordered | set: sort_one_task_rows=0
SELECT name FROM facts WHERE id < 3000 UNION ALL SELECT label FROM dims ORDER BY 1;
-- # types: one side of a union or a join is wider
-- 4 stages
SELECT k FROM facts WHERE id < 20 UNION ALL SELECT w FROM dims UNION ALL SELECT 1.25::DECIMAL(10,3);
-- 4 stages
SELECT k::TINYINT AS v FROM facts WHERE k < 100 UNION SELECT 1000000 UNION SELECT NULL;
-- 3 stages
SELECT x::DECIMAL(5,1) FROM facts EXCEPT SELECT w FROM dims;
-- 2 stages
SELECT a.id, b.k FROM '@/decimals/d.parquet' a JOIN dims b ON a.d4 = b.w / 100;
-- 1 stage
SELECT id FROM facts WHERE id IN (1, 5, 17, 400, 401, 402, 403, 404, 405, 406, 5999, 6000, 6001, 19999, 20000, -1, NULL);
-- 1 stage
SELECT id, id IN (1, 5, NULL), g NOT IN (2, 3), s IN ('n3', 'n6', NULL), (g, ok) IN ((1, true), (2, false)) FROM facts WHERE id < 60;
-- 1 stage | whole: this part of the plan can't be written as SQL: the type of a struct whose fields have no names
SELECT id FROM facts WHERE (g, ok) IN (SELECT (kind, true) FROM dims) AND id < 500;
-- 4 stages
SELECT id, x FROM facts WHERE id < 100 AND x > (SELECT avg(x) FROM facts) AND g <> ALL (SELECT kind FROM dims WHERE kind < 2);
-- # the same values by way of a struct, a list, a map
-- 2 stages
SELECT a.id, b.id FROM nested a JOIN nested b ON a.l = b.l AND a.id < b.id;
-- 2 stages
SELECT a.id, b.id FROM nested a JOIN nested b ON a.m = b.m AND a.s IS NOT DISTINCT FROM b.s AND a.id <= b.id;
-- 2 stages
SELECT DISTINCT m, l[1] FROM nested;
-- 3 stages
SELECT ls, count(*) FROM (SELECT ls FROM nested UNION ALL SELECT [{'p': 1, 'q': ['x', NULL]}, NULL, {'p': NULL, 'q': NULL}]) GROUP BY ls HAVING count(*) > 1;
-- # views over views, macros, variables, columns with the same name
CREATE OR REPLACE VIEW outer_view AS SELECT g, count(*) AS n, max(label) AS top FROM facts LEFT JOIN dims USING (k) GROUP BY g;
CREATE OR REPLACE MACRO plus_tax(v, rate := 0.2) AS v * (1 + rate);
CREATE OR REPLACE MACRO of_group(n) AS TABLE SELECT id, x FROM facts WHERE g = n;
-- 3 stages
SELECT * FROM outer_view WHERE n > 10;
-- 5 stages
SELECT o.g, o.n, p.n FROM outer_view o JOIN outer_view p ON o.g = p.g + 1;
-- 2 stages
SELECT g, sum(plus_tax(price)), sum(plus_tax(x, rate := 0.5)) FROM facts GROUP BY g;
-- 2 stages
SELECT count(*), sum(x) FROM of_group(3);
-- 2 stages
SELECT a.*, b.* FROM seta a JOIN seta b USING (x) WHERE a.y < b.y;
-- 1 stage
SELECT id AS "Id", id AS "ID", x AS "a b", k AS "sel""ect", 1 FROM facts WHERE id < 5;
-- 1 stage
SELECT * EXCLUDE (l, st) REPLACE (x * 2 AS x) RENAME (id AS nr) FROM facts WHERE id < 10;
-- 2 stages | one-task: window without a common PARTITION BY
SELECT COLUMNS('^(k|g)$') + 1, min(COLUMNS(* EXCLUDE (l, st))) OVER () IS NULL FROM facts WHERE id < 10;
-- local: it runs nothing
DESCRIBE SELECT id, l, st FROM facts;
-- 1 stage
SELECT * FROM (DESCRIBE facts) WHERE column_name = 'big';
-- # long constant lists
-- 1 stage
SELECT id, unnest(range(-40, 60)), list_contains(range(5000), id) FROM facts WHERE id < 30;
-- 1 stage
SELECT id, (range(-20, 20) || [NULL])::TINYINT[] AS l, [range(35), NULL, []] AS ll, {'a': range(40)::INTEGER[]} AS s FROM facts WHERE id IN (SELECT unnest(range(0, 200, 7)));
