"""Names of the files that builds write. A build removes no other files."""

from __future__ import annotations

import re
from typing import Final

from schemas.records import RETIRED

TEMPORARY_FILE: Final = re.compile(r".+\.\d+\.tmp|shared-[0-9a-f]{32}\.tmp")
WORK_FILE: Final = re.compile(
    r"((prepared|map|similar|clustered|link|draw|hash|reduce|verify|rest-(v\d+-)?\d+)-\d{6,}"
    r"|mapped-[0-9a-f]{16}|progress"
    r"|plan(-[0-9a-f]{16}-[0-9a-f]{16})?)\.json"
    r"|((prepared|map|similar|clustered|link|draw|rest-(v\d+-)?of-(reduce|rest-(v\d+-)?\d+))-\d{6,}"
    r"|(joined|intervals|retired)-[0-9a-f]{16}|map-\d{6,}s\d{5,})\.arrow"
    r"|map-\d{6,}s\d{5,}\.(json|fasta)"
    r"|stdin|thdpack-(spill|clusters)-\w+|thdpack-mmseqs-[\w-]+|\.nfs\w+"
)
DATASET_FILE: Final = re.compile(
    r"[0-9a-f]{16}-(v\d+-)?(\d{5,}|rest(\d+x\d{5,})?)(-\d+)?\.(arrow|parquet)"
)
"""Names of shards and records/ files, without their folder."""
RETIRED_FILE: Final = re.compile(r"[0-9a-f]{16}\.parquet")
"""Names of files of retired/, without their folder."""


def is_dataset_file(folder: str, name: str) -> bool:
    """Return whether builds give such names to their shards and files of records/ and retired/."""
    pattern = RETIRED_FILE if folder == RETIRED else DATASET_FILE
    return pattern.fullmatch(name) is not None
