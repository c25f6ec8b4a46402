-- SPDX-License-Identifier: Apache-2.0
-- # Views over the files of tests/lib/files.py, for all files of queries. No queries here.
CREATE OR REPLACE VIEW facts AS SELECT * FROM '@/facts/*.parquet';
CREATE OR REPLACE VIEW dims AS SELECT * FROM '@/dims/*.parquet';
CREATE OR REPLACE VIEW seta AS SELECT * FROM '@/sets/a.parquet';
CREATE OR REPLACE VIEW setb AS SELECT * FROM '@/sets/b.parquet';
CREATE OR REPLACE VIEW setnone AS SELECT * FROM '@/sets/none.parquet';
CREATE OR REPLACE VIEW keysl AS SELECT * FROM '@/keys/l.parquet';
CREATE OR REPLACE VIEW keysr AS SELECT * FROM '@/keys/r.parquet';
CREATE OR REPLACE VIEW floatsl AS SELECT * FROM '@/floats/l.parquet';
CREATE OR REPLACE VIEW floatsr AS SELECT * FROM '@/floats/r.parquet';
CREATE OR REPLACE VIEW empties AS SELECT * FROM '@/empty/*.parquet';
CREATE OR REPLACE VIEW series AS SELECT * FROM '@/series/*.parquet';
CREATE OR REPLACE VIEW probe AS SELECT * FROM '@/series/probe/*.parquet';
CREATE OR REPLACE VIEW nested AS SELECT * FROM '@/nested/*.parquet';
CREATE OR REPLACE VIEW edges AS SELECT * FROM '@/graph/*.parquet';
CREATE OR REPLACE VIEW uneven AS SELECT * FROM '@/uneven/*.parquet';
ATTACH IF NOT EXISTS '@/store.duckdb' AS store (READ_ONLY);
