# SPDX-License-Identifier: Apache-2.0
"""The application: a task that adds a byte to the file REPUT_BENCH_EFFECTS, which has as many bytes as tasks ran.

With the broker `memory://` the worker publishes REPUT_BENCH_COUNT tasks to itself when it is ready.
"""

import os
import sys
import time
from typing import Any

sys.path.append(os.environ["REPUT_BENCH_PACKAGES"])  # Redis's client, behind the packages of this environment

import kombu_reput  # noqa: F401 - makes reput:// known
from celery import Celery
from celery.signals import worker_ready

BROKER = os.environ["REPUT_BENCH_BROKER"]
EFFECTS = os.open(os.environ["REPUT_BENCH_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

app = Celery("bench", broker=BROKER)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_send_task_events=False,
    worker_prefetch_multiplier=int(os.environ["REPUT_BENCH_PREFETCH"]),
    broker_connection_retry_on_startup=True,
)


@app.task(name="nothing")  # type: ignore[untyped-decorator]
def nothing() -> None:
    """Do nothing but to be counted."""
    os.write(EFFECTS, b".")


def publish(count: int) -> float:
    """Publish so many tasks, one after another, and return the seconds that it took."""
    begin_s = time.perf_counter()
    for _ in range(count):
        nothing.delay()
    return time.perf_counter() - begin_s


@worker_ready.connect  # type: ignore[untyped-decorator]
def publish_to_itself(**_: Any) -> None:
    """Fill the queue of a process."""
    if BROKER == "memory://":
        publish(int(os.environ["REPUT_BENCH_COUNT"]))


def left() -> int:
    """Return the number of tasks that wait in the queue."""
    with app.connection() as connection:
        return int(connection.default_channel.queue_declare("celery").message_count)


if __name__ == "__main__":
    print(publish(int(os.environ["REPUT_BENCH_COUNT"])) if sys.argv[1] == "publish" else left())
