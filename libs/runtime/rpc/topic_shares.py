# SPDX-License-Identifier: Apache-2.0
"""Shares of topics as messages of the API, and back."""

from reput.commitlog.v1.topic_service_pb2 import ChildQueue, QueuePlace
from reput.commitlog.v1.topic_service_pb2 import QueueShare as QueueMessage
from reput.commitlog.v1.topic_service_pb2 import ShareChange as ChangeMessage
from reput.commitlog.v1.topic_service_pb2 import TopicShare as ShareMessage

from libs.formats.config.topic_share import Child, Place, QueueShare, ShareChange, TopicShare


def share_of(message: ShareMessage) -> TopicShare:
    """Return the share of a message, unchecked: see TopicShare.fault."""
    queues = (
        QueueShare(
            queue.queue_id, queue.first_hash, queue.last_hash, queue.is_sealed, tuple(map(_place_of, queue.parents))
        )
        for queue in message.queues
    )
    return TopicShare(
        message.version, tuple(queues), _change_of(message.change) if message.HasField("change") else None
    )


def message_of(share: TopicShare) -> ShareMessage:
    """Return the message of a share."""
    queues = [
        QueueMessage(
            queue_id=queue.queue_id,
            first_hash=queue.first_hash,
            last_hash=queue.last_hash,
            is_sealed=queue.is_sealed,
            parents=map(_place_message, queue.parents),
        )
        for queue in share.queues
    ]
    change = None if share.change is None else _change_message(share.change)
    return ShareMessage(version=share.version, queues=queues, change=change)


def _change_of(message: ChangeMessage) -> ShareChange:
    children = (Child(_place_of(child.place), child.first_hash, child.last_hash) for child in message.children)
    return ShareChange(message.version, tuple(map(_place_of, message.parents)), tuple(children))


def _change_message(change: ShareChange) -> ChangeMessage:
    children = [
        ChildQueue(place=_place_message(child.place), first_hash=child.first_hash, last_hash=child.last_hash)
        for child in change.children
    ]
    return ChangeMessage(version=change.version, parents=map(_place_message, change.parents), children=children)


def _place_of(message: QueuePlace) -> Place:
    return Place(message.shard, message.queue_id)


def _place_message(place: Place) -> QueuePlace:
    return QueuePlace(shard=place.shard, queue_id=place.queue_id)
