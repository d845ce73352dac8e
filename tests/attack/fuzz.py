# SPDX-License-Identifier: Apache-2.0
"""Hostile requests to all services: each gets an answer with a reason, and nothing that was there changes.

The seed decides the requests; the order in which the services see them is the machine's.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from rich.console import Console

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.attack import kept
from tests.attack.hostile import Maker, Target, targets
from tests.attack.stack import Stack, running
from tests.support.service_process import STATUS_KEY, digest
from tests.support.trusted import trusted

WORKER_COUNT = 24
TIMEOUT_S = 2.0
ANSWER_COUNT_MAX = 2
MESSAGE_COUNT_MAX = 3
SHOWN_BYTES, SHOWN_TEXT = 300, 80

BUGS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
BUG_NUMBERS = [code.value[0] for code in BUGS]
WITHOUT_REASON = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
TOO_LARGE = "Received message larger than max"
"""The text of gRPC itself for a request that it never gives to the service."""

CLIENTS_OWN = "Internal error from Core"
"""The text of the client's gRPC when it wrote to a stream that the server had ended; it hides how."""

CLIENT = (("x-mq-client-id", "hostile"), ("x-mq-language", "JAVA"))
"""Without a name of its own a client gets nothing from the gateway."""

FOREIGN = ("/grpc.reflection.",)
"""Services that are a library's: their refusals carry no reason of ours."""


@dataclass
class Report:
    """The results of the fuzz."""

    seed: int
    request_count: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    """How calls ended, as `service CODE`."""
    faults: Counter[str] = field(default_factory=Counter)
    """Promises that did not hold, by fault."""
    examples: dict[str, str] = field(default_factory=dict)
    """A request for each, in hexadecimal."""

    @property
    def violations(self) -> list[str]:
        """Each fault in a line."""
        return [
            f"{count:,} x {what}{': the request ' + self.examples[what] if what in self.examples else ''}"
            for what, count in self.faults.most_common()
        ]

    def add(self, what: str, requests: Sequence[bytes] = ()) -> None:
        """A promise did not hold; the first requests are the example."""
        self.faults[what] += 1
        if requests:
            self.examples.setdefault(what, ", ".join(request[:SHOWN_BYTES].hex() for request in requests))

    def show(self, console: Console) -> None:
        """Print it."""
        verdict = f"BROKEN {self.faults.total():,} times" if self.faults else "ok"
        console.print(f"fuzz: {verdict}, {self.request_count:,} requests, seed {self.seed}", markup=False)
        for name, count in sorted(self.codes.items()):
            console.print(f"    {name}: {count:,}", markup=False, highlight=False)
        for text in self.violations:
            console.print(f"    {text}", markup=False, highlight=False, soft_wrap=True)


