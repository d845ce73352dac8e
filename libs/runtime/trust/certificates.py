# SPDX-License-Identifier: Apache-2.0
"""The ends of certificates: of those that servers show, and of those in files."""

import socket
import ssl
from pathlib import Path

from cryptography import x509


def certificate_end_s(target: str, *, timeout_s: float) -> float | None:
    """Return the end of the certificate that a server shows, None if it shows none. Nothing is sent to the server."""
    host, _, port = target.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # an ended certificate must be readable, too
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown).not_valid_after_utc.timestamp() if shown else None
    except (OSError, ValueError):
        return None


def file_end_s(path: Path) -> float:
    """Return the earliest end of the certificates of a PEM file. Raises OSError and ValueError."""
    return min(one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(path.read_bytes()))
