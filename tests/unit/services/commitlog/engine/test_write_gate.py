# SPDX-License-Identifier: Apache-2.0
"""WriteGate: which reason is told, and to whom."""

import pytest

from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.errors import LeaseOver, NotLeader, StoreSealed


def _lease_over() -> None:
    raise LeaseOver


def test_a_sealed_log_that_was_elected_sends_callers_on() -> None:
    """Another one will lead, and nothing was written: asking there is safe. By itself it says what happened."""
    alone, elected = WriteGate(), WriteGate(lambda: None)
    for gate in (alone, elected):
        gate.put(Reason.SEALED, holds=True)
        assert gate.refusals() == ["STORE_SEALED"]
    with pytest.raises(StoreSealed):
        alone.check()
    with pytest.raises(NotLeader) as refused:
        elected.check()
    assert refused.value.leader == ""
    assert (type(alone.sealed()), type(elected.sealed())) == (StoreSealed, NotLeader)


def test_without_a_lease_nothing_is_taken() -> None:
    """Another one may lead: callers go on to it."""
    WriteGate(lambda: None).check()
    with pytest.raises(NotLeader):
        WriteGate(_lease_over).check()
