# SPDX-License-Identifier: Apache-2.0
"""What a page asks the store: a function for each page, which calls the client and gives the answers to `pages`.

A call that fails leaves a gap on the page, never an error without a page.
"""
