"""`thdpack push`: upload a dataset to the Hugging Face Hub."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.build.destination.card_files import (
    CARD_FILES,
    CROISSANT,
    README,
    signature_of,
    signed,
)
from pipeline.build.generations.files_beside import files_beside
from pipeline.build.progress.reporter import reporter
from pipeline.build.verify.verify_dataset import verify_dataset
from pipeline.cli.options.report_options import PushOptions
from pipeline.report.card.croissant import croissant
from pipeline.report.card.dataset_card import dataset_card
from pipeline.report.card.stated import Stated, stated_by
from pipeline.storage.hub.address import HubAddress, hub_address, is_hub
from pipeline.storage.hub.upload import Content, HubRepository, size_of
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import local_path
from schemas.errors import DatasetError, ManifestError, OptionError
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.text.byte_size import megabytes
from schemas.text.phrases import REBUILD, plural


def run_push(options: PushOptions) -> int:
    """Verify a dataset, upload it, and return an exit code.

    Raises:
        OptionError: the source or the destination is of another kind.
        ThdpackError: the dataset cannot be read, or the hub refuses or does not answer.
    """
    address = _destination(options)
    folder = local_path(options.dataset)
    if folder is None:
        raise OptionError(
            f"{options.dataset}: only a dataset on a local disk can be uploaded: copy it first"
        )
    manifest = read_manifest(folder)
    repository = HubRepository(address)
    problems = verify_dataset(folder, deep=False, generation=manifest.digest)
    for problem in problems:
        print(problem)
    if problems:
        print(f"thdpack push: nothing was uploaded: {REBUILD}", file=sys.stderr)
        return 1
    repository.create(private=options.private)
    head = repository.head()
    cards = _cards(folder, manifest, repository, head)
    files = {**_files(folder, manifest), **cards}
    with reporter(as_json=False) as progress:
        progress.phase("comparing with the hub", 0)
        difference = repository.difference(head, files, _earlier_files(repository, head, address))
        if not difference.add and not difference.remove:
            print(f"{address.at(head)}: the repository already holds this dataset")
            return 0
        total = sum(map(size_of, difference.add.values()))
        progress.phase(f"uploading {plural(len(difference.add), 'file')}", total)
        commit = repository.commit(
            difference, f"thdpack dataset {manifest.digest}", progress.advance
        )
    skipped = len(files) - len(difference.add)
    print(
        f"{address.at(commit)}: uploaded {plural(len(difference.add), 'file')}, "
        f"{megabytes(total)}; {skipped:,} were already there"
        + (f"; removed {plural(len(difference.remove), 'file')}" if difference.remove else "")
    )
    return 0


def _destination(options: PushOptions) -> HubAddress:
    """Return the repository and the branch.

    Raises:
        OptionError: the URL is not one of the hub, names a folder, or names another branch.
        InputError: the URL does not name a dataset repository.
    """
    if not is_hub(options.to):
        raise OptionError(
            f"{options.to}: push uploads only to hf://datasets/USER/NAME; to copy a dataset to a "
            "store, copy its folder, with manifest.json last"
        )
    address = hub_address(options.to)
    if address.folder:
        raise OptionError(
            f"{options.to}: names a folder; a repository holds one dataset: write "
            f"hf://datasets/{address.repo}"
        )
    if options.revision is not None and address.revision not in (None, options.revision):
        raise OptionError(
            f"--revision is {options.revision}, but the URL names {address.revision}: give one"
        )
    branch = options.revision or address.revision
    if branch is not None and address.at(branch).is_pinned:
        raise OptionError(f"{options.to}: a commit cannot be written to: name a branch")
    return replace(address, revision=branch)


def _files(folder: Path, manifest: Manifest) -> dict[str, Content]:
    """Return the files of a dataset by name. The manifest is last."""
    names = [entry.name for entry in manifest.files()]
    names += files_beside(manifest, folder_of(folder))
    # gc may have removed manifests of earlier generations
    found: dict[str, Content] = {
        name: folder / name for name in dict.fromkeys(names) if (folder / name).is_file()
    }
    return {**found, MANIFEST_NAME: (folder / MANIFEST_NAME).read_bytes()}


def _cards(
    folder: Path, manifest: Manifest, repository: HubRepository, head: str
) -> Mapping[str, Content]:
    """Return the card: the files of `thdpack card` in the folder, or else the same texts.

    A README.md that somebody wrote on the hub stays, unless the folder has one.
    """
    stated = stated_by(manifest, Stated())
    cards: dict[str, Content] = {}
    for name in CARD_FILES:
        if (folder / name).is_file():
            cards[name] = folder / name
            continue
        theirs = repository.content(name, head)
        found = None if theirs is None else signature_of(theirs)
        ours = theirs is None or (found is not None and not found.edited)
        if ours:
            text = {CROISSANT: croissant, README: dataset_card}[name](manifest, stated)
            cards[name] = signed(text, manifest.digest)
        else:
            print(f"{name} on the hub was edited, and stays as it is", file=sys.stderr)
    return cards


def _earlier_files(repository: HubRepository, head: str, address: HubAddress) -> list[str]:
    """Return the names of the files of the dataset that the branch holds now.

    Raises:
        DatasetError: manifest.json in the repository is not that of a dataset.
    """
    content = repository.content(MANIFEST_NAME, head)
    if content is None:
        return []
    try:
        manifest = Manifest.from_json(content, where=f"{address.at(head)}/{MANIFEST_NAME}")
    except ManifestError as error:
        raise DatasetError(
            f"{error}; push does not replace files that it does not know: remove this file on the "
            "hub, or choose another repository"
        ) from error
    return [entry.name for entry in manifest.files()]
