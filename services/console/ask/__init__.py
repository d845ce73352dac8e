# SPDX-License-Identifier: Apache-2.0
"""The questions of pages to the store: a function for each page calls the client and hands answers to `pages`.

A call that fails leaves a gap on the page, never an error without a page.
"""
