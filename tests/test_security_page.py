"""docs/security.md says nothing that no test proves: each sentence, and each row of its table, has tests that are named here."""

from __future__ import annotations

import re

import pytest

from tests.support.documents import ROOT, functions

PAGE = ROOT / "docs/security.md"

#: Each sentence of the page as it stands there, and below it the tests that prove it.
LEDGER = r"""
`tests/test_security_page.py` names the tests that prove each sentence of this page and each row of its table.
    tests/test_security_page.py::test_every_sentence_of_the_page_is_here_with_its_tests
    tests/test_security_page.py::test_every_test_that_is_named_is_there

An *ear* only listens on the way; a *stranger* answers in the server's stead.
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
The modes are those of MySQL's own client.
    tests/live/test_logins.py::test_modes_and_options_mean_what_they_mean_to_mysqls_own_client
| `DISABLED` | yes | no | only with `get_server_public_key=True` |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_a_server_that_nothing_proves_gets_a_password_only_where_an_option_says_so
| `PREFERRED`, the default; over a `unix_socket` without TLS | where the server offers no TLS, or a stranger says so | no
| **yes**, by offering TLS |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_a_stranger_that_is_not_noticed_sends_changes_that_never_were
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_tls_is_never_given_up_and_taken_as_old_as_it_may_be
    tests/live/test_logins.py::test_a_server_without_tls_is_logged_in_to_unless_tls_is_asked_for
    tests/live/test_logins.py::test_every_account_logs_in_or_is_refused_for_good_with_what_helps
| `REQUIRED` | no | no | **yes** |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_a_server_without_tls_is_logged_in_to_unless_tls_is_asked_for
| `VERIFY_CA` with `ssl_ca` | no | yes, unless it has a certificate of that authority | no |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_a_certificate_that_the_other_side_does_not_trust_is_named
| `VERIFY_CA` without `ssl_ca` | no | hardly: each certificate of a public authority is taken | to who has one, yes |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
| `VERIFY_IDENTITY` | no | yes | no |
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/parse/test_connection.py::test_verification_refuses_an_unknown_authority_and_takes_the_servers_own
| any, over `unix_socket` | nobody listens | the socket's directory decides who answers | no |
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_every_account_logs_in_or_is_refused_for_good_with_what_helps
A stranger that is not noticed can send changes that never were.
    tests/parse/test_strangers.py::test_a_stranger_that_is_not_noticed_sends_changes_that_never_were
Use `VERIFY_IDENTITY`, or `VERIFY_CA` with the server's own `ca.pem`, wherever others share the network.
    tests/parse/test_connection.py::test_verification_refuses_an_unknown_authority_and_takes_the_servers_own
    tests/live/test_logins.py::test_a_certificate_that_the_other_side_does_not_trust_is_named

`mysql_native_password` and ed25519 send a proof that nobody can turn back into the password, but try guesses against.
    tests/parse/test_strangers.py::test_a_native_password_goes_as_a_proof_of_it
`caching_sha2_password` does so too while the server remembers the account.
    tests/parse/test_strangers.py::test_a_login_that_works_until_the_servers_restart_is_a_warning
    tests/live/test_logins.py::test_a_new_account_and_every_one_after_a_restart_are_asked_for_the_password_itself
After the server's start, and for each new account, it asks for the password itself, as `sha256_password` always does.
    tests/live/test_logins.py::test_a_new_account_and_every_one_after_a_restart_are_asked_for_the_password_itself
Over TLS it goes through TLS; without TLS under the server's RSA key.
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/parse/test_strangers.py::test_an_ear_reads_the_data_where_there_is_no_tls_and_never_the_password
Over TCP without TLS no key is fetched, as by MySQL's own client, unless `get_server_public_key=True` says that the key which
comes is believed.
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_modes_and_options_mean_what_they_mean_to_mysqls_own_client
`server_public_key` (a file, or PEM text) names the key: then no other is used, and none is asked for.
    tests/parse/test_strangers.py::test_a_pinned_key_is_the_one_that_counts
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_a_server_that_nothing_proves_gets_a_password_only_where_an_option_says_so
Over TLS it is sent whatever the certificate, as by MySQL's own client, but with a VERIFY mode; inside TLS the server takes no
RSA.
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/live/test_logins.py::test_modes_and_options_mean_what_they_mean_to_mysqls_own_client
    tests/live/test_logins.py::test_a_new_account_and_every_one_after_a_restart_are_asked_for_the_password_itself
A login that only the server's memory let in, and that would be refused after its restart, is a warning in the log.
    tests/parse/test_strangers.py::test_a_login_that_works_until_the_servers_restart_is_a_warning
    tests/live/test_logins.py::test_a_new_account_and_every_one_after_a_restart_are_asked_for_the_password_itself
Plugins that want the password itself (`mysql_clear_password`, `dialog`: LDAP, PAM) get it with `allow_cleartext=True` only, and
only over a `unix_socket`, `VERIFY_IDENTITY`, or `VERIFY_CA` with `ssl_ca`.
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
A server that goes on to ask when its plugin is done gets no answer.
    tests/parse/test_strangers.py::test_who_goes_on_to_ask_gets_no_answer
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
A refusal is an AuthenticationError that names the option ([server-errors.md](server-errors.md)).
    tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so
    tests/parse/test_server_errors.py::test_docs_show_every_meaning
No password is in a `repr`, an error or a log; the command line shows none of a URL.
    tests/parse/test_strangers.py::test_no_log_error_or_repr_of_a_login_has_the_password
    tests/parse/test_strangers.py::test_a_target_gives_its_password_by_pymysqls_rules
    tests/parse/test_source.py::test_the_password_is_not_in_the_repr
    tests/parse/test_source.py::test_registering_sends_no_password
    tests/test_mistakes.py::test_a_url_that_is_none
    tests/spark/test_options.py::test_no_text_shows_the_password
    tests/cli/test_main.py::test_the_password_of_a_url_is_never_shown
For a first look at a server of your own machine that has no TLS: `canal.MySQLSource(…, get_server_public_key=True)`, of Spark
`getServerPublicKey`, in a URL `?get_server_public_key=true`.
    tests/parse/test_strangers.py::test_the_option_of_a_first_look_is_there_wherever_a_source_is_named
`canal.spark.apply_changes` and `canal.pipe` log in to a `MySQLTarget` by PyMySQL's own rules, with what its `connect` says:
whoever answers gets the password, unless `ssl` names an authority.
    tests/parse/test_strangers.py::test_a_target_gives_its_password_by_pymysqls_rules

A login takes 1 MiB of memory at most, an answer to a query 256 MiB, one row of a snapshot 1 GiB (what a server can send): beyond
it is a ServerError ([limits.md](limits.md)).
    tests/parse/test_strangers.py::test_the_budgets_are_those_of_the_page
    tests/parse/test_strangers.py::test_what_a_stranger_sends_is_refused_beyond_a_budget
    tests/parse/test_strangers.py::test_a_row_that_is_read_as_it_arrives_has_a_budget_of_its_own
    tests/parse/test_strangers.py::test_a_row_of_a_snapshot_beyond_its_budget_is_an_error_of_the_server
A request for a file of ours (LOAD DATA LOCAL INFILE) is refused, as a ServerError, in a login and as the answer to any query; in
the stream of changes it is damage.
    tests/parse/test_strangers.py::test_no_file_of_ours_is_given_to_who_asks_for_one
    tests/parse/test_strangers.py::test_no_file_of_ours_is_given_for_any_question
    tests/parse/test_strangers.py::test_a_dump_that_asks_for_a_file_is_damaged
A second result of a query is not read.
    tests/parse/test_strangers.py::test_of_results_without_end_one_is_taken
    tests/parse/test_strangers.py::test_a_second_result_of_a_query_is_not_read
What comes out of a compressed event is refused beyond 256 MiB or `store_bytes`, before it is inflated.
    tests/parse/test_strangers.py::test_the_budgets_are_those_of_the_page
    tests/parse/test_damage.py::test_a_payload_that_inflates_to_more_than_it_says_is_refused_on_the_way
    tests/parse/test_damage.py::test_some_bytes_that_inflate_to_a_giant_event_are_refused_before_they_do
    tests/parse/test_damage.py::test_a_store_with_more_room_takes_larger_events_out_of_compressed_ones
    tests/parse/test_damage.py::test_a_compressed_event_of_mariadb_is_inflated_within_the_limit_and_in_memory_of_its_size
`canal tail` and `canal ha status` show what a terminal would obey (ESC, C1, directions of text) as escapes such as `\x1b`, in
names, values, statements, errors and log lines; with `--json` they are JSON's own.
    tests/cli/test_main.py::test_what_a_terminal_would_obey_is_shown_instead
    tests/cli/test_main.py::test_what_a_server_says_of_itself_is_shown_too
    tests/cli/test_main.py::test_what_is_logged_is_shown_too_and_forges_no_line
    tests/cli/test_main.py::test_what_others_have_written_into_zookeeper_is_shown_too
What a server says makes no further line of a log.
    tests/cli/test_main.py::test_what_is_logged_is_shown_too_and_forges_no_line

`meta.dat`, `meta.cursors`, `schema.db`, `parse.dat`, the spool and the snapshots of Spark are written with the rights 0600, the
directories that are made for them with 0700, whatever the umask.
    tests/meta/test_private_files.py::test_files_are_their_users_alone
    tests/meta/test_private_files.py::test_files_of_before_become_their_users_alone
    tests/spark/stream/test_spool.py::test_the_spool_is_private
    tests/spark/stream/test_spool.py::test_a_spool_where_others_can_write_is_refused
A symbolic link where one of these files or a destination's folder belongs is an error (at `meta.cursors` when a destination with
cursors starts; until then they go into `meta.dat`), and what it leads to is not written; the directory that you name may be one.
    tests/meta/test_private_files.py::test_nothing_is_written_or_read_behind_a_symbolic_link
    tests/meta/test_private_files.py::test_cursors_that_move_are_not_written_behind_a_symbolic_link
    tests/meta/test_private_files.py::test_a_segment_of_the_spool_is_not_written_behind_a_symbolic_link
    tests/meta/test_private_files.py::test_the_rows_of_a_snapshot_are_not_written_behind_a_symbolic_link
    tests/meta/test_private_files.py::test_the_directory_that_is_named_may_be_a_symbolic_link

Without `auth` of `canal.ZooKeeper` every client of ZooKeeper can read and change filters, cursors, schemas and turns.
    tests/zookeeper/test_session.py::test_nodes_that_are_open_become_the_creators
With `auth=(("digest", "user:password"),)` only clients with these credentials can.
    tests/zookeeper/test_session.py::test_with_credentials_nodes_are_their_creators
Nodes of the destination that are open become private when a process with credentials joins.
    tests/zookeeper/test_session.py::test_nodes_that_are_open_become_the_creators
    tests/ha/test_ha_faults.py::test_with_credentials_a_destination_that_was_open_becomes_theirs
`acl="open"` leaves new nodes open to everybody.
    tests/zookeeper/test_session.py::test_with_credentials_nodes_are_their_creators
No log and no error contains the password.
    tests/zookeeper/test_session.py::test_credentials_are_in_no_log_and_no_error
A step of the schema history that inflates beyond 256 MiB is refused.
    tests/parse/test_zookeeper_history.py::test_nodes_that_cannot_be_trusted_are_refused
"""


