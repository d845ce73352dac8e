# SPDX-License-Identifier: Apache-2.0
"""The relay's steps, ended at each step and mixed in each order: crashes and relays that do not know of each other."""

import random
from typing import Any

import pytest
from pytest_reput import MemoryReput
from reput_outbox import DatabaseTrouble, RelaySettings
from reput_outbox.core.cycle import Cycle, LookUp, Send, Step, Transact
from reput_outbox.core.errors import LeaseLost
from reput_outbox.core.sender import Sender

from clients.outbox.tests.shop import Shop, bodies, check_once

SMALL = RelaySettings(batch_rows=3, lease_s=1e-9, retry_s=1e9, keep_s=3600)
"""Small batches, and a lease that is over at once: each relay takes over whenever it looks."""
STEPS_MAX = 2_000


class Stepper:
    """A relay that does a step at a time."""

    def __init__(self, shop: Shop, reput: MemoryReput) -> None:
        self.cycle = Cycle(SMALL, lambda: False)
        self._steps = self.cycle.steps()
        self._shop, self._sender = shop, Sender(lambda: reput.connect(timeout_s=10))
        self._next: Step = next(self._steps)

    def do(self, *, loses_answer: bool = False) -> Step:
        """Do the next step, and return it. With `loses_answer` the relay is dead after it."""
        done = self._next
        try:
            result = self._done(done)
        except (DatabaseTrouble, LeaseLost) as error:
            if not loses_answer:
                self._next = self._steps.throw(error)
        else:
            if not loses_answer:
                self._next = self._steps.send(result)
        return done

    def close(self) -> None:
        self._sender.close()

    def _done(self, step: Step) -> Any:
        if isinstance(step, Transact):
            return self._shop.database.transact(step.work)
        if isinstance(step, Send):
            return self._sender.send(step.writer_id, step.number, step.rows)
        if isinstance(step, LookUp):
            return self._sender.stored(step.rows)
        return None


def finish(stepper: Stepper, shop: Shop) -> None:
    """Let a relay send all."""
    for _ in range(STEPS_MAX):
        if shop.is_sent():
            return
        stepper.do()
    raise AssertionError("the relay does not come to the end")


@pytest.mark.parametrize("loses_answer", [False, True], ids=["before", "after"])
def test_a_relay_that_dies_at_each_step(
    reput: MemoryReput, shop: Shop, subtests: pytest.Subtests, *, loses_answer: bool
) -> None:
    """A relay ends before or after its n-th step, and the next relay goes on: no row is lost or sent twice."""
    for count in range(12):
        with subtests.test(count=count):
            topic = reput.topic()
            before = len(shop.orders())
            for number in range(7):
                shop.buy(topic, f"buyer{number % 2}", number)
            dead = Stepper(shop, reput)
            for _ in range(count):
                dead.do()
            if loses_answer:
                dead.do(loses_answer=True)
            dead.close()
            living = Stepper(shop, reput)
            finish(living, shop)
            living.close()
            check_once(shop.orders()[before:], bodies(reput, topic))


@pytest.mark.parametrize("seed", range(3))
def test_relays_that_take_over_from_each_other_all_the_time(reput: MemoryReput, shop: Shop, seed: int) -> None:
    """Three relays without a valid lease, mixed step by step, some dying: each row is one message."""
    chance, topic = random.Random(seed), reput.topic()
    relays = [Stepper(shop, reput) for _ in range(3)]
    number = 0
    for _ in range(250):
        if chance.random() < 0.2:
            shop.buy(topic, f"buyer{number % 3}", number)
            number += 1
        index = chance.randrange(3)
        if chance.random() < 0.05:
            relays[index].do(loses_answer=True)
            relays[index].close()
            relays[index] = Stepper(shop, reput)
        else:
            relays[index].do()
    finish(relays[0], shop)
    for relay in relays:
        relay.close()
    assert number > 20
    check_once(shop.orders(), bodies(reput, topic))
