"""Every option that a user can give is described on a page, or by the docstring that a page of the reference shows."""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import canal
from canal import targets
from canal.server.configuration import pipe_tables, toml_files
from tests.support.documents import ROOT

PAGES = {path: path.read_text("utf-8") for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))}
#: What pages write as code: options among it.
CODE = "\n".join(found for text in PAGES.values() for found in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
SHOWN = {name.rpartition(".")[2] for text in PAGES.values() for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)}
#: What has options; classes of targets are found.
OPTIONED: list[Any] = [
    canal.InstanceConfig,
    canal.Member,
    canal.Group,
    canal.MySQLSource,
    canal.LocalBinlogSource,
    canal.Heartbeat,
    canal.ZooKeeper,
    canal.connect,
    canal.load,
    canal.Server,
    canal.pipe,
    canal.Retry,
    canal.Rule,
    canal.Template,
    canal.FileMeta,
    canal.MemoryMeta,
    canal.ZooKeeperMeta,
    canal.meta.MixedMeta,
    canal.meta.PeriodMixedMeta,
    canal.FileHistory,
    canal.parse.ZooKeeperHistory,
    canal.parse.ParserOptions,
    canal.parse.GroupParser,
    canal.parse.FileLogPositionManager,
    canal.parse.MetaLogPositionManager,
    canal.parse.FailbackLogPositionManager,
    canal.parse.ZooKeeperLogPositionManager,
    canal.parse.PeriodMixedLogPositionManager,
    canal.server.RouterSink,
    canal.server.DirectorySource,
    canal.server.ZooKeeperSource,
    canal.store.MemoryStore,
    canal.metrics.register,
    canal.Instance.compose,
    canal.Instance.subscribe,
    canal.Instance.get,
    canal.Instance.stream,
    canal.Instance.changes,
    canal.Instance.decoded,
    canal.Instance.consume,
    canal.Instance.switch,
    canal.testing.FakeBinlog,
    targets.CanalMQ,
    targets.Upkeep,
    *(getattr(targets, name) for name in targets.__all__ if re.fullmatch(r"\w+Target", name)),
]
#: A parameter that tests of the library itself give.
OF_TESTS = ("clock",)


def options_of(one: Any) -> list[str]:
    if attrs.has(one):
        return [field.alias for field in attrs.fields(one) if field.init]
    call = one.__init__ if inspect.isclass(one) else one
    return [name for name in inspect.signature(call).parameters if name not in ("self", "args", "kwargs", *OF_TESTS)]


def described(one: Any) -> str:
    """Return the docstrings of a class or function, and the comments of fields, which the reference shows too."""
    texts = [inspect.getdoc(one) or ""]
    if inspect.isclass(one):
        texts.append(inspect.getdoc(one.__init__) or "")
        for kind in (kind for kind in one.__mro__ if kind.__module__.startswith("canal.")):
            texts += re.findall(r"^    #: .*\n(?:    #: .*\n)*    (\w+)", inspect.getsource(kind), re.MULTILINE)
    return "\n".join(texts)


@pytest.mark.parametrize("one", OPTIONED, ids=lambda one: one.__qualname__)
def test_every_option_is_described(one: Any) -> None:
    shown = one.__qualname__.partition(".")[0]
    text = described(one) if shown in SHOWN else ""
    missing = [name for name in options_of(one) if not re.search(rf"\b{name}\b", f"{text}\n{CODE}")]

    assert shown in SHOWN, "a page of docs/reference shows it"
    assert missing == []


def test_the_reference_groups_every_option_of_a_config_once() -> None:
    page = PAGES[ROOT / "docs/reference/config.md"]
    everyday, advanced = (re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for part in page.split("## ")[1:3])
    named = [name for cell in (*everyday, *advanced) for name in re.findall(r"`(\w+)`", cell)]

    assert sorted(named) == sorted(options_of(canal.InstanceConfig))
    assert len(everyday) < len(advanced)


def test_the_page_of_the_command_line_is_what_its_script_writes() -> None:
    made = runpy.run_path(str(ROOT / "docs/_command_line.py"))
    assert made["FILE"].read_text("utf-8") == made["page"](), "run python docs/_command_line.py"
    assert [line for line in made["page"]().splitlines() if line.endswith("|  |")] == [], "an argument without a help"


def test_keys_of_toml_files_are_described() -> None:
    assert [name for name in toml_keys() if not re.search(rf"\b{name}\b", CODE)] == []


def toml_keys() -> Iterator[str]:
    yield from (*pipe_tables._PIPE, *pipe_tables._RULE, *pipe_tables._TEMPLATED, "park", "kind")
    yield from (*toml_files._OF_GROUPS, toml_files._LAZY)


def test_options_of_the_spark_source_are_described() -> None:
    options = pytest.importorskip("canal.spark.options")
    page = PAGES[ROOT / "docs/spark/options.md"]
    names = options.known_options()

    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


def test_no_filter_of_the_reference_hides_an_option() -> None:
    page = PAGES[ROOT / "docs/reference/sources.md"]
    hidden = re.findall(r'"!(.*?)"', page.partition("::: canal.MySQLSource")[2].partition(":::")[0])

    assert hidden
    assert [name for name in options_of(canal.MySQLSource) if any(re.search(one, name) for one in hidden)] == []
