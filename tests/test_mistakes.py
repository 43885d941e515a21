"""What somebody gets wrong in the first hour: told with what is right, before anything is harmed, and without a password."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConfigError, CursorError
from canal.meta import FileMeta
from canal.targets import (
    DuckDBTarget,
    HTTPTarget,
    IcebergTarget,
    JSONLinesTarget,
    KafkaTarget,
    MongoDBTarget,
    MySQLTarget,
    OpenSearchTarget,
    ParquetTarget,
    PostgreSQLTarget,
    RabbitMQTarget,
    RedisTarget,
    RocketMQTarget,
    SQLiteTarget,
)
from canal.testing import FakeBinlog
from canal.testing.fake import FakeConnection


def config(**options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(**{"destination": "shop", "source": FakeBinlog(), "start": "earliest", **options})


def test_a_filter_in_the_position_of_a_client_id_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    """canal's Java client takes the filter alone."""
    with canal.Instance(config(meta=FileMeta(tmp_path))) as instance:
        instance.subscribe()
        wrong: Any = r"shop\..*"
        with pytest.raises(ConfigError) as caught:
            instance.subscribe(wrong)
        assert caught.value.remedy == r"Did you mean subscribe(filter='shop\\..*')?"
        assert instance.subscriptions() == {1001: ""}
    meta = FileMeta(tmp_path)
    meta.start("shop")
    with pytest.raises(CursorError):
        meta.subscribe(wrong, "")
    assert meta.subscriptions() == {1001: ""}
    meta.stop()


@pytest.mark.parametrize("client_id", [True, 1.0, None, b"1"])
def test_a_client_id_is_a_number(client_id: Any) -> None:
    with canal.Instance(config()) as instance, pytest.raises(ConfigError, match="must be an int, not"):
        instance.subscribe(client_id)


def test_a_message_is_acked_and_rolled_back_as_such() -> None:
    log = FakeBinlog()
    log.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    with canal.Instance(config(source=log)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=30)
        instance.rollback(message)
        assert instance.list_batches() == []
        again = instance.get_without_ack(10, timeout=30)
        assert [entry.header.offset for entry in again] == [entry.header.offset for entry in message]
        instance.ack(again)
        assert instance.list_batches() == []
        nothing = instance.get_without_ack(10, timeout=0)
        instance.rollback(nothing)
        instance.ack(nothing)


UNKNOWN: list[tuple[Callable[[], object], str, str]] = [
    (lambda: config(tables=["orders"]), "InstanceConfig has no option 'tables'", "filter, or canal.connect"),
    (lambda: config(filters="shop"), "InstanceConfig has no option 'filters'", "Did you mean filter?"),
    (lambda: config(hoock=[]), "InstanceConfig has no option 'hoock'", "Did you mean hooks?"),
    (lambda: canal.connect(FakeBinlog(), xyzzy=1), "InstanceConfig has no option 'xyzzy'", "It has alarm, "),
    (lambda: canal.MySQLSource(hots="db"), "MySQLSource has no option 'hots'", "Did you mean host?"),
    (lambda: canal.MySQLSource(passwd="S3cret"), "MySQLSource has no option 'passwd'", "Did you mean password?"),
    (lambda: canal.parse.ParserOptions(sourec=1), "ParserOptions has no option 'sourec'", "Did you mean source?"),
    (lambda: MySQLTarget({"hots": "db"}), "connect of MySQLTarget has no option 'hots'", "Did you mean host?"),
    (lambda: MySQLTarget({"xyzzy": 1}), "connect of MySQLTarget has no option 'xyzzy'", "It has auth_plugin_map, "),
    (lambda: canal.Rule(table="x"), "Rule has no option 'table'", "Did you mean tables?"),
    (lambda: canal.Retry(time=1), "Retry has no option 'time'", "Did you mean times?"),
]


