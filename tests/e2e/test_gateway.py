# SPDX-License-Identifier: Apache-2.0
"""The gateway as each client's library calls it. `make clients` tests it with the libraries themselves."""

import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from libs.machine.clock import SystemClock
from libs.runtime.errors import ConfigError
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from libs.runtime.process import running
from libs.runtime.settings import ServerConfig
from services.gateway.bootstrap import Service, Settings
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.renewals import Renewals
from services.gateway.rpc.caller import Caller as GatewayCaller
from services.gateway.rpc.caller import WorkCanceller
from services.gateway.rpc.consumer_methods import ConsumerMethods
from services.gateway.rpc.routes import KINDS
from services.gateway.rpc.store.delivery_client import DeliveryClient
from services.gateway.rpc.telemetry import NODE_DELAY_S
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import PLACE, Served, gateway, named, receive_request, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK = wire.CODE_OK
LONG_ENOUGH_S = 3
"""Time to renew a message before its time is over."""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway with a store."""
    async with store(tmp_path) as targets, gateway(*targets) as found:
        yield found


def publishing(language: int = wire.LANGUAGE_JAVA) -> wire.Settings:
    """Return the settings of a producer."""
    return wire.Settings(
        client_type=wire.CLIENT_TYPE_PRODUCER,
        request_timeout=Duration(seconds=3),
        publishing=wire.Publishing(topics=[named("t")], max_body_size=128 << 20),
        user_agent=wire.UserAgent(language=language, version="1"),
    )


def subscription(group: str = "g", language: int = wire.LANGUAGE_JAVA) -> wire.Settings:
    """Return the settings of a push consumer."""
    expression = wire.FilterExpression(type=wire.FILTER_TYPE_TAG, expression="*")
    entry = wire.SubscriptionEntry(topic=named("t"), expression=expression)
    return wire.Settings(
        client_type=wire.CLIENT_TYPE_PUSH_CONSUMER,
        subscription=wire.Subscription(group=named(group), subscriptions=[entry]),
        user_agent=wire.UserAgent(language=language, version="1"),
    )


async def test_the_life_of_a_producer_and_a_simple_consumer(served: Served) -> None:
    """Route, settings, send, receive, acknowledge and end have all fields that libraries need."""
    producer, consumer = served.caller("p", x_mq_language="JAVA"), served.caller("c", x_mq_language="GO")
    route = await producer.call("QueryRoute", wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE))
    assert (route.status.code, [queue.id for queue in route.message_queues]) == (OK, [0, 1, 2, 3])
    for queue in route.message_queues:
        assert (queue.broker.id, queue.permission) == (0, wire.PERMISSION_READ_WRITE)
        assert queue.broker.endpoints == PLACE, "the address that was called, whoever stands there"
        assert list(queue.accept_message_types) == list(KINDS)
    sent = producer.message("t", b"hello", tag="a", keys=["k"], born_timestamp=Timestamp(seconds=1_700_000_000))
    sent.user_properties["color"] = "red"
    answer = await producer.send("t", sent)
    (entry,) = answer.entries
    assert (answer.status.code, entry.message_id) == (OK, sent.system_properties.message_id)
    assert entry.transaction_id == entry.message_id, "libraries show it, and RocketMQ gives it to every kind"
    (message,) = await consumer.receive("t")
    system = message.system_properties
    assert (message.topic.name, message.body, dict(message.user_properties)) == ("t", b"hello", {"color": "red"})
    assert (system.tag, list(system.keys), system.message_id) == ("a", ["k"], sent.system_properties.message_id)
    assert (system.body_digest.type, system.body_digest.checksum) == (
        wire.DIGEST_TYPE_MD5,
        hashlib.md5(b"hello").hexdigest().upper(),
    )
    assert (system.body_encoding, system.delivery_attempt) == (wire.ENCODING_IDENTITY, 1)
    assert (system.born_timestamp.seconds, system.born_host) == (1_700_000_000, "host")
    acked = await consumer.ack("t", system.receipt_handle)
    assert (acked.status.code, acked.entries[0].status.code) == (OK, OK)
    for caller, kind in ((producer, wire.CLIENT_TYPE_PRODUCER), (consumer, wire.CLIENT_TYPE_SIMPLE_CONSUMER)):
        heard = await caller.call("Heartbeat", wire.HeartbeatRequest(client_type=kind))
        assert heard.status.code == OK
        left = await caller.call("NotifyClientTermination", wire.NotifyClientTerminationRequest())
        assert left.status.code == OK


async def test_nobody_needs_to_have_been_here_before(tmp_path: Path) -> None:
    """Another gateway accepts a handle, and serves a client without a stream: gateways keep no state of them."""
    async with store(tmp_path) as targets:
        async with gateway(*targets) as first:
            await first.caller().send("t")
            (message,) = await first.caller().receive("t", auto_renew=True)
        async with gateway(*targets) as second:
            acked = await second.caller("another").ack("t", message.system_properties.receipt_handle)
            assert acked.status.code == OK


async def test_a_producer_hears_what_its_library_needs(served: Served) -> None:
    """A producer gets a growing wait, which Java and Node.js need, and the largest body, because 0 would refuse any."""
    answer = await served.caller().settings(publishing())
    settings = answer.settings
    assert (answer.status.code, settings.WhichOneof("pub_sub")) == (OK, "publishing")
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 << 20, True)
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000
    assert not settings.metric.on, "libraries would send their metrics here"
    assert settings.publishing.topics[0].name == "t"


@pytest.mark.parametrize(
    ("language", "strategy"),
    [
        (wire.LANGUAGE_JAVA, "customized_backoff"),
        (wire.LANGUAGE_GOLANG, "customized_backoff"),
        (wire.LANGUAGE_PYTHON, "customized_backoff"),
        (wire.LANGUAGE_NODE_JS, "exponential_backoff"),
    ],
)
async def test_a_consumer_hears_its_groups_policy_as_its_library_reads_it(
    served: Served, language: int, strategy: str
) -> None:
    """A consumer gets its group's policy in its library's form: Python reads only lists, Node.js only growing waits."""
    await served.policy("g", attempts_max=5, backoffs=[Duration(seconds=2), Duration(seconds=9)], is_ordered=True)
    answer = await served.caller().settings(subscription(language=language))
    settings = answer.settings
    assert (settings.backoff_policy.WhichOneof("strategy"), settings.backoff_policy.max_attempts) == (strategy, 5)
    assert settings.subscription.fifo
    assert settings.subscription.receive_batch_size > 0
    assert settings.subscription.long_polling_timeout.seconds > 0
    if strategy == "customized_backoff":
        assert [one.seconds for one in settings.backoff_policy.customized_backoff.next] == [2, 9]
    else:
        assert settings.backoff_policy.exponential_backoff.max.seconds == 9


async def test_a_group_that_nobody_has_heard_of_has_the_default(served: Served) -> None:
    """An unknown group has the default policy, because a consumer's stream comes before its first receive."""
    answer = await served.caller().settings(subscription("new"))
    policy = answer.settings.backoff_policy
    assert (policy.max_attempts, policy.customized_backoff.next[0].seconds) == (17, 10)
    assert not answer.settings.subscription.fifo


