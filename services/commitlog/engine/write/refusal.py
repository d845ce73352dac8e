# SPDX-License-Identifier: Apache-2.0
"""Refusals: turns each code of the append kernel into an exception with the path of the field at fault.

The kernel returns the message's index and the proto field number. The names are the fields of
reput.commitlog.v1.AppendMessage.
"""

from libs.formats import fields
from libs.formats.limits import (
    BORN_TIME_MS_MAX,
    HALF_ROOM_BYTES,
    PROPERTIES_SIZE_BYTES_MAX,
    QUEUE_COUNT_MAX,
    TIMER_DELAY_MS_MAX,
    TIMER_ROOM_BYTES,
    TOPIC_SIZE_BYTES_MAX,
)
from libs.formats.state import set_apart
from libs.kernel import layout
from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from libs.requests.errors import BadArgument, BadTopicName, MalformedRequest, ServiceError, TopicNotFound, TopicSetApart
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import (
    AfterRefusal,
    BadProperties,
    BatchEmpty,
    BatchTooLarge,
    DelayNotSupported,
    MessageTooLarge,
    PropertiesTooLarge,
    QueueNotHere,
    QueueOutOfRange,
    TopicForbidden,
)


def _names(prefix: str) -> dict[int, str]:
    """Return the names of a message's fields, by number."""
    return {
        number: name.removeprefix(prefix).lower() for name, number in vars(fields).items() if name.startswith(prefix)
    }


MESSAGE_FIELDS, REQUEST_FIELDS = _names("APPEND_MESSAGE_"), _names("APPEND_REQUEST_")
SHOWN_SIZE_MAX = 200
STRING_SIZE_BYTES_MAX = (1 << 16) - 1
"""A longer property string is refused before it is parsed."""


def field_path(columns: AppendColumns) -> str:
    """Return the path of the field at fault, such as `messages[3].queue_id`. It is empty for the request as a whole."""
    if columns.error_index < 0:
        return REQUEST_FIELDS.get(columns.error_field, "")
    message = f"messages[{columns.error_index}]"
    return f"{message}.{MESSAGE_FIELDS[columns.error_field]}" if columns.error_field else message


def _property(request: bytes, columns: AppendColumns, prefix: str) -> str:
    """Return the property at fault as `name=value`. Empty if its name does not begin with `prefix`."""
    name, value = columns.property_at_fault(request)
    if not name.startswith(prefix.encode()):
        return ""
    return (name + b"=" + value[:SHOWN_SIZE_MAX]).decode("utf-8", "replace")[:SHOWN_SIZE_MAX]


def _bad_delay(field: str, delay_ms: int, given: str) -> DelayNotSupported:
    if delay_ms < 0:
        return DelayNotSupported("it is too late to delete the message", field=field, value=delay_ms, limit=0)
    limit = TIMER_DELAY_MS_MAX
    if delay_ms > limit:
        reason = f"a delay of {delay_ms} ms is too long, the limit is {limit} ms (40 days)"
        return DelayNotSupported(reason, field=field, value=delay_ms, limit=limit)
    reason = "TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC are numbers of milliseconds or seconds"
    return DelayNotSupported(reason, field=field, value=given, limit=limit)


def _redirect(columns: AppendColumns) -> int:
    """Return the redirect of the message at fault. The plan has none if its properties exceed 64 KiB."""
    is_planned = columns.error_value <= STRING_SIZE_BYTES_MAX
    at = layout.PLAN_STRIDE * columns.error_index + layout.PLAN_REDIRECT
    return columns.plan[at] if is_planned else layout.REDIRECT_NONE


def _large_properties(field: str, value: int, columns: AppendColumns) -> PropertiesTooLarge:
    """Refuse properties, with the limit for this kind of message. The store adds properties to a waiting message."""
    limit, timed, half = PROPERTIES_SIZE_BYTES_MAX, TIMER_ROOM_BYTES, HALF_ROOM_BYTES
    why = f"{limit - timed} for a message with a time, {limit - half} for one of a transaction, {limit} for others"
    reason = f"properties of {value} bytes are too large, the limit is {why}; leave some out"
    room = {layout.REDIRECT_TIMER: timed, layout.REDIRECT_HALF: half}.get(_redirect(columns), 0)
    return PropertiesTooLarge(reason, field=field, value=value, limit=limit - room)


