-- Queries for tests/unit/test_plan_distribute.c. Statements end with ";" at a line's end. Lines before one:
--   @ordered          rows must come in this order (only where the ORDER BY is total)
--   @shape            only the number of rows is the same
--   @fails            it fails at run time, both ways
--   @whole            the whole query runs as one task of its own text
--   hash: …           stages and exchanges of that configuration (broadcast never, sort by ranges)
--   broadcast: …      the same with everything broadcast that may be, small sorts
--   whole: …          the same without two-step aggregates, no broadcast
-- @/ stands for a directory of the test.

-- @setup
create type mood as enum('sad', 'ok', 'happy');
create table t as select i::int as a, (i%7)::smallint as k, case when i%11=0 then null else 's'||(i%13) end as b,
  case when i%5=0 then null else i*1.5 end::double as d, timestamp '2020-01-01' + interval (i*7) hour as ts,
  date '2020-01-01'+i::int as dt, (i*1.37)::decimal(12,2) as dec, [i,i+1,null,i*2]::int[] as l, {'x':i::int,'y':'v'||(i%3)} as s,
  (['sad','ok','happy'])[1+i%3]::mood as e, (i%2=0) as bo, i::hugeint*100000000000000000000 as h,
  ('{"a":'||i||'}')::json as js, (i-50)::tinyint as neg from range(100) r(i);
create table t2 as select (i*3)::int as a, (i%5)::smallint as k, 's'||(i%10) as b, i*0.5::double as v,
  timestamp '2020-01-01' + interval (i*11) hour as ts from range(60) r(i);
insert into t2 values (null,null,null,null,null);
create table dup as select i%10 as k, i as v from range(30) r(i);
create table empty(a int, k smallint, b varchar, d double, e mood);
create table nulls as select case when i%3=0 then null else i%4 end as x, i as y from range(24) r(i);
create table edges as select i as a, i+1 as b from range(20) r(i) union all select 3,7;
create table big as select i::bigint as id, (i%97)::int as g, (i*7919%10007)::int as r, 'name'||(i%50) as n, i/3.0::double as x
  from range(20000) q(i);
create table neg as select (i-20)::bigint as a, (i-20)::tinyint as t, i as v from range(40) r(i);
create table moods as select (['sad','ok','happy'])[1+i%3]::mood as e, i as v from range(9) r(i);
create table onerow as select 42 as x;
copy (select a, k, b, d, ts, dec from t where a < 30) to '@/t_0.parquet';
copy (select a, k, b, d, ts, dec from t where a >= 30 and a < 31) to '@/t_1.parquet';
copy (select a, k, b, d, ts, dec from t where a >= 31 and a < 90) to '@/t_2.parquet';
copy (select a, k, b, d, ts, dec from t where a >= 90) to '@/t_3.parquet';
create view pq as select * from read_parquet('@/t_*.parquet');

-- @queries
-- scan, filter, project
-- hash: 1 stage
select a, b from t;
select a + 1, b || 'x', d * 2 from t where k = 3 and b is not null;
select a from t where b = 's' || k::varchar or (a > 90 and d is null);
select a from empty;
-- hash: 1 stage
select 1, 'x';
select * from (values (1,'a'),(2,'b'),(3,null)) v(x,y) where x > 1;
select a from t where false;
select a, e, e > 'ok' from t where e <> 'sad';
select rowid, a from t where rowid < 5;
select a, unnest(l) from t where a < 20;
select unnest([1,2,3]), a from t;
select a, k, b from pq where a > 20 and a < 40;
select sum(a), count(*) from pq;
select k, sum(d) from pq group by k;
select a, filename is not null from read_parquet('@/t_*.parquet', filename = true) where k = 1;
select x.a, y.b from '@/t_0.parquet' x join '@/t_2.parquet' y on x.k = y.k;
select 'a
b' as newline, a from t where b <> 'x
y';
select 'input(0)', '__scan_9__', a from t where b <> 'input(3)';
select s.x, l[1], js->>'a', dec, h, dt, ts from t where s.y = 'v1';
select * from t;
select x.a, r.i from t x, range(x.a) r(i) where x.a < 10;
select a, g from (select 3 as a), generate_series(1, a) q(g);
select i from range(10) r(i) where i % 2 = 0;
select sum(i) from range(1000) r(i);
select a, (select count(*) from unnest(l) u(x) where x > 5) from t;
-- @shape
select a, random() from t;
-- @shape
select a from t using sample 10 rows;
select count(*) from (select * from t using sample 10 rows);
-- hash: 2 stages, SINGLE 1
select count(*), count(distinct id), min(id) >= 0, max(id) < 20000, min(n) is not null from (select id, n from big using sample 500 rows);
select count(*), count(distinct a) from (select a from t using sample 1000 rows);
select count(*) from (select a from t using sample 0 rows);
select count(*) from (select a from t union all select a from t2) using sample 20 rows;
-- a sample over all of the ranges: never out of one task alone
select count(*), avg(id) between 8000 and 12000, count(distinct id % 3) from (select id from big using sample reservoir(2000 rows));
select count(*) <= 100 from t tablesample bernoulli(30%);
select count(*) from t tablesample 100%;

