"""Explain errors of the Hugging Face Hub, with one remedy each."""

from __future__ import annotations

import os
from typing import Final

LOG_IN: Final = "run `hf auth login`, or set HF_TOKEN"
_CODES: Final = {
    401: f"the hub refuses the request without a valid token (401): {LOG_IN}",
    403: "the token has no right to do this (403): use a token with write access to the repository",
    412: "another commit was made meanwhile (412): run the same command again",
    413: "the hub refuses a request as too large (413)",
}
_TEMPORARY: Final = frozenset({408, 409, 412, 423, 425, 429})


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of the answer that caused an error of huggingface_hub, if any."""
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def explained(error: BaseException, revision: str | None = None) -> str | None:
    """Return a permanent fault and its remedy as text; None for a fault that may be temporary.

    Args:
        revision: branch, tag or commit that was asked for; None for the default branch.
    """
    name, code = type(error).__name__, status_of(error)
    if name == "GatedRepoError":
        return f"the repository is gated: ask for access on its web page, and {LOG_IN}"
    if name == "DisabledRepoError":
        return "the hub has disabled this repository"
    if name == "RepositoryNotFoundError" or (code == 404 and name == "HfHubHTTPError"):
        hidden = "" if has_token() else f", or {LOG_IN} if the repository is private"
        return f"there is no such dataset repository: check USER/NAME{hidden}"
    if name == "RevisionNotFoundError":
        return f"the repository has no revision {revision or 'main'!r}"
    if name == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set: unset it to reach the hub"
    if name in ("HFValidationError", "HfUriError"):
        return f"not the name of a repository: {str(error).splitlines()[0]}"
    if code in _CODES and code not in _TEMPORARY:
        return _CODES[code]
    if code is not None and 400 <= code < 500 and code not in _TEMPORARY:
        return f"the hub refuses the request: {last_line(error)}"
    return None


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text, where huggingface_hub puts the hub's own words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def has_token() -> bool:
    """Return whether the user has a token, in the environment or from `hf auth login`."""
    from huggingface_hub import get_token

    return get_token() is not None


def hub_host() -> str:
    """Return the address of the hub."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
