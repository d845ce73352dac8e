# SPDX-License-Identifier: Apache-2.0
"""TransactionServicer: the gRPC service TransactionService of this process."""

from bisect import bisect_right
from collections.abc import Mapping

from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1 import transaction_service_pb2 as pb

from libs.formats.records.transaction_record import COMMIT, REAL_QID, REAL_TOPIC, ROLLBACK, Half
from libs.requests import arguments
from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.timestamps import timestamp
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.transactions.table import Transaction
from services.delivery.engine.transactions.transactions import Check

ID_SIZE_MAX = 255
GROUP_SIZE_MAX = 255
GROUP_COUNT_MAX = 1_000
COUNT_DEFAULT, COUNT_MAX = 32, 256
WAIT_MAX_S = 30.0
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "transactions"
RESOLUTIONS: Mapping[int, str] = {pb.RESOLUTION_COMMIT: COMMIT, pb.RESOLUTION_ROLLBACK: ROLLBACK}


class TransactionServicer:
    """Ends and lists transactions, and asks producers how they end."""

    def __init__(self, owner: JournalOwner) -> None:
        self._owner = owner

    async def EndTransaction(self, request: pb.EndTransactionRequest, _: object) -> pb.EndTransactionResponse:
        """End a transaction."""
        name = _text(request.transaction_id, "transaction_id", ID_SIZE_MAX, least=1)
        group = _text(request.producer_group, "producer_group", GROUP_SIZE_MAX)
        how = RESOLUTIONS.get(request.resolution)
        if how is None:
            reason = "must be RESOLUTION_COMMIT or RESOLUTION_ROLLBACK"
            raise BadArgument(reason, field="resolution", value=request.resolution, limit=pb.RESOLUTION_COMMIT)
        is_repeated = await (await self._owner.engine()).transactions.end(name, group, how)
        return pb.EndTransactionResponse(is_repeated=is_repeated)

    async def ReceiveChecks(self, request: pb.ReceiveChecksRequest, _: object) -> pb.ReceiveChecksResponse:
        """Return transactions about which the caller is asked."""
        groups = [
            _text(group, f"producer_groups[{index}]", GROUP_SIZE_MAX, least=1)
            for index, group in enumerate(request.producer_groups)
        ]
        if not 1 <= len(groups) <= GROUP_COUNT_MAX:
            limit = GROUP_COUNT_MAX if groups else 1
            reason = f"must be 1 to {GROUP_COUNT_MAX}"
            raise BadArgument(reason, field="producer_groups", value=len(groups), limit=limit)
        count = size_of_page(request, "check_count_max", default=COUNT_DEFAULT, most=COUNT_MAX)
        wait_s = arguments.wait_s(request, "wait", most_s=WAIT_MAX_S)
        found = await (await self._owner.engine()).transactions.checks(groups, count, wait_s=wait_s)
        return pb.ReceiveChecksResponse(checks=map(_check, found))

    async def ListTransactions(self, request: pb.ListTransactionsRequest, _: object) -> pb.ListTransactionsResponse:
        """Return a page of transactions. The token is the begin and the id of the page's last transaction."""
        group = _text(request.producer_group, "producer_group", GROUP_SIZE_MAX)
        count = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        after = decode_token(LIST, (group,), request.page_token, tuple[int, str])
        table = (await self._owner.engine()).transactions.table
        found = [one for one in table.all() if group in ("", one.half.producer_group)]
        start = 0 if after is None else bisect_right(found, after, key=_place)
        page = found[start : start + count]
        token = encode_token(LIST, (group,), _place(page[-1])) if start + count < len(found) else ""
        return pb.ListTransactionsResponse(transactions=map(_transaction, page), next_page_token=token)


def _text(text: str, field: str, most: int, *, least: int = 0) -> str:
    size = len(text.encode())
    if not least <= size <= most:
        limit = least if size < least else most
        raise BadArgument(f"must be {least} to {most} bytes", field=field, value=size, limit=limit)
    return text


def _place(transaction: Transaction) -> tuple[int, str]:
    return transaction.half.first_time_ms, transaction.half.id


def _transaction(transaction: Transaction) -> pb.Transaction:
    return _of_half(transaction.half, transaction.due_ms)


def _of_half(half: Half, due_ms: int | None = None) -> pb.Transaction:
    return pb.Transaction(
        transaction_id=half.id,
        offset_message_id=half.first_offset_id,
        producer_group=half.producer_group,
        topic=half.topic,
        queue_id=half.queue_id,
        begun=timestamp(half.first_time_ms),
        check_count=half.check_count,
        next_check=None if due_ms is None else timestamp(due_ms),
    )


def _check(check: Check) -> pb.TransactionCheck:
    message = StoredMessage()
    message.CopyFrom(check.message)
    message.topic, message.queue_id = check.half.topic, check.half.queue_id
    for name in (REAL_TOPIC, REAL_QID):
        message.properties.pop(name, None)
    return pb.TransactionCheck(transaction=_of_half(check.half), message=message)