-- aggregates
-- hash: 2 stages, SINGLE 1
-- whole: 2 stages, SINGLE 1
select count(*), sum(a), min(b), max(ts), avg(d), avg(dec), sum(dec), bool_and(bo), bool_or(bo), bit_or(a), bit_and(a), bit_xor(a) from t;
-- hash: 2 stages, HASH 1
-- broadcast: 2 stages, HASH 1
-- whole: 2 stages, HASH 1
select k, count(*), count(d), sum(a), sum(dec), sum(d), avg(a), avg(d), avg(dec), min(b), max(ts), sum(h), avg(k), min(e), max(s) from t group by k;
select count(*), count(a), sum(a), min(a), avg(d), max(b), bool_and(a > 3), first(a), last(b), any_value(d) from empty;
select k, count(*), sum(a) from empty group by k;
select count(*) from t where a < 0;
select count(*), sum(a) from (select * from t where a < 0);
select count(*) filter (where a > 50), sum(a) filter (where d is null), avg(d) filter (where k = 1), count(b) filter (where b like 's1%') from t;
select k, count(*) filter (where a > 50), sum(a) filter (where false), min(a) filter (where k > 9) from t group by k;
select k, avg(h), avg(neg), sum(neg), sum(bo::int), avg(bo::int), product(1 + k), count_if(bo) from t group by k;
select count_if(bo), count_if(bo) filter (where a > 1000) from t;
select count_if(a > 3) from empty;
select k, arg_min(b, a), arg_max(b, a), arg_min(d, a), arg_max(d, a) filter (where bo) from t group by k;
select arg_min(a, d), arg_max(a, d), min_by(b, a), max_by(b, a) from t;
-- each of which a row alone can give
select k, count(*) filter (where bo), count(d) filter (where a > 50), sum(neg) filter (where bo), min(b) filter (where d is null), max(l), min(s),
  avg(dec) filter (where a % 3 = 0), avg(d) filter (where not bo), bool_and(bo) filter (where a > 90), bit_xor(a) filter (where bo), max(e),
  count_if(bo) filter (where a < 40), product(d) filter (where a < 20), arg_min(b, d) filter (where bo), arg_max(d, a) from t group by k;
select k, fsum(d) filter (where bo), favg(d), regr_count(d, a) filter (where bo), regr_avgx(d, neg), regr_avgy(d, neg) filter (where a % 3 > 0),
  skewness(d), kurtosis(a) filter (where not bo), kurtosis_pop(d), arg_min_null(d, a) filter (where bo), arg_max_null(b, d) from t group by k;
