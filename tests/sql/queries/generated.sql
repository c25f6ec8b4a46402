-- SPDX-License-Identifier: Apache-2.0
-- # what generated queries found (tests/sql/generate)
-- # a result with structs that have no field names
-- 1 stage | whole: this part of the plan can't be written as SQL: the type of a struct whose fields have no names
SELECT id, row(g, s) AS r FROM facts WHERE id < 20;
-- 1 stage | whole: this part of the plan can't be written as SQL: the type of a struct whose fields have no names
SELECT g, [row(1, 'a', max(tz))] AS r, {'a': row(g)} AS s, map([g], [row(min(id))]) AS m FROM facts GROUP BY g;
-- # the type of nothing but NULL changes place
-- 2 stages | one-task: window without a common PARTITION BY
SELECT lead([], 2 IGNORE NULLS) OVER (ORDER BY x NULLS FIRST) AS l FROM (SELECT TRY_CAST('n1' AS DECIMAL(10,1)) % 3 AS x FROM dims);
-- # ASOF: one side is a constant (statistics)
-- 4 stages
SELECT count(*), sum(f.id) FROM facts f ASOF LEFT JOIN (SELECT DISTINCT w FROM dims) d ON coalesce(CASE WHEN f.id < 0 THEN f.x END, 1.5) < d.w;
