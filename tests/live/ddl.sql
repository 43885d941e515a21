create table t (id int primary key, a varchar(10) not null default 'x', b text character set utf8mb4)
alter table t add c int
alter table t add column d int first, add e int after id, add (f int, g text), add key (c)
alter table t drop c, drop column d
alter table t modify id bigint unsigned auto_increment, change a aa char(3) charset latin1 after g
alter table t rename column e to ee
alter table t rename column ee to f, rename column f to ee
alter table t add x int after ee, change ee yy int first, modify b varchar(50) after yy
alter table t drop f, add f varchar(3)
alter table t drop primary key, modify id int, add primary key (yy, id)
alter table t rename to t2
alter table t2 rename {b}.t3
alter table {b}.t3 add z int, rename t
rename table t to t4, t4 to t
create table u like t
rename table t to tmp1, u to t, tmp1 to u
rename table t to {b}.t, u to t
alter table t comment 'a, b', engine=innodb row_format=dynamic, algorithm=copy, lock=shared
alter table t order by id
alter table t add index i1 (id), add unique u1 (b(5)), add unique (id), add unique (id)
alter table t drop index id_2, drop key u1
alter table t rename index i1 to i2
create unique index zz on t (yy)
drop index zz on t
create index k1 using btree on t (yy desc) comment 'x' algorithm=inplace lock=none
insert into t () values ()
drop table t, {b}.t
drop table if exists t, nope

create table ty (a tinyint(1) unsigned, b tinyint(1), c int(5) zerofill, d year, e float(20), f float(30), g tinyint unsigned, h smallint, i smallint unsigned, j mediumint, k mediumint unsigned, l int, m integer unsigned, n bigint, o bigint unsigned, p bit, q bit(12), r decimal, s numeric(5), t dec(7,3) unsigned, u fixed, v double precision, w real, x float(7,3), y double(9,2) zerofill, z int signed)
create table ty2 (a bool, b boolean, c int1, d int2, e int3, f int4 unsigned, g int8, h middleint, i float4, j float8, k serial, l date, m time(0), n time(3), o datetime, p datetime(6), q timestamp null, r timestamp(2) not null default '2020-01-01', s year(4))
create table ty3 (a char, b char(0), c character(4), d character varying(5), e varchar(6), f char varying(7), g varcharacter(8), h national char(2), i national varchar(3), j nchar(4), k nvarchar(5), l nchar varchar(6), m nchar varying(7), n national char varying(8), o national character(9), p binary, q binary(5), r varbinary(6), s char byte, t varchar(10) binary, u long, v long varchar, w long varbinary, x tinyblob, y blob, z mediumblob)
create table ty4 (a tinytext, b text, c mediumtext, d longtext, e longblob, f text(10), g text(100), h text(70000), i blob(10), j blob(300), k text(0), l text ascii, m text unicode, n text byte, o char(5) ascii, p varchar(5) byte, q text charset binary, r char(10) charset binary, s varchar(4) character set 'koi8r', t text collate latin1_bin, u text character set utf8mb3 collate utf8mb3_bin binary null, v char(3) binary ascii)
create table ty5 (a enum('a','it''s','x\ny',"dq'\"","back\\s",'tr  ',''), b set('a','b') charset latin1, c enum('ä','x,y)') not null, d set('1') unicode, e enum('a') charset binary)
create table `n😀` (`a😀` int, b😁 int, unique `k😀` (`a😀`), unique k (b😁))
alter table `n?` drop key `k😀`, change `a?` `c😁` bigint
alter table `n😀` rename column `b?` to d, rename `o😀`
drop table `o?`
create table cm (a varchar(5) compressed, b text /*!100301 compressed*/ charset latin1, c blob /*M!100301 compressed=zlib*/)
alter table cm modify a varchar(6), add d varbinary(7) compressed not null first
create table ty6 (a json, b geometry, c point not null, d linestring, e polygon, f multipoint, g multilinestring, h multipolygon, i geometrycollection, j vector(5))
create table ty7 (a uuid, b inet4, c inet6, d json default '{}', e varchar(10) compressed, f blob compressed=zlib, g text compressed, h varchar2(5), i number(5,2), j clob, k raw(9))
create table oc1 (a smallint serial default value, b varchar(10.6), c decimal(19.5), d float(30.3), e bit(5.5), f int(5.5) zerofill, g text(300.5), h year(4.0), i decimal(19.))
create table oc2 (a int(.5), b decimal(.5))
create table oc3 (oc3.a bigint, {a}.oc3.b int, key (a)) stats_sample_pages=50.0
alter table oc3 add oc3.c int, modify oc3.a int, change oc3.b oc3.d bigint
alter table oc3 drop oc3.a, alter oc3.c set default 1
create table oc4 (a year(2), b year(3), c year unsigned zerofill, d time(3.9), e date default {d '2020-01-01'})
create table oc5 (a year unsigned zerofill, b int default 1. not null, c int default 1.e2 not null, d int default -.5)
alter table oc5 stats_sample_pages=50.5, max_rows=1e3 min_rows .5, add e int, auto_increment=5., add f int
alter table oc5 modify d smallint null serial default value first
create table oc6 (a int unique primary key, unique (a), b int serial default value unique)
create table oc7 (a int primary key unique, b varchar(000000000000000000000000000000010), key (b(0000000000000000000000005)))
create table ty8 (a geomcollection, b vector, c point srid 4326, d varchar(10) engine_attribute '{}')
create table ty9 (`select` int, `a b` int, `a``b` int, `a.b` int, date date, time time, timestamp timestamp null, year year, type int, first int, after int, comment int comment 'first', at int, engine int, `1` int, `Ünï` int, period int, system int)

