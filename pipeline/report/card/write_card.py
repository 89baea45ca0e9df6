"""Write the card of a dataset: croissant.json and README.md."""

from __future__ import annotations

from typing import Final

from pipeline.build.destination.card_files import (
    CARD_FILES,
    CROISSANT,
    README,
    signature_in,
    signed,
)
from pipeline.report.card.croissant import croissant
from pipeline.report.card.dataset_card import dataset_card
from pipeline.report.card.stated import Stated, stated_by
from pipeline.report.render.output_files import inside, refuse_unwritable
from pipeline.storage.folder import Folder
from pipeline.storage.hub.revision import pinned
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import DatasetError, OptionError, ThdpackError

_NOTHING: Final = Stated()


def write_card(
    dataset: str, *, out: str | None = None, overwrite: bool = False, given: Stated = _NOTHING
) -> list[str]:
    """Write both files, and return their paths or URLs.

    Args:
        given: what to state if the manifest does not state it.
        out: folder of the files; None for the dataset's folder.
        overwrite: True to replace files that thdpack did not write, or that were edited.
    Raises:
        DatasetError: the dataset cannot be read, or it was replaced meanwhile.
        OptionError: the manifest has another value than `given`.
        ThdpackError: a file cannot be written, or must not be replaced.
    """
    place = dataset if out is None else out
    _refuse_web_address(dataset, out)
    dataset = pinned(dataset)
    manifest = read_manifest(dataset)
    stated = stated_by(manifest, given)
    folder = folder_of(place)
    if not overwrite:
        _refuse_other_files(folder)
    texts = {CROISSANT: croissant(manifest, stated), README: dataset_card(manifest, stated)}
    for name in CARD_FILES:
        _write(folder, name, signed(texts[name], manifest.digest))
    if read_manifest(dataset).digest != manifest.digest:
        raise DatasetError(
            f"{dataset}: a build replaced the dataset while its card was written; "
            "run the same command again"
        )
    return [inside(place, name) for name in CARD_FILES]


def _refuse_web_address(dataset: str, out: str | None) -> None:
    """Refuse to write to a web server, or to a store of --out that does not answer.

    Raises:
        ThdpackError: nothing can be written there.
    """
    if out is not None:
        refuse_unwritable("--out", out, folder=True)
    elif dataset.startswith(("http://", "https://", "hf://")):
        raise OptionError(f"{dataset}: cannot be written to; name a folder with --out")


def _refuse_other_files(folder: Folder) -> None:
    """Refuse to replace files that thdpack did not write, or that were edited since.

    Raises:
        ThdpackError: such a file exists.
    """
    for name in CARD_FILES:
        exists, signature = signature_in(folder, name)
        if exists and (signature is None or signature.edited):
            why = "was edited since thdpack wrote it" if signature else "was not written by thdpack"
            raise ThdpackError(
                f"{folder.where(name)}: {why}; replace it with --overwrite, "
                "or name another folder with --out"
            )


def _write(folder: Folder, name: str, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        ThdpackError: the file cannot be written.
    """
    try:
        with folder.written(name) as file:
            file.write(content)
    except OSError as error:
        raise ThdpackError(
            f"cannot write {folder.where(name)}: {error.strerror}; name another folder with --out"
        ) from error
