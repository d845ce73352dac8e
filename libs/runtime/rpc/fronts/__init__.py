# SPDX-License-Identifier: Apache-2.0
"""The fronts: a front takes calls from the network and gives them to the handlers. The two fronts do the same.

`in_loop` answers in the event loop itself, on libnghttp2. `grpcio` is gRPC's own server, with threads beside the loop;
a call costs several times as much there. A servicer does not know which front called it.
"""