select b, e, js, sum(a) filter (where b <> '/* end of groups */'), count(case when b = '/* groups: */' then a end) from t group by b, e, js;
select a, k, count(*), sum(h), max(ts) from (select a, k, h, ts from t union all select a, k, null, ts from t2) group by a, k;
select arg_min(a, b) from empty;
-- hash: 2 stages, SINGLE 1
select first(x) from onerow;
select first(a), last(a), any_value(a) from t where a = 7;
select k, first(k), last(k), any_value(k) from t group by k;
select first(d) from t where a = 10;
select avg(dt), avg(ts) from t;
-- hash: 2 stages, HASH 1
select k, count(distinct b), sum(distinct a), count(*) from t group by k;
-- hash: 3 stages, HASH 1, SINGLE 1
select count(distinct b), count(distinct k), sum(distinct k) from t;
select count(distinct b) filter (where a > 3), count(distinct k), sum(a), count(*), avg(distinct a) from t;
select count(distinct b) filter (where a > 3), sum(distinct a) filter (where a > 3) from t;
select k, count(distinct b) filter (where a > 3), min(a) from t group by k;
-- hash: 3 stages, HASH 1, SINGLE 1
-- whole: 2 stages, SINGLE 1
select count(distinct b) from t;
-- hash: 3 stages, HASH 1, SINGLE 1
select count(distinct x), sum(distinct x), avg(distinct x), count(*), avg(y), sum(y) filter (where x is null) from nulls;
-- hash: 2 stages, HASH 1
select k, count(distinct b), count(b), avg(d), max(a), count(*) filter (where a > 50) from t group by k;
select count(distinct x), sum(distinct x), count(*) from (select a as x from t union all select v from dup);
select k, avg(distinct dec), sum(distinct dec), min(a) from (select k, (a % 5)::decimal(9,2) as dec, a from t) group by k;
select count(distinct a), count(*), avg(d), max(b) from empty;
select k, count(distinct a), count(*) from empty group by k;
select count(distinct e), count(distinct e) + 1, max(e) from t;
select k, count(distinct e) from t group by k;
select g, count(distinct r), sum(x) from big group by g;
select count(distinct g), min(id) from big;
select count(distinct b), sum(a), count(*), avg(d), min(ts) from t;
select count(distinct b), sum(distinct b::int) from (select '7' as b from t);
select count(distinct a) from empty;
select count(distinct x), count(x), count(*) from nulls;
select x, count(distinct y % 3), sum(distinct y % 5) from nulls group by x;
select k, list(a order by a desc), string_agg(b, ',' order by a), first(b order by a), list(b order by b nulls first, a) from t group by k;
select string_agg(b, '|' order by a), list(a order by a) from t;
select string_agg(distinct b, '-' order by b) from t;
select median(a), quantile_cont(d, 0.3), mad(d), max(b), count(distinct k) from t;
select k, median(a), quantile_disc(a, [0.1, 0.9]), stddev(a), approx_count_distinct(b) > 0, histogram(e) from t group by k;
-- hash: 2 stages, HASH 1
select k, bo, sum(a) from t group by k, bo having count(*) > 3;
-- hash: 4 stages, HASH 2, SINGLE 1
select s2, count(*), max(k) from (select k, sum(a) as s2 from t group by k) group by s2 order by s2 limit 3;
-- hash: 3 stages, HASH 2
select k, max(sa) from (select k, bo, sum(a) as sa from t group by k, bo) group by k;
-- hash: 3 stages, HASH 2
select k, count(*) from (select k, a from t group by k, a) group by k;
select a % 10, b, count(*), sum(d) from t group by all;
select e, count(*), min(e), max(e) from t group by e;
select l[1] % 3, count(*) from t group by 1;
select s, count(*) from t group by s;
select d, count(*) from t group by d;
select b, count(*) from t group by b;
-- hash: 2 stages, HASH 1
select id, sum(x) from big group by id;
select g, count(*), sum(x), avg(r), min(n) from big group by g;
select n, count(distinct g) from big group by n;
select count(*) from (select distinct g, r from big);
select sum(a), k from t where false group by k;
select k, grouping(k), count(*), sum(a) from t group by rollup(k);
-- hash: 2 stages, HASH 1
select k, bo, count(*), sum(a), grouping(k), grouping(k, bo) from t group by grouping sets ((k, bo), (k));
-- hash: 3 stages, HASH 2
select k, bo, e, count(*), sum(a), avg(d), grouping_id(k, bo, e) from t group by cube(k, bo, e);
select k, bo, count(*) from t group by grouping sets ((k), (bo), (), (k, bo));
select k as k1, k as k2, count(*) from t group by grouping sets ((k1), (k2));
select k, count(*) from t group by grouping sets ((k), (k));
select sum(a), count(*) from t where false group by grouping sets ((), (k));
select k, sum(a), count(*), count(d) from empty group by grouping sets ((), (k));
select k, first(a) from empty group by cube(k);
select k, bo, count(distinct b) from t group by rollup(k, bo);
select k, bo, count(distinct b) from t group by grouping sets ((k), (k, bo));
select k, bo, e, grouping(k), count(distinct a), sum(a) filter (where d > 3) from t group by grouping sets ((k, bo), (e), ()) having count(*) > 2;
select count(*), sum(s) from (select sum(a) as s from t group by k);
select a::varchar || 'x', count(*) from t group by 1;
select max(a) - min(a), count(*) + 1 from t;
select 1 from t group by ();
select sum(sum(a)) over (), k from t group by k;
-- @shape
select count(*) from t group by random() < 2;
select sum(a + 0.0::float), min(d), max(-d) from t;

-- distinct
-- hash: 2 stages, HASH 1
select distinct k, bo from t;
select distinct b from t;
select distinct * from (select x from nulls);
select distinct k from empty;
select distinct e from t;
-- hash: 2 stages, HASH 1
select distinct k, sum(a) from t group by k;
select distinct on (k) k, a, b from t order by k, a desc;
select k, min(a) from (select distinct on (k) k, a from t order by k, a) group by k;
select count(*) from (select distinct on (k, bo) k, bo, a from t);
select count(*), sum(k) from (select distinct k from t);
select distinct l, s from t;

