"""The shape of the folders is the shape of the data flow: who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import inspect
import os
import re
import runpy
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.binlog import event_layout
from tests.support.imports import MODULES, PACKAGE, circles, imports, room, tree

#: What each part may import of the others: only the Protocols of its neighbour downstream.
ALLOWED = {"parse": {"canal.sink.protocol"}, "sink": {"canal.store.protocol"}, "store": set(), "meta": set()}


def test_no_module_imports_itself_by_way_of_others_at_any_depth() -> None:
    graph = {module: (imports(path, at_any_depth=True) & MODULES.keys()) - {module, "canal"} for module, path in MODULES.items()}
    assert circles(graph) == [], "each of these imports another one of them"


def test_parts_know_each_other_by_protocol_only() -> None:
    for part, allowed in ALLOWED.items():
        others = [f"canal.{other}" for other in (*ALLOWED, "instance", "server", "config", "ha") if other != part]
        for path in (PACKAGE / part).rglob("*.py"):
            known = imports(path, at_any_depth=True)
            forbidden = {name for name in known for one in others if f"{name}.".startswith(f"{one}.")} - allowed
            assert not forbidden, f"{path.relative_to(PACKAGE)} imports {forbidden}"


def test_private_names_stay_in_their_modules() -> None:
    reached = [
        f"{module} imports {node.module}.{name.name}"
        for module, path in MODULES.items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("canal")
        for name in node.names
        if name.name.startswith("_") and not name.name.endswith("__") and f"{node.module}.{name.name}" not in MODULES
    ]
    assert reached == []


#: The rooms, which are folders and the modules beside them, as they stand on each other: each imports those of the lines
#: before its own.
LAYERS = (
    "errors statement",
    "_util alarm binlog filter gtid",
    "position schema zookeeper",
    "meta rows status",
    "formats.texts",
    "formats.columns",
    "model",
    "ha parse.schema store",
    "changes parse.log sink",
    "formats parse.source spool",
    "parse snapshot targets",
    "config",
    "instance",
    "aio compat",
    "pipes",
    "server",
    "spark.frames spark.options spark.session spark.sharing",
    "spark.stream",
    "spark.readers",
    "spark.limits",
    "spark.source",
    "spark.apply spark.batches spark.delta_spark spark.listener spark.supervisor",
    "spark",
    "metrics testing",
    "cli",
    "__main__",
)


def test_rooms_stand_on_each_other() -> None:
    layer = {name: number for number, line in enumerate((*LAYERS, "")) for name in line.split() or [""]}
    assert {room(module) for module in MODULES} == layer.keys(), "each room has its line in LAYERS"
    upward = {
        f"{module} -> {name}"
        for module, path in MODULES.items()
        for name in imports(path, at_any_depth=True) & MODULES.keys()
        if room(name) not in ("", room(module)) and layer[room(name)] >= layer[room(module)]
    }
    assert upward == set()


def test_the_drawing_shows_the_rooms_as_they_are() -> None:
    drawn = runpy.run_path(str(PACKAGE.parent / "docs/_rooms.py"))
    assert drawn["FILE"].read_text("utf-8") == drawn["draw"](), "run python docs/_rooms.py"


def test_the_root_is_a_hallway() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 14


def test_each_room_says_in_a_sentence_what_it_knows() -> None:
    silent = [
        str(path.parent.relative_to(PACKAGE))
        for path in PACKAGE.rglob("__init__.py")
        if not re.match(r"\S.{10,120}\.(\n|$)", ast.get_docstring(tree(path)) or "")
    ]
    assert silent == []


def test_rows_are_decoded_without_a_log() -> None:
    """What executors need for it knows nothing that reads a log or talks to a server."""
    for path in (*(PACKAGE / "rows").glob("*.py"), *(PACKAGE / "formats").glob("*.py"), *(PACKAGE / "model").glob("*.py")):
        assert not any(name.startswith("canal.parse") for name in imports(path)), path


#: What each of these may import of the others, and of the parts.
BEHIND = {
    "changes": {"canal.changes", "canal.parse.schema"},
    "targets": {"canal.changes", "canal.targets", "canal.parse.source.information_schema"},
    "pipes": {"canal.changes", "canal.targets", "canal.pipes", "canal.instance", "canal.parse.source.mysql"},
}


def test_targets_know_changes_and_no_instance() -> None:
    parts = ("changes", "targets", "pipes", "spark", "parse", "sink", "store", "meta", "ha", "instance")
    for name, allowed in BEHIND.items():
        for path in (PACKAGE / name).rglob("*.py"):
            known = {one for one in imports(path) if one.startswith(tuple(f"canal.{part}" for part in parts))}
            found = {one for one in known if not any(f"{one}.".startswith(f"{prefix}.") for prefix in allowed)}
            assert not found, f"{path.relative_to(PACKAGE)} imports {found}"


def test_numbers_of_column_types_have_names() -> None:
    """A bare one says nothing, and may be another list's."""
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in MODULES.values()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Compare) and re.fullmatch(r"code|real|(.*\.)?type_code", ast.unparse(node.left))
        for number in {one.value for right in node.comparators for one in ast.walk(right) if isinstance(one, ast.Constant)}
        if type(number) is int and 4 < number < 256
    ]
    assert bare == []


