"""Keeping keys, tokens and passwords out of archives, messages and printed configs.

`redact` works on texts with the secrets known to this process; `redact_config` works on config data by the names of its
keys, before it is saved. A saved config with the marker in it can be run again: the marker counts as "not given".
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

MARKER = "[redacted]"
"""What stands in the place of a secret."""

SHORTEST = 6
"""Shorter values are not replaced in texts: they are words of any text, and no key."""

_USERINFO = re.compile(r"(?P<scheme>(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,30}://)(?P<userinfo>[^\s/?#\"'<>]*)@")
_SECRET_ENV = re.compile(r"(?:_API_KEY|_TOKEN|_SECRET|_PASSWORD)$", re.IGNORECASE)
_SECRET_KEY = re.compile(
    r"^(?:.*[_\-])?(?:(?:api|access|auth|private|secret|user)[_\-]?keys?|tokens?|password|secret|authorization|credentials?)$",
    re.IGNORECASE,
)


def collect_secrets(interpreter: object | None = None, environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Every text to keep out of a run's files and messages: those of the environment and, if it has a method
    `secrets()`, those of the interpreter."""
    own = getattr(interpreter, "secrets", None)
    return known_secrets(os.environ if environ is None else environ) | (
        frozenset(own()) if callable(own) else frozenset()
    )


def known_secrets(environ: Mapping[str, str], names: Iterable[str] = (), values: Iterable[str] = ()) -> frozenset[str]:
    """The values of *_API_KEY, *_TOKEN, *_SECRET and *_PASSWORD variables and of the variables `names`, what `values`
    holds, and the credentials inside any of them that is a URL; also as they read inside a JSON text."""
    named = set(names)
    found = {value for name, value in environ.items() if name in named}
    found |= {value for name, value in environ.items() if _SECRET_ENV.search(name) and _looks_secret(value)}
    for text in (*environ.values(), *values):
        found |= _credentials(text)
    found |= {value for value in values if "://" not in value}
    found |= {secret.strip() for secret in found}
    found |= {json.dumps(secret)[1:-1] for secret in found}
    return frozenset(secret for secret in found if len(secret.strip()) >= SHORTEST and secret != MARKER)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with every secret, and the credentials of every URL, replaced by the marker."""
    for secret in sorted(secrets, key=lambda s: (-len(s), s)):
        text = text.replace(secret, MARKER)
    return _USERINFO.sub(rf"\g<scheme>{MARKER}@", text) if "@" in text else text


def redact_config(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Config data (as read from YAML or JSON) fit to be saved: values of secret-named keys and URL credentials go."""
    known = tuple(secrets)
    if isinstance(value, Mapping):
        return {
            key: _marked(inner) if _SECRET_KEY.search(str(key)) else redact_config(inner, known)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_config(inner, known) for inner in value]
    return redact(value, known) if isinstance(value, str) else value


def _marked(value: Any) -> Any:
    """Every text of a value under a secret-named key replaced, whatever it is wrapped in."""
    if isinstance(value, Mapping):
        return {key: _marked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(inner) for inner in value]
    return MARKER if isinstance(value, str) else value


def split_userinfo(url: str) -> tuple[str, str | None]:
    """The URL without its credentials, and the credentials ("user:password"); None if there are none or the marker."""
    found = _USERINFO.match(url)
    if found is None:
        return url, None
    userinfo = found["userinfo"]
    plain = found["scheme"] + url[found.end() :]
    return plain, userinfo if userinfo and userinfo != MARKER else None


def basic_auth(userinfo: str) -> str:
    """The Authorization header for URL credentials."""
    return "Basic " + base64.b64encode(unquote(userinfo).encode()).decode()


def _looks_secret(value: str) -> bool:
    """Not a word and not a number: those stand in any text, and replacing them would spoil it."""
    return len(value) >= 8 and not value.replace(" ", "").isalpha() and not value.isdecimal()


def _credentials(text: str) -> set[str]:
    found: set[str] = set()
    for match in _USERINFO.finditer(text):
        userinfo = match["userinfo"]
        password = userinfo.partition(":")[2] or userinfo
        found |= {userinfo, password, unquote(password), quote(unquote(password), safe="")}
        found.add(basic_auth(userinfo).removeprefix("Basic "))
    return found
