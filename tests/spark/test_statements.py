"""What servers write to their log that is no change of the table's rows."""

from __future__ import annotations

from pathlib import Path

from canal.testing.servers import ThrowawayServer
from tests.support.engine import Engine, options

#: Statements that leave the rows of ``orders`` alone, run one after the other in one session.
HARMLESS = """
CREATE USER 'a1'@'%' IDENTIFIED BY 'Se3cret!'
ALTER USER 'a1'@'%' IDENTIFIED BY 'Other3!'
GRANT SELECT, INSERT ON {db}.orders TO 'a1'@'%'
REVOKE INSERT ON {db}.orders FROM 'a1'@'%'
SET PASSWORD FOR 'a1'@'%' = {password}
CREATE ROLE r1
GRANT r1 TO 'a1'@'%'
SET DEFAULT ROLE r1 {to} 'a1'@'%'
DROP ROLE r1
RENAME USER 'a1'@'%' TO 'b1'@'%'
DROP USER 'b1'@'%'
FLUSH TABLES
FLUSH PRIVILEGES
FLUSH STATUS
ANALYZE TABLE orders
OPTIMIZE TABLE orders
CHECK TABLE orders
CREATE TABLE old (id INT PRIMARY KEY, note TEXT) ENGINE = MyISAM
REPAIR TABLE old
CREATE VIEW v AS SELECT * FROM orders
ALTER VIEW v AS SELECT id FROM orders
CREATE OR REPLACE VIEW v AS SELECT note FROM orders
DROP VIEW v
CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x + 1
ALTER FUNCTION f COMMENT 'of orders'
CREATE PROCEDURE p() INSERT INTO old VALUES (7, 'p')
ALTER PROCEDURE p SQL SECURITY INVOKER
CALL p()
CREATE FUNCTION g() RETURNS INT BEGIN INSERT INTO old VALUES (8, 'g'); RETURN 1; END
SELECT g()
DO f(1)
DROP FUNCTION g
DROP FUNCTION f
DROP PROCEDURE p
CREATE TRIGGER tr AFTER INSERT ON orders FOR EACH ROW SET @x = 1
DROP TRIGGER tr
CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DO DELETE FROM orders
ALTER EVENT e DISABLE
DROP EVENT e
CREATE INDEX i ON orders (note)
DROP INDEX i ON orders
ALTER TABLE orders ADD INDEX j (note), COMMENT 'DROP PARTITION p1'
ALTER TABLE orders RENAME INDEX j TO k, ALGORITHM = INPLACE
ALTER TABLE orders DROP INDEX k
ALTER TABLE orders ENGINE = InnoDB
ALTER TABLE orders FORCE
ALTER TABLE orders AUTO_INCREMENT = 100
CREATE TABLE other LIKE orders
INSERT INTO other VALUES (1, 'a')
INSERT INTO other SELECT id + 1, note FROM other
UPDATE other SET note = 'b'
REPLACE INTO other VALUES (1, 'c')
DELETE FROM other WHERE id = 1
ALTER TABLE other ADD more INT
ALTER TABLE other PARTITION BY HASH (id) PARTITIONS 2
TRUNCATE other
RENAME TABLE other TO another
ALTER TABLE another RENAME TO other
CREATE TABLE picked AS SELECT * FROM orders
DROP TABLE other, picked
CREATE TEMPORARY TABLE tmp (id INT)
INSERT INTO tmp VALUES (1)
CREATE TEMPORARY TABLE orders (id INT)
INSERT INTO orders VALUES (1)
TRUNCATE orders
DROP TEMPORARY TABLE orders, tmp
CREATE DATABASE {db}_more
ALTER DATABASE {db}_more CHARACTER SET latin1
CREATE TABLE {db}_more.orders (id INT PRIMARY KEY)
DROP DATABASE {db}_more
ALTER DATABASE {db} CHARACTER SET utf8mb4
CREATE SERVER s1 FOREIGN DATA WRAPPER mysql OPTIONS (HOST '127.0.0.1')
ALTER SERVER s1 OPTIONS (USER 'x')
DROP SERVER s1
BEGIN
INSERT INTO kept VALUES (4)
SAVEPOINT one
INSERT INTO old VALUES (2, 'b')
ROLLBACK TO SAVEPOINT one
RELEASE SAVEPOINT one
ROLLBACK
XA START 'x1'
INSERT INTO kept VALUES (1)
XA END 'x1'
XA PREPARE 'x1'
XA COMMIT 'x1'
XA START 'x2'
INSERT INTO kept VALUES (2)
XA END 'x2'
XA PREPARE 'x2'
XA ROLLBACK 'x2'
XA START 'x3'
INSERT INTO kept VALUES (3)
XA END 'x3'
XA COMMIT 'x3' ONE PHASE
LOCK TABLES orders READ
UNLOCK TABLES
SET GLOBAL max_connections = 200
PREPARE q FROM 'INSERT INTO old VALUES (3, "q")'
EXECUTE q
DEALLOCATE PREPARE q
HANDLER old OPEN
HANDLER old CLOSE
"""
OWN = {
    "mysql": """
CREATE TABLESPACE ts ADD DATAFILE 'ts.ibd'
ALTER TABLESPACE ts RENAME TO ts2
DROP TABLESPACE ts2
CREATE UNDO TABLESPACE un ADD DATAFILE 'un.ibu'
ALTER UNDO TABLESPACE un SET INACTIVE
CREATE RESOURCE GROUP rg TYPE = USER
DROP RESOURCE GROUP rg
INSTALL COMPONENT 'file://component_query_attributes'
UNINSTALL COMPONENT 'file://component_query_attributes'
SET PERSIST max_connections = 200
RESET PERSIST
IMPORT TABLE FROM 'nothing.sdi'
CREATE LIBRARY lib LANGUAGE JAVASCRIPT AS 'export function f() {{}}'
DROP LIBRARY lib
CREATE JSON RELATIONAL DUALITY VIEW jv AS SELECT JSON_DUALITY_OBJECT('_id': id, 'note': note) FROM orders
DROP VIEW jv
ALTER TABLE old SECONDARY_ENGINE = NULL
""",
    "mariadb": """
CREATE SEQUENCE sq
ALTER SEQUENCE sq INCREMENT 5
SELECT NEXT VALUE FOR sq
DROP SEQUENCE sq
CREATE OR REPLACE TABLE other (id INT PRIMARY KEY)
SET STATEMENT max_statement_time = 10 FOR ALTER TABLE other ADD note INT
SET STATEMENT max_statement_time = 10 FOR INSERT INTO other VALUES (1, 1)
ALTER TABLE IF EXISTS nothing ADD x INT
ALTER TABLE other WAIT 5 ADD y INT
RENAME TABLE IF EXISTS nothing TO none
DROP TABLE IF EXISTS nothing
CREATE OR REPLACE USER 'c1'@'%' IDENTIFIED BY 'x'
CREATE OR REPLACE ROLE r2 WITH ADMIN CURRENT_USER
GRANT PROXY ON 'c1'@'%' TO CURRENT_USER()
DROP ROLE r2
DROP USER 'c1'@'%'
CREATE OR REPLACE FUNCTION ag(x INT) RETURNS INT RETURN x
DROP FUNCTION IF EXISTS ag
SET sql_mode = 'ORACLE'
CREATE PACKAGE pk AS FUNCTION a RETURN INT; END
CREATE PACKAGE BODY pk AS FUNCTION a RETURN INT AS BEGIN RETURN 1; END; END
DROP PACKAGE BODY pk
DROP PACKAGE pk
SET sql_mode = DEFAULT
ANALYZE TABLE orders PERSISTENT FOR ALL
BACKUP STAGE START
BACKUP STAGE END
INSTALL SONAME 'nothing'
CREATE TABLE ver (id INT) WITH SYSTEM VERSIONING
ALTER TABLE ver ADD PERIOD FOR nothing (a, b)
DELETE HISTORY FROM ver
ALTER TABLE orders ADD CONSTRAINT c CHECK (id > -1)
ALTER TABLE orders DROP CONSTRAINT c
CACHE INDEX old IN nothing
""",
}


