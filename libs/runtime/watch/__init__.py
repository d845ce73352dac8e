# SPDX-License-Identifier: Apache-2.0
"""The state of the running process: logs, metrics and traces, memory, and pauses of the event loop.

telemetry        Telemetry: logs, metrics and traces of a service. MetricsServer serves the metrics over HTTP.
durations        Histograms of durations, such as CallDurations: a histogram for each method.
loop_watch       LoopWatch: pauses of the event loop. collector bounds the pauses of Python's garbage collector.
malloc           Memory that the C library holds, and its return to the system.
faults           A fatal signal leaves a report in the log.
"""