async def test_an_ordered_group_without_waits_of_its_own_has_rocketmqs(served: Served) -> None:
    """An ordered group without its own waits has RocketMQ's: 1 s, 5 s, 10 s, 30 s and so on, in 18 steps."""
    await served.policy("g", is_ordered=True)
    waits = (await served.caller().settings(subscription())).settings.backoff_policy.customized_backoff.next
    assert [one.seconds for one in waits][:4] == [1, 5, 10, 30]
    assert len(waits) == 18


async def test_a_stream_begins_at_once(served: Served) -> None:
    """A stream gets the head of the answer at once, because the Rust library sends nothing before it."""
    stream = served.caller().telemetry()
    await stream.initial_metadata()
    await stream.write(wire.TelemetryRequest(settings=publishing()))
    assert (await stream.read()).status.code == OK
    stream.cancel()


@pytest.mark.parametrize("group", ["with.a.dot", "x" * 123])
async def test_a_group_name_that_is_refused(served: Served, group: str) -> None:
    """For an illegal group name settings get the code, the limit and the end of the stream, and a receive the code."""
    stream = served.caller().telemetry()
    await stream.write(wire.TelemetryRequest(settings=subscription(group)))
    answer = await stream.read()
    assert (answer.status.code, answer.HasField("settings")) == (wire.CODE_ILLEGAL_CONSUMER_GROUP, False)
    with pytest.raises(grpc.aio.AioRpcError, match="1 to 122 bytes of letters") as ended:
        await stream.read()
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    parts = [part async for part in served.caller().receiving(receive_request("t", group))]
    assert [part.status.code for part in parts] == [wire.CODE_ILLEGAL_CONSUMER_GROUP]


