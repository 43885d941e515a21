"""Deliberate faults of the library, each with the tests that must notice it: so that the tests are known to be able to fail.

    CANAL_TESTS=all python -m tests.programs.mutants [NAME…]

Without CANAL_TESTS=all some tests try fewer cases and can miss their fault.

Each fault replaces one text of one file in a copy of the tree, in which the tests that are named beside it are run, interpreted.
A fault counts as caught only where every one of them fails, by an assertion or by an error of the library's own: not
by an import that fails, nor by a hang. Before that the same tests must pass. Never changes the tree itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("canal", "tests", "docs", "examples", "README.md", "CHANGELOG.md", "pyproject.toml", "pyspark_canal.py")
#: Seconds that one test may take, and all tests of a fault.
_EACH, _ALL = 90, 1800


@attrs.frozen
class Mutant:
    """One fault: in ``file`` the text ``old``, which is there once, becomes ``new``; then each of ``tests`` fails."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    is_quick: bool = False
    """Whether `make test-all` tries it."""


def _mutant(name: str, file: str, old: str, new: str, *tests: str, is_quick: bool = False) -> Mutant:
    return Mutant(name, f"canal/{file}", old, new, tuple(f"tests/{test}" for test in tests), is_quick)


#: The short form of the fault run of high availability.
_HA_RUN = "live/test_ha.py::test_random_faults_lose_nothing_and_no_range_is_acked_twice"

#: Snapshots beside a stream, in any order.
_LOADS = "pipes/test_initial_machine.py::test_rows_and_changes_come_to_be_the_table_in_any_order"

#: Every state that a crash of the machine may leave.
_CRASH = "disk/test_disk.py::test_what_was_promised_is_there_after_a_crash_at_any_moment"

#: Each type of the source in each type of a target.
_PAIRS = "targets/test_type_pairs.py::test_value_is_kept_or_refused_in_a_column_of_each_type"

#: A table of the target that is not the one that was written.
_LOST = "targets/test_lost_tables.py::test_table_that_is_not_the_one_that_was_written_stops_the_pipe"