-- joins
-- hash: 3 stages, HASH 2
-- broadcast: 2 stages, BROADCAST 1
select t.a, t2.b from t join t2 on t.a = t2.a;
select t.a, t2.a from t left join t2 on t.a = t2.a;
select t.a, t2.a, t2.v from t2 left join t on t.a = t2.a and t.k > 2;
select t.a, t2.a from t right join t2 on t.a = t2.a and t2.k > 1;
-- hash: 3 stages, HASH 2
-- broadcast: 3 stages, HASH 2
select t.a, t2.a from t full join t2 on t.a = t2.a;
select t.a, t2.a from t full join t2 on t.a = t2.a and t.k = t2.k;
select t.a from t semi join t2 on t.a = t2.a;
select t.a from t anti join t2 on t.a = t2.a;
select t2.a, t2.b from t2 anti join t on t2.a = t.a;
select t2.k, t2.a from t2 semi join t on t2.k = t.k and t.a > 90;
select x.x, n.y from nulls x join nulls n on x.x = n.x;
select x.x, n.y from nulls x join nulls n on x.x is not distinct from n.x where x.y < 10;
select x.y, n.y from nulls x left join nulls n on x.x is not distinct from n.x and n.y > 20;
select count(*) from nulls x full join nulls n on x.x = n.x;
select x.y from nulls x where x.x in (select k from t2 where k > 1);
select x.y, x.x in (select k from t2) from nulls x;
select x.y, x.x not in (select k from t2 where k is not null) from nulls x;
select x.y from nulls x where x.x not in (select k from t2 where k > 2);
select x.y from nulls x where x.x not in (select k from t2);
select x.y, x.x in (select a from empty), x.x not in (select a from empty) from nulls x;
select a, a in (select a from t2), k not in (select k from t2 where k < 3) from t;
select a, (a, k) in (select a, k from t2), (a, k) not in (select a, k from t2 where a is not null) from t;
select a from t where (a, k) not in (select a, k from t2 where k is not null);
select a, exists(select 1 from t2 where t2.k = t.k and t2.v > t.a) from t;
select a, d in (select v from t2 where t2.k = t.k) from t;
select x.y, x.x in (select n.x from nulls n where n.y % 2 = x.y % 2) from nulls x;
select x.y, x.x in (select n.x from nulls n where n.y = x.y + 1) from nulls x;
select a from t where exists(select 1 from t2 where t2.a = t.a) or k = 3;
select a, k in (select k from t2 where t2.v < t.d) from t;
select a, a > any(select v from t2 where t2.k = t.k), a >= all(select v from t2 where t2.k = t.k) from t;
select a from t where d < any(select v from t2 where t2.k = t.k);
-- hash: 3 stages, SINGLE 1, BROADCAST 1
select a from t where a > (select avg(a) from t2);
select a, (select max(v) from t2) from t;
select (select max(a) from empty), a from t;
-- @fails
select a, (select v from t2) from t;
-- @fails
select a, (select v from t2 where t2.k = t.k) from t;
select a, (select v from t2 where t2.a = t.a) from t;
select a, (select sum(x.v) from t2 x where x.k = t.k and x.v > (select avg(y.v) from t2 y where y.k = x.k and y.a < t.a)) from t;
select a from t where (select count(*) from t2 where t2.k = t.k and exists(select 1 from dup where dup.k = t2.k and dup.v > t.a)) > 3;
select a from t where k in (select k from t2 where t2.a in (select v from dup where dup.k = t.k));
select t1.a from t t1 where t1.a = (select max(x.a) from t x where x.k = t1.k);
select a, (select list(v order by v) from t2 where t2.v < t.d and t2.k = t.k) from t;
select a, (select count(*) from t2 where t2.v < t.d or t2.k = t.k) from t;
select t2.a, z.a, z.d from t2 left join lateral (select t.a, t.d from t where t.k = t2.k and t.a > t2.a order by t.a limit 1) z on true;
select z.s from t2, lateral (select sum(g) s from generate_series(1, t2.a) q(g)) z;
select x.a, y.b from (select 1 a union all select 2) x, lateral (select x.a*10 b union all select x.a*20) y;
-- hash: 3 stages, SINGLE 1, BROADCAST 1
select count(*) from t, t2 where t.a > t2.a;
select t.a, t2.a from t left join t2 on t.a > t2.a + 70;
select t.a, t2.a from t right join t2 on t.a > t2.a + 70 or t2.k = 1 and t.k = 2;
-- hash: 7 stages, FORWARD 4, BROADCAST 2
select t.a, t2.a from t full join t2 on t.a + t2.a = 50 or t2.v > 29;
select t.b, t2.b, t2.v from t2 full join t on t2.v > t.a + 5 and t2.k < t.k;
select t.a, t2.a from t join t2 on t.a between t2.a - 3 and t2.a;
select t.a, t2.a, t2.v from t left join t2 on t.a > t2.v and t.a <= t2.a and t.k <> t2.k;
select t.a, t2.a from t2 right join t on t2.ts > t.ts and t2.ts < t.ts + interval 2 day;
select t.a from t semi join t2 on t.a + t2.a = 50 or t2.v > 29 and t.k = 1;
select t.a from t anti join t2 on t.a + t2.a = 50 or t2.v > 29.4 and t.k = 1;
select t.a from t anti join t2 on t.a > t2.a and t.k = t2.k;
select count(*) from dup x, dup y;
select count(*) from dup x, onerow y, t z;
select t.a, v.y from t join (values (1,'a'),(2,'b'),(null,'c')) v(x,y) on t.k = v.x;
select v.y, t.a from (values (1,'a'),(2,'b'),(99,'c')) v(x,y) left join t on t.k = v.x;
select v.x, t.a from (values (1),(2),(99)) v(x) full join t on t.a = v.x;
select v.x from (values (1),(2),(200)) v(x) anti join t on t.a = v.x;
select count(*) from range(50) r(i) join t on t.a = r.i;
select n.v, m.v from neg n join neg m on n.a = m.t;
select n.v, m.v from neg n join neg m on n.t = m.a and n.v = m.v;
select n.t, sum(m.v) from neg n join neg m on n.t = m.a group by n.t;
select count(*) from t join t2 on t.d = t2.v;
select count(*) from t join big on t.a::double = big.x;
select x.v, y.v from moods x join moods y on x.e = y.e;
select x.v, t.a from moods x join t on x.e = t.e and t.a < 30;
select x.e, count(*) from moods x join t on x.e = t.e group by x.e;
select x.v from moods x join (values ('sad'),('happy')) v(n) on x.e::varchar = v.n;
select t.a, t2.v from t asof join t2 on t.k = t2.k and t.ts >= t2.ts;
select t.a, t2.v from t asof left join t2 on t.k = t2.k and t.ts >= t2.ts;
select t.a, t2.a from t asof join t2 on t.ts >= t2.ts;
select t.a, t.b, t2.a from t asof left join t2 on t.a < t2.a;
-- hash: 1 stage
select t.a, dup.v from t positional join dup;
-- hash: 5 stages, HASH 4
select t.a, x.v, y.v from t join t2 x on t.a = x.a join t2 y on x.k = y.k and y.v < 2;
-- hash: 3 stages, HASH 2
select t.a, x.v, y.v from t join t2 x on t.a = x.a join t2 y on t.a = y.a;
-- hash: 3 stages, HASH 2
select t.k, count(*), sum(v) from t join t2 on t.k = t2.k group by t.k;
-- hash: 3 stages, HASH 2
select t2.k, count(*) from t join t2 on t.k = t2.k group by t2.k;
select t2.k, count(*) from t left join t2 on t.a = t2.a group by t2.k;
select t2.a, count(*) from t left join t2 on t.a = t2.a group by t2.a;
select t.a, count(*) from t full join t2 on t.a = t2.a group by t.a;
select t.a, row_number() over (partition by t.a order by t2.v) from t join t2 on t.a = t2.a;
select t.a, x.s from t join (select k, sum(v) s from t2 group by k) x on t.k = x.k;
select x.k, y.k, x.s, y.s from (select k, sum(v) s from t2 group by k) x full join (select k, sum(a) s from t group by k) y on x.k = y.k;
select count(*) from t a, t b, t c where a.k = b.k and b.k = c.k and a.a < b.a;
select t.a from t join empty on t.a = empty.a;
select t.a, empty.b from t left join empty on t.a = empty.a;
select empty.a, t.a from empty left join t on t.a = empty.a;
select t.a, empty.b from t full join empty on t.a = empty.a;
select count(*) from t, empty;
select g, count(*), sum(b.x) from big b join t on b.g = t.a where t.k < 3 group by g;
select b1.n, count(*) from big b1 join big b2 on b1.id = b2.r where b2.g = 5 group by b1.n;
-- @shape
select count(*) from t join t2 on t.a = floor(random() * 0) + t2.a;
select t.a from t join t2 using (a) join dup on dup.k = t2.k where dup.v > 3 and t.d < 100;