def test_offsets_of_fields_in_events_have_names() -> None:
    """A bare one says nothing, and may be of another event: canal/binlog/event_layout.py has them all."""
    bytes_of = r"event|data|head|header|inner|chunk|rotate|description"
    numbers = {value for name, value in vars(event_layout).items() if name.isupper()} - {*range(13), 16, 20, 32}
    bare = []
    files = [PACKAGE / f"parse/source/{name}.py" for name in ("files", "file_reader", "sealing")]
    for path in (*(PACKAGE / "parse").glob("*.py"), *(PACKAGE / "parse/log").glob("*.py"), *files):
        named = {part for one in tree(path).body if isinstance(one, (ast.Assign, ast.AnnAssign)) for part in ast.walk(one)}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Subscript) and re.fullmatch(bytes_of, ast.unparse(node.value)):
                ends = (node.slice.lower, node.slice.upper) if isinstance(node.slice, ast.Slice) else (node.slice,)
                found = any(isinstance(one, ast.Constant) and one.value > 1 for one in ends)
            elif isinstance(node, ast.Call) and re.fullmatch(r"wire\.u\d+", ast.unparse(node.func)):
                found = re.search(r"\b\d+", ast.unparse(node.args[1])) is not None
            else:
                found = isinstance(node, ast.Constant) and type(node.value) is int and node.value in numbers
            if found and node not in named:
                bare.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert bare == []


#: Where the core asks what an object has, or whether a parser is a BinlogParser, and why. A Protocol says the rest: what a
#: connection, a source or a parser may have beside is in ``FullConnection``, ``SourceInfo`` and ``ParserInfo``. What other
#: parts of an Instance may have is asked in ``canal/instance/parts.py``.
ASKED = {
    "_util/ownership.py: getattr(part, 'directory', None)": "for a message only",
    "instance/parts.py: getattr(part, 'status', None)": "a store or sink of the user's own may have another status, or none",
    "instance/calls.py: hasattr(batch_id, '__index__')": "what a user gives",
    "parse/source/protocol.py: getattr(self._inner, 'describe', None)": "complete(), the one place where connections are asked",
    "parse/source/protocol.py: getattr(self._inner, 'end_of_log', None)": "complete()",
    "parse/source/protocol.py: hasattr(self._inner, 'replay')": "complete()",
    "parse/source/server_errors.py: getattr(error, 'original_exception', error)": "of a driver's error",
    "pipes/loop.py: getattr(instance.parser, 'members', None)": "a pipe knows an Instance and no parser",
    "pipes/loop.py: getattr(target, 'takes_objects', False)": "a user's own target need not know of it",
    "spark/stream/filters.py: getattr(inner, 'attribute', ())": "of Spark's filters",
    "spark/stream/stretch.py: isinstance(instance.parser, BinlogParser)": "for mypy: a config has made it",
}


def test_what_an_object_has_is_asked_where_it_has_a_reason() -> None:
    spark = ("spark/source.py", "spark/readers.py", "spark/options.py")
    core = [PACKAGE / name for name in ("_util/ownership.py", "server/router.py", *spark)]
    rooms = ["instance/*.py", "parse/**/*.py", "sink/*.py", "store/*.py", "pipes/*.py", "spark/s*/*.py"]
    asked = {
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path in [*core, *(path for room in rooms for path in PACKAGE.glob(room))]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
        or node.func.id == "isinstance"
        and "BinlogParser" in ast.unparse(node.args[1])
    }
    assert asked == set(ASKED)