def test_what_servers_log_beside_the_rows_of_the_table_passes(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    server.query(f"CREATE TABLE {database}.kept (id INT PRIMARY KEY)")
    texts = {"mysql": {"password": "'Third3!'", "to": "TO"}, "mariadb": {"password": "PASSWORD('Third3!')", "to": "FOR"}}[
        server.kind
    ]
    own = set(OWN[server.kind].strip().splitlines())
    server.query("SET GLOBAL log_bin_trust_function_creators = 1")
    refused = []
    with Engine(options(server, database, tmp_path)) as engine:
        engine.start()
        engine.step()
        status = "SHOW BINARY LOG STATUS" if server.kind == "mysql" else "SHOW MASTER STATUS"
        journal, offset = server.query(status)[0][:2]
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            for sql in (*HARMLESS.strip().splitlines(), *OWN[server.kind].strip().splitlines()):
                try:
                    cursor.execute(sql.format(db=database, **texts))
                except Exception:
                    refused.append(sql)
            events = cursor.execute(f"SHOW BINLOG EVENTS IN '{journal}' FROM {offset}") and cursor.fetchall()
        server.query(f"INSERT INTO {database}.orders VALUES (1, 'a')")
        assert [row["id"] for row in engine.until(1)] == [1]
    statements = [row[5] for row in events if row[2].startswith("Query") and row[5] not in ("BEGIN", "COMMIT")]
    assert len(statements) > 70
    # A MySQL with GTIDs takes no change of a table without transactions among others.
    assert set(refused) <= own | {"INSERT INTO old VALUES (2, 'b')"}, refused