-- set operations
-- hash: 3 stages, FORWARD 2
select a from t union all select a from t2;
select a, 'x' from t union all select 1, 'y' union all select v, 'z' from dup;
-- hash: 3 stages, HASH 2
select k, count(*) from (select k from t union all select k from t2) group by k;
-- hash: 3 stages, SINGLE 2
select count(*), sum(a) from (select a from t union all select a from t2 where k = 1);
-- hash: 3 stages, HASH 2
select a from t union select a from t2;
select k from t union select k from t2 union select 77;
select a, b from t union all by name select b, a, v from t2;
select a from t where a < 10 union all (select a from t2 order by a desc nulls last limit 3);
-- hash: 3 stages, HASH 2
select a from t except select a from t2;
select k from t2 except all select k from t;
select x from nulls except select k from t;
select x from nulls intersect select k from t2;
select x from nulls intersect all select k from t2;
select a, k from t intersect select a, k from t2;
select e from t intersect select e from moods;
select k from t except select k from empty;
select k from empty union all select k from t;
select x, count(*) from (select a x from t union all select v from dup) join t2 on x = t2.a group by x;
select 1 x union all select 2 union all select 2;
select count(*) from (select * from (select a from t union all select v from dup) where a > 5);
select x.a, y.a from (select a from t union all select a from t2) x join (select a from t2 union all select v from dup) y on x.a = y.a;
-- each part of a union is joined where it is
-- broadcast: 4 stages, HASH 2, BROADCAST 1
select x.k, count(*), sum(t2.v) from (select a, k from t union all select v, k from dup) x join t2 on x.k = t2.k group by x.k;
-- broadcast: 4 stages, FORWARD 2, BROADCAST 1
select x.a, x.k from (select a, k from t where a > 7 union all select v, k from dup) x where x.k not in (select k from t2 where k is not null and v < 2);
select x.a, y.b from (select a, k from t union all select v, k from dup union all select 5, 2) x left join t2 y on x.k = y.k and y.v > 3;
select x.a, y.c from (select a, k from t union all select v, k from dup) x join (values (1, 'x'), (2, 'y'), (null, 'z')) y(k, c) on x.k = y.k;
select x.a, x.k in (select k from t2) from (select a, k from t union all select y, x from nulls) x;

