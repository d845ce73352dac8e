# SPDX-License-Identifier: Apache-2.0
"""What an inspection of a store's file finds."""

from cli.inspect.inspection import Finding, Inspection


def findings_in(inspection: Inspection) -> list[Finding]:
    """Run to the end; the findings without the items."""
    return [step for step in inspection if isinstance(step, Finding)]
