# SPDX-License-Identifier: Apache-2.0
"""How commands take what people type: groups and their help, values, and the question before what deletes."""
