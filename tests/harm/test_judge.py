# SPDX-License-Identifier: Apache-2.0
"""The judge itself: each broken promise is found, and no service is accused that keeps all or says why not."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb

from tests.harm.expected import COPY, GROUPS, LOG, Expected, line_of_sent, sent
from tests.harm.harms import HARMS, LENGTHENED_BYTES
from tests.harm.judge import Answer, End, Facts, Look, Refusal, Verdict, judge

QUEUE = "queue orders/0"
ONE, TWO, COPY_OF_3 = "1 orders/0@0 at 0: aa", "2 orders/0@1 at 9: bb", f"{COPY}3: cc"
DUE = {LOG: (ONE, TWO, COPY_OF_3), QUEUE: (ONE, TWO), GROUPS: ("readers orders/0 = 7",)}
FILE = "consumequeue/orders/0/00000000000000000600"
ALL = {question: Answer(lines) for question, lines in DUE.items()}


def facts(answers: dict[str, Answer] | None = None, **fields: object) -> Facts:
    """A trial with a single look, which is right unless answers say otherwise."""
    look = Look("after it", {**ALL, **(answers or {})}, DUE)
    return Facts(FILE, "zeros", "stopped", **{"looks": [look], **fields})  # type: ignore[arg-type]


def line(level: str, **fields: str) -> tuple[str, str]:
    """A line of a service's log."""
    return "indexer", json.dumps({"event": "something", "level": level, **fields}) + "\n"


TELLING = line("warning", detail=f"queue file {FILE} is damaged")
REASONED = Refusal("DATA_LOSS", "RECORD_DAMAGED", "at 9")
LACKING = {QUEUE: Answer((ONE,))}


@pytest.mark.parametrize(
    ("trial", "verdict"),
    [
        (facts(), Verdict.WHOLE),
        (facts(lines=[line("info", detail="noise"), TELLING]), Verdict.WHOLE),
        (facts(ends=[End("indexer", 0, was_asked=True)]), Verdict.WHOLE),
        (facts(LACKING, lines=[TELLING]), Verdict.TOLD),
        (facts(LACKING, lines=[("indexer", f"reput indexer: {FILE}: is no file")]), Verdict.TOLD),
        (facts(LACKING, lines=[line("error", queue="orders/0")]), Verdict.TOLD),
        (facts({QUEUE: Answer((ONE,), REASONED)}), Verdict.TOLD),
        (facts(refusals=[REASONED]), Verdict.TOLD),
        (facts(ends=[End("indexer", 1)], lines=[TELLING]), Verdict.TOLD),
        *(
            (facts({QUEUE: Answer((), Refusal(code, "", ""))}, ends=[End("indexer", 1)], lines=[TELLING]), Verdict.TOLD)
            for code in ("UNAVAILABLE", "CANCELLED")
        ),
        (facts({GROUPS: Answer(("readers orders/0 = 6",))}, lines=[TELLING]), Verdict.TOLD),
        (facts({LOG: Answer((*DUE[LOG], COPY_OF_3))}, lines=[TELLING]), Verdict.TOLD),
    ],
)
def test_nobody_is_accused(trial: Facts, verdict: Verdict) -> None:
    """Right answers are whole, a lack with a text is told."""
    judged = judge(trial)
    assert (judged.verdict, judged.broken) == (verdict, ())


