# SPDX-License-Identifier: Apache-2.0
"""The session of a caller's connection: bytes in, whole calls and events out; answers in, bytes out. Two builds.

From below:

whole        WholeCall: a call whose head and whole request arrived together.
opener       SessionLimits: the limits of a server's sessions.
plain        PlainSession: the session in Python, on the package's own connection.
session_cy   Session: the same, compiled, on the library inside the package. nghttp2.pxd declares the library.
build        chooses the build: the compiled session if it is built.
"""
