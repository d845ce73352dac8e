# SPDX-License-Identifier: Apache-2.0
"""The MCP server: the console's answers for programs that speak the Model Context Protocol. It changes nothing.

arguments   the arguments of tools: their types, schemas and checks.
answers     answers as JSON of bounded size, which name their gaps.
tools       the tools by subject, and their catalogue.
server      the protocol over standard input and output.
"""