async def test_node_hears_of_its_settings_a_little_later(served: Served) -> None:
    """The Node.js library gets its settings after a delay: settings during its second route query would block it."""
    began_s = time.monotonic()
    await served.caller(x_mq_language="HTTP").settings(publishing(wire.LANGUAGE_NODE_JS))
    assert time.monotonic() - began_s >= NODE_DELAY_S


async def test_a_failure_told_by_node_waits_as_the_group_says(served: Served) -> None:
    """Node.js asks for a thousandth of the meant delay, so the group's backoff applies. Other delays are kept."""
    await served.policy("g", backoffs=[Duration(seconds=3_600)])
    await served.caller().send("t")
    (message,) = await served.caller(x_mq_language="HTTP").receive("t")
    changed = await served.caller(x_mq_language="HTTP").change(message.system_properties.receipt_handle, 10)
    assert changed.status.code == OK
    assert await served.caller().receive("t", wait_s=1) == []
    await served.caller().send("t")
    (message,) = await served.caller(x_mq_language="JAVA").receive("t")
    await served.caller(x_mq_language="JAVA").change(message.system_properties.receipt_handle, 10)
    (again,) = await served.caller().receive("t")
    assert again.system_properties.delivery_attempt == 2


async def test_an_outdated_handle_is_told_so(served: Served) -> None:
    """An outdated handle has its own code: libraries repeat an acknowledgement with any other refusal for ever."""
    caller = served.caller()
    await caller.send("t")
    (message,) = await caller.receive("t")
    first = message.system_properties.receipt_handle
    changed = await caller.change(first, 3_600_000)
    assert changed.receipt_handle not in ("", first)
    invalid = wire.CODE_INVALID_RECEIPT_HANDLE
    assert (await caller.change(first, 1_000)).status.code == invalid
    for handle in (first, "nonsense", ""):
        acked = await caller.ack("t", handle)
        assert (acked.status.code, acked.entries[0].status.code) == (invalid, invalid)
    several = await caller.ack("t", changed.receipt_handle, first)
    assert several.status.code == wire.CODE_MULTIPLE_RESULTS
    assert [entry.status.code for entry in several.entries] == [OK, invalid]
    acked = await caller.ack("t", changed.receipt_handle)
    assert acked.status.code == OK, "its answer may have been lost"
    assert (await caller.change(changed.receipt_handle, 1_000)).status.code == invalid


async def test_the_server_chooses_the_queue(served: Served) -> None:
    """The gateway chooses the queue by the message group, because libraries would choose differently."""
    first, second = served.caller("a", x_mq_language="JAVA"), served.caller("b", x_mq_language="PYTHON")
    for index in range(8):
        caller = (first, second)[index % 2]
        message = caller.message("t", str(index).encode(), message_group="g1")
        message.system_properties.queue_id = index % 4
        assert (await caller.send("t", message)).status.code == OK
    messages = await first.receive("t")
    assert [one.body for one in messages] == [str(index).encode() for index in range(8)]
    assert len({one.system_properties.queue_id for one in messages}) == 1
    assert {one.system_properties.message_type for one in messages} == {wire.MESSAGE_TYPE_FIFO}
    assert {one.user_properties["__SHARDINGKEY"] for one in messages} == {"g1"}


async def test_an_ordered_group_gets_one_of_a_message_group_at_a_time(served: Served) -> None:
    """The next message of a message group is delivered when the message before it is settled."""
    await served.policy("g", is_ordered=True)
    caller = served.caller()
    for body in (b"1", b"2"):
        await caller.send("t", caller.message("t", body, message_group="g1"))
    (first,) = await caller.receive("t", auto_renew=True)
    assert first.body == b"1"
    assert await caller.receive("t", wait_s=1) == []
    await caller.ack("t", first.system_properties.receipt_handle)
    (second,) = await caller.receive("t")
    assert second.body == b"2"


