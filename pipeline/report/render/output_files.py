"""Write text to a local file or to an object of a store."""

from __future__ import annotations

from pipeline.storage.open_folder import folder_of
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.urls import local_path
from schemas.errors import OptionError, ThdpackError


def refuse_unwritable(option: str, name: str, *, folder: bool = False) -> None:
    """Check the path or URL that an option names.

    A path must not name a file instead of a folder, or the reverse. A URL costs one small request
    to its object store.

    Args:
        folder: True if the option names a folder, False if it names a file.
    Raises:
        OptionError: a folder is a file or the reverse, or the name is a web address or that of a
            store's bucket.
        InputError: the store cannot be reached.
    """
    path = local_path(name)
    if path is not None:
        if folder and path.exists() and not path.is_dir():
            raise OptionError(f"{option} {name} is a file, expected a folder: choose a new folder")
        if not folder and path.is_dir():
            raise OptionError(f"{option} {name} is a folder, expected a file: {path / 'FILE'}")
        return
    if name.startswith(("http://", "https://", "hf://")):
        raise OptionError(f"{option} {name}: cannot be written to; use a path, s3:// or gs://")
    if not folder and not all(name.partition("://")[2].partition("/")[::2]):
        raise OptionError(
            f"{option} {name}: names an S3 bucket; name a file in the S3 bucket: "
            f"{name.rstrip('/')}/FILE"
        )
    refuse_unreachable(name)


def refuse_missing_parent(option: str, name: str) -> None:
    """Refuse a path whose parent folder does not exist, because it may be misspelt.

    Raises:
        OptionError: there is no parent folder.
    """
    path = local_path(name)
    if path is not None and not path.parent.exists():
        raise OptionError(f"{option} {name}: there is no folder {path.parent}: create it first")


def write_text(name: str, text: str) -> None:
    """Write a text in UTF-8 to a path, or upload it to a URL.

    Raises:
        ThdpackError: the file cannot be written.
    """
    content = text.encode(errors="backslashreplace")
    path = local_path(name)
    if path is None:
        folder, _, file_name = name.rpartition("/")
        with folder_of(folder).written(file_name) as upload:
            upload.write(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise ThdpackError(f"cannot write {path}: {error.strerror}: choose another file") from error


def inside(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder."""
    path = local_path(folder)
    return f"{folder.rstrip('/')}/{name}" if path is None else str(path / name)
