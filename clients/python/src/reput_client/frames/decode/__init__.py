# SPDX-License-Identifier: Apache-2.0
"""Decoders: bodies as columns. A body that is no such row keeps its bytes, and the reason, in columns of their own."""

from reput_client.frames.decode.decoder import Decoder
from reput_client.frames.decode.decoding import Decoding

__all__ = ["Decoder", "Decoding"]