async def test_a_namespace_from_the_metadata(served: Served) -> None:
    """The namespace is read from the metadata, where Node.js has it, and separates topics of the same name."""
    shop = served.caller(x_mq_namespace="shop")
    await shop.send("t", shop.message("t", b"of the shop"))
    await served.caller().send("t", shop.message("t", b"of nobody"))
    (message,) = await shop.receive("t")
    assert (message.topic.resource_namespace, message.topic.name, message.body) == ("shop", "t", b"of the shop")
    (message,) = await served.caller().receive("t")
    assert (message.topic.resource_namespace, message.topic.name, message.body) == ("", "t", b"of nobody")


async def test_a_simple_consumer_for_go_waits_by_its_deadline(served: Served) -> None:
    """A receive without a time waits by its deadline, and an empty answer has the code of RocketMQ's proxy."""
    await served.caller().call("QueryRoute", wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE))
    request = receive_request("t")
    request.ClearField("long_polling_timeout")
    parts = [part async for part in served.caller().receiving(request, timeout_s=8)]
    assert [part.WhichOneof("content") for part in parts] == ["status", "delivery_timestamp"]
    assert (parts[0].status.code, parts[0].status.message) == (wire.CODE_MESSAGE_NOT_FOUND, "no new message")


class Gone:
    """The context of a caller that leaves."""

    async def send_initial_metadata(self, _: object) -> None:
        """See ServicerContext."""

    def time_remaining(self) -> None:
        """See ServicerContext."""


async def test_what_a_consumer_does_not_take_comes_again_at_once(served: Served) -> None:
    """Messages on their way to a consumer that leaves are delivered again at once."""
    caller = served.caller()
    await caller.send("t", *[caller.message("t", bytes([index])) for index in range(3)])
    delivery = DeliveryClient(LeaderClient("delivery", [Connection(served.delivery, LIMIT_S, lambda: ())]))
    renewals = Renewals(delivery, SystemClock(), count_max=10)
    receiving = ConsumerMethods(delivery, renewals, Bodies(size_bytes_max=1), WorkCanceller(), SystemClock())
    answers = receiving.receive(receive_request("t", auto_renew=True), GatewayCaller("c", "", "", ""), Gone())  # type: ignore[arg-type]
    parts = [(await anext(answers)).WhichOneof("content") for _ in range(2)]
    assert parts == ["status", "message"]
    await answers.aclose()
    assert renewals.count == 0
    messages = await caller.receive("t")
    while len(messages) < 3:
        messages += await caller.receive("t")
    assert sorted(one.body for one in messages) == [b"\0", b"\1", b"\2"]
    taken = {one.body: one.system_properties.delivery_attempt for one in messages}
    assert 2 in taken.values(), "what was on its way counts as an attempt"


async def test_a_renewed_message_keeps_its_handle(served: Served) -> None:
    """A renewal keeps a message's handle, and after an acknowledgement the handle can't be renewed."""
    caller = served.caller()
    await caller.send("t")
    (message,) = await caller.receive("t", invisible_duration=Duration(seconds=LONG_ENOUGH_S))
    handle = message.system_properties.receipt_handle
    delivery = DeliveryClient(LeaderClient("delivery", [Connection(served.delivery, LIMIT_S, lambda: ())]))
    assert await delivery.renew([handle, "nonsense"], 3_600) == {handle: True, "nonsense": False}
    assert await caller.receive("t", wait_s=LONG_ENOUGH_S + 1) == []
    assert (await caller.ack("t", handle)).status.code == OK
    assert await delivery.renew([handle], 3_600) == {handle: False}


async def test_a_push_consumer_receives_from_the_whole_topic(served: Served) -> None:
    """A push consumer gets a single assignment, of any queue."""
    await served.caller().send("t")
    request = wire.QueryAssignmentRequest(topic=named("t"), group=named("g"), endpoints=PLACE)
    answer = await served.caller().call("QueryAssignment", request)
    (assignment,) = answer.assignments
    queue = assignment.message_queue
    assert (queue.id, queue.broker.id, queue.broker.endpoints) == (-1, 0, PLACE)


