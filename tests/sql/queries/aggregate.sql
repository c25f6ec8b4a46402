-- SPDX-License-Identifier: Apache-2.0
-- # aggregates: in two steps and whole, DISTINCT, FILTER, ORDER BY inside, grouping sets, empty inputs
-- 2 stages
SELECT count(*), count(k), sum(k), min(k), max(k), avg(k), sum(price), avg(price), min(big), max(big), sum(big) FROM facts;
-- 2 stages
SELECT k, count(*), count(s), sum(g), min(s), max(s), avg(x), sum(x), sum(price), avg(price), min(ts), max(day) FROM facts GROUP BY k;
-- 2 stages
SELECT s, g, count(*), sum(x), bool_and(ok), bool_or(ok), bit_and(id), bit_or(id), bit_xor(id) FROM facts GROUP BY s, g;
-- 2 stages
SELECT g, sum(d), min(d), max(d), avg(d) FROM facts WHERE NOT isnan(d) AND NOT isinf(d) GROUP BY g;
-- 2 stages
SELECT g, sum(d), min(d), max(d) FROM facts GROUP BY g;
-- 2 stages
SELECT g, var_samp(x), var_pop(x), stddev(x), stddev_pop(x), covar_pop(x, k), corr(x, k), regr_slope(x, k), regr_intercept(x, k), regr_r2(x, k), skewness(x), kurtosis(x), sem(x) FROM facts GROUP BY g;
-- 2 stages
SELECT var_samp(x), stddev_pop(x), covar_samp(x, g), corr(x, g), regr_count(x, k), regr_avgx(x, k), skewness(x), kurtosis_pop(x) FROM facts;
-- 2 stages
SELECT g, product(1 + x / 1e6), geomean(x + 1), entropy(k), fsum(x), kahan_sum(x), favg(x) FROM facts GROUP BY g;
-- 2 stages
SELECT g, arg_min(id, ts), arg_max(name, ts), arg_min(id, x * 100000 + id), max(id, 3), min(id, 2), arg_max(id, id, 2) FROM facts GROUP BY g;
-- 2 stages
SELECT arg_min(id, ts), arg_max(name, ts), arg_max(s, id), arg_max_null(s, id), min_by(id, big), max_by(id, big) FROM facts;
-- # all the same value in a group: any row does
-- 2 stages
SELECT k, any_value(k), first(k), last(k) FROM facts GROUP BY k;
-- 2 stages
SELECT g, median(x), quantile_cont(x, 0.25), quantile_disc(id, [0.1, 0.9]), mad(x), percentile_cont(0.4) WITHIN GROUP (ORDER BY x DESC) FROM facts GROUP BY g;
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT median(id), quantile_disc(s, 0.5), quantile_cont(ts, 0.3), mode(k) FROM facts;
-- 2 stages
SELECT g, list(id ORDER BY id DESC), string_agg(name, '|' ORDER BY id), first(s ORDER BY id), last(s ORDER BY id NULLS FIRST), array_agg(d ORDER BY id) FROM facts WHERE id % 40 = 1 GROUP BY g;
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT string_agg(name, ', ' ORDER BY id), list(k ORDER BY id), list({'a': id, 'b': s} ORDER BY id DESC) FROM facts WHERE id < 40;
-- 2 stages
SELECT g, list_sort(list(id)), len(string_agg(s)), list_sort(list(DISTINCT k)) FROM facts WHERE id < 900 GROUP BY g;
-- 2 stages
SELECT g, histogram(k), map_from_entries(list((id, s) ORDER BY id)) FROM facts WHERE id < 100 GROUP BY g;
-- 3 stages
SELECT count(DISTINCT k), count(DISTINCT s), sum(DISTINCT g), avg(DISTINCT x), min(DISTINCT name) FROM facts;
-- 2 stages
SELECT g, count(DISTINCT k), count(k), sum(DISTINCT x), sum(x) FROM facts GROUP BY g;
-- 2 stages
SELECT k, count(DISTINCT s), count(DISTINCT day), count(DISTINCT (g, s)) FROM facts GROUP BY k;
-- 2 stages
SELECT g, count(DISTINCT d), count(DISTINCT l), count(DISTINCT st), count(DISTINCT big) FROM facts GROUP BY g;
-- 2 stages
SELECT g, count(DISTINCT k) FILTER (WHERE ok), sum(x) FILTER (WHERE id % 2 = 0), count(*) FILTER (WHERE s = 'n3'), list(id ORDER BY id) FILTER (WHERE id < 100) FROM facts GROUP BY g;
-- 3 stages
SELECT count(*) FILTER (WHERE ok), count(*) FILTER (WHERE k IS NULL), sum(x) FILTER (WHERE false), count(DISTINCT g) FILTER (WHERE x > 3) FROM facts;
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT string_agg(DISTINCT s, ',' ORDER BY s), list(DISTINCT g ORDER BY g DESC) FROM facts;
-- 3 stages
SELECT DISTINCT g, count(*) FROM facts GROUP BY g, k;
-- 3 stages
SELECT count(*) FROM (SELECT k, g FROM facts GROUP BY k, g HAVING count(*) > 50);
-- 3 stages
SELECT g, sum(c) FROM (SELECT g, k, count(*) AS c FROM facts GROUP BY g, k) GROUP BY g;
-- 2 stages
SELECT k, sum(x) FROM facts GROUP BY k HAVING sum(x) > 300 AND count(*) > 2;
-- 2 stages
SELECT id % 3, id // 5000, count(*), sum(price) FROM facts GROUP BY 1, 2;
-- # keys that are nearly unique
-- 1 stages
SELECT id, count(*), sum(x) FROM facts GROUP BY id HAVING id % 50 = 0;
-- # keys: floats with NaN and -0.0, nested, wide
-- 2 stages
SELECT d, count(*), sum(id) FROM floatsl GROUP BY d;
-- 2 stages
SELECT f, count(*), min(id) FROM floatsl GROUP BY f;
-- 2 stages
SELECT l, count(*), sum(id) FROM facts GROUP BY l;
-- 2 stages
SELECT st, count(*), min(id) FROM facts GROUP BY st;
-- 2 stages
SELECT m, ls, count(*) FROM nested GROUP BY m, ls;
-- 2 stages
SELECT big, count(*) FROM facts WHERE id < 3000 GROUP BY big;
-- 2 stages
SELECT tz::DATE, date_trunc('month', ts), day, count(*) FROM facts GROUP BY ALL;
-- 2 stages
SELECT c, u, z, count(*) FROM '@/blobs/b.parquet' GROUP BY c, u, z;
-- 2 stages
SELECT left(s, 10), length(s), count(*), max(length(s)) FROM '@/long/l.parquet' GROUP BY s;
-- 2 stages
SELECT iv, ttz, count(*) FROM '@/times/t.parquet' GROUP BY iv, ttz;
-- 2 stages
SELECT max(s), min(s) FROM '@/long/l.parquet';
-- 2 stages
SELECT d4, sum(d38 % 1000), max(f38), sum(d18), avg(d9) FROM '@/decimals/d.parquet' WHERE id < 60 GROUP BY d4;
-- 2 stages
SELECT id % 3, sum(huge), max(huge), min(huge::HUGEINT), sum(id::HUGEINT) FROM '@/decimals/d.parquet' GROUP BY 1;
-- 2 stages
SELECT dict, count(*), sum(u64), max(u8), avg(half), max(ns), min(t64) FROM '@/arrowed/*.parquet' GROUP BY dict;
-- 2 stages
SELECT a, b, count(*), count(a), sum(c), list(e) FROM '@/allnull/d.parquet' GROUP BY a, b;
-- # empty inputs
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT count(*), sum(a), min(b), avg(c), list(a), string_agg(b, ','), bool_and(a > 1), count(DISTINCT a), median(c) FROM empties;
-- 2 stages
SELECT a, count(*), sum(c) FROM empties GROUP BY a;
-- 2 stages
SELECT count(*), sum(x), max(name) FROM facts WHERE id < 0;
-- 3 stages
SELECT count(*), sum(x), max(name), count(DISTINCT k) FROM facts WHERE name = 'no such name';
-- 2 stages
SELECT k, sum(x) FROM facts WHERE name = 'no such name' GROUP BY k;
-- 2 stages
SELECT count(*), count(a) FROM '@/hollow/*.parquet';
-- 2 stages
SELECT 1 FROM facts WHERE name = 'no such name' HAVING count(*) = 0;
-- # grouping sets
-- 3 stages
SELECT g, ok, count(*), sum(x), grouping(g), grouping(g, ok) FROM facts GROUP BY ROLLUP (g, ok);
-- 3 stages
SELECT g, k, ok, count(*), sum(price) FROM facts GROUP BY CUBE (g, k, ok);
-- 3 stages
SELECT g, s, count(*), grouping_id(g, s) FROM facts GROUP BY GROUPING SETS ((g), (s), (g, s), ());
-- 2 stages | one-task: grouping sets without a common column, with an aggregate that can't be computed in two steps
SELECT g, k, count(DISTINCT s), sum(x) FROM facts GROUP BY GROUPING SETS ((g), (k), ());
-- 2 stages
SELECT k, g, median(x), list(id ORDER BY id) FILTER (WHERE id < 50) FROM facts GROUP BY GROUPING SETS ((k), (k, g));
-- 2 stages | one-task: grouping sets without a common column, with an aggregate that can't be computed in two steps
SELECT g, ok, sum(x) FROM facts GROUP BY GROUPING SETS ((g, ok), (g, ok), ());
-- 3 stages
SELECT a, b, count(*), sum(c) FROM empties GROUP BY ROLLUP (a, b);
-- 2 stages | one-task: grouping sets without a common column, with an aggregate that can't be computed in two steps
SELECT a, count(*) FROM empties GROUP BY GROUPING SETS ((), (a), ());
-- 3 stages
SELECT k, sum(x) AS total, grouping(k) FROM facts WHERE k IS NULL OR k < 10 GROUP BY ROLLUP (k) HAVING grouping(k) = 1 OR total > 100;
-- 2 stages | one-task: aggregate without GROUP BY that can't be computed in two steps
SELECT approx_count_distinct(id), approx_count_distinct(s) FROM facts;
-- 2 stages
SELECT g, approx_count_distinct(k) FROM facts GROUP BY g;
-- 2 stages | shape
SELECT g, approx_quantile(x, 0.5), reservoir_quantile(x, 0.5), approx_top_k(s, 2) FROM facts GROUP BY g;
-- 2 stages
SELECT g, bitstring_agg(k, 0, 60), count_if(ok), sum(id::HUGEINT * 1000000000000000000), list_sum(list(x)) FROM facts GROUP BY g;
-- # random keys can't be evaluated twice
-- 2 stages | one-task: keys that are different at each evaluation
SELECT count(*) > 5, sum(c) FROM (SELECT (random() * 10)::INT AS r, count(*) AS c FROM facts GROUP BY r);
