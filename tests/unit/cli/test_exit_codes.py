# SPDX-License-Identifier: Apache-2.0
"""Reasons: each reason of a command is in the documented table."""

import ast
from pathlib import Path

from cli import exit_codes


def test_every_reason_is_told() -> None:
    """The reasons of all commands are in the table."""
    sources = Path(exit_codes.__file__).parent.rglob("*.py")
    calls = [node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    texts = {
        argument.value
        for call in calls
        if ast.unparse(call.func).endswith("CommandFailed")
        for argument in call.args[:1]
        if isinstance(argument, ast.Constant)
    }
    assert texts - exit_codes.REASONS.keys() == set()