async def test_a_dead_letter_by_its_consumers_wish(served: Served) -> None:
    """A FIFO push consumer's forward makes a dead letter, and a repeated forward makes no second."""
    caller = served.caller()
    await caller.send("t", caller.message("t", b"bad"))
    (message,) = await caller.receive("t", auto_renew=True)
    handle = message.system_properties.receipt_handle
    request = wire.ForwardMessageToDeadLetterQueueRequest(group=named("g"), topic=named("t"), receipt_handle=handle)
    answers = [await caller.call("ForwardMessageToDeadLetterQueue", request) for _ in range(2)]
    assert [one.status.code for one in answers] == [OK, OK]
    route = await caller.call("QueryRoute", wire.QueryRouteRequest(topic=named("%DLQ%g"), endpoints=PLACE))
    assert {queue.permission for queue in route.message_queues} == {wire.PERMISSION_READ}
    (letter,) = await caller.receive("%DLQ%g", "other")
    assert letter.body == b"bad"
    assert letter.system_properties.dead_letter_queue.topic == "t"
    assert letter.system_properties.message_id == message.system_properties.message_id
    assert await caller.receive("%DLQ%g", "other", wait_s=1) == []


async def test_calls_that_are_not_served_are_refused(served: Served) -> None:
    """A call that is not served gets the status UNSUPPORTED with a text."""
    for method, request in (("SyncLiteSubscription", wire.SyncLiteSubscriptionRequest()),):
        answer = await served.caller().call(method, request)
        assert (answer.status.code, bool(answer.status.message)) == (wire.CODE_UNSUPPORTED, True)


async def test_requests_that_are_refused(served: Served) -> None:
    """A bad request is refused with the code that libraries expect."""
    caller = served.caller()
    codes = {
        "no client": (await served.caller("").send("t")).status.code,
        "no topic": (await caller.send("", caller.message(""))).status.code,
        "bad topic": (await caller.send("a/b", caller.message("a/b"))).status.code,
        "no body": (await caller.send("t", caller.message("t", b""))).status.code,
        "large body": (await caller.send("t", caller.message("t", bytes((4 << 20) + 1)))).status.code,
        "two topics": (await caller.send("t", caller.message("t"), caller.message("u"))).status.code,
        "fifo alone": (await caller.send("t", caller.message("t", message_type=wire.MESSAGE_TYPE_FIFO))).status.code,
        "no place": (await caller.call("QueryRoute", wire.QueryRouteRequest(topic=named("t")))).status.code,
        "lite": (
            await caller.call("Heartbeat", wire.HeartbeatRequest(client_type=wire.CLIENT_TYPE_LITE_PUSH_CONSUMER))
        ).status.code,
        "no settings": (await caller.settings(wire.Settings())).status.code,
    }
    assert codes == {
        "no client": wire.CODE_CLIENT_ID_REQUIRED,
        "no topic": wire.CODE_ILLEGAL_TOPIC,
        "bad topic": wire.CODE_ILLEGAL_TOPIC,
        "no body": wire.CODE_MESSAGE_BODY_EMPTY,
        "large body": wire.CODE_MESSAGE_BODY_TOO_LARGE,
        "two topics": wire.CODE_BAD_REQUEST,
        "fifo alone": wire.CODE_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "no place": wire.CODE_BAD_REQUEST,
        "lite": wire.CODE_UNSUPPORTED,
        "no settings": wire.CODE_BAD_REQUEST,
    }
    expression = wire.FilterExpression(type=wire.FILTER_TYPE_SQL, expression="a >")
    parts = [part async for part in caller.receiving(receive_request("t", filter_expression=expression))]
    assert [part.status.code for part in parts] == [wire.CODE_ILLEGAL_FILTER_EXPRESSION]


async def test_a_receive_that_is_repeated_gets_the_same(served: Served) -> None:
    """A receive with the same attempt id gets the same message: libraries repeat a receive with a lost answer."""
    producer, consumer = served.caller("p"), served.caller("c")
    await producer.send("t", *(producer.message("t", b"%d" % number) for number in range(4)))
    (first,) = await consumer.receive("t", batch_size=1, attempt_id="a")
    (again,) = await consumer.receive("t", batch_size=1, attempt_id="a")
    system = first.system_properties
    assert (again.body, again.system_properties.delivery_attempt) == (first.body, 1)
    assert again.system_properties.receipt_handle != system.receipt_handle
    (other,) = await consumer.receive("t", batch_size=1, attempt_id="b")
    assert other.body != first.body


