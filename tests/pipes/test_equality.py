"""The equality machine: whatever happens, a target holds what the source's tables hold, or an error says why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from canal.testing.servers import MariaDBServer
from tests.programs.equality import PLACES, SERVERS, Machine, Processes
from tests.support.random_tables import Maker

#: A seed takes about half a second of a processor, so `make test` has one target of each way to commit.
DAILY = [("sqlite", "mysql"), ("postgresql", "mariadb"), ("mysql", "mariadb")]
NIGHTLY = [("sqlite", "mariadb"), ("duckdb", "mysql"), ("postgresql", "mysql"), ("redis", "mariadb"), ("jsonlines", "mysql")]
NIGHTLY += [("delta", "mysql"), ("iceberg", "mariadb"), ("mongodb", "mysql"), ("opensearch", "mariadb")]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as processes:
        yield processes


def play(kind: str, flavor: str, request: pytest.FixtureRequest, processes: Processes, seeds: int) -> None:
    source = request.getfixturevalue(f"{flavor}_server")
    with ExitStack() as stack:
        server = stack.enter_context(MariaDBServer(server_id=77)) if kind == "mysql" else None
        if kind in SERVERS:
            server = request.getfixturevalue(f"{'ferretdb' if kind == 'mongodb' else kind}_server")
        machine = stack.enter_context(Machine(source, kind, processes, server))
        for seed in range(seeds):
            machine.check(seed)
        assert machine.counts["equal"] > seeds // 2, machine.counts


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "flavor"), DAILY)
def test_target_holds_what_the_source_holds(
    kind: str, flavor: str, request: pytest.FixtureRequest, processes: Processes, full_size: bool
) -> None:
    play(kind, flavor, request, processes, 1000 if full_size else 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "flavor"), NIGHTLY)
def test_target_holds_each_night_what_the_source_holds(
    kind: str, flavor: str, request: pytest.FixtureRequest, processes: Processes, full_size: bool
) -> None:
    play(kind, flavor, request, processes, 1000 if full_size else 20)


def test_histories_of_a_seed_are_equal_and_hold_all_that_may_happen() -> None:
    lives, rules, images, kinds = set(), set(), set(), set()
    for seed in range(300):
        place = PLACES["postgresql"]
        made = [Maker(seed, "mysql", lacks=place.lacks, lives=place.lives, rules=place.rules).history() for _ in range(2)]
        assert made[0] == made[1]
        lives |= {phase.life for phase in made[0].phases}
        images |= {phase.image for phase in made[0].phases}
        rules.add(made[0].rule)
        kinds |= {(one.kind, one in made[0].keys) for one in made[0].columns}
    assert lives == {"whole", *place.lives}
    assert rules == {"", *place.rules}
    assert images == {"FULL", "MINIMAL", "NOBLOB"}
    assert len(kinds) > 60