def sentences(page: str) -> list[str]:
    """The sentences of a page, and the rows of its tables but their heads, each as one line."""
    blocks: list[str] = []
    is_open = False
    for line in page.splitlines():
        if not line.strip() or line.startswith("#") or set(line) <= set("|-"):
            if line.startswith("|"):
                del blocks[-1]  # the head above this line
            is_open = False
        elif is_open and not line.startswith(("* ", "|")):
            blocks[-1] += " " + line.strip()
        else:
            blocks.append(line.removeprefix("* "))
            is_open = not line.startswith("|")
    return [one for block in blocks for one in ([block] if block[0] == "|" else re.split(r"(?<=\.) (?=[A-Z`*])", block))]


def ledger() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    sentence: list[str] = []
    for line in filter(None, LEDGER.splitlines()):
        if not line.startswith("    "):
            sentence.append(line)
            continue
        if sentence:
            tests = found[" ".join(sentence)] = []
            sentence = []
        tests.append(line.strip())
    return found


def test_every_sentence_of_the_page_is_here_with_its_tests() -> None:
    """A sentence that is new, or says something else, needs tests of its own first."""
    assert sentences(PAGE.read_text("utf-8")) == list(ledger())


def test_every_test_that_is_named_is_there() -> None:
    named = {test for tests in ledger().values() for test in tests}

    assert [test for test in sorted(named) if test.partition("::")[2] not in functions(test.partition("::")[0])] == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("# A. B\n\nOne. Two `a.b` of\nit (x. y).\n", ["One.", "Two `a.b` of it (x. y)."]),
        ("* One: two.\n  Three.\n* *Four*.\n", ["One: two.", "Three.", "*Four*."]),
        ("| a | b |\n|---|---|\n| One. Two | c |\n| d | e |\n\nThree.\n", ["| One. Two | c |", "| d | e |", "Three."]),
    ],
)
def test_no_sentence_is_passed_over(page: str, found: list[str]) -> None:
    assert sentences(page) == found
