# SPDX-License-Identifier: Apache-2.0
"""Callers: the roles of a caller, by the token that it shows."""

from typing import Any

from libs.runtime.settings import ServerConfig
from libs.runtime.trust.roles import Role
from libs.runtime.trust.tokens import TokenFile, ensure_local_token

AUTHORIZATION = "authorization"
BEARER = "Bearer "


class Callers:
    """The roles of a server's callers. Raises ConfigError for a token file that can't be used."""

    def __init__(self, config: ServerConfig) -> None:
        self.open_roles = Role.CLIENT if config.token_file is None else Role.NOBODY
        """Roles of callers without a token."""
        is_shared = config.door_token_file is None
        self._tokens = [
            (Role.SERVICE | Role.CLIENT | (Role.DOOR if is_shared else Role.NOBODY), service_token_of(config)),
            (Role.OPERATOR | Role.CLIENT, _token_of("operator_token_file", config)),
        ]
        if not is_shared:
            self._tokens.append((Role.DOOR, door_token_of(config)))
        if config.token_file is not None:
            self._tokens.append((Role.CLIENT, TokenFile("token_file", config.token_file)))

    def roles_of(self, token: bytes) -> Role:
        """Return all roles of a token. Every known token is compared, so that the time reveals nothing."""
        roles = Role.NOBODY
        for given, file in self._tokens:
            if file.has(token):
                roles |= given
        return roles


def service_token_of(config: ServerConfig) -> TokenFile:
    """Return the token that the services of a store show to each other. Raises ConfigError."""
    return _token_of("service_token_file", config)


def door_token_of(config: ServerConfig) -> TokenFile:
    """Return the token with which a gateway passes the identity of its callers on. Raises ConfigError."""
    return service_token_of(config) if config.door_token_file is None else _token_of("door_token_file", config)


def _token_of(setting: str, config: ServerConfig) -> TokenFile:
    return TokenFile(setting, getattr(config, setting) or ensure_local_token())


def bearer_token(metadata: Any) -> bytes:
    """Return the token in the metadata of a call. Empty without a token."""
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            text = value if isinstance(value, str) else value.decode("latin-1")
            return text.removeprefix(BEARER).encode() if text.startswith(BEARER) else b""
    return b""