async def test_topics_are_made_only_where_that_is_wanted(tmp_path: Path) -> None:
    """Without `auto_create_topics` an unknown topic is refused, also if the store would create it."""
    async with store(tmp_path) as targets, gateway(*targets, auto_create_topics=False) as served:
        request = wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE)
        assert (await served.caller().call("QueryRoute", request)).status.code == wire.CODE_TOPIC_NOT_FOUND
        parts = [part async for part in served.caller().receiving(receive_request("t"))]
        assert [part.status.code for part in parts] == [wire.CODE_TOPIC_NOT_FOUND]
        assert (await served.caller().send("t")).status.code == wire.CODE_TOPIC_NOT_FOUND


@pytest.mark.parametrize("name", ["%DLQ%g", "%RETRY%g"])
async def test_a_topic_of_a_group_is_neither_made_nor_sent_to(served: Served, name: str) -> None:
    """A group's topic is neither created by a route query nor sent to, because the name may be a typing error."""
    caller = served.caller()
    route = wire.QueryRouteRequest(topic=named(name), endpoints=PLACE)
    assert (await caller.call("QueryRoute", route)).status.code == wire.CODE_TOPIC_NOT_FOUND
    assert (await caller.send(name)).status.code == wire.CODE_ILLEGAL_TOPIC
    assert (await caller.call("QueryRoute", route)).status.code == wire.CODE_TOPIC_NOT_FOUND


def signed(key: str, secret: str) -> dict[str, str]:
    """Return the metadata of a client with a key."""
    digits = hmac.new(secret.encode(), b"20260101T000000Z", hashlib.sha1).hexdigest()
    shown = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digits}"
    return {"x_mq_date_time": "20260101T000000Z", "authorization": shown}


async def test_access_keys(tmp_path: Path) -> None:
    """A caller without a valid key gets UNAUTHORIZED for every call. A stream gets it, too, and ends."""
    keys = tmp_path / "keys"
    keys.write_text("# of the shop\nalice secret\nalice newer\nbob other\n")
    keys.chmod(0o440)
    async with store(tmp_path) as targets, gateway(*targets, access_keys_file=keys) as served:
        for secret in ("secret", "newer"):
            assert (await served.caller(**signed("alice", secret)).send("t")).status.code == OK
        wrong = [served.caller(), served.caller(**signed("alice", "other")), served.caller(**signed("eve", ""))]
        for caller in wrong:
            assert (await caller.send("t")).status.code == wire.CODE_UNAUTHORIZED
            parts = [part async for part in caller.receiving(receive_request("t"))]
            assert [part.status.code for part in parts] == [wire.CODE_UNAUTHORIZED]
            assert (await caller.telemetry().read()).status.code == wire.CODE_UNAUTHORIZED


async def test_settings_that_can_not_work(tmp_path: Path) -> None:
    """With invalid settings the gateway does not start, and its error says how to correct them."""
    keys = tmp_path / "keys"
    for text, mode, said in (
        ("alice secret\n", 0o644, "chmod 600"),
        ("alice secret\n", 0o660, "chmod 600"),
        ("alice\n", 0o600, "line 1"),
        ("", 0o600, "no key"),
    ):
        keys.write_text(text)
        keys.chmod(mode)
        with pytest.raises(ConfigError, match=said):
            async with gateway("127.0.0.1:1", "127.0.0.1:1", access_keys_file=keys):
                pass
    with pytest.raises(ConfigError, match="access_keys_file"):
        async with running(Service, Settings(server=ServerConfig(port=0, token_file=keys))):
            pass


async def test_a_store_that_is_away_is_told_so() -> None:
    """Without a store a call gets HA_NOT_AVAILABLE, after which libraries try again."""
    async with gateway("127.0.0.1:1", "127.0.0.1:1") as served:
        assert (await served.caller().send("t")).status.code == wire.CODE_HA_NOT_AVAILABLE
        acked = await served.caller().ack("t", "handle")
        assert acked.status.code == wire.CODE_HA_NOT_AVAILABLE


async def test_a_stop_lets_nobody_wait(tmp_path: Path) -> None:
    """A stop of the gateway ends streams and receives."""
    async with store(tmp_path) as targets, gateway(*targets) as served:
        await served.caller().call("QueryRoute", wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE))
        stream = served.caller().telemetry()
        await stream.initial_metadata()
        call = served.caller().receiving(receive_request("t"))
        await call.initial_metadata()
        await served.gateway.drain()
        assert [part.WhichOneof("content") async for part in call] == ["status", "delivery_timestamp"]
        assert [one async for one in stream] == []
