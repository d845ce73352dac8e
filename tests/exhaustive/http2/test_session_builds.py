# SPDX-License-Identifier: Apache-2.0
"""The two builds of the session say the same for the same bytes, harmed and hostile, in random pieces.

REPUT_HTTP2_CONNECTIONS=100000 tries more connections than the suite does.
"""

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import ngh2

from tests.attack.frames import Frames
from tests.support.harmed_sessions import harmed, session
from tests.support.session_sides import BEGINNINGS, UNARY, Side

CONNECTION_COUNT = int(os.environ.get("REPUT_HTTP2_CONNECTIONS", "400"))


def same(chance: random.Random, pieces: Sequence[bytes]) -> None:
    """Give both builds the same bytes and answers, and compare all that they say and send."""
    sides = Side("compiled"), Side("plain")
    calls: list[int] = []
    for piece in pieces:
        found = [side.receive(piece) for side in sides]
        calls += [stream_id for stream_id, kind in found[1] if kind in BEGINNINGS]
        assert sides[0].outcome == sides[1].outcome
        for _ in range(chance.randint(0, 2) if calls else 0):
            what = chance.choice(("answer", "answer", "count", "refuse", "reset", "stream", "acknowledge", "none"))
            if chance.random() < 0.01:
                what = chance.choice(("notice", "goodbye"))
            stream_id = chance.choice(calls)
            message = b"m" * chance.choice((0, 1, 100, 5_000, 8_192, 70_000))
            assert sides[0].act(what, stream_id, message) == sides[1].act(what, stream_id, message), what
        if chance.random() < 0.5:
            amount = chance.choice((1, 1_000, 256 << 10))
            for side in sides:
                side.send(amount)
            assert sides[0].outcome == sides[1].outcome
            if sides[0].broken is None:
                left = [side.session.take_left_count() for side in sides]
                assert left[0] == left[1]
    for side in sides:
        side.send(1 << 20)
    assert sides[0].outcome == sides[1].outcome
    assert frames_of(sides[0].written) == frames_of(sides[1].written)


def frames_of(data: bytes) -> dict[int, Any]:
    """Return what a caller's library reads in the bytes of a server, by stream."""
    caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    del caller
    found: dict[int, Any] = {}
    at = 0
    while at + 9 <= len(data):
        size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
        body = data[at + 9 : at + 9 + size]
        said = found.setdefault(stream_id, [])
        if kind == 0 and said and said[-1][0] == 0:
            said[-1] = (0, said[-1][1] | flags, said[-1][2] + body)
        elif kind != 8:  # windows are opened in other steps
            said.append((kind, flags, body))
        at += 9 + size
    return found


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """Return bytes in random pieces, or whole."""
    if chance.random() < 0.3:
        return [data]
    places = sorted(chance.sample(range(len(data)), min(len(data), chance.choice((1, 5, 40)))))
    return [data[at:to] for at, to in itertools.pairwise([0, *places, len(data)]) if at < to]


def test_harmed_sessions_have_the_same_outcome(chance: random.Random) -> None:
    """Calls of an honest caller, as they are and with bytes changed, lost, repeated or new."""
    for _ in range(CONNECTION_COUNT):
        same(chance, cut(harmed(session(chance), chance), chance))


def test_hostile_frames_have_the_same_outcome(chance: random.Random) -> None:
    """Frames of all kinds, harmed, misplaced and cut off, as the attack sends them."""
    for _ in range(CONNECTION_COUNT):
        pieces = list(Frames(chance, [*UNARY, "/s/Each", "/s/Nothing"]).pieces())
        same(chance, [piece for piece in pieces if piece])
