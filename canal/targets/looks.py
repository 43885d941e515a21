"""Looks at targets that keep documents or take messages: ``look.py`` has those at databases, Redis and Kafka.

Never changes anything: what asks for a right to write asks for something that can never be done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from canal._util.findings import Finding
from canal.targets.http import HTTPTarget
from canal.targets.mongodb import MongoDBTarget
from canal.targets.opensearch import OpenSearchTarget
from canal.targets.protocol import Progress
from canal.targets.rabbitmq import RabbitMQTarget
from canal.targets.rocketmq import DEFAULT_TOPIC, Cluster, RocketMQTarget
from canal.targets.rocketmq_wire import OK, SEND_BATCH, Queue, batch_fields, packed
from canal.targets.tables import need

#: What documents are written by.
_ACTIONS: Final = ("find", "insert", "remove", "update")
#: A right, as the plugins of OpenSearch and of Elasticsearch name it.
_RIGHT: Final = re.compile(r"((?:indices|cluster):[\w:/*-]+(?:\[\w+\])?)")
#: The number of a queue that no topic has, and a version that no document has.
_NO_QUEUE: Final = 1 << 20
_NO_VERSION: Final = {"if_seq_no": 9007199254740991, "if_primary_term": 1}


def told(stream: str, text: str | None) -> Finding:
    if text is None:
        return Finding("progress", "ok", f"there is none of {stream}: it begins with what is not acked")
    return Finding("progress", "ok", f"{stream} is at {Progress.from_text(text).position}")


def allowed(what: str, missing: Sequence[str], on: str, grant: str) -> Finding:
    if missing:
        return Finding(what, "error", f"the user lacks {', '.join(missing)} on {on}.", grant)
    return Finding(what, "ok", f"the user may write {on}")


# -- MongoDB ---------------------------------------------------------------------------------------------------------------


def mongodb(target: MongoDBTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    pymongo = need("pymongo", "mongodb")
    waits = {"serverSelectionTimeoutMS": int(target.timeout * 1000), "connectTimeoutMS": 10_000}
    with closing(pymongo.MongoClient(target.url, **{**waits, **target.options})) as client:
        hello = client.admin.command("hello")
        is_cluster = "setName" in hello or hello.get("msg") == "isdbgrid"
        if target.transactions and not is_cluster:
            remedy = "Make it a replica set, which may have one member, or leave transactions=True out."
            yield Finding("server", "error", "it has no transactions: it is no replica set and no sharded cluster.", remedy)
        else:
            yield Finding("server", "ok", f"wire version {hello['maxWireVersion']}, {'a' if is_cluster else 'not a'} cluster")
        if not target.transactions:
            text = "each table is written by itself; a writer that is paused may put back what was there before."
            yield Finding("transactions", "warning", text, "Give transactions=True, where the server has them.")
        told_of = client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
        is_told = bool(told_of.get("authenticatedUsers")) and "authenticatedUserPrivileges" in told_of
        for name in (f"{target.database}.canal_progress", *tables):
            database, _, collection = name.rpartition(".")
            where = database or target.database, collection
            missing = _missing(told_of["authenticatedUserPrivileges"], *where) if is_told else []
            grant = (
                f'db.grantPrivilegesToRole("…", [{{resource: {{db: "{where[0]}", collection: "{where[1]}"}}, '
                f"actions: {json.dumps(missing)}}}])"
            )
            if is_told:
                yield allowed(name, missing, ".".join(where), grant)
            if name == f"{target.database}.canal_progress" and not missing:
                table = "" if target.transactions else next(iter(tables), "")
                found = client[where[0]][where[1]].find_one({"_id": {"stream": stream, "table": table}})
                yield told(stream, found and found["progress"])
        if not is_told:
            yield Finding("rights", "ok", "the server knows no users, or does not tell what they may do")


def _missing(privileges: Sequence[Mapping[str, Any]], database: str, collection: str) -> list[str]:
    """Actions that nothing gives on a collection. A resource without names is of all databases, or all collections of one."""
    given: set[str] = set()
    for one in privileges:
        resource = one["resource"]
        if resource.get("anyResource") or (
            "db" in resource and resource["db"] in ("", database) and resource.get("collection") in ("", collection)
        ):
            given |= set(one["actions"])
    return [action for action in _ACTIONS if not {action, "anyAction"} & given]


# -- brokers ---------------------------------------------------------------------------------------------------------------


def rabbitmq(target: RabbitMQTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    """Whether a message may be sent is asked within a transaction that is rolled back."""
    pika = need("pika", "rabbitmq")
    parameters = pika.URLParameters(target.url)
    try:
        connection = pika.BlockingConnection(parameters)
    except (pika.exceptions.ProbableAuthenticationError, pika.exceptions.AuthenticationError):
        yield Finding("server", "error", "it refuses the user.", "Look at the user and password of the URL.")
        return
    except pika.exceptions.ProbableAccessDeniedError:
        remedy = f"rabbitmqctl set_permissions -p {parameters.virtual_host} {parameters.credentials.username} …"
        yield Finding("server", "error", f"the user may not use the virtual host {parameters.virtual_host}.", remedy)
        return
    with closing(connection):
        yield Finding("server", "ok", f"virtual host {parameters.virtual_host}")
        user, exchange = parameters.credentials.username, target.exchange

        def refused(ask: Any) -> int:
            """The code by which a channel is closed; 0: it is not."""
            channel = connection.channel()
            try:
                ask(channel)
                channel.close()
            except pika.exceptions.ChannelClosedByBroker as error:
                return int(error.reply_code)
            return 0

        def send(channel: Any) -> None:
            channel.tx_select()
            channel.basic_publish(exchange, "canal_look", b"")
            channel.tx_rollback()

        name = exchange or "the default exchange"
        if exchange and refused(lambda channel: channel.exchange_declare(exchange, passive=True)) == 404:
            yield Finding(exchange, "error", "the exchange is not there.", "Declare it, and bind queues to it.")
        elif refused(send) == 403:
            remedy = f"rabbitmqctl set_permissions -p {parameters.virtual_host} {user} '…' '^{exchange or 'amq.default'}$' '…'"
            yield allowed(name, ["write"], name, remedy)
        else:
            yield allowed(name, [], name, "")
        for table in tables if not exchange and target.routing_key == "{name}" else ():
            code = refused(lambda channel, table=table: channel.queue_declare(table, passive=True))
            if code == 404 and target.queues is None:
                yield Finding(table, "error", "the queue is not there.", "Declare it, or leave queues=None out.")
            else:
                yield Finding(table, "ok", "the queue is not there, and is declared" if code == 404 else "the queue is there")


def rocketmq(target: RocketMQTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    """Whether a message may be sent is asked with one for a queue that no topic has: brokers look at rights first."""
    with Cluster(target) as cluster:
        makes = cluster.route(DEFAULT_TOPIC)
        brokers = sorted({queue.address for queue in makes})
        for name in tables if target.topic == "{name}" else ():
            topic = name.replace(".", "_")
            queues = cluster.route(topic)
            brokers = sorted({*brokers, *(queue.address for queue in queues)})
            if queues:
                yield Finding(topic, "ok", f"the topic has {len(queues)} queues")
            elif makes:
                yield Finding(topic, "ok", f"the topic is not there, and {makes[0].broker} makes it")
            else:
                remedy = f"mqadmin updateTopic -n {target.name_servers} -c … -t {topic}"
                yield Finding(topic, "error", "the topic is not there, and no broker makes it.", remedy)
            if queues and (why := _refused(cluster, target, topic, queues[0])):
                remedy = f"Give the access key PUB on {topic}: topicPerms of plain_acl.yml, or mqadmin updateAcl."
                yield Finding(topic, "error", f"the user may not send to the topic: {why}.", remedy)
        for address in brokers:
            cluster.broker(address)
            yield Finding("broker", "ok", f"{address} is there")


def _refused(cluster: Cluster, target: RocketMQTarget, topic: str, queue: Queue) -> str:
    fields = batch_fields(target.group, topic, Queue(queue.broker, _NO_QUEUE, queue.address), DEFAULT_TOPIC, target.queues)
    answer = cluster.broker(queue.address).ask(SEND_BATCH, fields, packed(b"", {}))
    if answer.code == OK or "queueId" in answer.remark:
        return ""
    return f"code {answer.code}, {answer.remark.partition(chr(10))[0].rpartition('Exception: ')[2][:100]}"


# -- HTTP ------------------------------------------------------------------------------------------------------------------


def http(target: HTTPTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    """OPTIONS, which does nothing, with the headers and credentials of the target."""
    httpx = need("httpx", "http")
    with closing(httpx.Client(headers=dict(target.headers), **{"timeout": target.timeout, **target.options})) as client:
        answer = client.request("OPTIONS", target.url)
    status = answer.status_code
    if status in (401, 403):
        remedy = "See headers= and options= (auth, cert)."
        yield Finding("server", "error", f"it answers {status}: it refuses the credentials, or OPTIONS without a body.", remedy)
    elif status in (404, 410):
        yield Finding("server", "error", f"it answers {status}: nothing is there.", "See the path of the url.")
    elif 300 <= status < 400:
        remedy = "Give the address that it leads to: redirections are not followed."
        yield Finding("server", "error", f"it answers {status}, a redirection.", remedy)
    elif status >= 500 and status != 501:
        yield Finding("server", "warning", f"it answers {status}: it is not well now.", "Requests are sent again until it is.")
    else:
        yield Finding("server", "ok", f"it answers {status} to OPTIONS")
    if "Allow" in answer.headers and "POST" not in answer.headers["Allow"].upper():
        yield Finding("POST", "error", f"it allows {answer.headers['Allow']} only.", "See the path of the url.")


# -- OpenSearch ------------------------------------------------------------------------------------------------------------


def opensearch(target: OpenSearchTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    httpx = need("httpx", "opensearch")
    with closing(httpx.Client(base_url=target.url, **{"timeout": target.timeout, **target.options})) as client:

        def ask(path: str, method: str = "GET", body: str | None = None) -> tuple[int, Any]:
            kind = "application/x-ndjson" if path.startswith("/_bulk") else "application/json"
            answer = client.request(method, path, content=body, headers={"Content-Type": kind} if body is not None else {})
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.status_code, answer.json() if is_json else {}

        status, about = ask("/")
        if status == 403 and (rights := _rights(about)):
            remedy = f"Give a role of the user the cluster permissions {', '.join(rights)}."
            yield allowed("server", rights, "the cluster", remedy)
        elif status != 200:
            remedy = "See the user and its password." if status in (401, 403) else "See what listens there."
            yield Finding("server", "error", f"it answers {status}.", remedy)
            return
        else:
            version = about["version"]
            yield Finding("server", "ok", f"{version.get('distribution', 'elasticsearch')} {version['number']}")
        status, health = ask("/_cluster/health")
        if status == 200 and health["status"] == "red":
            yield Finding("cluster", "error", "it is red: some of its shards are not there.", "Bring its nodes back.")
        for name in (target.progress_index, *(f"{target.prefix}{name}".lower() for name in tables)):
            yield from _index(target, ask, name)


def _index(target: OpenSearchTarget, ask: Any, name: str) -> Iterator[Finding]:
    status, found = ask(f"/{name}/_settings?flat_settings=true")
    missing = _rights(found) if status == 403 else []
    if status == 200:
        settings: Mapping[str, str] = next(iter(found.values()))["settings"]
        blocks = [key for key, value in settings.items() if key.startswith("index.blocks.") and str(value) == "true"]
        if blocks:
            remedy = f"PUT /{name}/_settings with {{{', '.join(f'{one!r}: null' for one in blocks)}}}"
            yield Finding(name, "error", f"the index is blocked: {', '.join(blocks)}.", remedy)
            return
    # None of it can be done, and each is refused first to who may not: a document of a version that there is not, no shards
    if status in (200, 403):
        missing += _rights_to_write(ask, name)
    if status != 200 and target.create:
        missing += _rights(ask(f"/{name}", "PUT", '{"settings":{"index.number_of_shards":0}}')[1])
    if missing := list(dict.fromkeys(missing)):
        remedy = f"Give a role of the user the index permissions {', '.join(missing)} on {name}, or crud and create_index."
        yield allowed(name, missing, name, remedy)
    elif status == 403:
        remedy = f"Give it crud and create_index on {name}."
        yield Finding(name, "error", "the user may not look at the index (403).", remedy)
    elif status != 200 and not target.create:
        yield Finding(name, "error", "the index is not there.", "Make it, or give the target create=True.")
    else:
        yield Finding(name, "ok", "the index is there" if status == 200 else "the index is not there, and is made")


def _rights_to_write(ask: Any, name: str) -> list[str]:
    op = {"_index": name, "_id": "canal_look", **_NO_VERSION}
    lines = [{"index": op}, {}, {"delete": op}]
    status, answer = ask("/_bulk", "POST", "".join(json.dumps(one) + "\n" for one in lines))
    found = _rights(answer) if status == 403 else []
    for item in answer.get("items", ()) if status == 200 else ():
        ((_, result),) = item.items()
        found += _rights(result) if result.get("status") == 403 else []
    status, answer = ask(f"/{name}/_search?size=0")
    return found + (_rights(answer) if status == 403 else [])


def _rights(answer: Mapping[str, Any]) -> list[str]:
    """The rights that an answer says are missing."""
    error = answer.get("error")
    reason = error.get("reason", "") if isinstance(error, dict) else ""
    return _RIGHT.findall(reason)
