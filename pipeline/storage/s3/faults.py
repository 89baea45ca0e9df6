"""Tell a wrong setting of S3, which no retry can mend, from a fault that may be temporary."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.errors import SettingError

SECRETS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
)
"""Variables that hold credentials. Messages never show their values."""

CONFIGURATION_FILES: Final = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
"""Variables that name files of settings."""

UNTRUSTED: Final = (
    "the store's certificate is not trusted: set AWS_CA_BUNDLE to the file of the certificate's "
    "authority"
)
"""Error and remedy for a certificate that cannot be verified."""
_SET_KEYS: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_REMEDIES: Final = {
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch"),
        f"the store refuses the credentials ({{code}}): {_SET_KEYS}",
    ),
    "InvalidToken": "the store refuses the credentials ({code}): unset AWS_SESSION_TOKEN if the "
    "keys are permanent, or set it together with the keys that it belongs to",
    "ExpiredToken": "the temporary credentials have expired ({code}): get new ones, such as with "
    "`aws sso login`, set them, and run the same command again",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from the store's "
    "({code}): set the clock, for example by turning on NTP",
    "AuthorizationHeaderMalformed": "the store refuses the signature ({message}): correct "
    "AWS_DEFAULT_REGION",
}
"""Error and remedy for each error code with which a store refuses credentials, clock or region."""

_NO_LOGIN: Final = frozenset(
    {"SSOError", "SSOTokenLoadError", "TokenRetrievalError", "UnauthorizedSSOTokenError"}
)
_NO_KEYS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_TEMPORARY: Final = frozenset(
    {
        "ClientError",
        "ConnectionError",
        "CredentialRetrievalError",
        "HTTPClientError",
        "MetadataRetrievalError",
        "ResponseParserError",
        "TimeoutError",
    }
)
"""Names of errors of AWS's library, and of Python, that are raised if the service that gives out
credentials does not answer. Errors are recognized by their names, because the library may not be
installed."""


def answer_of(error: BaseException) -> tuple[int | None, str, str]:
    """Return HTTP status, error code and message of the answer that caused an error of s3fs."""
    response = getattr(error.__cause__, "response", None)  # set by botocore
    if not isinstance(response, dict):
        return None, "", ""
    answer = response.get("Error", {})
    return (
        response.get("ResponseMetadata", {}).get("HTTPStatusCode"),
        str(answer.get("Code", "")),
        str(answer.get("Message", "")),
    )


def refused_setting(error: BaseException) -> str | None:
    """Return the reason and remedy if a request failed because of a setting; else None."""
    _, code, message = answer_of(error)
    if code in _REMEDIES:
        return _REMEDIES[code].format(code=code, message=message.rstrip("."))
    if type(error).__name__ in _NO_KEYS:
        return f"no credentials for the store ({error}): {_SET_KEYS}{_missing_files()}"
    if type(error).__name__ in _NO_LOGIN:
        return (
            f"there is no valid login to AWS's single sign-on ({str(error).rstrip('.')}): run "
            "`aws sso login`, with --profile if AWS_PROFILE is set"
        )
    if type(error).__name__ == "SSLError" and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return UNTRUSTED
    return None


def is_temporary(error: BaseException) -> bool:
    """Return whether an error before the first request may be temporary, because a service that
    gives out credentials did not answer."""
    return any(kind.__name__ in _TEMPORARY for kind in type(error).__mro__)


def wrong_setting(error: BaseException, stored: Mapping[str, Any]) -> SettingError:
    """Return an error that names the setting which AWS's library refuses.

    The library's errors quote the wrong value, but rarely name the variable. The setting is
    therefore the one whose value is quoted.

    Args:
        error: error of the library, raised before the first request.
        stored: settings of the active profile, by name.
    """
    if (refused := refused_setting(error)) is not None:
        return SettingError(f"settings of S3: {refused}")
    text = _one_line(str(error) or type(error).__name__).rstrip(".")
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "FSSPEC_S3_")) and name not in SECRETS
    }
    if names := _quoted(text, variables):
        is_file = os.path.isfile(os.path.expanduser(variables[names[0]]))
        return SettingError(
            f"{' or '.join(names)}: {text}: correct {'the file, or ' * is_file}"
            f"{'correct ' * is_file}or unset this variable{_missing_files()}"
        )
    if names := _quoted(text, stored):
        return SettingError(
            f"{' or '.join(names)} in AWS's configuration file: {text}: correct this setting"
        )
    return SettingError(
        f"settings of S3: {text}: correct the variables that begin with AWS_ or FSSPEC_S3_, or "
        "AWS's configuration files"
    )


def _quoted(text: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings whose values a text quotes as whole words.

    If the text also names some of these settings, return only these. For example, an error about
    another setting may mention the region.
    """
    names = [
        name
        for name, value in sorted(settings.items())
        if isinstance(value, str)
        and (word := _one_line(value))
        and re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text)
    ]
    return [name for name in names if _words(name.removeprefix("AWS_")) in _words(text)] or names


def _words(text: str) -> str:
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


def _missing_files() -> str:
    """Return a clause about variables that name a missing configuration file; "" if none does."""
    missing = [
        name
        for name in CONFIGURATION_FILES
        if (path := os.environ.get(name)) and not os.path.exists(os.path.expanduser(path))
    ]
    return "".join(f"; {name} names no file" for name in missing)


def _one_line(text: str) -> str:
    return " ".join(text.split())
