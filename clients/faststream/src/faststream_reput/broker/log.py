# SPDX-License-Identifier: Apache-2.0
"""The logger of a broker: lines with topic, group and message id."""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

MESSAGE_ID_SIZE = 10


class ReputLogStorage(DefaultLoggerStorage):
    """Knows how wide the columns of topics and groups are."""

    __slots__ = ("_group_size", "_topic_size")

    def __init__(self) -> None:
        super().__init__()
        self._topic_size, self._group_size = 5, 5
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        """Set the level of the logger."""
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for the names of a subscriber."""
        self._topic_size = max(self._topic_size, len(params.get("topic", "")))
        self._group_size = max(self._group_size, len(params.get("group", "")))

    def get_logger(self, *, context: "ContextRepo") -> "LoggerProto":
        """Return the logger, which is made at the first call."""
        if logger := self._get_logger_ref():
            return logger
        columns = f"%(topic)-{self._topic_size}s | %(group)-{self._group_size}s | %(message_id)-{MESSAGE_ID_SIZE}s"
        logger = get_broker_logger(
            name="reput",
            default_context={"topic": "", "group": ""},
            message_id_ln=MESSAGE_ID_SIZE,
            fmt=f"%(asctime)s %(levelname)-8s - {columns} - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(logger)
        return logger


make_reput_logger_state = partial(make_logger_state, default_storage_cls=ReputLogStorage)
