"""T23, T24: what each error of a server means. The texts are those that MySQL 5.5 to 9.7 and MariaDB 10.1 to 11.8 gave."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from canal import AuthenticationError, CanalError, ConnectionLostError, MySQLSource, Position, PositionLostError
from canal.errors import LostReason, ServerError
from canal.parse.source.server_errors import MEANINGS, During, login_error, meaning, query_error, stream_error

SOURCE = MySQLSource(host="db", user="u", password="secret")
AT = "; the first event 'b.01' at {}, the last event read from '{}' at {}, the last byte read from '{}' at 796."
#: During what, number and text, and the row that it belongs to.
SEEN = [
    (During.DUMP, 1236, "A replica with the same server_uuid/server_id as this replica has connected", "server id twice"),
    (During.DUMP, 4052, "A slave with the same server_uuid/server_id is already connected", "server id twice"),
    (During.DUMP, 1236, "Could not find first log file name in binary log index file", "log purged"),
    (During.DUMP, 1236, "Could not open log file", "log purged"),
    (During.DUMP, 29, "File 'b.07' not found (Errcode: 2)", "log removed"),
    (During.DUMP, 1236, "could not find next log" + AT.format(4, "b.09", 198, "b.09"), "log reset"),
    (During.DUMP, 1236, "Cannot replicate because the source purged required binary logs.", "GTIDs purged"),
    (During.DUMP, 1236, "…, but the master has purged binary logs containing GTIDs that the slave requires.", "GTIDs purged"),
    (During.DUMP, 1236, "Could not find GTID state requested by slave in any binlog files. [...] been purged", "GTIDs purged"),
    (During.DUMP, 1945, "…", "GTIDs not in the log"),
    (During.DUMP, 1955, "…", "GTIDs not in the log"),
    (
        During.DUMP,
        1236,
        "Error: connecting slave requested to start from GTID 0-99-3, which is not in the master's binlog",
        "GTIDs not in the log, by text",
    ),
    (
        During.DUMP,
        1236,
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID",
        "GTIDs not in the log, by text",
    ),
    (During.DUMP, 1236, "Client requested source to start replication from position > file size", "beyond the end"),
    (During.DUMP, 1236, "Client requested master to start replication from impossible position", "beyond the end"),
    # MariaDB takes what lies at the offset for the length of an event, MySQL says where its FORMAT_DESCRIPTION ended.
    (During.DUMP, 1236, "log event entry exceeded max_allowed_packet" + AT.format(777, "b.01", 777, "b.01"), "no event there"),
    (During.DUMP, 1236, "binlog truncated in the middle of event" + AT.format(777, "b.01", 777, "b.01"), "no event there"),
    (During.DUMP, 1236, "bogus data in log event" + AT.format(777, "/d/b.01", 127, "/d/b.01"), "no event there"),
    (During.DUMP, 1236, "exceeded max_allowed_packet" + AT.format(777, "/d/b.01", 777, "/d/b.01"), "no event there"),
    (
        During.START,
        1236,
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master",
        "no event there, from the start",
    ),
    (During.START, 1236, "bogus data in log event", "no event there, from the start"),
    (
        During.START,
        1236,
        "binlog truncated in the middle of event; consider out of disk space on master",
        "no event there, from the start",
    ),
    (During.DUMP, 1236, "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master", "event too large"),
    (During.DUMP, 1236, "log event entry exceeded max_allowed_packet" + AT.format(777, "b.01", 900, "b.01"), "log damaged"),
    (
        During.DUMP,
        1236,
        "Binlog has bad magic number;  It's not a binary log file that can be used by this version of MySQL",
        "log damaged",
    ),
    (During.DUMP, 1236, "Could not find format_description_event in binlog file; the first event", "log damaged"),
    (During.DUMP, 1236, "I/O error reading the header from the binary log", "log not readable"),
    (During.DUMP, 2, "Error reading file 'b.01' (Errcode: 21 \"Is a directory\")", "log not readable"),
    (During.DUMP, 1236, "Unknown error" + AT.format(4, "b.01", 4, "b.01"), "log not readable"),
    (During.DUMP, 1236, "I/O error reading log event" + AT.format(4, "b.01", 900, "b.01"), "log not readable"),
    (During.DUMP, 1236, "unknown error reading log event on the master" + AT.format(4, "b.01", 9, "b.01"), "log not readable"),
    (During.DUMP, 1236, "bogus data in log event" + AT.format(777, "/d/b.01", 900, "/d/b.01"), "log damaged"),
    (During.DUMP, 1236, "bogus data in log event" + AT.format(4, "b.01", 4, "b.01"), "log damaged"),
    (During.DUMP, 1236, "this position does not correspond to the location of any binlog event.", "no event there"),
    (During.DUMP, 1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1", "anonymous transaction"),
    (
        During.DUMP,
        1236,
        "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file ./b.000001, position 158.",
        "anonymous transaction, gtid_mode=ON",
    ),
    (
        During.DUMP,
        1236,
        "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file ./b.000001, position 158.",
        "GTID transaction, gtid_mode=OFF",
    ),
    (During.DUMP, 1236, "SOURCE_AUTO_POSITION = 1, but the source has GTID_MODE = OFF", "GTIDs switched off"),
    (During.DUMP, 1047, "command handling not implemented yet: 18", "no such dump"),
    (During.DUMP, 1236, "Binary log is not open", "no log"),
    (During.DUMP, 1236, "Misconfigured source - source server_id is 0", "no log"),
    (During.DUMP, 1236, "Replica can not handle replication events with the checksum", "checksums switched"),
    (During.LOGIN, 2026, "the server does not offer TLS", "no TLS"),
    (During.LOGIN, 2026, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:1006)", "our certificate"),
    (
        During.LOGIN,
        2013,
        "Lost connection to MySQL server ([SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate)",
        "our certificate",
    ),
    (
        During.LOGIN,
        2026,
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
        "the server's certificate",
    ),
    (During.LOGIN, 2026, "[SSL: UNSUPPORTED_PROTOCOL] unsupported protocol (_ssl.c:1006)", "old TLS"),
    (During.LOGIN, 2026, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "old TLS"),
    (During.LOGIN, 2026, "[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure (_ssl.c:1006)", "old TLS"),
    (During.LOGIN, 2026, "[SSL: UNSAFE_LEGACY_RENEGOTIATION_DISABLED] unsafe legacy renegotiation disabled", "old TLS"),
    (During.LOGIN, 2026, "[SSL: DH_KEY_TOO_SMALL] dh key too small (_ssl.c:1006)", "old TLS"),
    (During.LOGIN, 2026, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac", "TLS"),
    (During.LOGIN, 1862, "Your password has expired.", "password expired"),
    (During.QUERY, 1820, "You must SET PASSWORD before executing this statement", "password expired"),
    (During.LOGIN, 3118, "Access denied for user 'u'. Account is locked.", "account locked"),
    (During.LOGIN, 4151, "Access denied, this account is locked", "account locked"),
    (
        During.LOGIN,
        3955,
        "Access denied for user 'u'@'%'. Account is blocked for 1 day(s) (1 day(s) remaining) due to 2 "
        "consecutive failed logins.",
        "account blocked",
    ),
    (
        During.LOGIN,
        4150,
        "User is blocked because of too many credential errors; unblock with 'ALTER USER / FLUSH PRIVILEGES'",
        "account blocked",
    ),
    (
        During.LOGIN,
        1129,
        "Host 'h' is blocked because of many connection errors; unblock with 'mysqladmin flush-hosts'",
        "host blocked",
    ),
    (During.LOGIN, 1130, "Host 'h' is not allowed to connect to this MySQL server", "host unknown"),
    (
        During.LOGIN,
        3159,
        "Connections using insecure transport are prohibited while --require_secure_transport=ON.",
        "TLS demanded",
    ),
    (During.LOGIN, 2061, "the server requests the password in clear text, and allow_cleartext is not set", "clear text"),
    (
        During.LOGIN,
        2061,
        "the server requests the password without TLS, by a key that it sends: nothing proves who answers",
        "password to a stranger",
    ),
    (During.QUERY, 2068, "the server requested a file of ours (LOCAL INFILE)", "file wanted"),
    (During.LOGIN, 2020, "the server's answer needs more than 1 MiB of memory", "answer too large"),
    (During.LOGIN, 2061, "the password needs TLS: the server has no RSA key", "TLS needed"),
    (
        During.LOGIN,
        1275,
        "Server is running in --secure-auth mode, but 'u'@'h' has a password in the old format; please change "
        "the password to the new format",
        "old password",
    ),
    (During.LOGIN, 0, "received unknown auth switch request", "old password, by its packet"),
    (During.LOGIN, 1524, "Plugin 'mysql_native_password' is not loaded", "plugin not loaded"),
    (During.LOGIN, 2059, "Authentication plugin 'b'auth_gssapi_client'' not configured", "plugin not supported"),
    (During.LOGIN, 1698, "Access denied for user 'u'@'h'", "no password"),
    (During.LOGIN, 1045, "Access denied for user 'u'@'h' (using password: YES)", "refused"),
    (During.QUERY, 1045, "Access denied for user 'u'@'%' (using password: YES)", "privilege missing"),
    (During.DUMP, 1227, "Access denied; you need REPLICATION SLAVE", "privilege missing"),
    (
        During.QUERY,
        1227,
        "Access denied; you need (at least one of) the SUPER,REPLICATION CLIENT privilege(s) for this operation",
        "privilege missing",
    ),
    (During.QUERY, 1227, "Access denied; you need (at least one of) the SUPER privilege(s) for this operation", "only SUPER may"),
    (During.LOGIN, 1040, "Too many connections", "too many connections"),
    (During.LOGIN, 3032, "The server is currently in offline mode", "offline mode"),
    (During.LOGIN, 2012, "the peer is not a MySQL server: the data begins with b'SSH-2'", "no server"),
    (During.LOGIN, 2003, "Can't connect to MySQL server on 'db' (Connection refused)", "unreachable"),
    (During.DUMP, 1053, "Server shutdown in progress", "shut down"),
    (During.DUMP, 1927, "Connection was killed", "killed"),
    (During.QUERY, 2013, "Lost connection to MySQL server during query", "connection broke"),
    (During.QUERY, 1205, "Lock wait timeout exceeded", "busy"),
]


def error_of(during: During, number: int, text: str) -> CanalError:
    if during in During.DUMP | During.START:
        begun = during is During.DUMP
        return stream_error(ServerError(text, errno=number), SOURCE, 77, Position(journal="b.01", offset=777), begun=begun)
    raised = pymysql.err.OperationalError(number, text)
    return login_error(raised, SOURCE) if during is During.LOGIN else query_error(raised, SOURCE, "look")


@pytest.mark.parametrize(("during", "number", "text", "name"), SEEN)
def test_server_error_maps_to_expected_meaning(during: During, number: int, text: str, name: str) -> None:
    """T23, T24"""
    found = meaning(during, number, text)
    error = error_of(during, number, text)

    assert found is not None
    assert found.name == name
    assert type(error) is found.error
    assert text in error.message
    assert "{" not in str(error)
    assert "secret" not in str(error)
    assert getattr(error, "reason", None) is found.reason


def test_every_meaning_is_reached() -> None:
    assert [row.name for row in MEANINGS if row.name not in {seen[3] for seen in SEEN}] == []
    assert len({row.name for row in MEANINGS}) == len(MEANINGS)


def test_every_meaning_has_reason_or_remedy() -> None:
    for row in MEANINGS:
        assert (row.reason is not None) == (row.error is PositionLostError), row.name
        assert row.remedy or row.error is ConnectionLostError, row.name


def test_remedies_contain_user_and_server_id() -> None:
    assert "server id 77" in str(error_of(During.DUMP, 4052, "A slave with the same server_uuid/server_id"))
    assert "TO 'u'@'%'" in str(error_of(During.QUERY, 1227, "Access denied"))
    assert isinstance(error_of(During.QUERY, 1227, "Access denied"), AuthenticationError)


@pytest.mark.parametrize("during", [During.LOGIN, During.QUERY, During.DUMP])
def test_unknown_server_error_stops(during: During) -> None:
    error = error_of(during, 9999, "never seen")

    assert type(error) is ServerError
    assert error.errno == 9999


def test_lost_reason_survives_pickling() -> None:
    import pickle

    error = error_of(During.DUMP, 1236, "Could not find first log file name in binary log index file")
    again = pickle.loads(pickle.dumps(error))

    assert again.reason is LostReason.PURGED


def test_docs_show_every_meaning() -> None:
    text = (Path(__file__).parents[2] / "docs/server-errors.md").read_text("utf-8")

    for row in MEANINGS:
        assert document_line(row) in text


def test_only_refused_login_advises_to_check_password() -> None:
    assert [row.name for row in MEANINGS if "Check user, password" in row.remedy] == ["refused"]


def document_line(row: object) -> str:
    """A row of docs/server-errors.md."""
    done = {ConnectionLostError: "tries again", PositionLostError: "`on_lost`"}.get(row.error, "stops")  # type: ignore[attr-defined]
    why = f" ({row.reason.value})" if row.reason else ""  # type: ignore[attr-defined]
    remedy = row.remedy.replace("{", "").replace("}", "")  # type: ignore[attr-defined]
    return f"| {row.name} | {done}{why} | {row.error.__name__} | {remedy} |"  # type: ignore[attr-defined]
