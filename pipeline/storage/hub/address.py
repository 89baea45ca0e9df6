"""URLs of datasets on the Hugging Face Hub: hf://datasets/USER/NAME[@REVISION][/FOLDER]."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote

from schemas.errors import InputError

HUB: Final = "hf://"
_FORM: Final = re.compile(
    r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@]+))?(?P<folder>(/[^/]+)*)/*"
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubAddress:
    """A folder of a dataset repository.

    repo: user or organization, a slash, and the name of the repository
    revision: branch, tag or commit; None for the default branch
    folder: folder in the repository; "" for the whole repository
    """

    repo: str
    revision: str | None = None
    folder: str = ""

    @property
    def is_pinned(self) -> bool:
        """True if the revision is the full hash of a commit, whose files never change."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str) -> HubAddress:
        return replace(self, revision=revision)

    def __str__(self) -> str:
        at = "" if self.revision is None else f"@{quote(self.revision, safe='')}"
        folder = f"/{self.folder}" if self.folder else ""
        return f"{HUB}datasets/{self.repo}{at}{folder}"


def is_hub(url: str) -> bool:
    """Return whether a URL is one of the Hugging Face Hub."""
    return url.startswith(HUB)


def hub_address(url: str) -> HubAddress:
    """Return the parts of a URL.

    Raises:
        InputError: the URL does not name a dataset repository.
    """
    match = _FORM.fullmatch(url)
    if match is None:
        raise InputError(
            "not a dataset on the Hugging Face Hub: write hf://datasets/USER/NAME or "
            "hf://datasets/USER/NAME@REVISION (a slash in REVISION is written as %2F)",
            source=url,
        )
    revision = match["revision"]
    return HubAddress(
        repo=match["repo"],
        revision=None if revision is None else unquote(revision),
        folder=match["folder"].strip("/"),
    )
