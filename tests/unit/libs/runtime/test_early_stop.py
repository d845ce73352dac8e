# SPDX-License-Identifier: Apache-2.0
"""SIGTERM while a service still loads ends it in order."""

import os
import signal

import pytest

from libs.runtime.watch.faults import ending_in_order


def test_sigterm_within_the_block_is_an_orderly_end() -> None:
    """Exit code 0, as later; behind the block everything is as before."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, ending_in_order():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is before