def refusal_of(  # noqa: C901 - a table
    code: int, request: bytes, columns: AppendColumns, limits: AppendLimits, topics: TopicRegistry
) -> ServiceError:
    """Return the exception for a negative code of `append`."""
    field, value = field_path(columns), columns.error_value
    topic = request[columns.topic_start : columns.topic_start + columns.topic_size].decode("utf-8", "replace")
    match code:
        case layout.E_WIRE:
            return MalformedRequest(f"{field or 'the request'} is not valid protobuf near byte {value}")
        case layout.E_EMPTY:
            return BatchEmpty()
        case layout.E_TOO_MANY:
            limit = limits.message_count_max
            return BatchTooLarge(f"too many messages, the limit is {limit}", value=value, limit=limit)
        case layout.E_TOPIC_NAME:
            limit = TOPIC_SIZE_BYTES_MAX
            reason = f"a topic name has 1 to {limit} letters, digits, `_`, `-`, `%` and `|`"
            return BadTopicName(reason, field=field, value=topic[:limit], limit=limit)
        case layout.E_TOPIC_UNKNOWN:
            return TopicNotFound(topic, field=field)
        case layout.E_TOPIC_FORBIDDEN if why := topics.set_apart.why(topic):
            return TopicSetApart(topic, why=why, field=field)
        case layout.E_LIGHT:
            names = _property(request, columns, set_apart.MULTI_DISPATCH)
            return TopicSetApart(names, why=set_apart.LIGHT_QUEUE, field=field)
        case layout.E_TOPIC_FORBIDDEN:
            return TopicForbidden(topic, permission="write", field=field)
        case layout.E_QUEUE:
            limit = (topics.write_queue_count(topic) or QUEUE_COUNT_MAX) - 1
            return QueueOutOfRange(field=field, topic=topic, value=value, limit=limit)
        case layout.E_QUEUE_ELSEWHERE:
            return _not_here(topics, field, topic, value)
        case layout.E_BODY_SIZE:
            return MessageTooLarge("body", field=field, value=value, limit=limits.body_size_bytes_max)
        case layout.E_RECORD_SIZE:
            return MessageTooLarge("record", field=field, value=value, limit=limits.record_size_bytes_max)
        case layout.E_PROPERTIES:
            return BadProperties("the properties are not well formed", field=field)
        case layout.E_PROPERTIES_SIZE:
            return _large_properties(field, value, columns)
        case layout.E_DELAY:
            return _bad_delay(field, value, _property(request, columns, "TIMER_"))
        case layout.E_HOST:
            return BadArgument("a host has 4 or 16 address bytes and a port up to 65535", field=field, value=value)
        case layout.E_BEHIND:
            return AfterRefusal()
        case layout.E_FIELD if columns.error_field == fields.APPEND_MESSAGE_BORN_TIME_MS:
            limit = BORN_TIME_MS_MAX
            reason = f"a born time is milliseconds since the epoch, 0 to {limit} (the year 9999)"
            return BadArgument(reason, field=field, value=value, limit=limit)
        case layout.E_FIELD:
            return BadArgument("the value is out of range", field=field, value=value)
    raise AssertionError(f"code {code} is no refusal")


def _not_here(topics: TopicRegistry, field: str, topic: str, queue_id: int) -> QueueNotHere:
    share = found.share if (found := topics.find(topic)) is not None else None
    if share is None:  # the topic was changed since the message was refused
        return QueueNotHere(field=field, topic=topic, value=queue_id, version=0)
    is_sealed = any(queue.queue_id == queue_id for queue in share.queues)
    return QueueNotHere(field=field, topic=topic, value=queue_id, version=share.version, is_sealed=is_sealed)
