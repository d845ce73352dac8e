# SPDX-License-Identifier: Apache-2.0
from libs.runtime.http2.session.opener import SessionLimits
from libs.runtime.http2.session.plain import PlainSession

class Session(PlainSession):
    def __init__(self, limits: SessionLimits) -> None: ...
