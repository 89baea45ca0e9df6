"""index.json: the list of the runs of a dataset's hash index, and the records/ files they cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pipeline.build.hash_index.index_runs import INDEX, IndexRun
from pipeline.storage.folder import Folder
from pipeline.storage.signed_json import read_signed, signed
from schemas.manifest_entries import RecordsEntry
from schemas.untrusted_json import Hash

STATE: Final = f"{INDEX}/index.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexState:
    """Content of index.json.

    covered: xxh3_128 of each records/ file whose kept records are in the runs, in the order of the
        manifest
    """

    covered: tuple[Hash, ...] = ()
    runs: tuple[IndexRun, ...] = ()


def read_state(out: Folder, records: Sequence[RecordsEntry]) -> IndexState:
    """Return the state of a dataset's index; an empty state if the index must be rebuilt.

    The index must be rebuilt in these cases:
    - index.json is missing or damaged.
    - The index covers files that the dataset does not have.
    - A run is missing or has the wrong size.

    Args:
        records: records/ files of the dataset.
    """
    state = read_signed(out.content(STATE), IndexState)
    if state is None:
        return IndexState()
    hashes = tuple(entry.xxh3_128 for entry in records[: len(state.covered)])
    intact = all(out.size(run.name) == run.bytes for run in state.runs)
    return state if hashes == state.covered and intact else IndexState()


def write_state(out: Folder, state: IndexState) -> None:
    """Replace index.json.

    Raises:
        BuildError: the file cannot be written.
    """
    with out.written(STATE) as file:
        file.write(signed(asdict(state)))
