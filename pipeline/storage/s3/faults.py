"""Tell a wrong setting of S3, which no retry can mend, from a fault that may be temporary."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from glob import has_magic
from typing import Any, Final

from pipeline.storage.s3.aws_profile import CONFIGURATION_FILES, file_with, profile
from pipeline.storage.s3.endpoint import endpoint_setting
from pipeline.storage.s3.fsspec_settings import anonymous_setting, key_settings, named_values
from schemas.errors import SettingError
from schemas.text.one_line import on_one_line
from schemas.text.phrases import RIGHTS, STORE_REFUSES

SECRETS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "FSSPEC_S3_KEY",
    "FSSPEC_S3_SECRET",
    "FSSPEC_S3_TOKEN",
)
"""Variables that hold credentials. Messages never show their values."""

UNTRUSTED: Final = (
    "the store's certificate is not trusted: set AWS_CA_BUNDLE to the file of the certificate's "
    "authority"
)
"""Error and remedy for a certificate that cannot be verified."""
_REMEDIES: Final = {
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch"),
        "the store refuses the credentials ({code}): {set_keys}",
    ),
    "InvalidToken": "the store refuses the credentials ({code}): unset AWS_SESSION_TOKEN if the "
    "keys are permanent, or set it together with the keys that it belongs to",
    "ExpiredToken": "the temporary credentials have expired ({code}): get new ones, such as with "
    "`aws sso login`, set them, and run the same command again",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from the store's "
    "({code}): set the clock, for example by turning on NTP",
    **dict.fromkeys(
        ("PermanentRedirect", "301"),
        "the server of the endpoint sends each request to another address ({code}): correct "
        "{endpoint} or AWS_DEFAULT_REGION",
    ),
    "AuthorizationHeaderMalformed": "the store refuses the signature ({message}): correct "
    "AWS_DEFAULT_REGION",
}
"""Error and remedy for each error code with which a store refuses credentials, clock, region or
endpoint."""

_NOT_SIGNED: Final = "UnsupportedAlgorithm"
"""Error code with which rclone's server refuses requests without credentials."""
_FORBIDDEN: Final = frozenset({"AccessDenied", "403", _NOT_SIGNED})
"""Error codes of forbidden requests. Answers without a body have their status as the code."""
_RIGHTS: Final = {
    "ListObjects": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
}
"""Right that each request of S3's API needs. Requests that read an object are left out, because
their answer does not tell a missing right from a missing object."""

_NO_LOGIN: Final = frozenset(
    {"SSOError", "SSOTokenLoadError", "TokenRetrievalError", "UnauthorizedSSOTokenError"}
)
_PROCESS: Final = "credentials from custom-process: "
"""Part of the error of AWS's library about a command that prints credentials."""
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
        return _REMEDIES[code].format(
            code=code,
            message=message.rstrip("."),
            set_keys=_set_keys(),
            endpoint=endpoint_setting(),
        )
    if code == _NOT_SIGNED:
        return refused_without_keys(error, "s3://")  # only S3's errors have such a code
    if type(error).__name__ in _NO_KEYS:
        return f"no credentials for the store ({error}): {_set_keys()}{_missing_files()}"
    if type(error).__name__ in _NO_LOGIN:
        return (
            f"there is no valid login to AWS's single sign-on ({str(error).rstrip('.')}): run "
            "`aws sso login`, with --profile if AWS_PROFILE is set"
        )
    if type(error).__name__ == "UnknownSignatureVersionError":
        return f"{str(error).rstrip('.')}: correct or unset the setting signature_version"
    if type(error).__name__ == "SSLError" and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return UNTRUSTED
    return None


def refused_without_keys(error: BaseException, url: str) -> str | None:
    """Return the reason and remedy if S3 forbids a request because it has no credentials; None if
    requests have credentials, or another store forbids the request.

    Args:
        url: URL that was asked for.
    """
    _, code, _ = answer_of(error)
    is_forbidden = code in _FORBIDDEN or isinstance(error, PermissionError)
    if not is_forbidden or not url.startswith(("s3://", "s3a://")):
        return None
    if (setting := anonymous_setting()) is None:
        return None
    return (
        f"the store refuses this request without credentials ({code or 'AccessDenied'}): unset "
        f"{setting}; if everybody may read this bucket, correct the URL instead"
    )


def refused_access(error: BaseException, url: str) -> str:
    """Return the reason and remedy for a request that a store forbids.

    Args:
        url: URL that was asked for. A pattern needs the right to list.
    """
    right = _RIGHTS.get(getattr(error.__cause__, "operation_name", ""))
    if right is None and has_magic(url):  # s3fs drops the cause of some errors
        right = "s3:ListBucket"
    refused = STORE_REFUSES if right is None else f"the right {right} is missing; {RIGHTS}"
    return refused_without_keys(error, url) or refused


def _set_keys() -> str:
    if names := key_settings():
        return f"correct {' and '.join(names)}"
    return "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


def is_temporary(error: BaseException) -> bool:
    """Return whether an error before the first request may be temporary, because a service that
    gives out credentials did not answer."""
    return _PROCESS not in str(error) and any(
        kind.__name__ in _TEMPORARY for kind in type(error).__mro__
    )


def wrong_setting(error: BaseException) -> SettingError:
    """Return an error that names the setting which AWS's library refuses.

    The library's errors quote the wrong value, but rarely name the variable. The setting is
    therefore the one whose value is quoted.

    Args:
        error: error of the library, raised before the first request.
    """
    if (process := _failed_process(error)) is not None:
        return SettingError(process)
    if (refused := refused_setting(error)) is not None:
        return SettingError(f"settings of S3: {refused}")
    text = on_one_line(str(error) or type(error).__name__).rstrip(".")
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
    if names := _quoted(text, named_values()):
        return SettingError(f"{' or '.join(names)}: {text}: correct or unset this setting")
    if names := _quoted(text, profile()):
        return SettingError(
            f"{' or '.join(names)} in AWS's configuration file: {text}: correct this setting"
        )
    return SettingError(
        f"settings of S3: {text}: correct the variables that begin with AWS_ or FSSPEC_S3_, or "
        "AWS's configuration files"
    )


def _failed_process(error: BaseException) -> str | None:
    """Return the reason and remedy if the command that prints credentials has failed; else None.

    Only the command's first word is shown, because the others may hold a secret.
    """
    name = "credential_process"
    command = shlex.split(str(profile().get(name, "")))[:1]
    _, is_of_process, printed = str(error).partition(_PROCESS)
    if is_of_process:
        reason = on_one_line(printed) or "it failed, and printed no reason"
    elif command and type(error).__name__ == "JSONDecodeError":
        reason = "it did not print JSON"
    elif command and isinstance(error, OSError) and error.filename == command[0]:
        reason = f"it cannot be started: {error.strerror}"
    else:
        return None
    return f"{file_with(name)}: {name} {''.join(command)}: {reason}: correct this setting"


def _quoted(text: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings whose values a text quotes as whole words.

    If the text also names some of these settings, return only these. For example, an error about
    another setting may mention the region.
    """
    names = [
        name
        for name, value in sorted(settings.items())
        if isinstance(value, str)
        and (word := on_one_line(value))
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