create table d1 (a int default -1, b int default +5, c varchar(5) default 'a' 'b', d bit(3) default b'101', e double default -1.5e-3, f timestamp default current_timestamp on update current_timestamp, g datetime(3) default now(3) on update now(3), h int default (1+2), i varchar(5) default (concat('a',',')), j int default null null, k char(3) default _utf8mb4'x', l blob default (x'00'), m int as (a+1) virtual, n int generated always as (a+2) stored not null, o int check (o > 0), p int constraint pc check (p > 0), q int unique comment 'key', r int default true, s double default .5, t binary(2) default 0x4142)
create table d2 (a int references x (y) on delete set null on update cascade, b int unique key, c int not null unique, d int key, e int)
create table d3 (a int auto_increment, b int, key (a), constraint c1 check (b > 1), constraint check (a > 0), check (a < b))
create table d4 (id int not null auto_increment unique, a int)
create table d5 (a int not null, b int not null, unique x (b), unique y (a))
alter table d5 drop index x
alter table d5 add primary key (b)
alter table d5 drop primary key
create table d6 (a varchar(10) not null, b char(5) not null, unique (a(3)), unique (b(5)))
create table d7 (p int, c int, foreign key (p) references d2 (d) on delete cascade, constraint fk foreign key fk_i (c) references d2 (d))
alter table d7 drop foreign key fk, drop index fk_i
alter table d7 add constraint foreign key (c) references d2 (d) on update no action
alter table d2 drop index b
alter table d2 drop column c
create table d8 (a int invisible, b int default 3 invisible, c int)
alter table d8 modify b int
alter table d8 alter column a set default 5, alter c drop default
alter table d8 alter column c set default (1+1)
alter table d8 alter column c set default 5, alter column a set visible
alter table d8 alter index zz invisible
create table d9 (a int null, primary key (a))
create table d10 (a int, b int, primary key using btree (a, b desc) comment 'x')
create table d11 (a int, b int, unique index u using hash (a), fulltext key (c), c text)
create table d12 (a int primary key) partition by range (a) (partition p0 values less than (10), partition p1 values less than maxvalue)
create table d13 (a int primary key)
alter table d12 exchange partition p0 with table d13
alter table d12 truncate partition p0
alter table d12 drop partition p1
alter table d12 add partition (partition p3 values less than (30))
alter table d12 reorganize partition p3 into (partition p4 values less than (20), partition p5 values less than (30))
alter table d12 add b int partition by hash (a) partitions 3
alter table d12 coalesce partition 1
alter table d12 remove partitioning
alter table d13 add c int, rebuild partition all
truncate table d13
truncate d13
analyze table d13
optimize table d13

