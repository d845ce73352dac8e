# SPDX-License-Identifier: Apache-2.0
"""Route: calls stay where they are until an error shows that another target is better."""

import grpc
import pytest
from reput_client.core.errors import DeadlineExceededError, ReputError, UnavailableError
from reput_client.core.options import Options
from reput_client.core.route import Route

GONE = UnavailableError("no connection", code=grpc.StatusCode.UNAVAILABLE)


def refused(reason: str, **metadata: str) -> ReputError:
    """Return the refusal of a server."""
    return UnavailableError("no", code=grpc.StatusCode.UNAVAILABLE, reason=reason, metadata=metadata)


def test_the_leader_is_followed() -> None:
    """Also to an address that is not in the list, and from there back to the list."""
    route = Route(["a:1", "b:1"])
    route.on_failure("a:1", refused("NOT_LEADER", leader="c:1"))
    assert route.target == "c:1"
    route.on_failure("a:1", refused("NOT_LEADER", leader="b:1"))  # of a call that began before
    assert route.target == "c:1"
    route.on_failure("c:1", refused("NOT_LEADER"))
    assert route.target == "a:1"


SILENT = DeadlineExceededError("no answer", code=grpc.StatusCode.DEADLINE_EXCEEDED)


LACKING = refused("DEPENDENCY_UNAVAILABLE", service="commitlog")


@pytest.mark.parametrize(
    "error", [GONE, SILENT, refused("STOPPING"), LACKING], ids=["gone", "silent", "stopping", "lacking"]
)
def test_the_next_of_the_list(error: ReputError) -> None:
    """In turn, for a service that is unreachable, silent or lacks another service. A list of a single target stays."""
    route = Route(["a:1", "b:1", "c:1"])
    for target in ("a:1", "b:1", "c:1"):
        assert route.target == target
        route.on_failure(target, error)
    assert route.target == "a:1"
    alone = Route(["a:1"])
    alone.on_failure("a:1", error)
    assert alone.target == "a:1"


def test_other_errors_change_nothing() -> None:
    """A service that answers is where calls belong."""
    route = Route(["a:1", "b:1"])
    for error in (
        refused("RECOVERING"),
        refused("NOT_ENOUGH_REPLICAS"),
        ReputError("bad", code=grpc.StatusCode.UNKNOWN),
    ):
        route.on_failure("a:1", error)
    assert route.target == "a:1"


def test_the_delivery_that_delivers_is_found() -> None:
    """A Delivery whose log is a follower refuses with RECOVERING, and the next target of the list is used."""
    route = Route(["a:1", "b:1"], "delivery")
    route.on_failure("a:1", refused("RECOVERING"))
    assert route.target == "b:1"
    route.on_failure("b:1", refused("RECOVERING"))
    assert route.target == "a:1"


def test_lists() -> None:
    """Targets are separated by commas."""
    assert Options(commitlog="a:1, b:1,").targets("commitlog") == ["a:1", "b:1"]
    assert Options().targets("indexer") == ["127.0.0.1:7102"]
