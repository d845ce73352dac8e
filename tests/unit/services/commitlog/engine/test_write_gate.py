# SPDX-License-Identifier: Apache-2.0
"""WriteGate: the reason that each caller gets."""

import pytest

from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.errors import LeaseOver, NotLeader, StoreSealed


def _lease_over() -> None:
    raise LeaseOver


def test_a_sealed_log_that_was_elected_sends_callers_on() -> None:
    """A sealed log that was elected answers NotLeader, because nothing was written and another log will lead.

    A log without elections answers StoreSealed.
    """
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
    """Without a lease appends are refused as NotLeader, because another log may lead."""
    WriteGate(lambda: None).check()
    with pytest.raises(NotLeader):
        WriteGate(_lease_over).check()
