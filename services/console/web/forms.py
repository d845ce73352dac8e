# SPDX-License-Identifier: Apache-2.0
"""Forms: the signatures of confirmations and receipts. The console keeps none of them.

The key is a secret that the reader's browser sends along and other sites can't know: a cookie of its own together with
the session of the login, or the reader's name at the proxy. So a confirmation is bound to both, to the shard, and to
the arguments and the state that its preview showed.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from services.console.pages.change import Receipt
from services.console.web.gate import cookie_name, cookies_of, is_same_origin
from services.console.web.login import is_same, new_form_token
from services.console.web.proxies import caller_of

COOKIE = "change"
COOKIE_S = 12 * 3600
AUTHORIZATION = "authorization"
FORM_FIELDS_MAX = 12
RECEIPT_CHARACTERS_MAX = 3_600
TEXT_CHARACTERS_MAX = 600


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, none if it has more than `FORM_FIELDS_MAX`. The gate bounds its size."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError:
        return {}


class Signer:
    """Signs and checks for the reader of a request."""

    def __init__(self, request: Request) -> None:
        cookies = cookies_of(request.headers)
        self._request, self._is_new = request, False
        self._cookie = cookies.get(cookie_name(request.scope, COOKIE), "")
        session, shown = cookies.get(cookie_name(request.scope, "session"), ""), request.headers.get(AUTHORIZATION, "")
        shard = request.scope.get("root_path", "")
        self._session = f"{session}\0{shown}\0{caller_of(request.scope).name}\0{shard}"

    def begin(self) -> None:
        """Give the reader a cookie, if there is none yet. `set_cookie` sends it along."""
        if not self._cookie:
            self._cookie, self._is_new = new_form_token(), True

    def set_cookie(self, answer: Response) -> None:
        """Add a new cookie to an answer."""
        if self._is_new:
            is_secure = self._request.scope["scheme"] == "https"
            answer.set_cookie(
                cookie_name(self._request.scope, COOKIE), self._cookie, max_age=COOKIE_S, httponly=True,
                secure=is_secure, samesite="strict",
            )  # fmt: skip

    def token(self, path: str, carried: Sequence[tuple[str, str]], state: str) -> str:
        """Return the token of the confirmation of a preview."""
        return self._signed(b"change", msgspec.json.encode([path, sorted(carried), state]))

    def is_confirmed(self, path: str, form: Mapping[str, str], names: Sequence[str]) -> bool:
        """Return whether a form is the confirmation of a preview that this reader was shown."""
        if not self._cookie or not _is_from_console(self._request):
            return False
        carried = [(name, form[name]) for name in names if name in form]
        return is_same(form.get("form_token", ""), self.token(path, carried, form.get("state", "")))

    def receipt_text(self, receipt: Receipt) -> str:
        """Return a receipt as a signed part of an address. A long text is cut."""
        for limit in (TEXT_CHARACTERS_MAX, TEXT_CHARACTERS_MAX // 4):
            shown = msgspec.structs.replace(receipt, text=receipt.text[:limit])
            text = self._receipt_text(shown)
            if len(text) <= RECEIPT_CHARACTERS_MAX:
                return text
        return self._receipt_text(msgspec.structs.replace(shown, commands=(), again="", title="Change"))

    def receipt_of(self, text: str) -> Receipt | None:
        """Return the receipt of an address, None if this reader has not been given it."""
        encoded, _, signature = text.partition(".")
        if not self._cookie or not is_same(signature, self._signed(b"receipt", encoded.encode())):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(encoded), type=Receipt)

    def _receipt_text(self, receipt: Receipt) -> str:
        encoded = base64.urlsafe_b64encode(msgspec.json.encode(receipt)).decode()
        return f"{encoded}.{self._signed(b'receipt', encoded.encode())}"

    def _signed(self, what: bytes, value: bytes) -> str:
        secret = f"{self._cookie}\0{self._session}".encode()
        key = hashlib.sha256(b"reput console " + what + b"\0" + secret).digest()
        return hmac.new(key, value, hashlib.sha256).hexdigest()


def _is_from_console(request: Request) -> bool:
    """Return whether the browser says that a page of the console sent the form. A program shows its token instead."""
    headers = request.headers
    is_told = "origin" in headers or "sec-fetch-site" in headers or AUTHORIZATION in headers
    return is_told and is_same_origin(headers, request.scope["scheme"])
