# SPDX-License-Identifier: Apache-2.0
"""The questions of the page of retention: segments and disks, and dry runs of the Janitor, which delete nothing."""

import asyncio
from collections.abc import Awaitable

from msgspec.structs import replace
from reput.janitor.v1.retention_service_pb2 import Run
from reput_client import InvalidArgumentError, ReputError

from libs.verdict import is_too_full as is_too_full_for_segments
from services.console.ask.store import Asking, Store
from services.console.pages.operate.retention import RUNS_SHOWN_MAX, Answers, RetentionPage, Trial, retention_page

SEGMENTS_MAX = 5_000
TRIAL = "the trial"
HOURS_MAX, BYTES_MAX = 876_000, 2**60


async def retention(store: Store, trial: Trial, number: int) -> RetentionPage:
    """Return the page of retention, with a trial of other limits if they are given."""
    asking, admin = Asking(store), store.client.admin
    trial = replace(trial, refusal=_refusal(trial))
    (segments, is_cut), policy, status, log, (history, _), (run, trial_run, refusal) = await asyncio.gather(
        asking.first("segments", admin.segments(), SEGMENTS_MAX),
        asking.ask("the policy", admin.retention_policy()),
        asking.ask("the Janitor", admin.janitor_status()),
        asking.ask("the CommitLog", admin.commitlog_status()),
        asking.first("past runs", admin.retention_history(), RUNS_SHOWN_MAX),
        _decided(asking, trial),
    )
    if is_cut:
        asking.left_out("further segments", f"the oldest {SEGMENTS_MAX:,} are shown")
    missing = next((gap.reason for gap in asking.found_gaps if gap.subject == TRIAL), "")
    trial = replace(trial, refusal=refusal or trial.refusal, gap=missing)
    directories = log.log_directories if log is not None else ()
    is_too_full = bool(directories) and all(is_too_full_for_segments(one) for one in directories)
    answers = Answers(segments, policy, status, run, trial_run, history, is_too_full)
    return retention_page(answers, trial, number, store.clock.now_ms(), asking.gaps)


def _refusal(trial: Trial) -> str:
    """Return why a trial can't be decided, "" if it can."""
    for name, text, most in (("hours", trial.hours, HOURS_MAX), ("bytes", trial.bytes, BYTES_MAX)):
        if text and not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):
            return f"{name} is {text[:40]!r}: whole numbers from 0 to {most:,} are allowed"
    if trial.topic and not (trial.hours or trial.bytes):
        return "a topic needs hours or bytes, too"
    return ""


async def _decided(asking: Asking, trial: Trial) -> tuple[Run | None, Run | None, str]:
    """Return a dry run by the policy in force, a dry run of a trial, and why the trial has none. They run in turn."""
    async with asking.store.dry_run_turn:
        admin = asking.client.admin
        run, _ = await _dry_run(asking, "the reasons to keep segments", admin.run_retention(dry_run=True))
        if trial.refusal or not (trial.hours or trial.bytes):
            return run, None, ""
        hours, size_bytes = (int(text) if text else None for text in (trial.hours, trial.bytes))
        other = admin.run_retention(dry_run=True, retention_hours=hours, retention_bytes=size_bytes, topic=trial.topic)
        return run, *await _dry_run(asking, TRIAL, other)


async def _dry_run(asking: Asking, what: str, run: Awaitable[Run]) -> tuple[Run | None, str]:
    """Return a dry run, or why its arguments are refused. A client's admin calls have no time-out of their own."""
    try:
        async with asyncio.timeout(asking.store.timeout_s):
            decided = await run
    except InvalidArgumentError as error:
        return None, error.text
    except ReputError as error:
        asking.tell(what, error)
        return None, ""
    except TimeoutError:
        asking.left_out(what, f"the Janitor takes longer than {asking.store.timeout_s:.0f} s")
        return None, ""
    if decided.error:
        asking.left_out(what, decided.error)
    return decided, ""