def test_values_import_no_part() -> None:
    values = "errors gtid position schema statement filter status alarm binlog.event_layout binlog.event_types"
    paths = [PACKAGE.joinpath(*name.split(".")).with_suffix(".py") for name in (*values.split(), "binlog.type_codes")]
    for path in (*paths, *(PACKAGE / "model").glob("*.py")):
        known = {module.removesuffix(".type_codes") for module in imports(path) if module.startswith("canal.")}
        known = {module for module in known if not module.startswith("canal.model.")}
        assert known <= {"canal.errors", "canal.gtid", "canal.position", "canal._util.interpreted", "canal.binlog"}, path


def test_every_public_value_says_what_its_members_are() -> None:
    """Protocols are the docstrings of what implements them; the rest stands for itself under help()."""
    values = (
        canal.ChangedRow,
        canal.Entry,
        canal.Header,
        canal.Instance,
        canal.InstanceConfig,
        canal.InstanceStatus,
        canal.Message,
        canal.Position,
        canal.Row,
        canal.Server,
        canal.TableSchema,
        canal.Transaction,
        canal.ZooKeeper,
        canal.model.RowChange,
        canal.status.Lag,
        canal.status.SourceEnd,
    )
    silent = [
        f"{value.__name__}.{name}"
        for value in values
        for name, member in vars(value).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property)) and not inspect.getdoc(member)
    ]
    assert silent == []


def test_importing_the_library_loads_nothing_heavy() -> None:
    heavy = ("pyarrow", "kazoo", "pyspark", "rich", "hypothesis", "prometheus_client")
    code = f"import canal, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)

    assert done.stdout.strip() == "[]"


def test_compiled_modules_know_their_c_declarations() -> None:
    from canal._util.build import COMPILED_MODULES

    for name in COMPILED_MODULES:
        path = PACKAGE.parent.joinpath(*name.split("."))
        assert path.with_suffix(".py").exists()
        assert path.with_suffix(".pxd").exists()


