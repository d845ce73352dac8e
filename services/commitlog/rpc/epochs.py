# SPDX-License-Identifier: Apache-2.0
"""Tables of epochs, as services send them to each other."""

from collections.abc import Sequence
from itertools import pairwise

from reput.commitlog.v1 import log_service_pb2 as pb

from libs.formats.epoch import EPOCH_COUNT_MAX, Epoch
from libs.requests.checks import check_range


def epochs_of(messages: Sequence[pb.Epoch], path: str) -> list[Epoch]:
    """Return a table of epochs. Raises BadArgument for a table that is too long or does not ascend."""
    check_range(len(messages), path, most=EPOCH_COUNT_MAX)
    epochs = [Epoch(one.number, one.start_physical_offset) for one in messages]
    for index, (earlier, later) in enumerate(pairwise([Epoch(-1, 0), *epochs])):
        field = f"{path}[{index}]"
        check_range(later.number, f"{field}.number", least=earlier.number + 1)
        check_range(later.start_physical_offset, f"{field}.start_physical_offset", least=earlier.start_physical_offset)
    return epochs


def sent(epochs: Sequence[Epoch]) -> list[pb.Epoch]:
    """Return a table as messages."""
    return [pb.Epoch(number=epoch.number, start_physical_offset=epoch.start_physical_offset) for epoch in epochs]
