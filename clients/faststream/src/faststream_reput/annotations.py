# SPDX-License-Identifier: Apache-2.0
"""Annotations with which a handler gets the broker, the client and the message from the context."""

from typing import Annotated, TypeAlias

from faststream._internal.context import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast
from reput_client.aio import AsyncClient

from faststream_reput.broker import broker as _broker
from faststream_reput.messages import message as _message

__all__ = ["Attempt", "Client", "ContextRepo", "Logger", "NoCast", "ReputBatchMessage", "ReputBroker", "ReputMessage"]

Attempt: TypeAlias = Annotated[int, Context("message.attempt")]
Client: TypeAlias = Annotated[AsyncClient, Context("broker._connection")]
ReputBatchMessage: TypeAlias = Annotated[_message.ReputBatchMessage, Context("message")]
ReputBroker: TypeAlias = Annotated[_broker.ReputBroker, Context("broker")]
ReputMessage: TypeAlias = Annotated[_message.ReputMessage, Context("message")]
