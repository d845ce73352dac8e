# SPDX-License-Identifier: Apache-2.0
"""Rights of named subjects for topics and groups, by a file of subjects and rules. docs/rights.md describes the file.

From below:

bucket      Bucket: an amount per second. Pure.
quota       Quota: the use of a service by a subject, and its limits. Pure.
rules       Rights: the rules, and the decision about a subject, an action and a resource. Pure.
rights_file reads the file: subjects with their credentials, and the rules.
accesses    the table of all methods: the rights that the requests of each method need.
access      Access: the rights of a server's callers, with the current file.
"""
