"""Write text to a local file or to an object of a store."""

from __future__ import annotations

from pipeline.storage.open_folder import folder_of
from pipeline.storage.s3.first_contact import refuse_unreachable
from pipeline.storage.urls import local_path
from schemas.errors import ThdpackError


def refuse_unwritable(option: str, name: str, *, folder: bool = False) -> None:
    """Check the URL that an option names, with one small request to the store.

    Local paths are not checked. A store is an object store such as S3. Here, buckets are the
    buckets of a store, not of a dataset.

    Args:
        folder: True if the option names a folder, False if it names a file.
    Raises:
        ThdpackError: the URL cannot be written to, or names a bucket instead of a file.
    """
    if local_path(name) is not None:
        return
    if name.startswith(("http://", "https://")):
        raise ThdpackError(f"{option} {name}: cannot be written to; use a path, s3:// or gs://")
    if not folder and not all(name.partition("://")[2].partition("/")[::2]):
        raise ThdpackError(
            f"{option} {name}: names a bucket of the store; name a file in the bucket: "
            f"{name.rstrip('/')}/FILE"
        )
    refuse_unreachable(name)


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
        raise ThdpackError(f"cannot write {path}: {error.strerror}") from error


def inside(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder."""
    path = local_path(folder)
    return f"{folder.rstrip('/')}/{name}" if path is None else str(path / name)
