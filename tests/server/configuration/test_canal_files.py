"""canal's own configuration files: each key has its meaning here, or is named with the reason; nothing is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.parse.schema.history import MemoryHistory
from canal.server.configuration.canal_files import CanalFiles
from canal.server.configuration.keys import MAPPED, WITHOUT, reason
from canal.server.configuration.properties import Values, parse

#: Every key of canal 1.1.4 to 1.1.8: of its files, commented out or not, of its Spring files and of its code.
KEYS = Path(__file__).with_name("canal_keys.txt").read_text().split()

OWN = """
canal.instance.master.address=db1:3307
canal.instance.dbUsername=canal
canal.instance.dbPassword=secret
"""


def config(own: str = "", server: str = "", name: str = "shop", **environ: str) -> canal.InstanceConfig:
    return CanalFiles(server, {name: OWN + own}, "/srv/canal/conf", environ).config(name)


def test_every_key_has_a_meaning_or_a_reason() -> None:
    assert [key for key in KEYS if reason(key) is None] == []


def test_there_is_no_key_that_canal_does_not_have() -> None:
    mapped = {key for key in {*MAPPED, *WITHOUT} if not key.startswith("canal.instance.") or "." in key}

    assert sorted(mapped - set(KEYS) - {"canal.id", "canal.socketChannel"}) == []


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("canal.instance.filter.regex=shop\\\\..*,crm\\\\.t_\\\\d{1,2}", "filter", r"shop\..*,crm\.t_\d{1,2}"),
        ("canal.instance.filter.black.regex=mysql\\\\.slave_.*", "black_filter", r"mysql\.slave_.*"),
        ("canal.instance.filter.field=shop.t:id/name", "field_filter", "shop.t:id/name"),
        ("canal.instance.filter.black.field=shop.t:id", "black_field_filter", "shop.t:id"),
        ("", "leave_out", ("tableless",)),
        ("canal.instance.filter.rows=true", "leave_out", ("insert", "update", "delete", "tableless")),
        ("canal.instance.filter.dml.update=true", "leave_out", ("update", "tableless")),
        ("canal.instance.filter.query.ddl=true", "leave_out", ("ddl", "tableless")),
        ("canal.instance.filter.query.dml=true", "leave_out", ("dml", "tableless")),
        ("canal.instance.filter.query.dcl=true", "leave_out", ("dcl", "tableless")),
        ("", "column_types", "history"),
        ("canal.instance.filter.table.error=true", "unknown_columns", "leave_out"),
        ("canal.instance.filter.table.error=false", "unknown_columns", "error"),
        ("canal.instance.get.ddl.isolation=true", "isolate_ddl", True),
        ("canal.instance.fallbackIntervalInSeconds=90", "fallback_interval", 90.0),
        ("canal.auto.reset.latest.pos.mode=true", "on_lost", "latest"),
        ("", "on_lost", "fail"),
        ("", "store_entries", 16384),
        ("", "store_bytes", 16384 * 1024),
        ("canal.instance.memory.buffer.size=4096\ncanal.instance.memory.buffer.memunit=10", "store_bytes", 40960),
        ("canal.instance.memory.batch.mode=ITEMSIZE", "store_bytes", 64 << 20),
        ("", "start", "latest"),
        (
            "canal.instance.master.journal.name=b.000007\ncanal.instance.master.position=99",
            "start",
            canal.Position("b.000007", 99),
        ),
        ("canal.instance.master.journal.name=b.000007", "start", canal.Position("b.000007", 4)),
        (
            "canal.instance.master.journal.name=b.000007\ncanal.instance.master.timestamp=1600000000000",
            "start",
            canal.Position("b.000007", timestamp=1600000000000),
        ),
        ("canal.instance.master.timestamp=1600000000000", "start", canal.Position(timestamp=1600000000000)),
        ("canal.instance.gtidon=true\ncanal.instance.master.gtid=0-1-5", "start", canal.Position(gtid="0-1-5")),
        ("canal.instance.master.gtid=0-1-5", "start", "latest"),
        ("", "heartbeat", None),
        ("", "standby", None),
    ],
)
def test_what_a_key_sets(text: str, option: str, value: Any) -> None:
    assert getattr(config(text), option) == value


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("", "host", "db1"),
        ("", "port", 3307),
        ("", "user", "canal"),
        ("", "password", "secret"),
        ("", "ssl_mode", "DISABLED"),
        ("", "require_row_format", False),
        ("canal.instance.binlog.format=ROW", "require_row_format", True),
        ("canal.instance.mysql.slaveId=77", "server_id", 77),
        ("canal.instance.mysql.slaveId=0", "server_id", None),
        ("canal.instance.network.soTimeout=11", "read_timeout", 11.0),
        (
            "canal.instance.master.sslMode=REQUIRED\ncanal.instance.master.tlsVersions=TLSv1.3,TLSv1.2",
            "tls_min_version",
            "TLSv1.2",
        ),
        (
            "canal.instance.master.sslMode=VERIFY_CA\ncanal.instance.master.trustCertificateKeyStoreUrl=file:/ca.pem",
            "ssl_ca",
            "/ca.pem",
        ),
    ],
)
def test_what_a_key_says_of_the_source(text: str, option: str, value: Any) -> None:
    assert getattr(config(text).source, option) == value


def test_the_standby_and_heartbeats() -> None:
    both = "canal.instance.standby.address=db2:3306\ncanal.instance.standby.journal.name=b.000001\n"
    asks = "canal.instance.detecting.enable=true\ncanal.instance.detecting.interval.time=5\n"
    switches = asks + "canal.instance.detecting.heartbeatHaEnable=true\ncanal.instance.detecting.retry.threshold=2\n"

    found = config(both + switches)
    calm = config(both)

    assert attrs.evolve(found.source, host="db2", port=3306) == found.standby
    assert found.standby_start == canal.Position("b.000001", 4)
    assert found.heartbeat == canal.Heartbeat(sql="SELECT 1", interval=5.0, retries=2)
    assert config(asks).heartbeat is not None
    assert calm.heartbeat is not None
    assert calm.heartbeat.retries > 1000000  # it never switches by itself


def test_the_presets(tmp_path: Path) -> None:
    def preset(name: str, more: str = "") -> canal.InstanceConfig:
        return config(server=f"canal.instance.global.spring.xml=classpath:spring/{name}-instance.xml\n{more}")

    memory, file, default = (
        preset("memory"),
        preset("file", "canal.file.data.dir=${canal.conf.dir}"),
        preset("default", "canal.zkServers=zk1:2181,zk2:2181;zk9:2181\ncanal.zookeeper.flush.period=500"),
    )
    assert isinstance(memory.meta, canal.MemoryMeta)
    assert isinstance(memory.schema_history, MemoryHistory)
    assert isinstance(file.meta, canal.FileMeta)
    assert file.meta.directory == Path("/srv/canal/conf")
    assert file.schema_history is None
    assert isinstance(default.meta, canal.meta.PeriodMixedMeta)
    assert default.ha is not None
    assert default.ha.hosts == "zk1:2181,zk2:2181"
    assert isinstance(preset("file", "canal.zkServers=zk1:2181").meta, canal.meta.PeriodMixedMeta)
    assert isinstance(config("canal.instance.tsdb.enable=false").schema_history, MemoryHistory)


@pytest.mark.parametrize(
    ("server", "own", "message"),
    [
        ("canal.instance.fallbackIntervalInSecond=1", "", "no key canal.instance.fallback.*mean .*fallbackIntervalInSeconds"),
        ("", "my.own=1", "shop/instance.properties: there is no key my.own"),
        ("canal.instance.global.mode=manager", "", "canal-admin.*ConfigSource"),
        ("canal.instance.shop.mode=manager", "", "canal-admin"),
        ("canal.instance.global.spring.xml=classpath:spring/group-instance.xml", "", "canal.instance.master1.address"),
        ("canal.instance.global.spring.xml=classpath:spring/default-instance.xml", "", "canal.zkServers"),
        ("canal.instance.global.spring.xml=classpath:spring/mine.xml", "", "compose"),
        ("", "canal.instance.enableDruid=true", "encrypted password.*file:/run/secrets"),
        ("", "canal.instance.multi.stream.on=true", "PolarDB-X"),
        ("", "canal.instance.get.ddl.isolation=yes", "true or false"),
        ("canal.instance.memory.buffer.size=many", "", "a number"),
        ("", "canal.instance.filter.regex=(", "bad table filter"),
        ("", "canal.instance.master.sslMode=VERIFY_CA\ncanal.instance.master.trustCertificateKeyStoreUrl=file:/x.jks", "PEM"),
        ("", "canal.instance.master.tlsVersions=SSLv3", "SSLv3"),
        ("", "canal.instance.dbPassword=other", "dbPassword is there twice"),
        ("", "canal.instance.mysql.slaveId=${NOWHERE}", "refers to"),
    ],
)
def test_what_has_no_equal_is_refused(server: str, own: str, message: str) -> None:
    with pytest.raises(canal.ConfigError, match=message) as caught:
        config(own, server)
    assert "secret" not in str(caught.value).replace("/run/secrets", "")


def test_a_missing_address_is_told_by_its_key() -> None:
    with pytest.raises(canal.ConfigError, match="canal.instance.master.address is host:port"):
        CanalFiles("", {"shop": ""}, environ={}).config("shop")


def test_what_has_no_meaning_is_named() -> None:
    files = CanalFiles("canal.port = 11111\nkafka.acks = all\ncanal.ip =\n", {"shop": OWN + "canal.mq.topic=example"}, environ={})

    notes = files.notes("shop")

    assert sorted(notes) == ["canal.mq.topic", "canal.port", "kafka.acks"]
    assert "no broker" in notes["kafka.acks"]


def test_which_destinations_there_are() -> None:
    own = {"a": OWN, "b": OWN}
    assert CanalFiles("canal.destinations = a, c", own, environ={}).destinations() == ["a", "b", "c"]
    assert CanalFiles("canal.destinations = a\ncanal.auto.scan = false", own, environ={}).destinations() == ["a"]
    assert CanalFiles("canal.destinations.expr = s{1-3}", {}, environ={}).destinations() == ["s1", "s2", "s3"]
    files = CanalFiles("canal.instance.global.lazy = true\ncanal.instance.b.lazy = false", own, environ={})
    assert (files.is_lazy("a"), files.is_lazy("b")) == (True, False)


def test_environment_and_secrets_by_reference(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p w\n")
    files = CanalFiles(
        "canal.port = ${canal.admin.port}\n",  # leads nowhere, and has no meaning: no harm
        {
            "shop": f"canal.instance.master.address=${{DB_HOST}}:${{DB_PORT:3306}}\ncanal.instance.dbUsername=${{env:DB_USER}}\n"
            f"canal.instance.dbPassword=${{file:{tmp_path}/password}}\nmine=db\n"
            "canal.instance.filter.regex=${mine}_${canal.instance.destination}\\\\..*\n"
        },
        environ={"DB_HOST": "db9", "DB_USER": "me", "canal.instance.mysql.slaveId": "5"},
    )
    source: Any = files.config("shop").source
    before = files.digest("shop")
    (tmp_path / "password").write_text("other")

    assert (source.host, source.port, source.user, source.password, source.server_id) == ("db9", 3306, "me", "p w", 5)
    assert files.config("shop").filter == r"db_shop\..*"
    assert files.digest("shop") != before


def test_properties_as_java_reads_them() -> None:
    text = "\ufeff# no\n ! no\n\na=1\nb : 2\nc 3\nd\n e\\ \\=\\:f = g\\th\\u0041\\\\\n"
    text += "long = one,\\\n   two,\\\r\n\tthree\nempty=\nz=\\\\.*"

    assert parse(text, "x") == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "",
        "e =:f": "g\thA\\",
        "long": "one,two,three",
        "empty": "",
        "z": "\\.*",
    }
    with pytest.raises(canal.ConfigError, match="x, line 2"):
        parse("a=1\nb=\\u12g4", "x")


def test_references_that_go_in_circles() -> None:
    with pytest.raises(canal.ConfigError, match="a refers to itself"):
        Values({"a": "${b}", "b": "${a}"}, where="x", environ={}).get("a")
    assert Values({"a": "${b:${c:7}}"}, where="x", environ={}).get("a") == "7"


@pytest.mark.parametrize("release", ["1.1.4", "1.1.5", "1.1.6", "1.1.7", "1.1.8"])
def test_the_configuration_as_canal_ships_it(release: str, tmp_path: Path) -> None:
    written = {"canal.properties": "", "example/instance.properties": ""}
    for line in Path(__file__).with_name("canal_shipped.txt").read_text().splitlines():
        releases, file, setting = line.split(" ", 2)
        written[file] += f"{setting}\n" * (release[4:] in releases.split(","))
    (tmp_path / "example").mkdir()
    for file, text in written.items():
        assert text
        (tmp_path / file).write_text(text)

    server = canal.load(tmp_path)

    assert (server.configured(), server.destinations()) == (["example"], [])
    found: Any = canal.server.DirectorySource(tmp_path).load("example")
    assert (found.source.host, found.source.port, found.source.user, found.start) == ("127.0.0.1", 3306, "canal", "latest")
    assert (found.filter, type(found.meta), found.heartbeat) == (r".*\..*", canal.FileMeta, None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk"])
def test_comments_may_be_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    path = folder / "instance.properties"
    path.write_bytes(f"# 数据库地址\n{OWN}".encode(encoding))

    assert canal.server.DirectorySource(tmp_path).load("shop").source.host == "db1"  # type: ignore[union-attr]

    path.write_bytes(f"{OWN}canal.instance.filter.regex=库\\\\..*\n".encode(encoding))
    if encoding != "gbk":
        assert canal.server.DirectorySource(tmp_path).load("shop").filter == r"库\..*"
        return
    with pytest.raises(canal.ConfigError, match=r"instance\.properties, line 5: it is not UTF-8") as caught:
        canal.server.DirectorySource(tmp_path).load("shop")
    line = r"canal.instance.filter.regex=\u5e93\\..*"  # as the remedy says
    assert "four hexadecimal digits" in caught.value.remedy
    path.write_bytes(f"{OWN}{line}\n".encode("gbk"))
    assert canal.server.DirectorySource(tmp_path).load("shop").filter == r"库\..*"
