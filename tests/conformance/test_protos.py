# SPDX-License-Identifier: Apache-2.0
"""The example of protos/README.md runs unchanged, except for the address."""

import re
from pathlib import Path

import pytest

from tests.conformance import tools
from tests.support.served_commitlog import process

pytestmark = pytest.mark.conformance
PROTOS = Path(__file__).resolve().parents[2] / "protos"


async def test_node_without_stubs(tmp_path: Path) -> None:
    """A message is appended, and its offset is printed."""
    folder = Path(tools.node_client()[-1]).parent
    example = re.search(r"```js\n(.*?)```", (PROTOS / "README.md").read_text(), re.DOTALL)
    assert example is not None
    async with process(tmp_path) as service:
        program = folder / "example.mjs"
        text = example[1].replace("127.0.0.1:7101", f"127.0.0.1:{service.port}")
        program.write_text(text.replace('"protos"', f'"{PROTOS}"'))
        assert (await tools.output_of(["timeout", "60", "node", str(program)])).strip() == "0"