-- order, top-n, limit
-- @ordered
-- hash: 5 stages, FORWARD 1, RANGE 1, SINGLE 1, BOUNDS 1
-- broadcast: 2 stages, SINGLE 1
select a, b from t order by b nulls first, a desc;
-- @ordered
select a, d from t order by d desc nulls last, a;
-- @ordered
select a, d from t order by d asc nulls first, a desc;
-- @ordered
select e, a from t order by e desc, a;
-- @ordered
select id, n, r from big order by n, r, id;
-- @ordered
select g from big order by g;
-- @ordered
select s, l from t order by s, l;
-- @ordered
select a * 2 as z, b from t where k <> 2 order by -a;
-- @ordered
select k, sum(a) from t group by k order by 2 desc, 1;
-- @ordered
select a from t union all select a from t2 order by a nulls last;
-- @ordered
select * from empty order by a;
-- @ordered
select a from t where a < 2 order by a;
-- @ordered
select 1 as x union all select 3 union all select 2 order by x;
-- @ordered
-- hash: 2 stages, SINGLE 1
select a, b from t order by a desc limit 7;
-- @ordered
select a from t order by d desc nulls last, a limit 7 offset 3;
-- @ordered
select a from t order by a offset 95;
-- @ordered
select a from t order by a limit 10 offset 200;
-- @ordered
select a from t order by a limit 0;
-- @ordered
select id from big order by r desc, id limit 5000 offset 100;
-- @ordered
select id from big order by r desc, id limit 19000;
-- @ordered
select a from (select a from t order by a desc limit 10) where a % 2 = 0 order by a;
-- @ordered
select a from t order by a limit 10%;
-- @ordered
select a from t order by a limit (select 5);
-- @ordered
select b, list(a) from (select a, b from t order by a) group by b order by b;
select list(a) from (select a from t order by a);
select first(a), last(a) from (select a from t order by a desc);
select string_agg(b, ',') from (select b from t where b is not null order by a);
select sum(a) from (select a from t order by a limit 10);
-- @shape
select a from t limit 5;
select count(*) from (select a from t limit 5 offset 3);
select count(*) from (select a from t offset 90);
select count(*) from (select a from t limit 10%);
select count(*) from (select a from t limit (select max(k) from t));
select count(*) from (select a from empty limit 5);
-- @shape
select a from t order by random() limit 3;
-- @shape
select a from t order by random();
(select a from t order by a limit 3) union all (select a from t2 order by a desc nulls last limit 3);
-- @ordered
select t.a, t2.v from t join t2 on t.a = t2.a order by t2.v desc limit 5;
-- @ordered
select a from t order by (select max(v) from t2 where t2.k = t.k) nulls first, a;

