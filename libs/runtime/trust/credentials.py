# SPDX-License-Identifier: Apache-2.0
"""The server's TLS: certificate, key and authorities from files, which are read again when a file changes.

gRPC asks at each handshake, from its own thread. Open connections are not affected. If files can't be read, or do not
fit each other because not all of them are new yet, the previous certificate stays in use.
"""

import logging
import ssl
from collections.abc import Callable
from typing import cast

import grpc

from libs.runtime.errors import ConfigError
from libs.runtime.settings import ListenConfig, ServerConfig
from libs.runtime.trust.tokens import WatchedFiles, read_file

_log = logging.getLogger(__name__)


def server_credentials(config: ServerConfig) -> grpc.ServerCredentials | None:
    """Return the credentials of a server. None without TLS. Raises ConfigError for a file that can't be read."""
    if config.tls_certificate_file is None or config.tls_key_file is None:
        return None
    watched = _watched(config)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        if not watched.have_changed():
            return None
        try:
            configuration = _configuration(config)
        except ConfigError as error:
            _log.warning("%s; the certificate that was read before is served", error)
            return None
        _log.info("the files of the certificate have changed and are read")
        return configuration

    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)  # None means: unchanged
    return grpc.dynamic_ssl_server_credentials(
        _configuration(config), fetch, require_client_authentication=config.tls_client_ca_file is not None
    )


def ssl_context(config: ListenConfig, *, protocol: str = "h2") -> ssl.SSLContext | None:
    """Return the TLS context of a server of a protocol, by its name in ALPN. None without TLS.

    Raises ConfigError for a file that can't be used.

    As with gRPC's own server, the files are checked again at handshakes.
    """
    if config.tls_certificate_file is None or config.tls_key_file is None:
        return None
    watched, current = _watched(config), _context(config, protocol)

    def renew(handshake: ssl.SSLObject, _server_name: str | None, _context_of: ssl.SSLContext) -> None:
        nonlocal current
        if watched.have_changed():
            try:
                current = _context(config, protocol)
            except ConfigError as error:
                _log.warning("%s; the certificate that was read before is served", error)
            else:
                _log.info("the files of the certificate have changed and are read")
        handshake.context = current

    first = _context(config, protocol)
    first.sni_callback = renew
    return first


def _watched(config: ListenConfig) -> WatchedFiles:
    files = (config.tls_certificate_file, config.tls_key_file, config.tls_client_ca_file)
    return WatchedFiles(file for file in files if file is not None)


def _context(config: ListenConfig, protocol: str) -> ssl.SSLContext:
    assert config.tls_certificate_file is not None
    assert config.tls_key_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([protocol])
    for setting in ("tls_certificate_file", "tls_key_file", "tls_client_ca_file"):
        if getattr(config, setting) is not None:
            read_file(setting, getattr(config, setting))
    try:
        context.load_cert_chain(config.tls_certificate_file, config.tls_key_file)
        if config.tls_client_ca_file is not None:
            context.load_verify_locations(config.tls_client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except ssl.SSLError as error:
        raise ConfigError(f"tls_certificate_file {config.tls_certificate_file}: {error}") from error
    return context


def _configuration(config: ServerConfig) -> grpc.ServerCertificateConfiguration:
    assert config.tls_certificate_file is not None
    assert config.tls_key_file is not None
    authorities = None
    if config.tls_client_ca_file is not None:
        authorities = read_file("tls_client_ca_file", config.tls_client_ca_file)
    certificate = read_file("tls_certificate_file", config.tls_certificate_file)
    key = read_file("tls_key_file", config.tls_key_file)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)
