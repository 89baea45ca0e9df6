"""Read the manifest of a dataset, of any of its generations, from disk or from a store."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.storage.hub.revision import pinned
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.retries import RemoteStore, call_with_deadline
from pipeline.storage.urls import file_system, forget_listings, is_missing, local_path
from pipeline.storage.work_names import work_names
from schemas.errors import DatasetError, ManifestError, NoGenerationError
from schemas.manifest import GENERATIONS, MANIFEST_NAME, Manifest
from schemas.text.generation import LATEST, Generation, parse_generation
from schemas.untrusted_json import MOST_BYTES


def generation_name(generation: int) -> str:
    """Return the name of the manifest of an earlier generation, in the dataset's folder."""
    return f"{GENERATIONS}/{generation}.json"


def read_manifest(
    url: str | Path,
    generation: Generation | None = None,
    *,
    stopped: threading.Event | None = None,
) -> Manifest:
    """Return the manifest of a dataset, local or remote.

    Args:
        generation: number, digest or "latest"; see `parse_generation`. None means "latest".
    Raises:
        ManifestError: the manifest is missing or damaged, or has another version.
        NoGenerationError: the dataset has no such generation, or the generation was removed.
        DatasetError: the store cannot be reached.
        InputError: no file system is installed for the protocol, or the URL or endpoint is invalid.
        ValueError: `generation` does not name a generation.
    """
    asked = parse_generation(generation)
    if local_path(str(url)) is None:
        refuse_unreachable(str(url), reading=MANIFEST_NAME)
    stopped = stopped or threading.Event()
    url = pinned(url, stopped=stopped)
    where, text = _content(url, MANIFEST_NAME, stopped)
    if text is None:
        raise _no_dataset(url)
    latest = Manifest.from_json(text, where=where)
    if asked in (LATEST, latest.generation, latest.digest):
        return latest
    digests = [entry.digest for entry in latest.history]
    if isinstance(asked, str) and asked in digests:
        return _earlier(url, latest, 1 + digests.index(asked), stopped)
    if isinstance(asked, int) and asked <= len(digests):
        return _earlier(url, latest, asked, stopped)
    name = f"with the digest {asked}" if isinstance(asked, str) else str(asked)
    raise NoGenerationError(f"{url}: no generation {name}; {_existing(url, latest, stopped)}")


def _earlier(
    url: str | Path, latest: Manifest, generation: int, stopped: threading.Event
) -> Manifest:
    """Return the manifest of an earlier generation.

    Raises:
        NoGenerationError: the generation was removed.
        ManifestError: the file is damaged, or is not the manifest that `latest` names.
    """
    name = generation_name(generation)
    where, text = _content(url, name, stopped)
    if text is None:
        raise NoGenerationError(
            f"{url}: generation {generation} was removed, for example by `thdpack gc`: there is "
            f"no {name}; {_existing(url, latest, stopped)}"
        )
    manifest = Manifest.from_json(text, where=where)
    if manifest.digest != latest.history[generation - 1].digest:
        raise ManifestError(
            f"{where}: not the manifest of generation {generation}, because {MANIFEST_NAME} lists "
            "another digest: restore this file from a copy of the dataset, or read another "
            "generation"
        )
    return manifest


def _existing(url: str | Path, latest: Manifest, stopped: threading.Event) -> str:
    """Return a clause about the generations that a dataset has."""
    if latest.generation == 1:
        return "the dataset has only generation 1"
    system, root = file_system(str(url))
    folder = f"{root.rstrip('/')}/{GENERATIONS}"
    forget_listings(system, str(url))
    try:
        paths = call_with_deadline(lambda: system.ls(folder, detail=False), 0, stopped)
    except OSError:  # for example, a web server without lists of files
        return f"the latest generation is {latest.generation}"
    names = {str(path).rpartition("/")[2] for path in paths}
    earlier = [n for n in range(1, latest.generation) if f"{n}.json" in names]
    return f"the dataset has {_numbers([*earlier, latest.generation])}"


def _numbers(generations: Sequence[int]) -> str:
    """Return ascending numbers of generations as text, such as "generations 1, 3 to 7"."""
    runs: list[list[int]] = []
    for number in generations:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    words = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"{'generation' if len(generations) == 1 else 'generations'} {words}"


def _content(url: str | Path, name: str, stopped: threading.Event) -> tuple[str, bytes | None]:
    """Return the path or URL of a file, and its content; None if the file is missing.

    Raises:
        ManifestError, DatasetError: the file cannot be read.
    """
    folder = local_path(str(url))
    if folder is None:
        remote = RemoteStore(str(url), stopped)
        where = f"{remote.url}/{name}"
        try:
            return where, remote.with_retries(name, lambda: _bounded(remote.pieces(name)))
        except DatasetError as error:
            if is_missing(error.__cause__):
                return where, None
            raise
    path = folder / name
    try:
        with path.open("rb") as file:
            return str(path), file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return str(path), None
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None


def _bounded(pieces: Iterator[bytes]) -> bytes:
    """Join pieces. Stop above a manifest's maximum size, because a server might send endlessly."""
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > MOST_BYTES:
            break
    return bytes(found)


def _no_dataset(url: str | Path) -> ManifestError:
    """Return the error for a path or URL without manifest.json."""
    folder = local_path(str(url))
    if folder is None:
        parent, _, last = str(url).rstrip("/").rpartition("/")
        if last == MANIFEST_NAME:
            return ManifestError(
                f"{url}: not a dataset, but its manifest: name the dataset, {parent}"
            )
        return _no_manifest(url)
    if folder.name == MANIFEST_NAME and folder.is_file():
        return ManifestError(f"{url}: a file, not a dataset: name its folder, {folder.parent}")
    if folder.is_file():
        return ManifestError(
            f"{url}: a file, not a dataset: build a dataset with "
            f"`thdpack preprocess {url} --out DATASET`"
        )
    return _no_manifest(url) if folder.exists() else _no_folder(url, folder)


def _no_folder(url: str | Path, folder: Path) -> ManifestError:
    where = "" if folder.is_absolute() else f" in {Path.cwd()}"
    return ManifestError(
        f"{url}: there is no such folder{where}: check the path, or build the dataset with "
        f"`thdpack preprocess FASTA --out {url}`"
    )


def _no_manifest(url: str | Path) -> ManifestError:
    if work_names(str(url)):
        return ManifestError(
            f"{url}: no {MANIFEST_NAME}: an unfinished build is here: wait for its end, or run its "
            "command again to resume"
        )
    return ManifestError(
        f"{url}: no {MANIFEST_NAME}: this is not a dataset, or its build did not finish. If it "
        f"holds sequences, build a dataset with `thdpack preprocess {url} --out DATASET`"
    )