-- window
-- hash: 2 stages, HASH 1
select a, k, sum(a) over (partition by k order by a), rank() over (partition by k order by d desc nulls last), row_number() over (partition by k order by a) from t;
-- hash: 8 stages, FORWARD 2, RANGE 1, SINGLE 2, BROADCAST 1, BOUNDS 1
-- broadcast: 2 stages, SINGLE 1
select a, row_number() over (order by a), sum(a) over (order by a) from t;
-- hash: 5 stages, FORWARD 1, HASH 1, SINGLE 1, BROADCAST 1
select a, count(*) over (), sum(a) over (partition by k) from t;
select a, sum(a) over (order by dt range between interval 3 day preceding and current row), count(d) over (order by dt range between interval 3 day preceding and current row) from t;
select a, b, first_value(a) over (order by a desc range between 10 preceding and 3 following exclude current row), list(b) over (order by a desc range between 1 preceding and 3 following) from t;
select a, count(*) over (order by d range between 2.5 preceding and 7 following exclude ties), sum(k) over (order by k, bo groups between 1 preceding and 1 following) from t;
select a, k, rank() over (order by k), dense_rank() over (order by k), percent_rank() over (order by k), cume_dist() over (order by k) from t;
select a, b, rank() over (order by b desc nulls first), dense_rank() over (order by b desc nulls first), count(b) over (order by b desc nulls first), max(b) over (order by b desc nulls first) from t;
select a, d, sum(d) over (order by d nulls first, a), avg(d) over (order by d nulls first, a), min(d) over (order by d nulls first, a), count(*) over (order by d nulls first, a rows unbounded preceding) from t;
select a, sum(dec) over (order by k), avg(dec) over (order by k), sum(h) over (order by k), bool_and(bo) over (order by k), bool_or(bo) over (order by k), sum(neg) filter (where bo) over (order by k) from t;
select a, ntile(1) over (order by a), ntile(7) over (order by a), ntile(100) over (order by a), ntile(150) over (order by a desc) from t;
select a, lag(a) over (order by a), lag(b, 3) over (order by a), lead(a, 2, -1) over (order by a), lead(d, 60) over (order by a), lag(k, 40, 9::smallint) over (order by a) from t;
select a, first_value(b) over (order by a), last_value(a) over (order by k, a), last_value(k) over (order by k), first_value(d) over (order by a desc rows between unbounded preceding and unbounded following) from t;
select a, last_value(a) over (order by a rows between unbounded preceding and unbounded following), sum(a) over (order by a rows between unbounded preceding and unbounded following) from t;
select a, sum(a) over (), avg(d) over (), min(b) over (), max(ts) over (), count(*) filter (where bo) over (), arg_max(b, a) over () from t;
select a, a * 100.0 / sum(a) over () as share from t order by share, a;
-- hash: 9 stages, FORWARD 2, HASH 1, RANGE 1, SINGLE 2, BROADCAST 1, BOUNDS 1
select a, rank() over (partition by k order by a), row_number() over (order by a), sum(a) over (partition by k) from t;
select a, rank() over (order by a), rank() over (order by b, a), sum(a) over (), lead(a) over (order by b, a) from t;
select x, row_number() over (order by x, y), rank() over (order by x), count(x) over (order by x), sum(x) over (order by x) from nulls;
select a, row_number() over (order by a), sum(a) over (order by a), lag(a) over (order by a), sum(a) over () from empty;
select x, row_number() over (order by x), rank() over (order by x), lead(x) over (order by x), sum(x) over (), ntile(2) over (order by x) from onerow;
select v, rank() over (order by one), sum(v) over (order by one), count(*) over (order by one), dense_rank() over (order by one) from (select v, 1 as one from dup);
select a, row_number() over (order by a), rank() over (order by a) from (select a from t union all select a from t2 where a is not null and a > 99);
select e, a, rank() over (order by e), max(e) over (order by e, a), lag(e) over (order by e, a) from t;
select s, l, rank() over (order by s), lag(l) over (order by a), first_value(s) over (order by a) from t;
select id, row_number() over (order by r, id), sum(g) over (order by r, id), rank() over (order by g), lead(id, 5) over (order by r, id) from big;
select count(*), min(rn), max(rn), sum(rn), count(distinct rn) from (select row_number() over () as rn from big);
select count(*), sum(rn), max(s) from (select row_number() over () as rn, sum(a) over (rows unbounded preceding) as s from t);
select g, sum(id), rank() over (order by sum(id)), sum(sum(id)) over () from big group by g;
-- @ordered
-- hash: 8 stages, FORWARD 2, RANGE 1, SINGLE 2, BROADCAST 1, BOUNDS 1
select a, row_number() over (order by b, a) as rn from t order by b, a;
-- @ordered
select k, a, rank() over (order by k desc) as r from t order by k desc, a;
-- two steps are for what is known: the others are one task
-- hash: 2 stages, SINGLE 1
select a, sum(a) over (order by a rows between 2 preceding and current row), nth_value(a, 3) over (order by a) from t;
select a, list(a) over (order by a), lag(b ignore nulls) over (order by a), rank() over () from t;
select a, sum(a) over (order by a desc rows between current row and unbounded following) from t;
select a, count(*) over (partition by k, bo), sum(a) over (partition by k order by a), max(b) over (partition by bo, k) from t;
select a, lag(a) over (partition by k order by a), lead(b, 2, 'none') over (partition by k order by a), first_value(a) over (partition by k order by a desc) from t;
select k, a from t qualify row_number() over (partition by k order by a desc) <= 2;
select x, count(*) over (partition by x) from nulls;
select a, sum(a) over (partition by a % 5 order by a rows between 1 preceding and 1 following) from t;
-- hash: 3 stages, HASH 2
select k, s, rank() over (partition by k order by s) from (select k, bo, sum(a) as s from t group by k, bo);
select count(*) over (partition by k) from empty;
select a, ntile(3) over (partition by bo order by a), avg(d) over (partition by bo) from t;
select row_number() over (order by a) rn from empty;

