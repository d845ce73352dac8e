# SPDX-License-Identifier: Apache-2.0
"""A Celery application on Reput. A worker: `celery -A tasks worker`; a caller: `python tasks.py`.

The services are those of `reput up`; the variables REPUT_CLIENT_…_TARGET name others.
"""

import kombu_reput  # noqa: F401 - makes reput:// known
from celery import Celery, chain

app = Celery("tasks", broker="reput://", backend="rpc://")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@app.task(bind=True, max_retries=3)
def fetch(self, url: str) -> str:  # type: ignore[no-untyped-def]
    """Fail once, and succeed in the second attempt, which the store holds back for a second."""
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    return f"{url} in attempt {self.request.retries + 1}"


if __name__ == "__main__":
    print("3 + 4 =", add.delay(3, 4).get(timeout=60))
    print("(3 + 4) + 5 =", chain(add.s(3, 4), add.s(5)).apply_async().get(timeout=60))
    print("after two seconds:", add.apply_async((1, 1), countdown=2).get(timeout=60))
    print("with a retry:", fetch.delay("example.org").get(timeout=60))
