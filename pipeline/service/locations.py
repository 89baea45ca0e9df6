"""Find the inbox of a service, and the service's own files in the dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.service.inbox.inbox import Inbox
from pipeline.service.inbox.local_inbox import LocalInbox
from pipeline.service.inbox.store_inbox import StoreInbox
from pipeline.service.journal.journal import Journal, LocalJournal, ObjectJournal
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.urls import local_path
from schemas.errors import OptionError

_FOLDER: Final = "service"
"""Folder of the journal and the lock in the dataset. Builds do not remove it."""


def service_folder(dataset: str) -> Path | None:
    """Return the service's folder in a local dataset; None in a store."""
    path = local_path(dataset)
    return None if path is None else path / _FOLDER


def journal_of(dataset: str) -> Journal:
    """Return the journal of a dataset's service."""
    folder = service_folder(dataset)
    if folder is not None:
        return LocalJournal(folder)
    return ObjectJournal(ObjectFolder(f"{dataset.rstrip('/')}/{_FOLDER}"))


def inbox_of(inbox: str) -> Inbox:
    """Return the inbox that an argument of the command line names.

    Raises:
        OptionError: the inbox is a web address, or not a folder.
        MissingBucketError: the inbox's store has no such bucket.
        SettingError: a setting of the inbox's store is wrong, or the store refuses it.
        DatasetError: the inbox's store does not answer. Later, the service would wait for it.
    """
    if inbox.startswith(("http://", "https://")):
        raise OptionError(f"{inbox}: an inbox is a folder, s3:// or gs://, because files are moved")
    path = local_path(inbox)
    if path is None:
        refuse_unreachable(inbox)
        return StoreInbox(inbox.rstrip("/"))
    if not path.is_dir():
        raise OptionError(f"{inbox}: the inbox must be an existing folder")
    return LocalInbox(path.resolve())


def refuse_nested(inbox: str, dataset: str) -> None:
    """Refuse an inbox inside the dataset, and a dataset inside the inbox.

    Raises:
        OptionError: one contains the other.
    """
    if not inbox or not dataset:
        raise OptionError("the name of the inbox or dataset is empty: is a shell variable unset?")
    paths = [local_path(name) for name in (inbox, dataset)]
    one, other = (
        f"{name.rstrip('/')}/" if path is None else f"{path.resolve()}/"
        for name, path in zip((inbox, dataset), paths, strict=True)
    )
    if one.startswith(other) or other.startswith(one):
        raise OptionError(
            f"the inbox {inbox} and the dataset {dataset} must not contain each other"
        )
