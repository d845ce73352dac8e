# SPDX-License-Identifier: Apache-2.0
"""Done means that the log has a batch as safely as it promises, for each service that appends for a caller."""

from dataclasses import dataclass

import pytest

from libs.requests import durable
from libs.requests.durable import until_durable
from libs.requests.errors import NotDurableYet, WindowFull


@dataclass
class Answer:
    """A result."""

    is_late: bool = False
    is_repeated: bool = False
    durability: int = 2


LATE, AGAIN_LATE, AGAIN = Answer(is_late=True), Answer(is_late=True, is_repeated=True), Answer(is_repeated=True)


class Log:
    """A log that gives its answers in turn. Errors are raised."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)

    async def append(self) -> Answer:
        """Append."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def appended(log: Log, *, is_repeatable: bool = True) -> Answer:
    """The outcome of a batch."""
    return await until_durable(
        log.append, is_repeatable=is_repeatable, is_passing=lambda error: isinstance(error, WindowFull)
    )


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces all pauses by none."""
    monkeypatch.setattr(durable, "AGAIN_S", 0)


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_an_answer_in_time(*, is_repeatable: bool) -> None:
    """A durable answer is returned as it is."""
    answer = Answer()
    assert await appended(Log(answer), is_repeatable=is_repeatable) is answer


async def test_a_late_batch_of_a_writer_is_sent_again() -> None:
    """A late batch of a writer is sent again until it is durable, also over refusals that pass.

    The first answer tells its place.
    """
    log = Log(LATE, AGAIN_LATE, WindowFull("bytes", limit=1), AGAIN)
    assert await appended(log) is LATE
    assert not log.answers


async def test_a_batch_that_was_given_up_is_stored_anew() -> None:
    """The answer that stored the batch tells its place."""
    anew = Answer()
    assert await appended(Log(LATE, anew)) is anew
    late_anew = Answer(is_late=True)
    assert await appended(Log(LATE, late_anew, AGAIN_LATE, AGAIN)) is late_anew


async def test_a_late_batch_without_a_writer() -> None:
    """A late batch without a writer is not sent again, because this would store it twice.

    The error tells the batch's durability.
    """
    log = Log(Answer(is_late=True, durability=1), AGAIN)
    with pytest.raises(NotDurableYet) as error:
        await appended(log, is_repeatable=False)
    assert (error.value.durability, len(log.answers)) == (1, 1)


async def test_a_refusal_before_and_after_the_log_has_it() -> None:
    """A refusal of the first append is raised as it is.

    Later the batch is in the log, so that NotDurableYet tells the caller that the batch may stay.
    """
    with pytest.raises(ValueError, match="no"):
        await appended(Log(ValueError("no")))
    with pytest.raises(NotDurableYet, match="another leads"):
        await appended(Log(LATE, ValueError("another leads")))


async def test_why_a_batch_is_not_done_is_a_line() -> None:
    """The caller's own words replace the lines of a gRPC error."""
    with pytest.raises(NotDurableYet, match="in other words"):
        await until_durable(
            Log(LATE, ValueError("many\nlines")).append,
            is_repeatable=True,
            is_passing=lambda _: False,
            describe=lambda _: "in other words",
        )


async def test_the_wait_has_an_end() -> None:
    """A batch that stays late raises NotDurableYet."""
    with pytest.raises(NotDurableYet):
        await until_durable(Log(LATE, AGAIN).append, is_repeatable=True, is_passing=lambda _: True, within_s=0)
