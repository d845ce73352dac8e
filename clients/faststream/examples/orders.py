# SPDX-License-Identifier: Apache-2.0
"""Orders become invoices; an order that can't be paid is tried again and becomes a dead letter at last.

Run it with `faststream run orders:app`, or describe it with `faststream docs gen orders:app`.
"""

from faststream import FastStream
from faststream_reput import ReputBroker, ReputResponse
from faststream_reput.annotations import Attempt, Logger
from pydantic import BaseModel
from reput_client import SharePolicy


class Order(BaseModel):
    """The message of a shop."""

    number: str
    cents: int


class Invoice(BaseModel):
    """The message for a customer."""

    order: str
    cents: int


broker = ReputBroker(group="billing")
app = FastStream(broker)


@broker.subscriber("orders", policy=SharePolicy(attempts_max=3, backoffs_s=(1, 10)), max_workers=8)
@broker.publisher("invoices", schema=Invoice)
async def bill(order: Order, attempt: Attempt, logger: Logger) -> ReputResponse:
    """Bill an order."""
    if order.cents <= 0:
        raise ValueError(f"order {order.number} costs {order.cents} cents")
    logger.info("order %s is billed in attempt %d", order.number, attempt)
    return ReputResponse(Invoice(order=order.number, cents=order.cents), keys=order.number)
