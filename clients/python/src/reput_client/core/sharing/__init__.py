# SPDX-License-Identifier: Apache-2.0
"""What both doors share of groups whose members share messages. No I/O."""
