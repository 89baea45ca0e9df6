"""Sign the files that `thdpack card` writes, and remove those that describe an earlier dataset.

Each file has a signature: the digest of the manifest that the file describes, and the hash of the
file itself. The hash is computed with zeros in its own place. With the signature, thdpack
recognises files that it wrote and that nobody has edited. It removes or replaces other files only
on request.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

import xxhash

from pipeline.storage.folder import Folder
from schemas.manifest import Manifest

CROISSANT: Final = "croissant.json"
README: Final = "README.md"
CARD_FILES: Final = (CROISSANT, README)
"""Names of the files, in the order in which they are written."""
_NO_HASH: Final = "0" * 32
_SIGNATURE: Final = re.compile(rb"thdpack-card:([0-9a-f]{32}):([0-9a-f]{32})")
_MOST_BYTES: Final = 16 << 20
"""Maximum size of a file that is examined. `thdpack card` writes smaller files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Signature of a file.

    manifest: digest of the manifest that the file describes
    edited: True if the file has changed since thdpack wrote it
    """

    manifest: str
    edited: bool


def blank_signature(digest: str) -> str:
    """Return a signature whose hash is still missing. `signed` fills in the hash.

    Args:
        digest: digest of the manifest that the file describes.
    """
    return f"thdpack-card:{digest}:{_NO_HASH}"


def signed(text: str, digest: str) -> bytes:
    """Fill in the hash of a blank signature; return the bytes of the signed file.

    Args:
        text: text of the file; it contains `blank_signature(digest)`.
    """
    blank = blank_signature(digest)
    own = xxhash.xxh3_128_hexdigest(text.encode())
    return text.replace(blank, blank.replace(_NO_HASH, own), 1).encode()


def signature_of(content: bytes) -> Signature | None:
    """Return the signature of a file; None if the file has none."""
    found = list(_SIGNATURE.finditer(content))
    for match in found:
        begin, end = match.span(2)
        unsigned = content[:begin] + _NO_HASH.encode() + content[end:]
        if xxhash.xxh3_128_hexdigest(unsigned) == match[2].decode():
            return Signature(manifest=match[1].decode(), edited=False)
    return Signature(manifest=found[0][1].decode(), edited=True) if found else None


def signature_in(folder: Folder, name: str) -> tuple[bool, Signature | None]:
    """Return whether a file exists, and its signature."""
    size = folder.size(name)
    if size is None:
        return False, None
    content = folder.content(name) if size <= _MOST_BYTES else None
    return True, None if content is None else signature_of(content)


def remove_stale_cards(out: Folder, manifest: Manifest) -> None:
    """Remove the signed files that do not describe the committed dataset.

    An edited file stays, and a warning names it.

    Raises:
        OSError, BuildError, DatasetError: a file cannot be read or removed.
    """
    for name in CARD_FILES:
        _, signature = signature_in(out, name)
        if signature is None or signature.manifest == manifest.digest:
            continue
        if signature.edited:
            logging.getLogger("thdpack").warning(
                "%s describes an earlier dataset, and stays because it was edited: "
                "correct it, or replace it with `thdpack card --overwrite`",
                out.where(name),
            )
        else:
            out.remove(name)
