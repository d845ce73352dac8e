# SPDX-License-Identifier: Apache-2.0
"""`reput inspect`: shows the content of any file of a store."""
