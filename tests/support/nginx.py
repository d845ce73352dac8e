# SPDX-License-Identifier: Apache-2.0
"""nginx before the console, with the configuration of docs/console.md."""

import contextlib
import http.server
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.certificates import self_signed
from tests.support.fixed_service import REPOSITORY
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
MAIN = """
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{server}
}}
"""
BUFFERED = (
    "proxy_ignore_headers X-Accel-Buffering; proxy_buffers 8 1m; proxy_buffer_size 1m; proxy_busy_buffers_size 2m;"
)
"""A proxy that holds answers back until they are complete, whatever the console asks for."""
COOKIE = "_oauth2_proxy=ann"


class _LoginProxy(http.server.BaseHTTPRequestHandler):
    """The answers of oauth2-proxy that nginx needs."""

    def do_GET(self) -> None:
        is_known = COOKIE in self.headers.get("Cookie", "")
        if self.path == "/oauth2/auth":
            self.send_response(202 if is_known else 401)
            if is_known:
                self.send_header("X-Auth-Request-Email", "ann@example.com")
        else:
            self.send_response(403)
        text = b"sign in" if self.path != "/oauth2/auth" else b""
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def login_proxy() -> Iterator[int]:
    """The port of a server that stands in for oauth2-proxy: the cookie of `COOKIE` is a login."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _LoginProxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def server_block(*, has_login: bool) -> str:
    """The server of docs/console.md; without a login as the page says, less the lines of oauth2-proxy."""
    (text,) = re.findall(r"```nginx\n(.*?)```", (REPOSITORY / "docs/console.md").read_text(), re.DOTALL)
    if has_login:
        return str(text)
    text = re.sub(r"    location =? ?/oauth2/.*?\n    }\n", "", text, flags=re.DOTALL)
    return "".join(f"{line}\n" for line in text.splitlines() if not re.search(r"oauth2|auth_request|\$email", line))


@contextlib.contextmanager
def nginx(directory: Path, console_port: int, *, login_port: int = 0, more: str = "") -> Iterator[int]:
    """The port of nginx with TLS before a console; `more` are further lines of its server."""
    assert NGINX is not None
    port, files = free_port(), self_signed(directory, "reput")
    server = server_block(has_login=bool(login_port)).replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl; {more}")
    for name, place in (("/etc/nginx/reput.crt", files["reput.pem"]), ("/etc/nginx/reput.key", files["reput.key"])):
        server = server.replace(name, str(place))
    server = server.replace("127.0.0.1:7300", f"127.0.0.1:{console_port}").replace(":4180", f":{login_port}")
    settings = directory / "nginx.conf"
    settings.write_text(MAIN.format(directory=directory, server=server))
    command = [NGINX, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            end_s = time.monotonic() + LIMIT_S
            while not _listens(port):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end_s, "nginx does not listen"
                time.sleep(0.05)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def trusting() -> ssl.SSLContext:
    """A context that accepts nginx's certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