MUTANTS: tuple[Mutant, ...] = (
    # -- sink and store ------------------------------------------------------------------------------------------------
    _mutant(
        "a row in 1,000 is dropped",
        "sink/entry_sink.py",
        "        store.put(entries)",
        "        rows = [entry for entry in entries if entry.row_count]\n"
        "        self.seen = getattr(self, 'seen', 0) + len(rows)\n"
        "        store.put([entry for entry in entries if self.seen % 1000 >= len(rows) or entry is not rows[-1]])",
        "parse/test_roundtrip.py::test_each_of_many_rows_comes_once_and_in_order",
        _HA_RUN,
        is_quick=True,
    ),
    _mutant(
        "a BEGIN of a transaction in pieces is held back",
        "sink/condense.py",
        "if not entry.part:",
        "if True:",
        "sink/test_entry_sink.py::test_the_end_comes_of_a_transaction_whose_first_rows_came_over_the_connection_before",
    ),
    _mutant(
        "a hook may add entries",
        "sink/entry_sink.py",
        "if not any(entry is other for other in remaining):",
        "if False:",
        "sink/test_entry_sink.py::test_a_hook_that_misbehaves_stops_the_line_and_says_where",
    ),
    _mutant(
        "the row filter keeps the wrong side",
        "sink/entry_sink.py",
        "if predicate(header",
        "if not predicate(header",
        "parse/test_parser.py::test_row_filter_keeps_the_changes_for_which_it_is_true",
    ),
    # -- the store -----------------------------------------------------------------------------------------------------
    _mutant(
        "the store takes an entry more than its limits",
        "store/ring.py",
        "if self.tail - self.head >= self.max_entries or self.byte_count + size > self.max_bytes:",
        "if self.tail - self.head > self.max_entries or self.byte_count > self.max_bytes:",
        "store/test_memory_store.py::test_put_waits_at_either_limit_until_the_slowest_client_acks",
        "store/test_memory_store.py::test_no_entry_too_many_and_none_too_few_goes_in",
        is_quick=True,
    ),
    _mutant(
        "the store exceeds its bytes by an entry",
        "store/ring.py",
        "self.byte_count + size > self.max_bytes:",
        "self.byte_count > self.max_bytes:",
        "store/test_memory_store.py::test_no_entry_too_many_and_none_too_few_goes_in",
    ),
    _mutant(
        "rows that are forgotten are not counted",
        "store/ring.py",
        "            self.freed_rows += entry.row_count\n",
        "",
        "store/test_ring.py::TestRing",
    ),
    _mutant(
        "a BEGIN comes without what follows it",
        "store/ring.py",
        "taken.pop()",
        "pass",
        "store/test_ring.py::test_take_begin_whose_row_exceeds_a_limit_leaves_begin_for_the_next_batch",
    ),
    _mutant(
        "a client that comes later lacks what the others have not acked",
        "store/memory.py",
        "start = self._ring.head if like is None else self._reader(like).acked",
        "start = self._ring.tail",
        "instance/test_delivery.py::test_a_client_that_subscribes_while_another_acks_misses_nothing",
    ),
    # -- delivery ------------------------------------------------------------------------------------------------------
    _mutant(
        "an ack is not written",
        "instance/delivery.py",
        "            self.context.write_cursor(self.id, position)\n        self.state = state\n",
        "            pass\n        self.state = state\n",
        "instance/test_delivery.py::test_ack_moves_the_cursor_to_the_end_of_the_batch_and_it_is_stored",
    ),
    _mutant(
        "a rollback is forgotten",
        "instance/delivery.py",
        "self._replace(reading=before, batches=",
        "self._replace(batches=",
        "instance/test_delivery.py::test_rollback_hands_out_the_same_entries_with_new_ids",
    ),
    _mutant(
        "acks are taken in any order",
        "instance/delivery.py",
        "            if not batches or batches[0].id != batch_id:\n",
        "            if state.number(batch_id) is None:\n",
        "instance/test_delivery.py::test_ack_out_of_order_is_refused_and_moves_nothing",
        "instance/test_delivery.py::TestDelivery",
        _HA_RUN,
    ),
    _mutant(
        "the cursor moves before it is written",
        "instance/delivery.py",
        "        position = state.acked.position\n",
        "        position, old, self.state = state.acked.position, self.state, state\n"
        "        self.state = old._replace(acked=state.acked)\n",
        "instance/test_delivery.py::test_an_ack_whose_cursor_cannot_be_written_changes_nothing_and_can_be_repeated",
    ),
    _mutant(
        "the position moves before the batch is recorded",
        "instance/delivery.py",
        "            taken.append((self, batch))\n",
        "            self.state = state._replace(reading=after)\n            taken.append((self, batch))\n",
        "instance/test_interrupts.py::test_an_exception_at_any_point_loses_nothing[Acks-goes on]",
    ),
    _mutant(
        "a batch that did not reach its caller stays",
        "instance/calls.py",
        "            if message:\n                client, batch = taken[-1]\n",
        "            if message:\n                client, batch = taken.pop()\n                client.auto = batch.id\n"
        "                len(taken)\n",
        "instance/test_interrupts.py::test_an_exception_at_any_point_loses_nothing[Gets-goes on]",
    ),
    _mutant(
        "a filter of a client lets BEGIN and END of others through",
        "instance/client_filter.py",
        "elif is_open is not None and is_open.is_same(entry.transaction):",
        "elif True:",
        "instance/test_delivery.py::test_a_clients_filter_narrows_and_keeps_begin_and_end_of_what_is_left",
    ),
    _mutant(
        "a client that was ahead gets all again",
        "instance/clients.py",
        "skip=None if cursor == resume else cursor",
        "skip=None",
        "instance/test_delivery.py::test_after_a_restart_each_client_gets_only_what_it_has_not_acked",
    ),
    _mutant(
        "a start is not stored before subscribe returns",
        "instance/clients.py",
        "self._meta.update_cursor(client_id, start.position)",
        "pass",
        "instance/test_delivery.py::test_the_first_cursor_is_stored_when_subscribe_returns",
    ),
    _mutant(
        "what a filter passes over is taken for the end",
        "instance/delivery.py",
        "                over = not slice.entries\n",
        "                over = True\n",
        "instance/test_delivery.py::test_what_a_filter_passes_over_is_not_taken_for_the_end_of_the_log",
    ),
    _mutant(
        "a client joins the store where that is ahead of it",
        "store/memory.py",
        "if not self._open or entry is None or not is_done(entry):",
        "if not self._open or entry is None:",
        "instance/test_slow_clients.py::test_a_stream_ends_behind_all_that_its_client_is_behind_by",
    ),
    _mutant(
        "a client that joins the store gets again what it has",
        "instance/delivery.py",
        "skip=done, feed",
        "skip=None, feed",
        "instance/test_slow_clients.py::test_a_client_seeks_back_and_ahead_and_no_other_one_notices[mysql]",
    ),
    # -- the log -------------------------------------------------------------------------------------------------------
    _mutant(
        "rows come before XA COMMIT",
        "parse/log/xa.py",
        "            assembly.keep([entry for entry in assembly.pending if entry.entry_type != _ROWDATA])\n",
        "",
        "parse/test_xa.py::test_rows_come_at_commit_and_never_after_rollback",
        is_quick=True,
    ),
    _mutant(
        "an XA ROLLBACK commits",
        "parse/log/xa.py",
        "if verb == Verb.XA_COMMIT and (",
        "if True and (",
        "parse/test_xa.py::test_rows_come_at_commit_and_never_after_rollback",
    ),
    _mutant(
        "rows behind a savepoint stay",
        "parse/log/assembly.py",
        "            self._leave_out_rows(ordinal, row)\n        count",
        "            pass\n        count",
        "parse/test_transactions.py::test_rows_behind_a_savepoint_are_taken_back",
    ),
    _mutant(
        "a large transaction is not looked through",
        "parse/log/assembly.py",
        "if self.may_undo and self._look_ahead",
        "if False and self._look_ahead",
        "parse/test_transactions.py::test_transaction_larger_than_a_piece_delivers_only_what_stays",
    ),
    _mutant(
        "a checksum is not verified",
        "parse/log/decoder.py",
        "if kind != kinds.FORMAT_DESCRIPTION and crc.crc32(p, size) != _CRC_RESIDUE:",
        "if False:",
        "parse/test_damage.py::test_every_truncation_and_every_flipped_byte_is_a_typed_error_or_is_noticed",
        is_quick=True,
    ),
    _mutant(
        "an event of an unknown kind is passed over",
        "parse/log/decoder.py",
        "elif wire.u16(p, layout.FLAGS) & kinds.IGNORABLE_F:",
        "elif True:",
        "parse/test_unsupported.py::test_an_event_that_is_not_decoded_is_named",
    ),
    _mutant(
        "a piece of a rows event is passed over where it says that it may be",
        "parse/log/decoder.py",
        "elif kind == kinds.PARTIAL_ROW_DATA:",
        "elif kind == kinds.PARTIAL_ROW_DATA and not wire.u16(p, 17):",
        "parse/test_unsupported.py::test_a_piece_of_a_rows_event_is_refused_whatever_its_flags_say[128]",
    ),
    _mutant(
        "an incident is passed over",
        "parse/log/decoder.py",
        "        elif kind == kinds.INCIDENT:\n            raise",
        "        elif kind == kinds.INCIDENT:\n            return\n            raise",
        "parse/test_unsupported.py::test_an_incident_is_loud",
    ),
    _mutant(
        "a statement changes the columns of rows before it",
        "parse/log/statements.py",
        "            self._changed(statement, sql, data)\n",
        "",
        "parse/test_history.py::test_files_are_read_by_the_statements_in_them",
    ),
    _mutant(
        "rows that were acked come again",
        "parse/log/decoder.py",
        "if first < assembly.skip:",
        "if False:",
        "parse/test_parser.py::test_resuming_at_any_row_gives_exactly_the_rest",
    ),
    _mutant(
        "the rows that were acked of one transaction are left out of another",
        "parse/log/assembly.py",
        "return not self._skip_timestamp or (",
        "return True or (",
        "instance/test_delivery_faults.py::test_rows_are_not_skipped_of_another_transaction_than_the_cursors",
    ),
    _mutant(
        "the GTID of a transaction is done when it begins",
        "parse/log/gtid_run.py",
        "self._previous = self._last",
        "self._previous = number",
        "parse/test_decoder.py::test_a_gtid_is_done_at_the_end_of_its_transaction_and_not_before",
    ),
    # -- the stream ----------------------------------------------------------------------------------------------------
    _mutant(
        "the position moves before the sink has taken what is before it",
        "parse/run.py",
        "        self._sink.sink(entries)\n",
        "        self._options.log_positions.persist(lambda: last.position)\n        self._sink.sink(entries)\n",
        "parse/test_log_positions.py::test_file_manager_restart_repeats_refused_entries",
    ),
    _mutant(
        "damage is read again for ever",
        "parse/run.py",
        "        if damage == self._damage:",
        "        if False:",
        "parse/test_damage.py::test_a_damaged_log_stops_the_instance_and_says_where",
    ),
    _mutant(
        "heartbeats count as changes",
        "parse/run.py",
        "if any(event[layout.TYPE] not in HEARTBEATS for event in events)",
        "if events",
        "parse/test_reconnects.py::test_quiet_log_is_checked_after_check_interval",
    ),
    _mutant(
        "the end of a log that is silent is looked at late",
        "parse/source/server.py",
        "check_interval: float = attrs.field(default=10.0",
        "check_interval: float = attrs.field(default=20.0",
        "parse/test_reconnects.py::test_quiet_log_is_checked_after_check_interval",
    ),
    _mutant(
        "a lost position is given up unasked",
        "parse/start.py",
        'self.lost > (0 if self.on_lost == "fail" else self.threshold)',
        "self.lost > self.threshold",
        "parse/test_start.py::test_decide_known_facts_returns_rule_and_start",
    ),
    # -- continuity ----------------------------------------------------------------------------------------------------
    _mutant(
        "a gap between two logs is accepted",
        "parse/log/continuity.py",
        "            if journal != announced:",
        "            if False:",
        "parse/test_continuity.py::test_the_log_that_a_rotate_names_is_the_one_that_comes",
        is_quick=True,
    ),
    _mutant(
        "numbers of logs that are missing prove nothing",
        "parse/log/continuity.py",
        "            self._doubt = before\n        self._has_ended",
        "            pass\n        self._has_ended",
        "parse/test_continuity.py::test_numbers_that_nothing_proves_are_a_gap",
    ),
    _mutant(
        "another life of a log is taken for the one of the position",
        "parse/log/continuity.py",
        "if start.incarnation and incarnation != start.incarnation:",
        "if False:",
        "parse/test_continuity.py::test_a_stream_begins_in_the_log_that_its_position_is_of",
    ),
    _mutant(
        "the GTIDs that a head lists are not compared",
        "parse/log/continuity.py",
        "        if missing:\n            raise",
        "        if False:\n            raise",
        "parse/test_continuity.py::test_gtids_that_a_head_lists_must_have_been_read",
    ),
    _mutant(
        "a log that ends with nothing is followed by any other",
        "parse/log/continuity.py",
        "elif has_ended and not form.created:",
        "elif False:",
        "parse/test_continuity.py::test_a_log_that_ends_with_nothing_is_followed_by_one_of_a_server_that_started",
    ),
    _mutant(
        "a file that is listed and not there is passed over",
        "parse/source/files.py",
        "reader.path.name) + 1 :]",
        "reader.path.name) + 2 :]",
        "parse/test_files.py::test_a_file_that_the_index_lists_is_not_passed_over",
    ),
    _mutant(
        "a position that the source has lost is looked for without end",
        "parse/locate.py",
        'if is_first or self._options.on_lost == "fail":',
        "if is_first:",
        "parse/test_failover.py::test_a_lost_place_stops_the_instance_with_the_remedy",
    ),
    # -- continuity, by its model --------------------------------------------------------------------------------------
    _mutant(
        "a cursor is believed of a log that was reset",
        "parse/log/continuity.py",
        "if start.incarnation and incarnation != start.incarnation:",
        "if False:",
        "parse/test_continuity_model.py::test_a_reset_while_away_and_then_more_than_before[direct-mysql-False-fail]",
        "parse/test_continuity_model.py::test_a_reset_while_away_and_then_more_than_before[files-mariadb-True-latest]",
    ),
    _mutant(
        "the cursors of two lives of a log are compared by number",
        "position.py",
        "            lives = self._lives(other)\n",
        "            lives = 0\n",
        "test_position.py::test_positions_of_a_log_that_was_reset_are_not_compared_by_their_numbers[b.000005-40-1-False]",
        "instance/test_client_filter.py::test_a_cursor_that_cannot_be_compared_holds_nothing_back"
        "[of a log before with more journals]",
    ),
    _mutant(
        "the GTIDs that a head lists prove nothing",
        "parse/log/continuity.py",
        "        if missing:\n            raise",
        "        if False:\n            raise",
        "parse/test_continuity_model.py::test_a_file_that_is_cut_between_two_events[files-mysql-True-restart-fail]",
        "parse/test_continuity_model.py::test_a_file_that_is_cut_between_two_events[follow-mariadb-True-crash-fail]",
    ),
    _mutant(
        "bytes between two events may be missing",
        "parse/log/decoder.py",
        "self._strict = continuity is not None and continuity.by_offset",
        "self._strict = False",
        "parse/test_continuity_model.py::test_a_file_that_is_cut_between_two_events[files-mysql-False-rotate-fail]",
        is_quick=True,
    ),
    _mutant(
        "the end of a log that a ROTATE must end may be missing",
        "parse/log/continuity.py",
        "elif has_ended and not form.created:",
        "elif False:",
        "parse/test_continuity_model.py::test_a_file_that_is_cut_between_two_events[files-mysql-False-rotate-fail]",
    ),
    _mutant(
        "any start of a server is that of the log's own",
        "parse/log/continuity.py",
        "        if has_former is False:\n",
        "        if False:\n",
        "parse/test_continuity_model.py::test_a_reset_and_a_start_of_the_server_while_its_log_is_read[direct-mysql-False-restart-fail]",
    ),
    _mutant(
        "purged logs without GTIDs are taken for done",
        "parse/locate.py",
        "!= ANONYMOUS_GTID:",
        "!= 0:",
        "parse/test_continuity_model.py::test_logs_without_gtids_that_are_purged_while_away[direct-fail]",
    ),
    _mutant(
        "a log that was begun anew is read by GTID set",
        "parse/start.py",
        "or not self.journals:",
        "or True:",
        "parse/test_continuity_model.py::test_logs_without_gtids_that_are_purged_while_away[wire-fail]",
    ),
    _mutant(
        "whether a server has executed what a cursor says is not asked",
        "parse/locate.py",
        "    except PositionLostError:\n        return False",
        "    except PositionLostError:\n        return True",
        "parse/test_continuity_model.py::test_a_reset_without_gtids_and_a_cursor_of_an_earlier_version_with_some[wire]",
    ),
    _mutant(
        "a dump goes over to a log of another life",
        "parse/log/continuity.py",
        "        elif rotated_at is not None and rotated_at !=",
        "        elif False and rotated_at !=",
        "parse/test_continuity_model.py::test_a_reset_while_it_is_read[direct-mysql-False-1-fail]",
    ),
    _mutant(
        "a silent end is not looked at",
        "parse/run.py",
        "behind = not connection.check_end(self.decoder.position)",
        "behind = False",
        "parse/test_continuity_model.py::test_a_reset_while_it_is_read[direct-mysql-False-1-fail]",
    ),
    _mutant(
        "behind a gap reading begins with the oldest log again",
        "parse/start.py",
        'return facts.behind or "earliest"',
        'return "earliest"',
        "parse/test_continuity_model.py::test_a_file_that_is_gone[False-files-mysql-False-earliest]",
    ),
    _mutant(
        "a cursor of another server is believed",
        "parse/start.py",
        "bool(self.position.source) and self.position.source != self.identity",
        "False",
        "parse/test_continuity_model.py::test_a_switch_and_back[direct-mysql-True]",
    ),
    _mutant(
        "GTIDs go before a journal that can be proved",
        "parse/start.py",
        "        if position is None or not position.incarnation or",
        "        if True or position is None or not position.incarnation or",
        "parse/test_continuity_model.py::test_gtids_switched_off_and_on_while_away[direct]",
    ),
    # -- several sources, several destinations ------------------------------------------------------------------------
    _mutant(
        "the start of a member that is added is in no cursor",
        "parse/group.py",
        "                self._group.joined(Position(members={name: start}))\n",
        "",
        "parse/test_group.py::test_the_start_of_a_member_that_is_added_is_in_every_cursor_before_anything_of_it_passes",
    ),
    _mutant(
        "a router keeps the schema history for what its outputs were given, not for what they acked",
        "server/router.py",
        "        parser.oldest = oldest_of_all\n",
        "",
        "server/test_router.py::test_tables_are_known_as_they_were_at_the_cursor_of_each_output",
    ),
    _mutant(
        "the copy of a transaction is taken for whole before its end",
        "server/router.py",
        "not known[1].end",
        "not known[1].source",
        "server/test_router.py::test_each_output_has_its_part_of_the_journal_once_through_restarts[1]",
    ),
    _mutant(
        "an entry that stands alone counts as done by its second",
        "instance/client_filter.py",
        "is_done(entry, attrs.evolve(own, row=0))",
        "is_done(entry, own)",
        "instance/test_client_filter.py::test_a_later_transaction_of_the_same_second_is_not_taken_for_the_one_that_is_done_in_part",
    ),
    _mutant(
        "the transaction that is done in part is known by its second",
        "instance/client_filter.py",
        "if cursor.next_gtid and cursor.next_gtid == transaction.gtid:",
        "if cursor.row and (transaction.timestamp * 1000, transaction.server_id) == (cursor.timestamp, cursor.server_id):",
        "instance/test_client_filter.py::test_skip_of_a_group_leaves_other_transactions_of_the_same_second_whole[another server]",
    ),
    _mutant(
        "rows that are done open their transaction for what is before them",
        "instance/client_filter.py",
        "self._filter(run, begin, passed)",
        "self._filter(run._replace(open=runs[-1].open), begin, passed)",
        "instance/test_client_filter.py::test_end_passes_the_filter_before_rows_of_another_member_that_are_done[one slice]",
        "parse/test_group.py::test_end_passes_a_filter_when_another_member_comes_before_what_the_client_has_acked",
        is_quick=True,
    ),
    _mutant(
        "a TLS socket that cannot begin stays open",
        "parse/source/_pymysql.py",
        "tls.sslsocket_class = TlsSocket",
        "tls.sslsocket_class = ssl.SSLSocket",
        "instance/test_stop.py::test_connection_that_is_reset_before_the_tls_handshake_leaves_no_socket_open",
    ),
    # -- alarms --------------------------------------------------------------------------------------------------------
    _mutant(
        "a trouble is never over",
        "alarm.py",
        "if name[0] is kind]",
        "if name[0] is None]",
        "test_alarm.py::test_the_end_of_a_trouble_is_told_once_and_only_when_there_was_one",
        "test_alarm.py::test_an_instance_tells_of_a_source_that_is_down_once_and_of_its_return",
    ),
    _mutant(
        "reminders become rarer and rarer",
        "alarm.py",
        "trouble.wait = min(2 * trouble.wait, self._reminders[1])",
        "trouble.wait = 2 * trouble.wait",
        "test_alarm.py::test_reminders_come_after_a_minute_and_then_ever_more_rarely_up_to_an_hour",
        is_quick=True,
    ),
    _mutant(
        "the first reminder comes after an hour",
        "alarm.py",
        "REMINDERS = (60.0, 3600.0)",
        "REMINDERS = (3600.0, 3600.0)",
        "test_alarm.py::test_reminders_come_after_a_minute_and_then_ever_more_rarely_up_to_an_hour",
    ),
    _mutant(
        "the clock of the source does not count",
        "parse/progress.py",
        "max(self._clock() + self._clock_offset - fresh, 0.0)",
        "max(self._clock() - fresh, 0.0)",
        "test_status.py::test_lag_grows_while_the_source_is_away",
    ),
    # -- meta ----------------------------------------------------------------------------------------------------------
    _mutant(
        "a cursor is shown before it is written",
        "meta/stored.py",
        "            self._storage.commit(clients, urgent)\n            self._clients = clients",
        "            self._clients = clients\n            self._storage.commit(clients, urgent)",
        "meta/test_file_meta.py::test_a_write_that_fails_changes_nothing",
        is_quick=True,
    ),
    _mutant(
        "a cursor is not on the disk when it takes the place of the last one",
        "meta/file.py",
        "os.fsync(file.fileno())",
        "pass",
        "meta/test_file_cursors.py::test_a_cursor_is_on_the_disk_before_it_takes_the_place_of_the_last_one_and_that_"
        "before_the_ack_returns",
        f"{_CRASH}[cursors-cursors]",
    ),
    _mutant(
        "the name of a cursor's file is not on the disk when the ack returns",
        "meta/file.py",
        "            sync_folder(self._folder)\n",
        "",
        f"{_CRASH}[cursors-cursors]",
        is_quick=True,
    ),
    _mutant(
        "the name of a folder is not on the disk",
        "_util/disk.py",
        "    sync_folder(path.parent)\n",
        "",
        *(f"{_CRASH}[{name}]" for name in ("cursors-cursors", "schemas-schemas", "positions-positions", "progress-progress")),
    ),
    _mutant(
        "cursors but the first ones stay in memory",
        "meta/file.py",
        "elif not self._write_cursors(clients):",
        "elif urgent and not self._write_cursors(clients):",
        "live/test_kill.py::test_nothing_is_lost_or_acked_twice_when_the_process_is_killed[mariadb-10.11]",
    ),
    _mutant(
        "a cursor overwrites the newest one",
        "meta/cursor_file.py",
        "self._number % 2 * self._slot_bytes)",
        "0)",
        "meta/test_file_cursors.py::test_every_damaged_byte_of_a_cursor_falls_back_to_the_one_before",
    ),
    _mutant(
        "a cursor beside the file is not on the disk when the ack returns",
        "meta/cursor_file.py",
        "os.fdatasync(self._file)",
        "pass",
        f"{_CRASH}[cursors-cursors]",
    ),
    _mutant(
        "cursors count with another state too",
        "meta/cursor_file.py",
        "if one is not None and one[1] == base",
        "if one is not None",
        "meta/test_file_cursors.py::test_another_state_in_its_stead_does_not_get_its_cursors[False]",
    ),
    _mutant(
        "an ack that came too late for a group counts as written",
        "meta/file.py",
        "if group.written.get(client_id) is not position:",
        "if not group.is_closed:",
        "meta/test_file_cursors.py::test_a_group_that_cannot_be_written_fails_for_each_and_changes_nothing",
        f"{_CRASH}[cursors_together-cursors]",
    ),
    _mutant(
        "a step of the schema history is not on the disk",
        "parse/schema/history.py",
        "PRAGMA synchronous = EXTRA",
        "PRAGMA synchronous = OFF",
        f"{_CRASH}[schemas-schemas]",
    ),
    _mutant(
        "a file of changes is not on the disk when it has its name",
        "targets/tables/parquet.py",
        "os.fsync(file.fileno())",
        "pass",
        f"{_CRASH}[progress-progress]",
    ),
    _mutant(
        "a spare is believed unproved",
        "meta/file.py",
        "must_verify=True",
        "must_verify=False",
        "meta/test_file_meta.py::test_a_spare_that_cannot_be_proved_whole_is_not_used",
    ),
    _mutant(
        "a cursor in ZooKeeper is written without the fence",
        "meta/zookeeper.py",
        "write(writes, self._fence)",
        "write(writes)",
        "meta/test_zookeeper_meta.py::test_after_a_take_over_nothing_is_written",
    ),
    _mutant(
        "canal's own move of a cursor is overlooked",
        "meta/zookeeper.py",
        "if all(getattr(written, name) == getattr(theirs, name) for name in ",
        "if all(True for name in ",
        "meta/test_zookeeper_meta.py::test_canal_can_read_ours_and_its_own_cursor_counts",
    ),
    # -- high availability ---------------------------------------------------------------------------------------------
    _mutant(
        "a lease is not checked",
        "ha/gate.py",
        "return self._open and clock.now() < self._lease_until",
        "return self._open",
        "ha/test_running.py::test_a_lease_that_is_over_shuts_the_gate",
        "ha/test_steps.py::test_who_is_held_between_any_two_steps_of_a_take_over",
        _HA_RUN,
    ),
    _mutant(
        "a turn that ends while a batch is taken is overlooked",
        "instance/ha_turns.py",
        "if message and fence is not None and ha.fence is fence and ha.may_pass:",
        "if message and fence is not None:",
        "ha/test_running.py::test_a_turn_that_ends_while_a_batch_is_taken_delivers_nothing",
    ),
    _mutant(
        "the clock is not looked at as the last thing",
        "instance/ha_turns.py",
        "ha.fence is fence and ha.may_pass:",
        "ha.may_pass and ha.fence is fence:",
        "ha/test_running.py::test_a_turn_that_ends_while_a_batch_is_taken_delivers_nothing[in_the_last_look]",
    ),
    _mutant(
        "a fence lets through whatever its version is",
        "zookeeper/session.py",
        "[(fence.path, fence.version)]",
        "[(fence.path, -1)]",
        "zookeeper/test_session.py::test_a_raised_epoch_shuts_others_out",
    ),
    _mutant(
        "the epoch stays the same",
        "ha/running.py",
        "number, turn = last + 1,",
        "number, turn = max(last, 1),",
        "ha/test_running.py::test_what_was_not_acked_comes_to_the_next_and_old_batches_are_refused",
    ),
    _mutant(
        "a turn has no name of its own",
        "zookeeper/session.py",
        "[(fence.turn, -1)] * bool(fence.turn)",
        "[]",
        "ha/test_ha_faults.py::test_the_fence_survives_that_the_epoch_is_deleted",
    ),
    _mutant(
        "the epoch begins anew with its node",
        "ha/running.py",
        "last = max(number_there, read_epoch(copy, second.data), self._epoch)",
        "last = number_there",
        "ha/test_ha_faults.py::test_the_fence_survives_that_the_epoch_is_deleted",
    ),
    _mutant(
        "cursors that were deleted are not put back",
        "instance/instance.py",
        "self._turns.restore(self.meta)",
        "pass",
        "ha/test_ha_faults.py::test_a_destination_that_is_deleted_under_its_owner_goes_on_from_the_cursor_that_it_knows",
    ),
    _mutant(
        "contact that was lost meanwhile is overlooked",
        "ha/gate.py",
        "self._open = self._doubts == self._certain",
        "self._open = True",
        "ha/test_running.py::test_contact_that_is_lost_and_found_during_a_look_shuts_the_gate_for_a_moment_only",
    ),
    _mutant(
        "what is not expected ends the election",
        "ha/running.py",
        "except BaseException as error:  # of a user's part perhaps, such as SystemExit",
        "except CoordinationError as error:",
        "ha/test_ha_faults.py::test_what_nobody_expects_of_a_deed_is_told_and_the_deed_done_again",
    ),
    _mutant(
        "waits for ZooKeeper do not grow",
        "ha/troubles.py",
        "2.0 ** min(max(failures - 1, 0), 10)",
        "1.0",
        "ha/test_ha_faults.py::test_waits_grow_up_to_a_minute",
    ),
    _mutant(
        "nodes are open to everybody",
        "zookeeper/config.py",
        'return bool(self.auth) and self.acl == "creator"',
        "return False",
        "zookeeper/test_session.py::test_with_credentials_nodes_are_their_creators",
        "ha/test_ha_faults.py::test_with_credentials_a_destination_that_was_open_becomes_theirs",
    ),
    _mutant(
        "heartbeats that fail are not counted",
        "ha/source_health.py",
        "self.failures += 1",
        "pass",
        "parse/test_failover.py::test_heartbeats_notice_a_source_that_is_gone",
    ),
    _mutant(
        "heartbeats that failed are never forgiven",
        "ha/source_health.py",
        "if problem is None:\n            self.failures = 0",
        "if problem is None:\n            pass",
        "parse/test_failover.py::test_one_healthy_heartbeat_forgives_all_before",
    ),
    # -- positions -------------------------------------------------------------------------------------------------------
    _mutant(
        "a GTID set goes to the server without its last ones",
        "gtid.py",
        'struct.pack("<QQ", first, last + 1)',
        'struct.pack("<QQ", first, last)',
        "test_gtid.py::test_text_wire_hash_and_copies_round_trip",
        "test_gtid.py::test_the_servers_bytes",
        is_quick=True,
    ),
    _mutant(
        "MariaDB's last GTID counts as not done",
        "gtid.py",
        "sequence <= known[1]",
        "sequence < known[1]",
        "test_gtid.py::test_mariadb_operators",
    ),
    _mutant(
        "positions in one transaction are one position",
        "position.py",
        "journal_key(self.journal)[1], self.offset, self.row",
        "journal_key(self.journal)[1], self.offset, 0",
        "test_position.py::test_earlier_positions_precede",
    ),
    _mutant(
        "clients resume where the one that is ahead is",
        "position.py",
        "        if before or _may_be_before(position, first):\n            first = position\n    for position in every:",
        "        if not before:\n            first = position\n    for position in ():",
        "instance/test_delivery.py::test_after_a_restart_each_client_gets_only_what_it_has_not_acked",
    ),
    _mutant(
        "the cursor is one transaction ahead",
        "model/entry.py",
        "        if self.is_end:\n            return self.transaction.position_after()",
        "        if self.transaction.end:\n            return self.transaction.position_after()",
        "instance/test_delivery.py::test_ack_inside_a_transaction_moves_the_cursor_by_rows",
        "parse/test_parser.py::test_resuming_at_any_entry_gives_exactly_the_rest",
        is_quick=True,
    ),
    _mutant(
        "the position in another server's log is told by one transaction",
        "parse/log/digests.py",
        "length = min(number + 1, len(seen))",
        "length = 1",
        "parse/test_tail.py::test_one_transaction_behind_another_history_is_not_taken_for_the_place",
    ),
    _mutant(
        "a gap of GTIDs is closed by the next one",
        "parse/log/gtid_run.py",
        "if number == self._last + 1 or (type(source) is tuple and number > self._last):",
        "if number > self._last:",
        "parse/test_failover.py::test_what_lies_in_a_gap_of_the_gtids_comes_from_the_other_side",
        "live/test_failover.py::test_what_lies_in_a_gap_of_the_gtids_comes_from_the_replica",
    ),
    _mutant(
        "a gap in a set of GTIDs is closed",
        "gtid.py",
        "if intervals and intervals[-1][1] + 1 == first:",
        "if intervals:",
        "parse/test_failover.py::test_what_lies_in_a_gap_of_the_gtids_comes_from_the_other_side",
        "live/test_failover.py::test_what_lies_in_a_gap_of_the_gtids_comes_from_the_replica",
    ),
    # -- filters -------------------------------------------------------------------------------------------------------
    _mutant(
        "what is excluded passes",
        "filter.py",
        "return not any(pattern.fullmatch(name) for pattern in self._drops)",
        "return True",
        "test_filter.py::test_exclude_wins",
    ),
    _mutant(
        "a statement is filtered by the first table that it names",
        "parse/schema/table_map.py",
        "if not any(self.delivers(*name) for name in statement.tables):",
        "if not self.delivers(*statement.tables[0]):",
        "parse/test_parser.py::test_statements_are_filtered_by_any_table_that_they_name",
    ),
    # -- values and schemas --------------------------------------------------------------------------------------------
    _mutant(
        "unsigned numbers are read as signed",
        "rows/decoder.py",
        "_INTEGERS[code] + (1 if",
        "_INTEGERS[code] + (0 if",
        "parse/test_rows.py::test_integers_at_their_limits",
        "parse/test_roundtrip.py::test_what_was_written_comes_back",
    ),
    _mutant(
        "some updates show the values before them",
        "rows/decoder.py",
        "news.append(self._row(after, data, at))",
        "news.append(self._row(after, data, at) if olds is None or len(data) % 16 else (self._row(after, data, at), old)[1])",
        _HA_RUN,
    ),
    _mutant(
        "a table map that does not fit is believed",
        "parse/schema/misfit.py",
        '        if problem:\n            return f"column',
        '        if False:\n            return f"column',
        "parse/test_tables.py::test_a_schema_that_disagrees_is_told",
    ),
    _mutant(
        "columns of now are taken for those of then",
        "parse/follower.py",
        "if change is None and live is not None and not (now",
        "if live is not None and not (now",
        "parse/test_follower.py::test_find_table_changed_later_raises_even_if_columns_fit",
    ),
    _mutant(
        "what a statement did is not in the history",
        "parse/follower.py",
        "if versions or settings is not None:",
        "if False:",
        "parse/test_follower.py::test_adopted_table_is_stored_before_later_events",
        "parse/test_follower.py::test_dropped_table_is_forgotten",
    ),
    _mutant(
        "a column without its neighbour stands somewhere",
        "parse/schema/alter.py",
        'raise NotUnderstoodError(f"AFTER unknown column {placed.after!r}")',
        "return len(columns)",
        "parse/test_alter.py::test_any_row_of_alters_gives_the_columns_that_a_list_of_names_has",
    ),
    _mutant(
        "a REAL is a DOUBLE whatever sql_mode says",
        "parse/schema/column_types.py",
        "if dialect.sql_mode & REAL_AS_FLOAT else",
        "if False else",
        "parse/test_definition.py::test_a_type_is_shown_as_the_server_shows_it",
    ),
    _mutant(
        "rows go on though the history could not keep their columns",
        "parse/follower.py",
        "        self._history.add(position, {",
        "        from canal.errors import HistoryError\n        with contextlib.suppress(HistoryError):\n"
        "            self._history.add(position, {",
        "parse/test_history.py::test_what_was_complete_before_the_disk_is_full_is_delivered_and_the_rest_once_there_is_room",
    ),
    _mutant(
        "a step at the very position counts as ahead of it",
        "parse/schema/history.py",
        "return None if after is None else not after",
        "return None if after is None else False",
        "parse/test_history.py::test_what_it_gives_back_is_what_a_replay_gives",
    ),
    _mutant(
        "pruning takes a version that is still needed",
        "parse/schema/history.py",
        "later.step > version.step AND later.step <= ?)",
        "later.step > version.step AND later.step <> ?)",
        "parse/test_history.py::test_what_it_gives_back_is_what_a_replay_gives",
    ),
    _mutant(
        "a cascade is told again and again",
        "parse/schema/cascades.py",
        " and self._told.is_first(key)]",
        "]",
        "parse/test_cascades.py::test_each_key_is_told_once",
    ),
    _mutant(
        "a database that was not read has no tables",
        "parse/schema/tables.py",
        "unknown = not is_read and key not in self._tables",
        "unknown = False",
        "parse/test_catalog.py::test_a_catalog_knows_of_which_databases_it_does_not_know_the_tables",
    ),
    _mutant(
        "what entries hold of their tables is not accounted",
        "parse/log/decoder.py",
        "entry.size += table.size",
        "pass",
        "parse/test_decoder.py::test_what_entries_hold_of_their_tables_is_accounted",
    ),
    _mutant(
        "tables of the user's own are taken for shadows",
        "parse/schema/online_ddl.py",
        'base = "" if maker is _Maker.USER else next',
        "base = next",
        "parse/test_online_ddl.py::test_a_table_of_the_users_own_that_is_read_late_keeps_its_rows",
    ),
    _mutant(
        "rows that a name leaves out are told to nobody",
        "parse/schema/online_ddl.py",
        "self._told.is_first(name):\n            self._alarm",
        "self._told.is_first(name):\n            str",
        "parse/test_online_ddl.py::test_rows_that_the_name_alone_leaves_out_are_told_once",
    ),
    _mutant(
        "a table that is gone is remembered",
        "_util/bounded.py",
        "if key not in self and len(self) >= MOST:",
        "if False:",
        "parse/test_table_state.py::test_tables_that_come_and_go_leave_nothing",
    ),
    # -- Spark ---------------------------------------------------------------------------------------------------------
    _mutant(
        "a record of the spool is believed unproved",
        "spool/segments.py",
        "if zlib.crc32(body, kind) != checksum:",
        "if False:",
        "spool/test_segments.py::test_every_changed_byte_is_an_error",
        is_quick=True,
    ),
    _mutant(
        "an offset is ahead of the spool",
        "spark/stream/tail.py",
        "        self._spool.flush()",
        "        pass",
        "spark/stream/test_queries.py::test_a_batch_is_the_same_in_every_form_and_when_it_is_read_again",
    ),
    _mutant(
        "a segment that a batch still needs is written over",
        "spool/spool.py",
        "if number < before]",
        "if number <= before]",
        "spool/test_segments.py::test_segments_that_are_done_with_are_written_over",
    ),
    _mutant(
        "changes are applied again",
        "pipes/apply.py",
        'pc.greater(rows["_ord"], old.ord))\n    return',
        'pc.greater_equal(rows["_ord"], old.ord))\n    return',
        "pipes/test_apply.py::test_a_batch_that_was_applied_is_not_written_again",
    ),
    _mutant(
        "a window opens when its rows are read",
        "pipes/initial.py",
        "        window.ready.append(chunk)\n",
        "        window.ready.append(chunk)\n        window.touched.clear()\n",
        _LOADS,
    ),
    _mutant(
        "rows are told apart by the text of their keys",
        "pipes/initial.py",
        "        return self.keys.exact(tuple(values))",
        "        return (','.join(map(str, values)),)",
        _LOADS,
    ),
    _mutant(
        "rows that were read before a TRUNCATE are written",
        "pipes/initial.py",
        "                self._statement(entry)",
        "                pass",
        _LOADS,
    ),
    _mutant(
        "rows are written before the stream is where they were read",
        "pipes/initial.py",
        "    return None if before is None else not before",
        "    return True",
        _LOADS,
    ),
    _mutant(
        "rows are read before the table shows what the stream has passed",
        "pipes/initial.py",
        "            self._tables.settle(window.name, at, cancelled)",
        "            pass",
        _LOADS,
    ),
    _mutant(
        "a batch is acked before it is done",
        "pipes/batches.py",
        "        loop.call(message",
        "        instance.ack(message.id, client_id=client_id)\n        loop.call(message",
        "pipes/test_batches.py::test_a_batch_whose_function_raises_is_rolled_back_and_comes_again",
    ),
    _mutant(
        "a log that was begun anew goes on in the same order",
        "spark/stream/watch.py",
        "elif (number, transaction.offset) < self._position:",
        "elif False:",
        "spark/test_watch.py::test_a_transaction_that_lies_before_the_one_before_it_is_of_a_log_that_was_begun_anew",
    ),
    _mutant(
        "a key that goes is passed over",
        "changes/alters.py",
        "if not before or after and",
        "if not after or",
        "spark/test_alters.py::test_a_unique_key_that_stood_in_for_a_primary_one_is_seen_to_go",
    ),
    # -- the laws of what is behind get ----------------------------------------------------------------------------------
    _mutant(
        "a key is folded in the form that the log has",
        "changes/latest.py",
        "self._keys.written(key) if self._forms else key",
        "key",
        "pipes/test_key_forms.py::test_key_of_a_decimal_that_becomes_wider_stays",
    ),
    _mutant(
        "-0.0 is another key than 0.0",
        "changes/keys.py",
        "return value + 0.0 if isinstance(value, float) else value",
        "return value",
        "changes/test_keys.py::test_keys_that_the_source_calls_equal_are_written_alike",
    ),
    _mutant(
        "a moment is a key by what its clock shows",
        "changes/keys.py",
        "return value.astimezone(UTC) if",
        "return value.replace(tzinfo=UTC) if",
        "pipes/test_key_forms.py::test_moment_as_key_is_the_same_in_another_time_zone",
    ),
    _mutant(
        "a key of SQLite may compare without case",
        "targets/sqlite.py",
        'for weak in ("NOCASE", "RTRIM"):',
        "for weak in ():",
        "targets/test_sql.py::test_a_key_that_compares_without_case_is_refused",
    ),
    _mutant(
        "a key of PostgreSQL may have a collation that is not deterministic",
        "targets/postgresql.py",
        "if is_deterministic is False:",
        "if False:",
        "targets/test_sql_servers.py::test_postgresql_refuses_a_key_that_does_not_tell_all_keys_apart[text COLLATE {}.ci]",
    ),
    _mutant(
        "spaces at the end of a key of MySQL do not count",
        "targets/mysql.py",
        'wanted = (f"{column.charset}_nopad_bin", "utf8mb4_0900_bin", f"{column.charset}_bin")',
        'wanted = (f"{column.charset}_bin",) * 3',
        "targets/test_sql_servers.py::test_keys_that_differ_in_spaces_at_their_end_stay_apart[mysql_server]",
    ),
    _mutant(
        "two tables of the source may have one name in the target",
        "targets/names.py",
        "                raise self._collision(table, path, found)",
        "                pass",
        "targets/test_names.py::test_claim_of_a_name_of_another_table_raises_with_the_remedy",
        "targets/test_names.py::test_claim_after_a_restart_compares_with_the_stored_names",
    ),
    _mutant(
        "names that differ in case are two",
        "targets/names.py",
        "return name.translate(_ASCII)",
        "return name",
        "targets/test_names.py::test_tables_that_differ_in_case_are_refused_across_restarts[sqlite]",
    ),
    _mutant(
        "a name that the target cuts is taken",
        "targets/names.py",
        "if self.longest is not None and len(",
        "if False and len(",
        "targets/test_names.py::test_claim_of_a_name_that_is_too_long_raises",
    ),
    _mutant(
        "a change of route is an update",
        "pipes/rules.py",
        "if old is new or now is None:",
        "if True:",
        "pipes/test_rules.py::test_an_update_that_changes_the_name_is_a_delete_and_an_insert",
    ),
    _mutant(
        "a rule is given columns that the log does not have",
        "pipes/rules.py",
        "        if value is ABSENT:\n            raise UnfitChangeError(",
        "        if False:\n            raise UnfitChangeError(",
        "pipes/test_rules.py::test_a_rule_that_needs_a_column_which_the_image_lacks_is_refused",
    ),
    _mutant(
        "a default overwrites what did not change",
        "pipes/rules.py",
        "value = default if is_new else ABSENT",
        "value = default",
        "pipes/test_rules.py::test_defaults_leave_alone_what_an_update_does_not_change",
    ),
    _mutant(
        "a row is found by the form in which the target returns its key",
        "targets/sql.py",
        "tuple(self._adapted(written(tuple([row[number] for number in at]))))",
        "tuple([row[number] for number in at])",
        "targets/test_sql_bulk.py::test_rows_that_partial_images_complete_are_read_as_they_were_put[mysql_server]",
    ),
    _mutant(
        "a FLOAT of MySQL is read with six digits",
        "targets/mysql.py",
        '"float": " + 0e0"',
        '"float": ""',
        "targets/test_sql_bulk.py::test_rows_that_partial_images_complete_are_read_as_they_were_put[mysql_server]",
    ),
    _mutant(
        "a DECIMAL of DuckDB is read as text",
        "targets/duckdb.py",
        "values[number] = Decimal(value)",
        "pass",
        "targets/test_sql_bulk.py::test_rows_that_partial_images_complete_are_read_as_they_were_put[duckdb]",
    ),
    _mutant(
        "a column of PostgreSQL may round",
        "targets/postgresql.py",
        "keeps = _scale(digits) >= _scale(",
        "keeps = _scale(digits) >= 0 * _scale(",
        f"{_PAIRS}[postgresql]",
    ),
    _mutant(
        "a column of DuckDB may round",
        "targets/duckdb.py",
        "and theirs[1] >= wanted[1]:",
        "and theirs[1] >= 0:",
        f"{_PAIRS}[duckdb]",
    ),
    _mutant(
        "a column of SQLite may be of any type",
        "targets/sqlite.py",
        'if theirs in ("BLOB", own) or own == "INTEGER" and theirs == "NUMERIC":',
        "if True:",
        f"{_PAIRS}[sqlite]",
    ),
    _mutant(
        "a column that a change does not carry is NULL",
        "changes/latest.py",
        "values[number] if number >= 0 else self._not_carried for number",
        "values[number] if number >= 0 else None for number",
        "pipes/test_rules.py::test_a_transform_that_adds_a_column_to_some_rows_leaves_it_in_them",
    ),
    _mutant(
        "SQL targets are given whole rows",
        "targets/sql.py",
        "    keeps_columns = True",
        "    keeps_columns = False",
        "pipes/test_rules.py::test_a_transform_that_adds_a_column_to_some_rows_leaves_it_in_them",
    ),
    _mutant(
        "rows of all columns are those of a table whose columns differ",
        "targets/sql.py",
        "is_whole = len(state.tables) == 1",
        "is_whole = True",
        "pipes/test_rules.py::test_merged_tables_keep_their_rows_and_columns_apart[100]",
    ),
    _mutant(
        "a changed row is deleted first",
        "targets/sql.py",
        "if row is None or key in state.replaced]",
        "if True]",
        "targets/test_sql.py::test_an_update_leaves_columns_of_the_targets_own_and_rows_that_refer_to_it",
    ),
    _mutant(
        "a row that went and came again is changed in place",
        "targets/sql.py",
        "if row is None or key in state.replaced]",
        "if row is None]",
        "targets/test_sql.py::test_a_row_that_is_deleted_and_inserted_again_is_another_row",
    ),
    _mutant(
        "a row that is there already is refused",
        "targets/sql.py",
        "if not error.is_duplicate:",
        "if True:",
        "targets/test_sql.py::test_rows_that_are_there_already_are_not_refused",
    ),
    _mutant(
        "a table that is gone is made anew",
        "targets/sql_tables.py",
        "        if there is None:\n            lost",
        "        if there is None:\n            pass\n        elif False:\n            lost",
        f"{_LOST}[sqlite-dropped]",
        f"{_LOST}[postgresql-dropped]",
    ),
    _mutant(
        "a table that was replaced is written",
        "targets/sql_tables.py",
        "elif self.mark_of(parts) != written.mark:",
        "elif False:",
        f"{_LOST}[sqlite-replaced]",
        f"{_LOST}[mysql-replaced]",
    ),
    _mutant(
        "a column that is gone is added anew",
        "targets/sql_tables.py",
        "elif gone := written.columns.intersection(",
        "elif gone := frozenset().intersection(",
        f"{_LOST}[sqlite-column]",
    ),
    _mutant(
        "a target's collation says which row it is",
        "targets/tables/mysql.py",
        'if column.charset not in (None, "binary")}',
        "if False}",
        "targets/tables/test_targets.py::test_a_key_is_the_text_itself_and_not_what_a_collation_makes_of_it",
    ),
    _mutant(
        "a TRUNCATE is passed over",
        "changes/unlogged.py",
        "    if entry.event_type in (EventType.TRUNCATE, EventType.ERASE):",
        "    if entry.event_type in (EventType.ERASE,):",
        "spark/stream/test_altered_tables.py::test_a_loss_of_rows_that_the_log_does_not_tell_is_loud",
    ),
    _mutant(
        "a part of a transaction is read again with the next row",
        "spark/stream/stretch.py",
        "if left <= 0 and (entry.row_count or entry.is_end):",
        "if left < 0 and (entry.row_count or entry.is_end):",
        "spark/stream/test_queries.py::test_a_huge_transaction_is_split_and_every_part_can_be_read_again",
    ),
    _mutant(
        "a filter leaves files out by the clock of the server",
        "spark/stream/filters.py",
        'if self.column != "_txn" or not',
        "if self.column == '_ts':\n            return False\n        if self.column != '_txn' or not",
        "spark/test_filters.py::test_filtered_rows_are_those_that_spark_would_keep_and_the_others_are_not_decoded",
    ),
    _mutant(
        "a statement is filtered as if it were rows",
        "spark/stream/filters.py",
        "value is None or entry.table is None",
        "value is None",
        "spark/test_filters.py::test_statements_pass_every_filter",
    ),
    _mutant(
        "a stretch that ends too soon is taken for whole",
        "spark/stream/stretch.py",
        "if not self.is_over(self.parser.position.source):",
        "if False:",
        "spark/stream/test_ranges.py::test_files_that_end_before_a_planned_batch_are_an_error",
    ),
    # -- trust ---------------------------------------------------------------------------------------------------------
    _mutant(
        "a key is taken from whoever answers",
        "parse/source/_pymysql.py",
        "        if not self._is_trusted():\n            raise",
        "        if False:\n            raise",
        "parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so[ask_sha256-DISABLED-nothing]",
    ),
    _mutant(
        "clear text goes over any TLS",
        "parse/source/_pymysql.py",
        "not (self.trust.cleartext and self.trust.proved)",
        "not self.trust.cleartext",
        "parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so"
        "[ask_in_clear_text-REQUIRED-allow_cleartext]",
    ),
    _mutant(
        "a password goes over the network as it is",
        "parse/source/_pymysql.py",
        "if not self.password or is_encrypted(self):",
        "if True:",
        "parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password[DISABLED]",
    ),
    _mutant(
        "a server that goes on to ask gets the password",
        "parse/source/_pymysql.py",
        "            auth_packet = self._answer(plugin_name, auth_packet)\n",
        "            auth_packet = self._answer(plugin_name, auth_packet)\n"
        "            if auth_packet.is_extra_auth_data():\n"
        '                auth_packet = self._ask(self.password + b"\\0")\n',
        "parse/test_strangers.py::test_who_goes_on_to_ask_gets_no_answer",
    ),
    _mutant(
        "a key that a server sends goes before the one that is named",
        "parse/source/_pymysql.py",
        "self.trust.public_key or self._fetch_key(request)",
        "self._fetch_key(request)",
        "parse/test_strangers.py::test_a_pinned_key_is_the_one_that_counts",
    ),
    _mutant(
        "a request for a file is looked for in some answers only",
        "parse/source/_pymysql.py",
        "self._left, self._begins = self._limit, True",
        "self._left = self._limit",
        "parse/test_strangers.py::test_no_file_of_ours_is_given_for_any_question",
    ),
    _mutant(
        "a giant event comes out of a compressed one",
        "parse/log/events.py",
        "    if length > limit:\n        raise _too_large(length, TRANSACTION_PAYLOAD, limit)",
        "    pass",
        "parse/test_damage.py::test_some_bytes_that_inflate_to_a_giant_event_are_refused_before_they_do",
    ),
    _mutant(
        "a terminal obeys",
        "errors.py",
        "return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)",
        "return text",
        "cli/test_main.py::test_what_a_server_says_of_itself_is_shown_too",
    ),
    _mutant(
        "a server writes lines into a log",
        "cli/terminal.py",
        "return visible(super().formatMessage(record))",
        "return super().formatMessage(record)",
        "cli/test_main.py::test_what_is_logged_is_shown_too_and_forges_no_line",
    ),
    _mutant(
        "a segment of the spool is written behind a link",
        "spool/spool.py",
        '"r+b" if path.exists() else "wb", _WRITE_BYTES, opener=private)',
        '"r+b" if path.exists() else "wb", _WRITE_BYTES)',
        "meta/test_private_files.py::test_a_segment_of_the_spool_is_not_written_behind_a_symbolic_link",
    ),
    _mutant(
        "a symbolic link is followed",
        "_util/disk.py",
        "flags | os.O_NOFOLLOW | os.O_CLOEXEC",
        "flags | os.O_CLOEXEC",
        "meta/test_private_files.py::test_nothing_is_written_or_read_behind_a_symbolic_link[keep_cursor-meta.dat.tmp]",
    ),
    _mutant(
        "a file is readable by all",
        "_util/disk.py",
        "os.fchmod(file, 0o600)",
        "os.fchmod(file, 0o644)",
        "meta/test_private_files.py::test_files_are_their_users_alone[keep_cursor]",
    ),
)


