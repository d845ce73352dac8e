# SPDX-License-Identifier: Apache-2.0
"""The files that find records: ConsumeQueue units and IndexFile."""
