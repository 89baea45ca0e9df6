"""The endpoint of S3: the setting that names it, and the addresses that are refused."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from pipeline.storage.s3.aws_profile import profile
from pipeline.storage.s3.fsspec_settings import fsspec_settings, variable_of
from schemas.errors import SettingError

_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn")
_SCHEME: Final = re.compile(r"(https?)(?::/*|/+)", re.IGNORECASE)
"""Pattern of a scheme, even if it is misspelt."""


def custom_endpoint() -> str | None:
    """Return the endpoint that the environment or a configuration file sets; None for AWS.

    Raises:
        SettingError: the endpoint is not an address that begins with http:// or https://, or it
            has a query, a fragment or credentials.
    """
    setting, endpoint = _named_endpoint()
    if not endpoint:
        return None
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
        if re.search(r"\s", endpoint):
            raise ValueError("it contains a blank or a line break")
    except ValueError as error:
        raise SettingError(
            f"{setting}: {endpoint!r} is not an address ({error}): write it as http://HOST:PORT, "
            "without blanks"
        ) from error
    if not host or not endpoint.startswith(("http://", "https://")):
        raise SettingError(f"{setting}: {endpoint!r} is not an address: write {_hint(endpoint)}")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    if "@" in parts.netloc:
        raise SettingError(
            f"{setting}: credentials do not belong in the address: write {bare}, and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if bare != endpoint:
        raise SettingError(
            f"{setting}: the address has a query or a fragment (the part from "
            f"{endpoint[len(bare)]!r} on): write {bare}"
        )
    return None if host.endswith(_AWS) else endpoint


def refuse_bucket_in_endpoint(bucket: str) -> None:
    """Refuse an endpoint whose path ends with the bucket, because AWS's library adds the bucket to
    the path. Other paths are accepted, because a proxy may need them.

    Raises:
        SettingError: see above.
    """
    setting, endpoint = _named_endpoint()
    parts = urlsplit(endpoint)
    path, _, last = parts.path.rstrip("/").rpartition("/")
    if bucket and unquote(last) == bucket:
        raise SettingError(
            f"{setting}: {endpoint} ends with the bucket {bucket!r}, which the URL names already: "
            f"write {parts._replace(path=path).geturl()}"
        )


def endpoint_setting() -> str:
    """Return the name of the setting that sets the endpoint; AWS_ENDPOINT_URL if none does."""
    return _named_endpoint()[0] or "AWS_ENDPOINT_URL"


def _named_endpoint() -> tuple[str, str]:
    """Return the setting that sets the endpoint, and its value; two empty texts if none does.

    Settings of fsspec are passed to AWS's library as arguments, so they come first.
    """
    settings = fsspec_settings()
    named = {
        variable_of("endpoint_url"): settings.get("endpoint_url"),
        variable_of("client_kwargs", "endpoint_url"): (settings.get("client_kwargs") or {}).get(
            "endpoint_url"
        ),
        "AWS_ENDPOINT_URL_S3": os.environ.get("AWS_ENDPOINT_URL_S3"),
        "AWS_ENDPOINT_URL": os.environ.get("AWS_ENDPOINT_URL"),
        "endpoint_url of AWS's profile": profile().get("endpoint_url"),
    }
    return next(((name, str(url)) for name, url in named.items() if url), ("", ""))


def _hint(endpoint: str) -> str:
    """Return the correct form of an endpoint without scheme or host, or with a misspelt scheme."""
    scheme = _SCHEME.match(endpoint)
    bare = endpoint[scheme.end() :] if scheme else endpoint.rpartition("://")[2].lstrip("/")
    bare = bare or "HOST:PORT"
    return f"{scheme[1].lower()}://{bare}" if scheme else f"http://{bare} or https://{bare}"