@pytest.mark.parametrize(("call", "message", "remedy"), UNKNOWN, ids=[message for _, message, _ in UNKNOWN])
def test_an_option_that_there_is_not_is_told_with_the_nearest_one(call: Callable[[], object], message: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.message == message
    assert remedy in caught.value.remedy
    assert "S3cret" not in str(caught.value)


WRONG: Any = [None, 5, b"x", []]
TAKES_TEXT: list[tuple[Callable[[Any], object], str]] = [
    (lambda wrong: HTTPTarget(wrong), "url of HTTPTarget must be a str"),
    (lambda wrong: IcebergTarget(wrong), "catalog of IcebergTarget must be a str"),
    (lambda wrong: KafkaTarget(wrong), "servers of KafkaTarget must be a str"),
    (lambda wrong: MongoDBTarget(wrong), "url of MongoDBTarget must be a str"),
    (lambda wrong: OpenSearchTarget(wrong), "url of OpenSearchTarget must be a str"),
    (lambda wrong: PostgreSQLTarget(wrong), "conninfo of PostgreSQLTarget must be a str"),
    (lambda wrong: RabbitMQTarget(wrong), "url of RabbitMQTarget must be a str"),
    (lambda wrong: RedisTarget(wrong), "url of RedisTarget must be a str"),
    (lambda wrong: RocketMQTarget(wrong), "name_servers of RocketMQTarget must be a str"),
    (lambda wrong: JSONLinesTarget(wrong), "path of JSONLinesTarget must be a path"),
    (lambda wrong: canal.Position(journal=wrong), "journal of a position must be a str"),
    (lambda wrong: canal.Retry(first=str(wrong)), "first of Retry must be a number of more than 0"),  # type: ignore[arg-type]
    (lambda wrong: canal.Retry(times=str(wrong)), "times of Retry must be a number of at least 0"),  # type: ignore[arg-type]
    (lambda wrong: canal.Server(wrong or 5), "configs of a Server are several|a Server is made of"),
    (lambda wrong: canal.store.MemoryStore(str(wrong)), "a store needs room"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(("make", "message"), TAKES_TEXT, ids=[message for _, message in TAKES_TEXT])
def test_a_value_of_another_type_is_told_where_it_is_given(make: Callable[[Any], object], message: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        make(wrong)


def test_calls_of_an_instance_look_at_what_they_are_given() -> None:
    with canal.Instance(config()) as instance:
        instance.subscribe()
        wrong: Any = "5"
        for call in (
            lambda: instance.get(wrong),
            lambda: instance.get(1, wrong),
            lambda: instance.get(1, 0, wrong),
            lambda: instance.get(wrong, client_id=1001),
            lambda: instance.consume(wrong),
            lambda: instance.consume(wrong, workers=2),
            lambda: instance.subscribe(filter=5),  # type: ignore[arg-type]
            lambda: instance.stream(None).__next__(),  # type: ignore[arg-type]
        ):
            with pytest.raises(ConfigError):
                call()


@pytest.mark.parametrize("left", [True, False], ids=["theirs over ours", "theirs removed again"])
@pytest.mark.parametrize("use", ["import canal.config", "import canal.cli.main", "from canal.testing import FakeBinlog"])
def test_a_package_of_which_canal_python_has_taken_a_part_says_so(left: bool, use: str, tmp_path: Path) -> None:
    """Its client of canal's server has a top-level package canal too, with an empty __init__.py."""
    package = tmp_path / "canal"
    shutil.copytree(Path(canal.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (package / "__init__.py").unlink()
    if left:
        (package / "__init__.py").touch()
    # The checkout is installed too: without it the folder is all that there is of the package.
    alone = f"import sys; sys.path = [one for one in sys.path if one != {str(Path(canal.__file__).parent.parent)!r}]; {use}"
    done = subprocess.run([sys.executable, "-c", alone], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: the package canal is not whole: canal-python")


@pytest.mark.parametrize("wrong", ["1", 1.0, True, []])
def test_a_batch_is_named_by_a_number_or_its_message(wrong: Any) -> None:
    log = FakeBinlog()
    log.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    with canal.Instance(config(source=log)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=30)
        for call in (instance.ack, instance.rollback):
            with pytest.raises(ConfigError, match="batch_id must be an int or a Message"):
                call(wrong)
        nothing: Any = None
        with pytest.raises(ConfigError, match="not None"):
            instance.ack(nothing)
        assert instance.list_batches() == [message.id]


def test_a_meta_in_use_is_named_by_its_directory(tmp_path: Path) -> None:
    meta = FileMeta(tmp_path)
    with canal.Instance(config(meta=meta)), pytest.raises(canal.StateError) as caught:
        canal.Instance(config(destination="other", meta=meta)).start()
    assert f"FileMeta({str(tmp_path)!r}) is in use by the instance of 'shop'" in str(caught.value)


def test_a_number_that_is_a_text_is_told() -> None:
    wrong: Any = "1"
    with canal.Instance(config()) as instance:
        instance.subscribe()
        with pytest.raises(ConfigError, match="timeout must be a number of seconds, or None, not '1'"):
            instance.get_without_ack(1, timeout=wrong)
        with pytest.raises(ConfigError, match="batch_size must be at least 1, not '1'"):
            instance.get(wrong)


SECRET = "s3cret"
#: What is said of a URL where none is taken.
OFFERED = r"not a URL\. Use .*MySQLSource\.from_url\(url\),? or canal\.connect\(url\)"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: canal.MySQLSource(host="db", password=None), "password of MySQLSource must be a str, not NoneType"),
        (lambda: canal.MySQLSource(host="db", password=SECRET.encode()), "password of MySQLSource must be a str, not bytes"),
        (lambda: canal.MySQLSource(host="db", user=None), "user of MySQLSource must be a str"),
        (lambda: canal.MySQLSource(host=None), "host of MySQLSource must be a str"),
        (lambda: canal.MySQLSource(host=f"mysql://canal:{SECRET}@db/"), OFFERED),
        (lambda: canal.MySQLSource(host=f"canal:{SECRET}@db"), OFFERED),
        (lambda: canal.MySQLSource(f"mysql://canal:{SECRET}@db/"), r"keyword.*from_url\(url\) or canal\.connect\(url\)"),  # type: ignore[misc]
        (lambda: config(source=f"mysql://canal:{SECRET}@db/"), OFFERED),
        (lambda: config(source={"host": "db", "password": SECRET}), "source must be a source such as .*, not dict"),
        (lambda: config(standby=f"mysql://canal:{SECRET}@db/"), "standby must be a source"),
        (lambda: config(ha="zk1:2181"), r"canal\.ZooKeeper\(hosts="),
        (lambda: config(destination=3), "destination must be a str, not int"),
        (lambda: canal.Instance({}), r"Instance takes a canal\.InstanceConfig, not dict"),  # type: ignore[arg-type]
        (lambda: canal.Instance(f"mysql://canal:{SECRET}@db/"), "not str"),  # type: ignore[arg-type]
        (lambda: FileMeta(None), "directory of FileMeta must be a path, not NoneType"),  # type: ignore[arg-type]
        (lambda: canal.FileHistory(None), "directory of FileHistory must be a path, not NoneType"),  # type: ignore[arg-type]
        (lambda: canal.LocalBinlogSource(5), "path of LocalBinlogSource must be a path, not int"),  # type: ignore[arg-type]
        (lambda: SQLiteTarget(None), "path of SQLiteTarget must be a path, not NoneType"),  # type: ignore[arg-type]
        (lambda: ParquetTarget(None), "root of ParquetTarget must be a path, not NoneType"),  # type: ignore[arg-type]
        (lambda: DuckDBTarget(5), "path of DuckDBTarget must be a path, not int"),  # type: ignore[arg-type]
        (lambda: config(mask={"price": 1}), r"mask is such as \{.*\}, not int"),
        (lambda: canal.ZooKeeper(hosts=["zk1:2181", "zk2:2181"]), r"hosts of ZooKeeper must be a str"),
        (lambda: canal.ZooKeeper(hosts="zk1:2181", session_timeout="1"), "session_timeout of ZooKeeper must be a number"),
    ],
)
def test_a_wrong_type_is_told_by_the_option(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        make()
    assert SECRET not in str(caught.value)


def test_a_source_from_a_url() -> None:
    url = f"mysql://ca%2Fnal:{SECRET}%40@db1:3307/?ssl_mode=required&connect_timeout=3"
    source = canal.MySQLSource.from_url(url, read_timeout=7)

    assert source == canal.MySQLSource(
        host="db1", port=3307, user="ca/nal", password=f"{SECRET}@", ssl_mode="REQUIRED", connect_timeout=3.0, read_timeout=7.0
    )
    assert SECRET not in repr(source)
    assert canal.MySQLSource.from_url("mariadb://db") == canal.MySQLSource(host="db")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"mysql://canal:{SECRET}@db/shop", "names a database"),
        (f"mysql://canal:{SECRET}@db/?ssl=1", "unknown option: ssl"),
        (f"mysql://canal:{SECRET}@db:port/", "cannot parse the URL's host or port"),
        (f"mysql://canal:{SECRET}@/", "names no server"),
        (f"postgres://canal:{SECRET}@db/", "names no server"),
        (f"canal:{SECRET}@db", "names no server"),
        ("", "names no server"),
    ],
)
def test_a_url_that_is_none(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        canal.MySQLSource.from_url(url)
    assert SECRET not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("connect", r"within 0\.3 s: .* has not answered yet\. .*Check host, port and network"),
        ("resolve", r"within 0\.3 s: .* has answered, and the start position is being searched\. .*start_timeout="),
    ],
)
def test_a_start_that_takes_too_long_says_how_far_it_is(call: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    owner = FakeBinlog if call == "connect" else FakeConnection
    original = getattr(owner, call)
    reached = threading.Event()

    def held(self: Any, *arguments: Any) -> Any:
        reached.set()
        assert goes_on.wait(60)
        return original(self, *arguments)

    monkeypatch.setattr(owner, call, held)
    with canal.Instance(config(start_timeout=0.3)) as instance:
        assert reached.wait(60)
        with pytest.raises(canal.ConnectionLostError, match=told):
            instance.subscribe()
        goes_on.set()
        instance.subscribe(timeout=60)


def test_a_wrong_password_is_one_line_of_the_log_and_an_error_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with FakeBinlog().serve(user="canal", password=SECRET) as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="canal", password="wr0ng")
        with canal.Instance(config(source=source)) as instance, pytest.raises(canal.AuthenticationError):
            instance.subscribe()
    told = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert len(told) == 1, told
    assert "wr0ng" not in caplog.text


def test_a_wrong_port_is_told_in_time_and_is_no_lost_connection(caplog: pytest.LogCaptureFixture) -> None:
    source = canal.MySQLSource(host="127.0.0.1", port=1, user="canal", password=SECRET)
    with canal.Instance(config(source=source)) as instance:
        with pytest.raises(canal.ConnectionLostError, match=r"within 1 s: .*127\.0\.0\.1:1") as caught:
            instance.subscribe(timeout=1)
        assert "lost" not in str(caught.value).lower()
    told = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert len(told) == 1, told
    assert "not connected yet" in told[0]


@pytest.mark.parametrize(
    ("greeting", "told"),
    [
        (b"", "a MySQL server sends a greeting first"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not a MySQL server: the data begins with b'SSH-2'"),
        (b"\5\0\0\0\x0b\x08\5\x1a\0", "not a MySQL server: the data begins with"),  # MySQL's X protocol
    ],
)
def test_another_services_port_is_named_within_connect_timeout(greeting: bytes, told: str) -> None:
    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted, contextlib.suppress(ConnectionResetError):
            accepted.sendall(greeting)
            accepted.recv(1)  # until the other side gives up

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        # The other time-out is longer than this test may take.
        source = canal.MySQLSource(port=listener.getsockname()[1], connect_timeout=0.3, read_timeout=3600.0)
        with pytest.raises(canal.ConnectionLostError, match=told) as caught:
            source.connect()
        thread.join()
    assert "another service listens there" in caught.value.remedy
