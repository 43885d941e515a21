"""Every key of canal's configuration files (1.1.4 to 1.1.8), and what becomes of it here.

A key has a meaning (``MAPPED``: which options it sets), or none, for the reason in ``WITHOUT``. Nothing else is taken.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

_BROKER: Final = "there is no broker: changes are handed to your code in the same process; its routes: DirectorySource.mq"
_SERVER: Final = "there is no network server: your code calls the instance"
_ADMIN: Final = "there is no canal-admin: use canal.Server, or a ConfigSource of your own"
_BUFFERS: Final = "the operating system sizes the buffers"
_CORES: Final = "one thread reads and decodes; rows are decoded where they are used"
_COLUMNS: Final = "text is decoded in the charset of its column"
_HISTORY: Final = "the schema history is kept beside the cursors"
_ALIYUN: Final = "logs of Aliyun's OSS are not fetched: copy them and use canal.LocalBinlogSource"
_KEYSTORE: Final = "a certificate is a PEM file, which the other keys name"

#: Options of the config that keys set.
MAPPED: Final[dict[str, str]] = {
    "canal.destinations": "the destinations",
    "canal.destinations.expr": "the destinations, as in name{1-32}",
    "canal.conf.dir": "where the folders of the destinations are",
    "canal.auto.scan": "whether canal run follows changes of the files",
    "canal.auto.scan.interval": "seconds between two looks of canal run",
    "canal.zkServers": "ha, meta",
    "canal.zookeeper.flush.period": "PeriodMixedMeta(interval=)",
    "canal.file.data.dir": "FileMeta(directory)",
    "canal.file.flush.period": "FileMeta(interval=)",
    "canal.auto.reset.latest.pos.mode": 'on_lost="latest"',
    "canal.instance.global.mode": "spring; manager is refused, with what to do",
    "canal.instance.global.lazy": "whether it is started at its first use",
    "canal.instance.global.spring.xml": "the preset: memory, file, default, group",
    "canal.instance.master.address": "source host and port",
    "canal.instance.master.journal.name": "start",
    "canal.instance.master.position": "start",
    "canal.instance.master.timestamp": "start",
    "canal.instance.master.gtid": "start, with gtidon",
    "canal.instance.gtidon": "whether master.gtid counts; GTIDs are used wherever the source has them",
    "canal.instance.standby.address": "standby host and port",
    "canal.instance.standby.journal.name": "standby_start",
    "canal.instance.standby.position": "standby_start",
    "canal.instance.standby.timestamp": "standby_start",
    "canal.instance.standby.gtid": "standby_start, with gtidon",
    "canal.instance.dbUsername": "source user",
    "canal.instance.dbPassword": "source password",
    "canal.instance.enableDruid": "true is refused: give the password itself, by reference",
    "canal.instance.mysql.slaveId": "source server_id; 0: drawn",
    "canal.instance.filter.regex": "filter",
    "canal.instance.filter.black.regex": "black_filter",
    "canal.instance.filter.field": "field_filter",
    "canal.instance.filter.black.field": "black_field_filter",
    "canal.instance.filter.rows": "leave_out insert, update, delete",
    "canal.instance.filter.dml.insert": "leave_out insert",
    "canal.instance.filter.dml.update": "leave_out update",
    "canal.instance.filter.dml.delete": "leave_out delete",
    "canal.instance.filter.query.ddl": "leave_out ddl",
    "canal.instance.filter.query.dml": "leave_out dml",
    "canal.instance.filter.query.dcl": "leave_out dcl",
    "canal.instance.filter.table.error": 'unknown_columns: "leave_out", else "error"',
    "canal.instance.binlog.format": "source require_row_format, where it names ROW alone",
    "canal.instance.get.ddl.isolation": "isolate_ddl",
    "canal.instance.detecting.enable": "heartbeat",
    "canal.instance.detecting.sql": "Heartbeat(sql=)",
    "canal.instance.detecting.interval.time": "Heartbeat(interval=)",
    "canal.instance.detecting.retry.threshold": "Heartbeat(retries=)",
    "canal.instance.detecting.heartbeatHaEnable": "whether heartbeats switch to the standby",
    "canal.instance.fallbackIntervalInSeconds": "fallback_interval",
    "canal.instance.network.soTimeout": "source read_timeout",
    "canal.instance.memory.buffer.size": "store_entries",
    "canal.instance.memory.buffer.memunit": "store_bytes, with buffer.size",
    "canal.instance.memory.batch.mode": "whether store_bytes is set",
    "canal.instance.tsdb.enable": "false: schema_history=MemoryHistory()",
    "canal.instance.multi.stream.on": "true is refused: PolarDB-X's streams cannot be read",
    "canal.instance.destination": "set for references to it",
    "canal.serverMode": "kafka, rocketMQ, rabbitMQ: the target of canal run",
    **{
        f"canal.instance.{which}.{name}": option
        for which in ("master", "standby")
        for name, option in {
            "sslMode": "source ssl_mode",
            "tlsVersions": "source tls_min_version: the lowest",
            "trustCertificateKeyStoreUrl": "source ssl_ca, a PEM file",
            "clientCertificateKeyStoreUrl": "source ssl_cert and ssl_key, a PEM file",
        }.items()
    },
}

#: Of the preset group: its two members, each with a standby.
MASTERS: Final = ("master1", "master2")
_OF_GROUP: Final = {
    f"canal.instance.{which}{number}.{part}": f"{option} of member master{number}"
    for number in (1, 2)
    for which, source, start in (("master", "source", "start"), ("standby", "standby", "standby_start"))
    for part, option in (
        ("address", f"{source} host and port"),
        *((part, start) for part in ("journal.name", "position", "timestamp", "gtid")),
    )
}
MAPPED.update(_OF_GROUP)
#: Of the other presets, in whose stead the group has those above.
_OF_ONE_SOURCE: Final = frozenset(key for key in MAPPED if re.match(r"canal\.instance\.(master|standby)\.", key))

#: Keys without a meaning here, and why.
WITHOUT: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "canal.ip",
            "canal.port",
            "canal.register.ip",
            "canal.user",
            "canal.passwd",
            "canal.withoutNetty",
            "canal.id",
            "canal.socketChannel",
        ),
        _SERVER,
    ),
    "canal.metrics.pull.port": "canal.metrics.register(server) exports the metrics over a port of yours",
    **dict.fromkeys(
        (
            "canal.admin.manager",
            "canal.admin.port",
            "canal.admin.user",
            "canal.admin.passwd",
            "canal.admin.register.auto",
            "canal.admin.register.cluster",
            "canal.admin.register.name",
            "canal.instance.global.manager.address",
        ),
        _ADMIN,
    ),
    "canal.instance.memory.rawEntry": "an entry keeps the bytes of the log, and decodes them where they are used",
    "canal.instance.transaction.size": "a transaction is cut where it does not fit into the store",
    **dict.fromkeys(("canal.instance.network.receiveBufferSize", "canal.instance.network.sendBufferSize"), _BUFFERS),
    "canal.instance.filter.druid.ddl": "there is one parser of statements",
    "canal.instance.filter.transaction.entry": "BEGIN and END are always there; to_canal_json leaves them out",
    "canal.instance.binlog.image": "every row image is read",
    **dict.fromkeys(
        (
            "canal.instance.parser.parallel",
            "canal.instance.parser.parallelThreadSize",
            "canal.instance.parser.parallelBufferSize",
        ),
        _CORES,
    ),
    **dict.fromkeys(("canal.instance.connectionCharset", "canal.instance.connectionCharsetNumber"), _COLUMNS),
    "canal.instance.defaultDatabaseName": "a connection needs no database",
    **dict.fromkeys(
        (
            "canal.instance.tsdb.dir",
            "canal.instance.tsdb.url",
            "canal.instance.tsdb.dbUsername",
            "canal.instance.tsdb.dbPassword",
            "canal.instance.tsdb.snapshot.interval",
            "canal.instance.tsdb.snapshot.expire",
            "canal.instance.tsdb.spring.xml",
        ),
        _HISTORY,
    ),
    "canal.instance.pwdPublicKey": "of enableDruid, which is refused",
    **dict.fromkeys(
        (
            "canal.instance.rds.accesskey",
            "canal.instance.rds.secretkey",
            "canal.instance.rds.instanceId",
            "canal.aliyun.accessKey",
            "canal.aliyun.secretKey",
            "canal.aliyun.accesskey",
            "canal.aliyun.secretkey",
            "canal.aliyun.uid",
        ),
        _ALIYUN,
    ),
    **dict.fromkeys(
        (
            f"canal.instance.{which}.{what}CertificateKeyStore{part}"
            for which in ("master", "standby")
            for what in ("trust", "client")
            for part in ("Type", "Password")
        ),
        _KEYSTORE,
    ),
}

#: Beginnings of keys without a meaning here.
PREFIXES: Final = dict.fromkeys(("canal.mq.", "kafka.", "rocketmq.", "rabbitmq.", "pulsarmq."), _BROKER)

#: Keys that have the name of a destination in them: those of ``canal.instance.global`` for it alone.
_OF_ONE: Final = re.compile(r"canal\.instance\.(.+)\.(mode|lazy|spring\.xml|manager\.address)")


def reason(key: str, is_group: bool = False) -> str | None:
    """Why a key has no meaning here, where the preset is group or not; "" where it has one; None for a key that there is not."""
    if key in (_OF_ONE_SOURCE if is_group else _OF_GROUP):
        return f"the preset is {'' if is_group else 'not '}group"
    if key in MAPPED:
        return ""
    if key in WITHOUT:
        return WITHOUT[key]
    for prefix, why in PREFIXES.items():
        if key.startswith(prefix):
            return why
    of_one = _OF_ONE.fullmatch(key)
    return None if of_one is None else _ADMIN if of_one[2] == "manager.address" else ""


def close_to(key: str) -> str:
    """The key that was meant, perhaps; "" where none is like it."""
    found = difflib.get_close_matches(key, [*MAPPED, *WITHOUT], 1)
    return found[0] if found else ""