class MutantError(Exception):
    """The table does not fit the tree, or a test fails without any fault."""


class Tree:
    """A copy of the tree, in which one fault at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _COPIED:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                built = ("*.so", "*.c") if name == "canal" else ()
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", *built))
            else:
                shutil.copy(source, target)
        if (ROOT / ".servers").exists():
            (folder / ".servers").symlink_to((ROOT / ".servers").resolve())

    @contextlib.contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        text = path.read_text()
        path.write_text(mutated(text, mutant))
        try:
            yield
        finally:
            path.write_text(text)

    def run(self, tests: Sequence[str]) -> dict[str, str]:
        """How each test came out: "" for one that passed; parametrized ones by the names of their functions too."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        # Bytecode is told by time and size of its source, which may be those of the fault before.
        environment = {**os.environ, "CANAL_PURE": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.programs.mutants", "--report", str(report), *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=_ALL)
            except subprocess.TimeoutExpired:
                process.kill()
                return dict.fromkeys(tests, f"it hangs: it took more than {_ALL} s")
        if not report.exists():
            raise MutantError(f"the tests did not run:\n{output[-3000:]}")
        found: dict[str, str] = json.loads(report.read_text())
        return found


def mutated(text: str, mutant: Mutant) -> str:
    """The text with the fault. Raises MutantError where what is to be replaced is not there exactly once."""
    count = text.count(mutant.old)
    if count != 1:
        raise MutantError(f"{mutant.name}: {mutant.file} has {count} times, and not once:\n{mutant.old}")
    return text.replace(mutant.old, mutant.new)


def trial(tree: Tree, mutant: Mutant) -> str:
    """Make one fault and run its tests; "" where each has caught it, else which one has not."""
    with tree.broken(mutant):
        found = tree.run(mutant.tests)
    for test in mutant.tests:
        verdicts = _verdicts(found, test)
        if CAUGHT not in verdicts:
            return f"{mutant.name}: not caught by {test}" + "".join(f"\n    {verdict}" for verdict in {*verdicts} - {""})
    return ""


def check_unbroken(tree: Tree, mutants: Sequence[Mutant]) -> None:
    """Raise MutantError where a test that is named does not pass as the library is, or does not exist."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    found = tree.run(tests)
    for test in tests:
        verdicts = _verdicts(found, test)
        if "" not in verdicts or set(verdicts) - {"", SKIPPED}:
            raise MutantError(f"{test} does not pass without any fault: {set(verdicts) or 'it did not run'}")


def _verdicts(found: dict[str, str], test: str) -> list[str]:
    return [verdict for name, verdict in found.items() if name == test or name.startswith((f"{test}[", f"{test}::"))]


CAUGHT, SKIPPED = "caught", "skipped"


class _Reporter:
    """In the process that runs the tests: notes by what each of them failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, str] = {}

    def pytest_configure(self) -> None:
        """The same examples each time; a first failure is enough, so it is not made smaller."""
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants", max_examples=60, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.skipped:
            self.found[item.nodeid] = SKIPPED
        elif call.excinfo is not None:
            error = call.excinfo.value
            is_right = call.when == "call" and all(map(_is_verdict, _leaves(error)))
            self.found.setdefault(item.nodeid, CAUGHT if is_right else f"it fails in another way: {error!r:.300}")
        elif call.when == "teardown":
            self.found.setdefault(item.nodeid, "")
        return report

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self.found))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found[report.nodeid] = f"it cannot be imported: {report.longrepr!s:.300}"


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


