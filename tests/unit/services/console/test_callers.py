# SPDX-License-Identifier: Apache-2.0
"""Audit lines and connections as rows, with hostile lines."""

import json

import pytest
from reput.common.v1.connection_service_pb2 import Connection, RunningCalls

from services.console.ask.operate.callers import place_and_number
from services.console.pages.operate.callers import (
    CHANGE_CHARACTERS_MAX,
    ROWS_OF_A_PAGE,
    AuditQuestion,
    Source,
    answers,
    audit_page,
    audit_row,
    connection_row,
    connections_page,
)
from services.console.web.rendering import Renderer
from tests.console.filling import HOSTILE, SCRIPT

LINE = {
    "time": "2026-11-29T15:10:07.123Z", "service": "commitlog", "event": "call", "subject": "operator",
    "address": "ipv4:10.0.0.7:51234", "method": "reput.commitlog.v1.TopicService/DeleteTopic", "topics": ["orders"],
    "code": "OK", "before": {"name": "orders"}, "on_behalf_of": "anna@mail.test",
}  # fmt: skip


def test_a_line_as_a_row() -> None:
    """A line has its time, the short name of its method, its resources and its change."""
    row = audit_row("commitlog", "a:1", 7, json.dumps(LINE))
    assert (row.time_ms, row.method, row.resources) == (1795965007123, "TopicService/DeleteTopic", ("orders",))
    assert row.change == '{"before": {"name": "orders"}}'
    assert audit_row("c", "a", 8, json.dumps(LINE)).key > audit_row("c", "a", 7, json.dumps(LINE)).key


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "null", "1", '"x"', '{"time": 5, "topics": 7, "count": "x"}', '{"time": "0001-01-01"}',
        '{"before": [1], "topics": [{"a": 1}], "method": null}', '{"time": "9999-12-31T23:59:59Z"}',
    ],
)  # fmt: skip
def test_wrong_lines_are_rows(line: str) -> None:
    """A line of another version, or of another form, is a row."""
    row = audit_row("c", "a", 1, line)
    assert isinstance(row.key, str)
    assert audit_page(AuditQuestion(), ["c"], [row], [], ()).rows == (row,)


def test_questions() -> None:
    """Each field selects; upper and lower case are the same."""
    row = audit_row("commitlog", "a:1", 7, json.dumps(LINE))
    assert not AuditQuestion("commitlog").is_selective
    for fits in (
        AuditQuestion(),
        AuditQuestion(subject="OPER"),
        AuditQuestion(subject="anna"),
        AuditQuestion(text="deletet"),
        AuditQuestion(text="ORD"),
    ):
        assert answers(row, fits), fits
    for other in (
        AuditQuestion(subject="x"),
        AuditQuestion(text="x"),
        AuditQuestion(has_failed=True),
        AuditQuestion(before=row.key),
    ):
        assert not answers(row, other), other
    assert len(audit_row("c", "a", 1, json.dumps(LINE | {"after": "x" * 9_000})).change) == CHANGE_CHARACTERS_MAX + 1


def test_parts_of_the_audit() -> None:
    """A part names the key of its last line, and the last part none."""
    rows = [audit_row("c", "a", at, json.dumps(LINE)) for at in range(ROWS_OF_A_PAGE + 1)]
    page = audit_page(AuditQuestion(), ["c"], rows, [], ())
    assert (len(page.rows), page.next_before) == (ROWS_OF_A_PAGE, page.rows[-1].key)
    assert audit_page(AuditQuestion(), ["c"], rows[1:], [], ()).next_before == ""


def test_hostile_callers() -> None:
    """Names that callers give themselves are shown as text."""
    hostile = dict.fromkeys(LINE, HOSTILE) | {"topics": [HOSTILE], "after": {HOSTILE: HOSTILE}}
    source = Source(HOSTILE, 0, 2_000)
    question = AuditQuestion(HOSTILE, HOSTILE, HOSTILE, has_failed=False, before=HOSTILE)
    connection = Connection(
        number=1, peer=HOSTILE, subject=HOSTILE, user_agent=HOSTILE, client_id=HOSTILE, client_version=HOSTILE,
        groups=[HOSTILE] * 16, running=[RunningCalls(method=HOSTILE, call_count=2)],
    )  # fmt: skip
    pages = (
        audit_page(question, ["c"], [audit_row("c", "a", 1, json.dumps(hostile))], [source], ()),
        connections_page(
            service="c", group=HOSTILE, text=HOSTILE, services=["c"], gaps=(), counts=(), next_after=HOSTILE,
            rows=[connection_row("c", "a", connection)],
        ),
    )  # fmt: skip
    for page in pages:
        html = Renderer().page(page, path="/", twin="/x.json", can_log_out=False)
        assert SCRIPT not in html
        assert "<img" not in html


def test_cursors_of_connections() -> None:
    """A wrong cursor is the begin of the list."""
    assert place_and_number("1.5", 2) == (1, 5)
    for wrong in ("", "2.0", "x.1", "1.", ".", "1.-1", "1." + "9" * 20, "\u0661.1"):
        assert place_and_number(wrong, 2) == (0, 0), wrong