create table c1 (a text, b tinytext, c mediumtext, d varchar(20000), e enum('a'), f char(10), g varchar(10) charset utf8mb3, h text charset binary, i json, j text charset utf8mb3, k varchar(9)) charset latin1
alter table c1 convert to character set utf8mb3, drop k
alter table c1 convert to character set utf8mb4, add k text, add l text charset latin1, modify f varchar(20), add m text(100), add n varchar(20000)
alter table c1 convert to charset latin1 collate latin1_bin
alter table c1 default charset utf8mb4, add o text, modify a text
alter table c1 character set = latin1 collate = latin1_german1_ci, add p text
alter table c1 collate utf8mb4_bin
alter table c1 add q varchar(3)
alter table c1 convert to character set default
alter table c1 add r char(3)
alter table c1 modify q varchar(5) collate utf8mb4_general_ci
alter table c1 convert to character set binary, add s text
create table {b}.c2 (a text, b char(3) charset utf8mb4, c char(3) charset default)
create table {b}.c3 (a text, b char(3) collate utf8mb4_bin) default character set utf8mb4
create table {b}.c4 (a text) collate = utf8mb4_bin
alter database {b} character set utf8mb3
create table {b}.c5 (a text)
alter database {b} collate koi8r_bin
create table {b}.c6 (a text)
create table {b}.c7 like c1
use {b}
alter database default character set = latin1
create table c8 (a varchar(3))
use {a}
drop database {b}
create database {b} /*!40100 default character set latin2 */
create table {b}.c9 (a text)
create database if not exists {b} charset utf8mb4
create table {b}.c10 (a text)
drop schema {b}
set collation_server = latin5_turkish_ci
create schema {b}
create table {b}.c11 (a text)
set collation_server = default