def _is_verdict(error: BaseException) -> bool:
    """Whether an exception says that the library is wrong: an assertion, an error that did not come, or one of its own."""
    from canal import CanalError

    if isinstance(error, pytest.fail.Exception):
        return not str(error).startswith("Timeout")
    # A test that takes apart what it got asserts how much that is.
    return isinstance(error, AssertionError | CanalError) or "values to unpack" in str(error)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--report"]:
        options = ["-q", "-p", "no:cacheprovider", f"--timeout={_EACH}", *arguments[2:]]
        return pytest.main(options, plugins=[_Reporter(Path(arguments[1]))])
    unknown = set(arguments) - {mutant.name for mutant in MUTANTS}
    if unknown:
        print(f"no such fault: {', '.join(sorted(unknown))}; there are: {', '.join(mutant.name for mutant in MUTANTS)}")
        return 2
    mutants = [mutant for mutant in MUTANTS if not arguments or mutant.name in arguments]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="canal-mutants-") as folder:
        tree = Tree(Path(folder))
        check_unbroken(tree, mutants)
        for mutant in mutants:
            problem = trial(tree, mutant)
            survivors += bool(problem)
            print(problem or f"{mutant.name}: caught", flush=True)
    print(f"{len(mutants)} faults, {survivors} of them not caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