async def run(directory: Path, *, seed: int, count: int) -> Report:
    """Send so many requests: half of them to methods that only read, whose files may not change, half to all others."""
    report = Report(seed)
    with tempfile.TemporaryDirectory(dir=directory) as own, running(Path(own)) as stack:
        before = await kept.put(stack.targets)
        await _read_only(stack, report, count // 2)
        changing = [target for target in targets() if not target.is_reading]
        await _send(stack, report, changing, count - count // 2, random.Random(f"{seed} changing"))
        after = await kept.seen(stack.targets)
        for name, value in before.items():
            if after[name] != value:
                report.add(f"what was there has changed: {name}: {after[name][:SHOWN_TEXT]!r}")
        for text in stack.tracebacks():
            report.add(text)
    return report


async def _read_only(stack: Stack, report: Report, count: int) -> None:
    data_dir = stack.services["commitlog"].data_dir
    before = _contents(data_dir)
    reading = [target for target in targets() if target.is_reading]
    await _send(stack, report, reading, count, random.Random(f"{report.seed} reading"))
    after = _contents(data_dir)
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            report.add(f"requests that only read changed {path}")


def _contents(data_dir: Path) -> dict[str, str]:
    """Digests of all files but files that are written by the clock."""
    return {path: value for path, value in digest(data_dir).items() if not path.endswith(BY_THE_CLOCK)}


BY_THE_CLOCK = ("checkpoint", "index_progress", "queue_offsets", "retention_history.jsonl")


async def _send(stack: Stack, report: Report, found: list[Target], count: int, chance: random.Random) -> None:
    maker = Maker(chance)
    options = [("grpc.enable_http_proxy", 0)]
    channels = {name: trusted(grpc.aio.insecure_channel(target, options)) for name, target in stack.targets.items()}
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            target = chance.choice(found)
            requests = [maker.request(target) for _ in range(chance.randint(1, MESSAGE_COUNT_MAX))]
            await _call(channels[target.service], target, requests, report)

    try:
        await asyncio.gather(*(work() for _ in range(WORKER_COUNT)))
    finally:
        for channel in channels.values():
            await channel.close()


async def _call(channel: grpc.aio.Channel, target: Target, requests: list[bytes], report: Report) -> None:
    """Make a call with these requests, of which a method without a stream gets the first."""
    report.request_count += len(requests) if target.method.client_streaming else 1
    try:
        answers = await _answered(channel, target, requests)
    except grpc.aio.AioRpcError as error:
        if error.details() == CLIENTS_OWN:
            report.codes[f"{target.service} (ended while the client wrote)"] += 1
            return
        report.codes[f"{target.service} {error.code().name}"] += 1
        if text := _fault(target, error):
            report.add(f"{target.service}{target.path}: {text}", requests)
    else:
        report.codes[f"{target.service} OK"] += 1
        for answer in answers:
            if text := _fault_within(target, answer):
                report.add(f"{target.service}{target.path}: {text}", requests)


async def _answered(channel: grpc.aio.Channel, target: Target, requests: list[bytes]) -> list[bytes]:
    """The first answers of a call."""
    method = target.method
    options: dict[str, Any] = {"timeout": TIMEOUT_S} | ({"metadata": CLIENT} if target.served_as else {})
    if not method.client_streaming and not method.server_streaming:
        return [await channel.unary_unary(target.path)(requests[0], **options)]
    if not method.server_streaming:
        return [await channel.stream_unary(target.path)(iter(requests), **options)]
    call = (
        channel.stream_stream(target.path)(iter(requests), **options)
        if method.client_streaming
        else channel.unary_stream(target.path)(requests[0], **options)
    )
    answers: list[bytes] = []
    try:
        for _ in range(ANSWER_COUNT_MAX):
            answer = await call.read()
            if answer is grpc.aio.EOF:
                break
            answers.append(answer)
    finally:
        call.cancel()
    return answers


def _fault_within(target: Target, raw: bytes) -> str:
    """The fault of an answer that has the outcome of its request itself, empty if there is none."""
    if not target.served_as and target.method.name != "Settle":
        return ""
    answer: Any = GetMessageClass(target.method.output_type).FromString(raw)
    if not target.served_as:
        bugs = [one.error.message for one in answer.outcomes if one.error.code in BUG_NUMBERS]
        return f"INTERNAL {bugs[0][:SHOWN_TEXT]}" if bugs else ""
    if answer.status.code == wire.CODE_INTERNAL_SERVER_ERROR:
        return f"INTERNAL_SERVER_ERROR {answer.status.message[:SHOWN_TEXT]}"
    return ""


def _fault(target: Target, error: grpc.aio.AioRpcError) -> str:
    """The fault of a refusal, empty if there is none."""
    text = f"{error.code().name} {(error.details() or '')[:SHOWN_TEXT]}"
    if error.code() in BUGS:
        return text
    if error.code() in WITHOUT_REASON or target.path.startswith(FOREIGN) or TOO_LARGE in text:
        return ""
    raw = dict(error.trailing_metadata() or ()).get(STATUS_KEY)
    if raw is None or not any(one.Is(ErrorInfo.DESCRIPTOR) for one in Status.FromString(raw).details):
        return f"no reason: {text}"
    return ""
