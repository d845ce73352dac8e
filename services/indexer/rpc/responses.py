# SPDX-License-Identifier: Apache-2.0
"""Parts of responses: records as serialized StoredMessages, made by the kernel without an object per message."""

from libs.kernel.answer.encode_cy import encode_messages
from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock


def messages_field(found: RecordBlock, field_number: int) -> bytes:
    """Return the records as a serialized field of StoredMessages. Raises RecordDamaged."""
    if not len(found.sizes):
        return b""
    try:
        return encode_messages(found.records, found.positions.data, found.sizes.data, len(found.sizes), field_number)
    except ValueError as error:
        raise RecordDamaged(segment="of an answer", position=0, reason=str(error)) from error