@pytest.mark.parametrize(
    ("trial", "complaint"),
    [
        (facts(LACKING), "without a word: after it, queue orders/0: 1 of 2 are missing: 2 orders/0@1"),
        (facts(LACKING, lines=[line("info", detail=FILE)]), "without a word"),
        (facts(LACKING, lines=[line("warning", detail="some other file")]), "without a word"),
        (facts({QUEUE: Answer((ONE, TWO, "2 orders/0@1 at 9: cc"))}, lines=[TELLING]), "wrong answer 2 orders/0@1"),
        (facts({QUEUE: Answer((ONE, TWO, TWO))}, lines=[TELLING]), "twice 2"),
        (facts({GROUPS: Answer(("readers orders/0 = 6",))}), "without a word: after it, groups: 1 of 1 are missing"),
        (facts({LOG: Answer((*DUE[LOG], COPY_OF_3))}), "delivered again"),
        (facts({QUEUE: Answer((), Refusal("INTERNAL", "X", "bug"))}, lines=[TELLING]), "refused with INTERNAL"),
        (facts({QUEUE: Answer((), Refusal("UNKNOWN", "", "bug"))}), "refused with UNKNOWN"),
        (facts({QUEUE: Answer((), Refusal("UNAVAILABLE", "", "gone"))}), "refused with UNAVAILABLE"),
        (facts({QUEUE: Answer((), REASONED), LOG: Answer((ONE, TWO))}), "without a word: after it, log"),
        (facts(refusals=[Refusal("INTERNAL", "", "bug")]), "refused with INTERNAL"),
        (facts(ends=[End("indexer", -7)], lines=[TELLING]), "was ended by signal 7"),
        (facts(ends=[End("indexer", 1)]), "ended with 1 and names no file"),
        (facts(ends=[End("indexer", 1, was_asked=True)]), "ended its stop with 1"),
        (facts(lines=[TELLING, ("indexer", "Traceback (most recent call last):\n")]), "says: Traceback"),
        (facts(lines=[line("error", exception="…")]), "says:"),
        (facts(trouble=["it hangs"]), "it hangs"),
    ],
)
def test_every_broken_promise_is_found(trial: Facts, complaint: str) -> None:
    """The judgement names a single fault."""
    judged = judge(trial)
    assert judged.verdict is Verdict.BROKEN
    assert any(complaint in text for text in judged.broken), judged


def test_what_an_unharmed_store_says_tells_nothing() -> None:
    """A line that comes anyway is no word about the harm, even with the file's name in it."""
    usual = frozenset({"something"})
    assert judge(facts(LACKING, lines=[TELLING]), usual).verdict is Verdict.BROKEN


def test_status_tells_too() -> None:
    """A field of GetStatus may name the missing data."""
    look = Look("after it", {**ALL, **LACKING}, DUE, status=f'last_error: "{FILE} is damaged"')
    assert judge(facts(looks=[look])).verdict is Verdict.TOLD


@pytest.mark.parametrize(
    ("harm", "check"),
    [
        ("removed", lambda path: not path.exists()),
        ("emptied", lambda path: path.read_bytes() == b""),
        ("shortened", lambda path: path.read_bytes() == b"x" * 30 + bytes(15)),
        ("zeros", lambda path: path.read_bytes() == b"x" * 10 + bytes(10) + b"x" * 10 + bytes(60)),
        ("random", lambda path: path.stat().st_size == 90 and path.read_bytes()[10:20] != b"x" * 10),
        ("lengthened", lambda path: path.stat().st_size == 90 + LENGTHENED_BYTES),
        ("directory", lambda path: path.is_dir()),
    ],
)
def test_harms(tmp_path: Path, harm: str, check: Callable[[Path], bool]) -> None:
    """Each harm has the effect of its name, on the used part of the file."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 30 + bytes(60))
    HARMS[harm](path, random.Random(1))
    assert check(path)
    assert set(HARMS) == {"removed", "emptied", "shortened", "zeros", "random", "lengthened", "directory"}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_tiny_file_is_harmed_too(tmp_path: Path, size: int) -> None:
    """At least a byte changes."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    HARMS["zeros"](path, random.Random(1))
    assert b"\0" in path.read_bytes()


def test_expectations() -> None:
    """A message is due in its queue, by key, id and time, and in the log; a message with the tag by tag, too."""
    expected = Expected()
    one = sent(6)
    expected.add([one], _result(4711, 2, one.queue_id))
    mentioned = [question for question, lines in expected.lines.items() if line_of_sent(one) in lines]
    assert mentioned == [
        LOG,
        "queue orders/0",
        "queue orders/0 tag red",
        "key orders key-6",
        "id orders u6",
        "time orders 0",
    ]
    waiting = sent(32)
    expected.add([waiting], _result(5000, 0, 0))
    assert expected.lines["queue SCHEDULE_TOPIC_XXXX/0"] != expected.lines["queue later/0"] == [line_of_sent(waiting)]
    assert expected.keep(frozenset({line_of_sent(one)}))
    assert expected.lines["queue later/0"] == []


def _result(physical_offset: int, queue_offset: int, queue_id: int) -> append_pb.AppendResult:
    return append_pb.AppendResult(
        physical_offsets=[physical_offset], queue_offsets=[queue_offset], queue_ids=[queue_id]
    )
