# SPDX-License-Identifier: Apache-2.0
"""RFC 9113 frame by frame: h2spec against the front in the event loop."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from libs.runtime.settings import ServerConfig
from tests.conformance import tools
from tests.conformance.interop_server import serving

pytestmark = pytest.mark.conformance

WITHOUT_BODY = "an answer to what is no call of gRPC has no body: HEADERS end the stream, and h2spec waits for DATA"
LATE = "the answer was complete before h2spec broke the rule, so that there is no stream to end"
FORGOTTEN = "libnghttp2 ignores frames on streams that it has forgotten, as RFC 9113 section 5.1 allows for a while"
NO_PRIORITY = "RFC 9113 section 5.3 has done away with priorities: PRIORITY is ignored"
PASSED_OVER = {
    "Sends a WINDOW_UPDATE frame on half-closed (remote) stream": WITHOUT_BODY,
    "Sends a PRIORITY frame on half-closed (remote) stream": WITHOUT_BODY,
    "half closed (remote): Sends a DATA frame": LATE,
    "half closed (remote): Sends a HEADERS frame": LATE,
    "closed: Sends a DATA frame after sending RST_STREAM frame": FORGOTTEN,
    "closed: Sends a HEADERS frame after sending RST_STREAM frame": FORGOTTEN,
    "closed: Sends a DATA frame": FORGOTTEN,
    "closed: Sends a HEADERS frame": FORGOTTEN,
    "Sends stream identifier that is numerically smaller than previous": FORGOTTEN,
    "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded": LATE,
    "Sends PRIORITY frame that depend on itself": NO_PRIORITY,
    "Sends a PRIORITY frame with 0x0 stream identifier": NO_PRIORITY,
    "Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream": LATE,
}
"""Cases of h2spec that are expected to fail, and why."""
CASE_COUNT_MIN = 140
TIMEOUT_S = 8
"""Time for an answer of the front. A case that is expected to fail takes all of it."""


async def test_h2spec(tmp_path: Path) -> None:
    """All cases of h2spec pass, except the cases with an explanation."""
    program, report = tools.go_tool(tools.H2SPEC), tmp_path / "report.xml"
    async with serving(tmp_path, ServerConfig(port=0)) as port:
        command = [program, "-h", "127.0.0.1", "-p", str(port), "-o", str(TIMEOUT_S), "-j", str(report)]
        await tools.output_of(command, is_to_succeed=False)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {case.attrib["classname"] for case in cases if any(part.tag in ("failure", "error") for part in case)}
    assert len(cases) >= CASE_COUNT_MIN
    assert failed <= set(PASSED_OVER)
