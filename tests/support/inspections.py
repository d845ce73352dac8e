# SPDX-License-Identifier: Apache-2.0
"""The findings of an inspection of a store's file."""

from cli.inspect.inspection import Finding, Inspection


def findings_in(inspection: Inspection) -> list[Finding]:
    """Run an inspection to its end, and return its findings without its items."""
    return [step for step in inspection if isinstance(step, Finding)]
