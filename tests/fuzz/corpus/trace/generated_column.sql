DROP TABLE modules;
CREATE TABLE modules (id INTEGER PRIMARY KEY, class TEXT DEFAULT '', name TEXT AS (printf('%.*c', 500000000, 'x')));
INSERT INTO modules (id) VALUES (1), (2);