def test_no_finalizer_takes_a_lock() -> None:
    """It runs in whatever thread collects, which may hold that lock: all that one may do is to note something."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and node.name == "__del__":
                calls = (ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call))
                found.append((path.name, any(isinstance(one, ast.With) for one in ast.walk(node)), *calls))
            assert not (isinstance(node, ast.Attribute) and ast.unparse(node) == "weakref.finalize"), path

    assert sorted(found) == [(name, False, "client.left.append") for name in ("decode_ahead.py", "stream.py")]  # of a deque


def test_no_module_of_the_tests_imports_a_test_and_what_they_share_has_its_folders() -> None:
    """So that a test file can be read, moved and cut by itself."""
    tests = Path(__file__).parent
    apart, imported = [], []
    for path in tests.rglob("*.py"):
        is_test = path.name == "conftest.py" or path.name.startswith("test_") or path.read_text() == ""
        if not is_test and path.relative_to(tests).parts[0] not in ("support", "programs", "servers"):
            apart.append(path.name)
        texts = re.findall(r"^ *((?:from|import) (?:tests\b|\.)[^(\n]*(?:\([^)]*\))?)", path.read_text(), re.M)
        imported += [f"{path.name}: {text}" for text in texts if re.search(r"\btest_", text)]

    assert apart == [], "what tests share is in tests/support, what runs by python -m in tests/programs"
    assert imported == [], "what two tests need is in tests/support"


#: Classes and functions that are longer than one can hold in the head, and why. Lines without docstrings.
LONG = {
    "BinlogDecoder": "one pass over the bytes of an event, with a branch for each of its types",
    "BinlogDecoder._event": "the steps of every event, in one C function",
    "BinlogDecoder._uncommon": "one branch per type of event",
    "BinlogDecoder._rows": "the way of every changed row, in one C function",
    "ParserRun": "one run of a parser, whose steps share its state; calls have a line per argument",
    "ParserRun.__init__": "a line per argument",
    "ParserRun._stream_once": "the order of its steps is what it says",
    "RowDecoder": "one branch per type of column",
    "ColumnBuilder._append_fixed": "one C loop per type of column",
    "ColumnBuilder._append_texts": "one C loop per form of text",
    "RowWriter": "one branch per form of a value, and one per step of a program",
    "RowWriter._piece": "one branch per form of a value",
    "RowWriter._temporal": "one branch per type of date or time",
    "RunningMonitor": "the actions of one state machine",
    "Instance": "the public methods, each with its arguments",
    "Delivery": "the state of one client, which changes in one assignment with a line per field",
    "Pipe.__init__": "a line per option",
    "settings": "one check per setting of a server",
}


def test_objects_and_functions_can_be_held_in_the_head() -> None:
    long = set()
    for path in PACKAGE.rglob("*.py"):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                long |= {node.name} if _lines(node) > 400 else set()
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                long |= {f"{node.name}.{one.name}" for one in methods if _lines(one) > 60}
            elif isinstance(node, ast.FunctionDef) and _lines(node) > 60:
                long.add(node.name)

    assert long == set(LONG)


def _lines(node: ast.ClassDef | ast.FunctionDef) -> int:
    kinds = (ast.ClassDef, ast.FunctionDef)
    texts = [one.body[0] for one in ast.walk(node) if isinstance(one, kinds) and ast.get_docstring(one) is not None]
    return _span(node) - sum(map(_span, texts))


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


#: Packages that import the module of a name when the name is first used.
LAZY = [canal, canal.formats, canal.parse, canal.rows, canal.spark, canal.targets, canal.testing]


@pytest.mark.parametrize("package", LAZY, ids=lambda one: one.__name__)
def test_public_names_are_where_type_checkers_find_them(package: Any) -> None:
    declared = {}
    for node in ast.walk(tree(Path(package.__file__))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            imported = [one for one in node.body if isinstance(one, ast.ImportFrom) and one.module != "canal"]
            declared = {name.name: f"{one.module}.{name.name}" for one in imported for name in one.names}

    homes = {name: home if home.startswith("canal.") else f"{package.__name__}.{home}" for name, home in package._HOMES.items()}
    modules = {name for name, home in package._HOMES.items() if home == name}  # a name that stands for its module
    assert set(declared.values()) == {home if name in modules else f"{home}.{name}" for name, home in homes.items()}
    assert set(declared) <= set(package.__all__)
    assert [name for name in package.__all__ if name not in {*declared, *vars(package)}] == []


def test_the_package_itself_has_what_most_programs_use() -> None:
    """The rest comes from its module: ``canal.errors.SchemaError``."""
    assert canal.__all__ == sorted({*canal._HOMES, "compiled"})
    assert len(canal.__all__) < 65


def test_no_class_of_public_modules_has_the_name_of_another() -> None:
    names = [
        node.name
        for name, path in MODULES.items()
        if not any(part.startswith("_") for part in name.split("."))
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [name for name in names if names.count(name) > 1] == []


def test_every_public_name_in_code_and_text_exists() -> None:
    """A name that was moved or renamed is found in messages, docstrings and documents too."""
    root = PACKAGE.parent
    named: dict[str, str] = {}
    for pattern in ("README.md", "docs/**/*.md", "canal/**/*.py", "tests/**/*.py", "examples/*.py"):
        for path in root.glob(pattern):
            names = re.findall(r"(?<![\w./-])canal(?:\.[a-z_]\w*)?\.[A-Z]\w*", path.read_text("utf-8"))
            named |= dict.fromkeys(names, str(path.relative_to(root)))

    unknown = {name: path for name, path in named.items() if not _exists(name)}
    assert unknown.keys() == {"canal.MergeCatalog", "canal.errors.NoSuchError"}, "a setting of Spark, and a name of no error"


def _exists(name: str) -> bool:
    try:
        attrgetter(name.removeprefix("canal."))(canal)
    except AttributeError:
        return False
    return True


def test_each_module_of_a_public_name_can_be_the_first_that_is_imported() -> None:
    """Public names load their modules when they are first asked for, in any order."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [one for one in sys.modules if one == 'canal' or one.startswith('canal.')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    homes = {f"{package.__name__}.{home}" for package in (canal, canal.parse) for home in package._HOMES.values()}
    environment = {**os.environ, "CANAL_PURE": "1"}
    subprocess.run([sys.executable, "-c", code, *sorted(homes), "canal"], check=True, cwd=PACKAGE.parent, env=environment)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    for name in ("Instanze", "foo.bar", "errors.CanalError", "_hidden"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(canal, name)
    assert canal.errors.CanalError is canal.CanalError
