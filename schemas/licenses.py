"""Licences of data: SPDX identifiers, and their names on the Hugging Face Hub."""

from __future__ import annotations

import re
from typing import Final

LICENSES: Final = {
    "Apache-2.0": "apache-2.0",
    "BSD-2-Clause": "bsd-2-clause",
    "BSD-3-Clause": "bsd-3-clause",
    "CC-BY-2.0": "cc-by-2.0",
    "CC-BY-2.5": "cc-by-2.5",
    "CC-BY-3.0": "cc-by-3.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-NC-2.0": "cc-by-nc-2.0",
    "CC-BY-NC-3.0": "cc-by-nc-3.0",
    "CC-BY-NC-4.0": "cc-by-nc-4.0",
    "CC-BY-NC-ND-3.0": "cc-by-nc-nd-3.0",
    "CC-BY-NC-ND-4.0": "cc-by-nc-nd-4.0",
    "CC-BY-NC-SA-2.0": "cc-by-nc-sa-2.0",
    "CC-BY-NC-SA-3.0": "cc-by-nc-sa-3.0",
    "CC-BY-NC-SA-4.0": "cc-by-nc-sa-4.0",
    "CC-BY-ND-4.0": "cc-by-nd-4.0",
    "CC-BY-SA-3.0": "cc-by-sa-3.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC0-1.0": "cc0-1.0",
    "CDLA-Permissive-1.0": "cdla-permissive-1.0",
    "CDLA-Permissive-2.0": "cdla-permissive-2.0",
    "CDLA-Sharing-1.0": "cdla-sharing-1.0",
    "MIT": "mit",
    "ODbL-1.0": "odbl",
    "ODC-By-1.0": "odc-by",
    "PDDL-1.0": "pddl",
    "Unlicense": "unlicense",
}
"""Name of each licence on the Hugging Face Hub, by SPDX identifier."""
_BY_CASE: Final = {identifier.lower(): identifier for identifier in LICENSES}


def spdx_identifier(text: str) -> str | None:
    """Return the SPDX identifier that equals a text, apart from case; None if it is unknown."""
    return _BY_CASE.get(text.strip().lower())


def license_hint(text: str | None) -> str | None:
    """Return a line about a licence that is written almost like an SPDX identifier, or None.

    `CC BY 4` is almost `CC-BY-4.0`: both have the same letters and digits, apart from final zeros.
    """
    if text is None or spdx_identifier(text) is not None:
        return None
    close = [identifier for identifier in LICENSES if _letters(identifier) == _letters(text)]
    if not close:
        return None
    return (
        f"--license {text!r} is stored as it is; "
        f"did you mean {close[0]}, which programs recognise (an SPDX identifier)?"
    )


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower()).rstrip("0")
