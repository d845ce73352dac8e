# SPDX-License-Identifier: Apache-2.0
"""The console in a browser (`make test-console`), and a store to show."""