-- CTE, recursive CTE, pivot
-- hash: 4 stages, FORWARD 1, HASH 2
with x as materialized (select a, k from t where a > 10) select x1.a, x2.a from x x1 join x x2 on x1.a = x2.a + 1;
with x as materialized (select k, sum(a) s from t group by k) select x1.k, x2.s from x x1 join x x2 on x1.k = x2.k + 1;
with x as materialized (select k, sum(a) s from t group by k) select k, max(s) from x group by k union all select k, min(s) from x group by k;
with x as materialized (select a from t where a < 5), y as materialized (select a*2 a from x) select * from y union all select * from x union all select a + 100 from y;
with x as materialized (select count(*) c from t) select a from t, x where a < c / 20 union all select c from x;
with x as materialized (select 7 as v) select a from t, x where a = v union all select v from x;
-- @ordered
with x as materialized (select a from t) select * from x order by a;
with x as materialized (select a, random() r from t) select count(*) from x x1 join x x2 on x1.a = x2.a and x1.r = x2.r;
with x as materialized (select a from t union all select a from t2) select count(*) from x x1 join x x2 using (a);
with x as (select *, row_number() over (order by a) rn from t) select a.a, b.a from x a left join x b on a.rn = b.rn + 1;
with x as materialized (select e, a from t) select x1.a, x2.a from x x1 join x x2 on x1.e = x2.e and x1.a = x2.a;
-- hash: 1 stage
with recursive r(n) as (select 1 union all select n+1 from r where n < 10) select * from r;
with recursive r(a, b, lvl) as (select a, b, 1 from edges where a = 0 union select r.a, e.b, lvl+1 from r join edges e on r.b = e.a where lvl < 15) select * from r;
with recursive r(n) as (select a from t2 where a < 10 union select n+1 from r where n < 12) select r.n, count(*) from r join t on t.a = r.n group by r.n;
with x as materialized (select a as p, b as q from edges), recursive_ as (select 1) select count(*) from x join x y on x.p = y.q;
with recursive x as materialized (select a, b from edges), r(n) as (select 0 union select x.b from r join x on r.n = x.a) select count(*), (select count(*) from x) from r;
with recursive r(n, s) as (select 1, 'a' union all select n+1, s||n from r where n < 5), q as (select * from r) select q.n, (select max(t.a) from t where t.k = q.n) from q;
with recursive r(a, d) using key (a) as (select 0, 0 union select e.b, r.d+1 from r join edges e on r.a = e.a) select * from r;
pivot t on e in ('sad', 'ok') using sum(a), count(*) group by k;
pivot (select a%25 p, k, d from t) on p in (0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24) using sum(d) group by k;
unpivot (select a, k::int k, d::int d from t) on k, d into name n value v;
summarize t2;
-- @whole
select count(*) >= 0 from duckdb_tables();
select count(*) from glob('@/t_*.parquet');
select count(*) from parquet_metadata('@/t_0.parquet');
