# SPDX-License-Identifier: Apache-2.0
"""Settings: a client's own settings, completed by the gateway's settings for it.

Each library needs some of them for its start. docs/gateway.md names them.
"""

from collections.abc import Sequence

from google.protobuf.duration import from_milliseconds
from reput.delivery.v1.group_service_pb2 import GroupPolicy

from services.gateway.engine import retries
from services.gateway.engine.retries import Exponential
from services.gateway.engine.waiting import WAIT_S_MAX
from services.gateway.errors import Refused
from services.gateway.rpc.codec import milliseconds
from services.gateway.rpc.wire import messaging_pb2 as wire

BATCH_SIZE = 32
CONSUMERS = (wire.CLIENT_TYPE_PUSH_CONSUMER, wire.CLIENT_TYPE_SIMPLE_CONSUMER)
LITE = (wire.CLIENT_TYPE_LITE_PUSH_CONSUMER, wire.CLIENT_TYPE_LITE_SIMPLE_CONSUMER)


def check_client_type(kind: int) -> None:
    """Return if clients of this kind are served. Raises Refused."""
    if kind in LITE:
        raise Refused("UNSUPPORTED", "consumers of lite topics are not served yet")
    if kind != wire.CLIENT_TYPE_PRODUCER and kind not in CONSUMERS:
        raise Refused("UNRECOGNIZED_CLIENT_TYPE", f"clients of the type {kind} are not served")


def check(settings: wire.Settings) -> None:
    """Return if clients with these settings are served. Raises Refused."""
    kind = settings.WhichOneof("pub_sub")
    if kind is None:
        raise Refused("BAD_REQUEST", "one of publishing and subscription must be set")
    if settings.HasField("client_type"):
        check_client_type(settings.client_type)


def of_producer(said: wire.Settings, *, body_size_bytes_max: int) -> wire.Settings:
    """Return the completed settings of a producer."""
    settings = _echoed(said)
    settings.publishing.max_body_size = body_size_bytes_max
    settings.publishing.validate_message_type = True
    attempts = said.backoff_policy.max_attempts
    _set_retries(settings.backoff_policy, attempts or retries.PRODUCER_ATTEMPTS_MAX, retries.PRODUCER)
    return settings


def of_consumer(said: wire.Settings, policy: GroupPolicy, *, is_node: bool) -> wire.Settings:
    """Return the completed settings of a consumer, whose group has this policy."""
    settings = _echoed(said)
    settings.subscription.fifo = policy.is_ordered
    settings.subscription.receive_batch_size = BATCH_SIZE
    if not milliseconds(settings.subscription.long_polling_timeout):
        settings.subscription.long_polling_timeout.CopyFrom(from_milliseconds(round(WAIT_S_MAX * 1000)))
    waits = retries.of_consumer([milliseconds(one) for one in policy.backoffs], is_node=is_node)
    _set_retries(settings.backoff_policy, policy.attempts_max, waits)
    return settings


def is_of_node(said: wire.Settings) -> bool:
    """Return whether the settings are from a client for Node.js."""
    return said.user_agent.language == wire.LANGUAGE_NODE_JS


def _echoed(said: wire.Settings) -> wire.Settings:
    settings = wire.Settings()
    settings.CopyFrom(said)
    settings.ClearField("backoff_policy")
    settings.metric.on = False  # else libraries send their metrics to the gateway
    return settings


def _set_retries(policy: wire.RetryPolicy, attempts_max: int, waits: Exponential | Sequence[int]) -> None:
    policy.max_attempts = attempts_max
    if isinstance(waits, Exponential):
        policy.exponential_backoff.initial.CopyFrom(from_milliseconds(waits.initial_ms))
        policy.exponential_backoff.max.CopyFrom(from_milliseconds(waits.most_ms))
        policy.exponential_backoff.multiplier = waits.multiplier
    else:
        policy.customized_backoff.next.extend(map(from_milliseconds, waits))