set sql_mode = ''
create table big (a varchar(70000), b varbinary(70000), c varchar(20000) charset utf8mb4)
create table big2 (a varbinary(65532))
create table big3 (a varbinary(65533))
create table big4 (a varchar(65533) charset latin1 not null)
create table big5 (a varchar(21844) charset utf8mb3)
create table big6 (a varchar(21845) charset utf8mb3)
create table big7 (a varchar(16383) charset utf8mb4, b text)
alter table big6 convert to character set latin1
create table big8 (a varchar(21844) charset latin1)
alter table big8 convert to character set utf8mb3
create table big9 (a varchar(32767) charset latin1)
alter table big9 convert to character set ucs2
set sql_mode = 'ansi_quotes'
create table "q ""1" ("a`b" int, b enum('x"y','a\'b'))
set sql_mode = 'no_backslash_escapes'
create table bs (a enum('a\','b') comment 'x\', b int)
set sql_mode = 'real_as_float'
create table raf (a real, b double)
set sql_mode = 'ansi'
create table "an" ("a" real, b varchar(3) default 'x')
set sql_mode = 'oracle'
create table ora (a date, b varchar2(5), c number, d number(5), e blob, f clob, g raw(3), h timestamp null)
create table ora2 (a mariadb_schema.date, b oracle_schema.date, c date, d mariadb_schema.blob, e mariadb_schema.varchar(3))
set sql_mode = 'maxdb'
create table mdb (a timestamp, b timestamp(3) null, c mariadb_schema.timestamp not null, d date)
alter table mdb add e timestamp
set sql_mode = default
create table mdb2 (a maxdb_schema.timestamp, b oracle_schema.date, c mariadb_schema.date, d mariadb_schema.int unsigned)
set explicit_defaults_for_timestamp = 0
create table ts (a timestamp, b timestamp null, c timestamp not null default '2020-01-01')
set explicit_defaults_for_timestamp = 1
create table ts2 (a timestamp, b timestamp null, c timestamp not null default '2020-01-01')
# comment\n create table cm (a int, -- b int\n b int # c int\n /* d int */ , e int)
/* create table x (a int) */ alter /* y */ table cm add c int -- z
/*!40000 alter table cm add d int */
alter table cm /*!99999 add e1 int, */ add f int /*!50000 , add g int */ /*M! , add h int */ /*M!100000 , add i int */ /*!100500 , add j int */
create table if not exists cm (z int)
create table `cm.x` (`a` int)
create table `b.c` (`a` int)
CREATE TABLE Upper (A int, B int)
alter table Upper change a c int, rename column b to a
create table upper (a int)
alter table {a}.`upper` add column if not exists a int, add column if not exists b int, add if not exists (c int)
alter table upper drop column if exists zz, drop if exists b, modify if exists zz int, change column if exists zz yy int, rename column if exists zz to xx, drop index if exists nope
alter table if exists nope add a int
alter table upper add index if not exists i (a), add unique key if not exists i (c)
alter online table upper add d int, algorithm=instant
alter ignore table upper add e int
alter table upper wait 5 add f int
alter table upper nowait add g int, lock=none
create or replace table upper (z int)
create or replace table upper like cm
create table if not exists upper like ty
create table sel (a int, c int) select 1 as a, 'x' as b
create table sel2 as select * from sel
create table sel3 (unique (a)) engine=innodb select a from sel
create or replace table sel2 select 1 as one
create table {a}.upper2 (like upper)
create view v as select * from sel
rename table v to v2
create or replace view v2 as select 1 as x
drop view v2
create temporary table sel (z int)
alter table sel add zz int
create temporary table tt as select 1
drop table sel
alter table sel add y int
drop temporary table tt
create sequence sq start with 5
alter sequence sq restart 1
do nextval(sq)
rename table sq to sq2
drop sequence sq2
set sql_generate_invisible_primary_key = 1
create table gi (a int, b varchar(10))
create table gi2 as select 1 as x
alter table gi add primary key (a), drop my_row_id
alter table gi2 alter column my_row_id set visible
set sql_generate_invisible_primary_key = 0
create table fi (a int, b varchar(10), key k ((a+1)), unique ((upper(b))), unique ((a+2), b))
insert into fi () values ()
alter table fi drop index functional_index, add c int

set system_versioning_alter_history = keep
create table sv (id int primary key, a varchar(10)) with system versioning
alter table sv add column b int
alter table sv drop system versioning
alter table sv add system versioning
alter table sv add unique (a), drop primary key
create table sv2 (id int, a int, rs timestamp(6) generated always as row start, re timestamp(6) generated always as row end, period for system_time (rs,re)) with system versioning
alter table sv2 add column b int, add primary key (id)
create table sv3 (id int, x int with system versioning, y int without system versioning)
create table sv4 (a int)
alter table sv4 add rs timestamp(6) generated always as row start, add re timestamp(6) as row end, add period for system_time(rs,re), add system versioning
alter table sv4 drop column rs, drop column re, drop period for system_time, drop system versioning
create table sv5 (id int not null, b text, unique (id), unique (b)) with system versioning partition by system_time (partition p0 history, partition pn current)
create table pe (id int, d1 date, d2 date, period for p (d1,d2))
alter table pe drop period for p
alter table pe modify d1 date, modify d2 date, add period for q (d1,d2)
create table lu (a text, b int, unique (a))
alter table lu add c int, add unique (c), add d text, add unique (d,b)
alter table lu drop index a
create table lu2 (a varchar(768) charset utf8mb4 unique, b varchar(769) charset utf8mb4 unique)
create table lu3 (a varchar(20), b int, unique (a) using hash)
alter table lu3 add unique using hash (b)
create table lu4 (a text not null unique, b int not null, unique (b))
alter table lu4 modify a varchar(10) not null
alter table lu4 drop index b
create table pt (a int, b int) partition by range (a) (partition p0 values less than (10), partition p1 values less than (20))
alter table pt convert partition p0 to table pt0
alter table pt convert table pt0 to partition p0 values less than (10)
create table eb (a enum('a','ä') charset utf8mb4, b set('b') charset ucs2)
alter table eb convert to charset binary
alter table eb add c int, drop a
create table cd (a text, b varchar(5)) charset latin1
alter table cd default charset ucs2, convert to character set utf8mb4, add c text
alter table cd add d text
alter table cd convert to character set latin1, default charset latin1
alter database {b} character set koi8r
create table {b}.ce (a text, b char(3)) charset = latin1
alter table {b}.ce convert to character set default
create table {b}.cf (a text) charset = default
alter table {b}.cf charset = default, add c text
use {b}
create table {a}.cg (a text) charset = default
create table {a}.ch (a text) charset = latin1
alter table {a}.ch convert to character set default
alter table {a}.ch charset default, add c text
create table {a}.ci (a text, b text charset default, c text character set default collate koi8r_bin)
use {a}
create table rk (a int, b int, unique u (a), unique v (b))
alter table rk change a x int, add a int not null first
alter table rk drop b, add b int not null first
alter table rk add n int, modify n text first
create table hid (a int)
set session binlog_format = 'STATEMENT'
create temporary table hid (z int)
alter table hid add y int
create index i on hid (z)
alter table hid rename hid2
alter table hid add b int
drop table hid2
create temporary table hid like rk
alter table hid add b2 text
truncate table hid
drop table hid
alter table hid add c text
create temporary table if not exists h3 select 1 as a
drop temporary table if exists h3, hid
create table selx as select 1 as a
set session binlog_format = 'ROW'
alter table selx add b int
create table mv (a int, b int, c int, d int, unique (b))
alter table mv drop a, add a int, modify if exists a int first
alter table mv drop b, add b int, change b e int first
alter table mv add x int after b, modify b bigint first
alter table mv modify a int after c, modify c int after d
alter table mv modify a int after b, modify b int after a
alter table mv change a b int after c, change b a int after b
alter table mv add y int, add column if not exists y bigint first
alter table mv drop d, add column if not exists d int first
alter table mv add z int, modify if exists z bigint
alter table mv rename column a to w, add a int first
create table kt (b varchar(20), c int, unique (b), unique (c, b))
alter table kt drop b, add b blob
create table kt2 (b int, c int, unique (b), unique (b))
alter table kt2 drop b, add b varchar(5000)
alter table kt2 drop b, add b varchar(5000)
create table ct (a varchar(20), b text, c int) charset latin1
alter table ct convert to charset utf8mb4, modify a text
alter table ct convert to charset utf8mb4, change b b2 text, modify c blob
create table kt3 (b varchar(20) charset latin1, c text, d enum('a'), unique (b), unique (c(10)), unique (d))
alter table kt3 drop b, add b varchar(20) charset utf8mb4, drop c, add c blob
alter table kt3 drop b, add b int
alter table kt3 drop b, add b bigint unsigned
alter table kt3 drop b, add b text charset utf8mb4
create table kt4 (b decimal(5,2), c timestamp(3) null, d bit(9), e set('a'), unique (b), unique (c), unique (d), unique (e))
alter table kt4 drop b, add b text charset latin1, drop c, add c blob, drop d, add d varchar(20) charset latin1, drop e, add e blob
create table ifk (a dec(5) unique, b int)
alter table ifk modify column if exists a mediumtext unique first
alter table ifk change if exists a c mediumtext unique
alter table ifk add if not exists b text unique, add if not exists d text unique
alter table ifk drop key d, modify if exists d text unique
create or replace table ifk (a blob primary key)
create table if not exists ifk (x int, y int)
create table ifk2 (a int, b int)
alter table ifk2 add if not exists b text unique
alter table ifk2 add if not exists (b text unique, c text unique)
alter table ifk2 add if not exists d text unique, add if not exists d text unique, add unique (d)
alter table ifk2 add unique if not exists e (a), add if not exists e text unique
alter table ifk2 change a z double, add column if not exists z varchar(20) after b
set sql_generate_invisible_primary_key = on
create table gk (a int, b int)
alter table gk add c int first, modify a bigint first
set sql_generate_invisible_primary_key = off
alter table gk add e bigint unsigned not null first
alter table gk add f int after my_row_id
alter table gk alter column my_row_id set visible
alter table gk add d int first
alter table gk drop primary key, drop column my_row_id
alter table gk add g int first

set sql_generate_invisible_primary_key = on
create table MixedKey (MY_ROW_ID bigint unsigned zerofill not null auto_increment invisible primary key, a int)
alter table MixedKey add c int first
set sql_generate_invisible_primary_key = off
alter table MixedKey alter my_row_id set visible, add d int first
alter table MixedKey alter my_row_id set invisible
alter table MixedKey add e int first
create table gk2 (my_row_id serial invisible, a int not null, primary key (my_row_id))
alter table gk2 drop primary key, drop my_row_id, add my_row_id bigint unsigned not null auto_increment invisible primary key first, add t int first
create table gk3 (my_row_id bigint unsigned not null auto_increment invisible, a int, primary key (my_row_id, a))
alter table gk3 add c int first
create table gk4 (my_row_id bigint unsigned not null auto_increment invisible unique, a int)
alter table gk4 add c int first
create table gk5 (my_row_id bigint unsigned not null auto_increment invisible primary key, a int) engine=innodb
alter table gk5 add d int first, drop primary key, drop my_row_id, add my_row_id int
create table gk6 (a int)
alter table gk6 add my_row_id bigint unsigned not null auto_increment invisible primary key first, add c int first
alter table gk6 add d int first
create table notgk1 (my_row_id bigint unsigned not null invisible primary key, a int)
alter table notgk1 add c int first
create table notgk2 (my_row_id bigint unsigned not null auto_increment invisible primary key, a int) engine=myisam
alter table notgk2 add c int first
create table notgk3 (my_row_id bigint unsigned not null auto_increment invisible primary key, a int) partition by key (my_row_id) partitions 2
alter table notgk3 add c int first
alter table notgk3 remove partitioning, add d int first
alter table notgk3 add e int first
create table notgk4 (my_row_id bigint unsigned not null auto_increment invisible primary key, a int)
alter table notgk4 engine=memory
alter table notgk4 add c int first

create table h1 (a int not null, unique (a) using hash)
alter table h1 disable keys
alter table h1 algorithm=copy
alter table h1 drop constraint if exists a
alter table h1 drop constraint a
create or replace table h1 (a int not null, unique (a) using hash)
alter table h1 rename h1b
alter table h1b add column if not exists a int first
create or replace table h1 (a int not null, b int not null, unique (a) using hash, unique (b) using hash)
create table h1c like h1
alter table h1 engine=innodb, rename h1d
create table h2 (a varchar(2000) charset utf8mb4 not null, unique (a))
alter table h2 convert to character set latin1
alter table h2 convert to character set utf8mb4, add b int first
alter table h2 modify a varchar(20) not null
create table h3 (a varchar(3072) charset latin1 not null unique)
create table h4 (a varchar(3073) charset latin1 not null unique)
alter table h4 drop key a, add unique (a(3072))
create table h5 (a varchar(767) charset utf8mb4 not null, b tinyint not null, c bigint not null, unique (a, b), unique (a, c))
create table h6 (a text not null, unique (a(768)), unique (a(769)), unique (a)) charset utf8mb4
create table h7 (a geometry not null, b point not null, unique (a), unique (b), unique (a(10)))
alter table h7 add c int
create table h8 (a varchar(1000) charset latin1 not null, b varchar(1001) charset latin1 not null, unique (a), unique (b)) engine=myisam
alter table h8 add c int first
alter table h8 engine=innodb
alter table h8 engine=myisam
create table h9 (a int not null, unique (a) using hash) engine=memory
alter table h9 add b int
create table h10 (a varchar(1500) charset latin1 not null, unique (a)) engine=aria
create table h11 (a int, b text)
create unique index k using hash on h11 (a)
create unique index k2 on h11 (b)
alter table h11 modify a int not null, drop key k2
create table h12 (a varchar(768) charset utf8mb4 unique, b bit(9), c varchar(3070) charset latin1, d datetime(6), unique (b, c), unique (c, d)) with system versioning
create table h13 (a blob unique, primary key (a(500)))
create table h14 (a int, b int, unique (b), unique (a))
alter table h14 modify a int not null
alter table h14 add c int
alter table h14 add unique (c)
create table h13b (d enum('it''s','ab')) charset ucs2
alter table h13b add x int
alter table h13b add y enum('it''s','ab')
create table h14b (a char(3), b int not null, c int, unique f (b), unique g (a), unique h (c))
alter table h14b modify a char(3) not null, modify c int not null
alter table h14b add d int
alter table h14b modify b int
create table h14c (a point, b int, c int, unique (a), unique (b, c))
alter table h14c modify a bit(3) not null
create table h15 (a varchar(20) not null, b mediumint not null, unique (a(10)), unique u (b(3)))
alter table h15 modify a int not null
alter table h15 add column if not exists d int primary key
alter table h15 add column if not exists e int primary key

create table oz1 (a int, b int, unique u (a) using hash)
optimize table oz1
alter table oz1 add c int
create table oz2 (a int, b varchar(4000), unique u (a) using hash, unique v (b))
optimize local table oz1
optimize tables oz2, oz1
create table oz3 (a int, b varchar(4000), unique u (a) using hash, unique v (b)) engine=myisam
optimize table oz3
create table oz4 (a int, b int, unique u (a) using hash) partition by key (a) partitions 2
optimize table oz4

create table fp1 (a int, b tinyblob, unique x (b(255)), unique y (a))
create table fp2 (a int, b tinyblob not null, unique x (b(255)))
create table fp3 (a int not null, b tinytext charset latin1 not null, unique x (b(255)), unique y (a))
create table fp4 (a int, b tinytext charset utf8 not null, unique x (b(85)), unique y (a))
create table fp5 (a int, b tinytext charset utf8 not null, unique x (b(84)), unique y (a))
alter table fp5 modify b tinyblob not null
alter table fp4 drop key x, add unique (b(255))
alter table fp3 drop key y

create table nul1 (b enum('a\0b','x'), c enum('a\0cdef','x'))
create table nul2 (b enum('\0','x'), c enum('','x'))
create table nul3 (b enum('1','2') charset ucs2, c set('33','44') charset ucs2)
alter table nul3 convert to character set latin1
create table nul4 (b enum('a\0b','x'))
alter table nul4 add c enum('a\0b','x')
alter table nul4 add d enum('a\0c','x') first
create table nil5 (b enum('1','2') charset ucs2, c enum('1','2') charset latin1, d enum('11','2') charset latin1)

create table geo1 (f int, c varchar(10), d char(3), e int, g varchar(100), unique c (c), unique d (d), unique e (e), unique g (g(5)))
alter table geo1 drop c, add c geometry
alter table geo1 drop e, add e geometry, drop g, add g polygon
create table geo2 (a geometry not null, b int, unique k(a(4)), unique b(b), f int)
alter table geo2 add unique z(f)
create table geo3 (a geometry not null, c int not null, unique k(a(8)), unique c(c))
create table ord1 (a int not null, b int not null, c int, unique b (b), unique a (a), unique c (c))
alter table ord1 modify b text not null
create table ord2 (a int not null, b int, c int, unique b (b), unique a (a), unique c (c))
alter table ord2 modify c int not null, drop a
create table ord3 (a int not null, b int, c int, unique b (b), primary key (a), unique c (c))
alter table ord3 modify c int not null, drop a
create table ord4 (a int, b int, unique a (a), unique b (b), primary key (b))
alter table ord4 drop primary key
create table ord5 (a int not null, b int, c int, unique b (b), primary key (a), unique c (c))
alter table ord5 modify a int, modify c int not null
alter table ord5 drop primary key

create table pre1 (b text charset utf8mb4, unique a (b(500))) engine=myisam
alter table pre1 modify b tinytext collate utf8mb4_bin
create table pre2 (b text charset utf8mb4, unique a (b(500))) engine=innodb
alter table pre2 modify b text(60) charset utf8mb4

create table lb (a set('ä','€') charset utf8mb4)
alter table lb convert to character set ucs2
alter table lb convert to character set utf8mb4

create table dv1 (a int, b varchar(5) default _utf8mb4 x'61', c varchar(5) default _latin1 0x61, d varchar(5) default _latin1 b'01100001', e int default 0x10, f varchar(3) default n'a', g varchar(5) default _latin1'a' collate latin1_bin, h varchar(9) default _utf8mb4 'a' 'b')
create table dv2 (a int, b varchar(100) default @@sql_mode, c int default @@global.max_connections, d varchar(99) default @@session.sql_mode, e int default @x)
create table dv3 (a int, b int unsigned default case when a then case a when 1 then 2 else (3) end else 2 end, c varchar(10))
create table dv4 (a int default 1, b int default a, c int default cast('1' as int), d varchar(9) default convert('a' using utf8mb4), e varchar(9) default if(a,'x','y'), f int default values(a))
create table dv5 (a int, b int default default(a), c varchar(9) default char(65 using latin1), d varchar(99) default current_role(), e int default dv5.a)
create table wo1 (a int not null, s date, e date, period for p(s,e), primary key (a, p without overlaps))
create table wo2 (a int, s date, e date, b int, period for p(s,e), unique u (b, p without overlaps), unique (a))
alter table wo2 add c int, drop key u
create table wo3 (a int not null, s date not null, e date not null, period for p(s,e), unique (a, p without overlaps))
alter table wo3 modify a bigint not null
create table lw1 (a int, b int)
create index i on lw1 (a) wait 1
create index j on lw1 (b) nowait
create unique index k on lw1 (a, b) wait 2 using btree algorithm=inplace
create table vec1 (a int primary key, v vector(3) not null, vector (v))
create table vec2 (a int primary key, v vector(3) not null, vector index i (v) m=8 distance=cosine)
create table vec3 (a int primary key, v vector(3) not null)
alter table vec3 add vector (v)
create table geo4 (a int, g geometry ref_system_id=101, h point not null)
alter table geo4 add i point ref_system_id=4326 not null first
create table mem1 (a int primary key, b int, key (b)) engine=memory
alter table mem1 engine=innodb
alter table mem1 add unique (b)
create table dpk (a int primary key, b int not null unique)
alter table dpk drop constraint primary key
alter table dpk drop constraint if exists primary key
create table fnm (a char(20) charset filename, b varchar(20) charset filename, c enum('a','b1') charset filename, d text charset filename, e varchar(3))
