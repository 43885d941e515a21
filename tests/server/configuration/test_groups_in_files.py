"""Several sources in one store, by files: canal's preset group, and the members of our own form."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConfigError
from canal.server.configuration.canal_files import CanalFiles
from canal.server.configuration.toml_files import TomlFiles
from canal.testing import FakeBinlog, ZooKeeperServer
from tests.support.waiting import until

PRESET = "canal.destinations=shops\ncanal.instance.global.spring.xml=classpath:spring/group-instance.xml\n"
OWN = """
canal.instance.master1.address=db1:3307
canal.instance.master1.journal.name=b.000007
canal.instance.master1.position=99
canal.instance.standby1.address=db3:3309
canal.instance.standby1.timestamp=1600000000000
canal.instance.master2.address=db2:3308
canal.instance.dbUsername=canal
canal.instance.dbPassword=secret
"""
TOML = """
[defaults]
meta = "memory"
start = "earliest"
source = { user = "canal", password = { env = "PASSWORD" } }

[destinations.shops]
filter = 'shop\\..*'
group = { order = "arrival", stalled_after = 5 }
source = { port = 3307 }

[destinations.shops.members.east]
source = { host = "db1" }

[destinations.shops.members.west]
source = { host = "db2", port = 3308 }
standby = "mysql://canal@db3/"
start = { gtid = "0-1-7" }
schema_history = "/var/lib/west"
"""


def fakes() -> dict[str, FakeBinlog]:
    """Two with a row each, which have ended."""
    made = {}
    for number, name in enumerate(("east", "west"), 1):
        made[name] = FakeBinlog(server_id=number)
        made[name].table("shop", "orders", "id INT PRIMARY KEY").insert({"id": number})
    return made


def rows_of(message: canal.Message) -> list[tuple[str, int]]:
    return [(entry.member, row.after["id"]) for entry in message.entries for row in entry.rows if row.after]


def config(server: str = "", own: str = "") -> Any:
    return CanalFiles(PRESET + server, {"shops": OWN + own}, "/srv/canal/conf", environ={}).config("shops")


def test_canals_preset_group_has_two_masters_and_their_standbys() -> None:
    found = config(own="canal.instance.filter.regex=shop\\\\..*\n")
    first, second = found.source.members["master1"], found.source.members["master2"]

    assert (found.source.order, found.filter, type(found.meta)) == ("arrival", r"shop\..*", canal.MemoryMeta)
    assert (first.source.host, first.source.port, first.source.user, first.source.password) == ("db1", 3307, "canal", "secret")
    assert (first.start, first.standby_start) == (canal.Position("b.000007", 99), canal.Position(timestamp=1600000000000))
    assert (first.standby.host, first.standby.port, first.standby.user) == ("db3", 3309, "canal")
    assert (second.source.host, second.source.port, second.start, second.standby) == ("db2", 3308, "latest", None)
    assert {type(one.schema_history) for one in (first, second)} == {canal.parse.MemoryHistory}
    assert first.schema_history is not second.schema_history
    parser = canal.Instance(found).parser
    assert isinstance(parser, canal.parse.GroupParser)
    assert [one.other_source is not None for one in parser.members.values()] == [True, False]  # type: ignore[attr-defined]


def test_with_zookeeper_processes_take_turns_for_canals_group() -> None:
    found = config("canal.zkServers=zk1:2181\n")

    assert (found.ha.hosts, type(found.meta)) == ("zk1:2181", canal.meta.PeriodMixedMeta)
    assert canal.Instance(found).role is canal.Role.OFFLINE


def test_a_master_without_an_address_is_told_by_its_key() -> None:
    with pytest.raises(canal.ConfigError, match=r"canal\.instance\.master2\.address is host:port"):
        CanalFiles(PRESET, {"shops": OWN.replace("master2.address=db2:3308", "master2.address=")}, environ={}).config("shops")


def test_keys_of_the_other_presets_are_named() -> None:
    other = "canal.instance.master.address=db9:3306\ncanal.instance.standby.timestamp=1\n"
    group = CanalFiles(PRESET, {"shops": OWN + other}, environ={}).notes("shops")
    one = CanalFiles("canal.destinations=shops\n", {"shops": OWN + other}, environ={}).notes("shops")

    assert group == dict.fromkeys(("canal.instance.master.address", "canal.instance.standby.timestamp"), "the preset is group")
    assert set(one.values()) == {"the preset is not group"}
    assert sorted(one) == sorted(line.split("=")[0] for line in OWN.split() if "1." in line or "2." in line)


def test_canals_own_files_are_followed(tmp_path: Path) -> None:
    east, west = (one.serve(user="canal", password="secret") for one in fakes().values())
    with east as first, west as second:
        (tmp_path / "shops").mkdir()
        (tmp_path / "canal.properties").write_text(PRESET)
        (tmp_path / "shops/instance.properties").write_text(
            "canal.instance.dbUsername=canal\ncanal.instance.dbPassword=secret\n"
            + "".join(
                f"canal.instance.master{number}.address={one.host}:{one.port}\n"
                f"canal.instance.master{number}.journal.name=binlog.000001\n"
                for number, one in ((1, first), (2, second))
            )
        )
        with canal.load(tmp_path) as server:
            instance = server.instance("shops")
            instance.subscribe()
            found: list[tuple[str, int]] = []
            until(lambda: found.extend(rows_of(instance.get(timeout=0.1))) or len(found) == 2)
            assert sorted(found) == [("master1", 1), ("master2", 2)]
            assert [name for name, _ in instance.position().members] == ["master1", "master2"]


def test_our_own_form_merges_what_all_members_have() -> None:
    files = TomlFiles(TOML, environ={"PASSWORD": "s3"})
    found: Any = files.config("shops")
    east, west = found.source.members["east"], found.source.members["west"]

    assert (found.source.order, found.source.stalled_after, found.filter) == ("arrival", 5, r"shop\..*")
    assert (east.source.host, east.source.port, east.source.password, east.start) == ("db1", 3307, "s3", "earliest")
    assert (west.source.host, west.source.port, west.start) == ("db2", 3308, canal.Position(gtid="0-1-7"))
    assert (east.standby, west.standby.host) == (None, "db3")
    assert (east.schema_history, type(west.schema_history)) == (None, canal.FileHistory)
    assert files.digest("shops") != TomlFiles(TOML.replace("0-1-7", "0-1-8"), environ={"PASSWORD": "s3"}).digest("shops")


def test_a_group_of_our_own_form_goes_on_at_its_cursor(tmp_path: Path) -> None:
    made = fakes()
    text = f"[destinations.shops]\nmeta = '{tmp_path}/meta'\nstart = 'earliest'\n"
    for name, one in made.items():
        one.write(tmp_path / name)
        text += f"[destinations.shops.members.{name}]\nsource = {{ path = '{tmp_path}/{name}' }}\n"
    (tmp_path / "all.toml").write_text(text)
    with canal.load(tmp_path / "all.toml") as server:
        instance = server.instance("shops")
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=30)
        instance.ack(message)
        found = rows_of(message)
    with canal.load(tmp_path / "all.toml") as server:
        instance = server.instance("shops")
        instance.subscribe()
        found += [row for message in instance.stream() for row in rows_of(message)]

    assert sorted(found) == [("east", 1), ("west", 2)]
    assert (tmp_path / "meta/shops").is_dir()


@pytest.mark.zookeeper
def test_processes_take_turns_for_a_group_of_files(
    tmp_path: Path, zookeeper_server: ZooKeeperServer, zookeeper_root: str
) -> None:
    made = fakes()
    text = f"[destinations.shops]\nstart = 'earliest'\n[destinations.shops.ha]\nhosts = '{zookeeper_server.hosts}'\n"
    text += f"root = '{zookeeper_root}'\nsession_timeout = 30\ntakeover_delay = 0.1\n"
    for name, one in made.items():
        one.write(tmp_path / name)
        text += f"[destinations.shops.members.{name}]\nsource = {{ path = '{tmp_path}/{name}' }}\n"
    (tmp_path / "all.toml").write_text(text)
    with canal.load(tmp_path / "all.toml") as first, canal.load(tmp_path / "all.toml") as second:
        owner = first.instance("shops")
        owner.subscribe()
        assert owner.wait_active(60)
        other = second.instance("shops")
        other.subscribe()
        message = owner.get_without_ack(1, timeout=60)
        owner.ack(message)
        found = rows_of(message)
        first.stop()
        until(lambda: found.extend(rows_of(other.get(timeout=0.1))) or len(found) == 2)

    assert sorted(found) == [("east", 1), ("west", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group = {}", "a mapping of names to canal.Member"),
        ("[destinations.a.members.'x.y']\nsource = 'mysql://u@h/'", "a member name must have"),
        ("[destinations.a.members.x]\nfilter = 'a'\nsource = 'mysql://u@h/'", r"members\.x has no option filter.*standby_start"),
        ("[destinations.a.members.x]\nsource = { hots = 'h' }", r"members\.x\.source has no option hots"),
        ("[destinations.a.members.x]\nstart = 'latest'", "cannot be made of start"),
        ("group = { order = 'size' }\n[destinations.a.members.x]\nsource = 'mysql://u@h/'", 'order must be "time" or "arrival"'),
        ("group = { orders = 'time' }\n[destinations.a.members.x]\nsource = 'mysql://u@h/'", "Did you mean order"),
        ("on_slow = 'evict'\n[destinations.a.members.x]\nsource = 'mysql://u@h/'", 'on_slow is "wait" with a group'),
        ("ha = { hosts = 'zk:1' }\nschema_history = '/h'\n[destinations.a.members.x]\nsource = 'mysql://u@h/'", "FileHistory"),
    ],
)
def test_a_group_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(canal.ConfigError, match=message) as caught:
        TomlFiles(f"[destinations.a]\n{text}\n", environ={}).config("a")
    assert caught.value.destination.startswith("a")


def test_a_group_has_no_pipe() -> None:
    files = TomlFiles(TOML + "[destinations.shops.pipe]\ntarget = { kind = 'sqlite', path = 'x' }\n", environ={"PASSWORD": "s3"})
    with pytest.raises(canal.ConfigError, match="a pipe has one source, and no group"):
        files.pipe("shops")


def test_what_each_member_has_of_its_own_is_not_the_groups() -> None:
    group = canal.Group({"a": canal.Member(source=FakeBinlog())})
    for option, value in (("start", "earliest"), ("standby", FakeBinlog()), ("schema_history", canal.parse.MemoryHistory())):
        with pytest.raises(canal.ConfigError, match=f"each member has its own {option}"):
            canal.InstanceConfig(destination="a", source=group, **{option: value})
    with pytest.raises(canal.ConfigError, match="a router reads one source"):
        canal.server.RouterSink(canal.InstanceConfig(destination="a", source=group))
    with pytest.raises(canal.ConfigError, match="member b is a canal.Member, not a FakeBinlog"):
        canal.Group({"b": FakeBinlog()})  # type: ignore[dict-item]


def test_a_client_of_a_group_has_no_line_of_its_own() -> None:
    group = canal.Group({"a": canal.Member(source=FakeBinlog(), start="earliest")})
    with canal.Instance(canal.InstanceConfig(destination="a", source=group)) as instance:
        instance.subscribe()
        with pytest.raises(canal.StateError, match="reads a group"):
            instance.seek(1001, "earliest")


@pytest.mark.parametrize(
    "text",
    [
        "[destinations.a]\nsource = [{}]",
        '[destinations.a]\nsource = {{ host = "h" }}\nstandby = [{}, {}]',
        '[destinations.a]\nsource = {{ host = "h" }}\nha = {}',
        '[destinations.a]\nsource = {{ host = "h" }}\nmeta = [{}]',
        '[destinations.a]\nsource = {{ host = "h" }}\nlazy = {}',
        '[destinations.a]\nsource = {{ host = "h" }}\nstart = [{}]',
        '[destinations.a]\nsource = {{ host = "h", port = {} }}',
        "[destinations.a]\nmembers = [{}]",
        "destinations = {}",
        "[destinations.a.members]\neast = {}",
        "[destinations]\na = {}",
        "defaults = [{}]",
    ],
)
def test_a_url_in_the_wrong_place_is_not_shown(text: str) -> None:
    url = '"mysql://u:S3cret@h/"'
    with pytest.raises(ConfigError) as caught:
        files = TomlFiles(text.format(url, url))
        for destination in files.destinations():
            files.is_lazy(destination)
            files.config(destination)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "S3cret" not in shown
