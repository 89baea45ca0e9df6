"""Open the fsspec file system of a URL, and interpret a store's answers about an object."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from pipeline.storage.s3.endpoint import refuse_bucket_in_endpoint
from pipeline.storage.s3.faults import answer_of
from pipeline.storage.s3.fsspec_settings import refuse_broken_variable
from pipeline.storage.s3.settings import refuse_wrong_settings, s3_options
from schemas.errors import MissingPackageError, UrlError
from schemas.text.phrases import install_command
from schemas.text.redact import holds_secret
from schemas.text.url_spelling import (
    corrected_url,
    holds_wrong_bucket,
    similar_scheme,
    url_with_bucket,
)

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


S3: Final = ("s3://", "s3a://")
"""Beginnings of S3's URLs."""
SILENCE_SECONDS: Final = 60.0
"""Time in seconds after which a request to a web server fails if the server sends nothing. There
is no limit as long as bytes arrive."""


_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "hf": "hf"}
"""Extra of thdpack that each protocol needs."""
_PACKAGES: Final = dict.fromkeys(("az", "abfs", "abfss"), "adlfs")
"""Package that each protocol without an extra needs."""

_COMMIT: Final = re.compile(r"hf://datasets/[^/@]+/[^/@]+@[0-9a-f]{40}(/|$)")
"""Pattern of a URL that names a commit of the Hugging Face Hub, whose files never change."""

_TAGS: Final = ("ETag", "etag", "blob_id")
_TIMES: Final = ("LastModified", "Last-Modified", "last_modified", "mtime", "created")


def version_tag_of(info: Mapping[str, Any]) -> str:
    """Return a tag of an object's version: size and etag. If there is no etag, use size and times.

    An etag is the same in a listing and in a store's answer about a single object. Times may
    differ: some stores use milliseconds in listings, but seconds in answers.

    Args:
        info: the object's entry as fsspec returns it.
    """
    tags = [str(info[key]) for key in _TAGS if info.get(key)][:1]
    return "-".join(
        [str(info.get("size")), *(tags or [str(info[key]) for key in _TIMES if info.get(key)])]
    )


def is_url(path: str) -> bool:
    """Return whether `path` is a URL.

    Raises:
        UrlError: see `_refuse_misspelt`.
    """
    _refuse_misspelt(path)
    return "://" in path or path.startswith("simplecache::")


def _refuse_misspelt(path: str) -> None:
    """Refuse a misspelt URL, such as S3://, s3:/ or s3//, a URL without a bucket, such as
    s3:///folder, and a bucket that S3 cannot have.

    Raises:
        UrlError: the message shows the correct form.
    """
    if (bare := path.lstrip()) != path and (corrected_url(bare) or "://" in bare):
        raise UrlError(f"a URL does not begin with a blank: write {bare}", source=bare)
    if (url := corrected_url(path)) is not None:
        raise UrlError(
            f"a URL has a scheme in lower case, a colon and two slashes: write {url}",
            source=url if holds_secret(url) else path,  # errors redact only a correct URL
        )
    if (pattern := url_with_bucket(path)) is not None:
        noun = "container" if "CONTAINER" in pattern else "bucket"
        raise UrlError(f"the URL names no {noun}: write {pattern}", source=path)
    if not holds_secret(path) and holds_wrong_bucket(path):
        raise UrlError(
            "no S3 bucket has such a name: correct the URL (names have only letters, digits, dots, "
            "dashes and underscores)",
            source=path,
        )


def file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the fsspec file system of a URL, and the path inside it.

    Raises:
        MissingPackageError: no file system is installed for the protocol.
        UrlError: see `_refuse_misspelt`; or the URL has a secret.
        SettingError: a setting of S3, such as AWS_ENDPOINT_URL, is wrong.
    """
    _refuse_misspelt(url)
    if "http://" not in url and "https://" not in url and holds_secret(url):
        raise UrlError(
            "credentials do not belong in a store's URL: "
            "set them in the environment or in the store's configuration file",
            source=url,
        )
    if url.startswith(S3):
        refuse_broken_variable()  # before fsspec is imported, which would print a warning
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url, **_options(url))
    except (ImportError, ValueError) as error:
        scheme, _, rest = url.partition("://")
        if "Protocol not known" in str(error) and (meant := similar_scheme(scheme)):
            said = f"the scheme is misspelt: write {meant}://{rest}"
            raise UrlError(said, source=url) from None
        raise MissingPackageError(_cannot_open(url, error), source=url) from None
    if url.startswith(S3):
        refuse_bucket_in_endpoint(path.partition("/")[0])
        refuse_wrong_settings(fs)
    return cast("AbstractFileSystem", fs), cast(str, path)


def _cannot_open(url: str, error: Exception) -> str:
    """Return why fsspec cannot open URLs of this protocol, with one remedy."""
    protocol = url.partition("://")[0]
    is_unknown = "Protocol not known" in str(error)
    if not isinstance(error, ImportError) and not is_unknown:
        return f"cannot open {protocol}://: {error}"  # for example, the account is missing
    if extra := _EXTRAS.get(protocol):
        return f"cannot open {protocol}://, which needs the extra {extra}: {install_command(extra)}"
    if name := _PACKAGES.get(protocol):
        return f"cannot open {protocol}://, which needs the package {name}: pip install {name}"
    if is_unknown:
        return f"cannot open {protocol}:// ({error}); install the fsspec package for {protocol}://"
    return f"cannot open {protocol}://: {error}"  # fsspec names the package to install


def _options(url: str) -> dict[str, Any]:
    """Return options of a file system.

    For S3, see `s3_options`. For a web server, the options remove fsspec's limit of five minutes
    per request.
    """
    if url.startswith(S3):
        return s3_options()
    if url.startswith("hf://") and os.environ.get("HF_ENDPOINT"):
        return {"endpoint": os.environ["HF_ENDPOINT"]}
    if not url.startswith(("http://", "https://")) or find_spec("aiohttp") is None:
        return {}
    import aiohttp

    return {
        "client_kwargs": {
            "timeout": aiohttp.ClientTimeout(
                total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS
            )
        }
    }


def protocols(fs: AbstractFileSystem) -> set[str]:
    """Return the protocol names of a file system."""
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def is_missing(error: BaseException | None) -> TypeGuard[FileNotFoundError]:
    """Return whether a file is really missing in a store. For HTTP, fsspec also raises
    FileNotFoundError if a connection failed."""
    if type(error).__name__ == "RemoteEntryNotFoundError":  # from huggingface_hub
        return True
    if not isinstance(error, FileNotFoundError):
        return False
    cause = error.__cause__
    status = (
        getattr(cause, "status", None)
        or getattr(cause, "status_code", None)
        or getattr(getattr(cause, "response", None), "status_code", None)
        or answer_of(error)[0]
    )  # four attributes, for the errors of aiohttp, Azure, the Hugging Face Hub and AWS
    return cause is None or isinstance(cause, FileNotFoundError) or status in (404, 410)


def forget_listings(fs: AbstractFileSystem, url: str) -> None:
    """Empty the file system's cache of listings, because they may be outdated.

    Args:
        url: URL of the file or folder to look at next. If it names a commit of the Hugging Face
            Hub, nothing is outdated, and each new listing would cost a request.
    """
    if _COMMIT.match(url) is None:
        fs.invalidate_cache()


def whole_file_options(fs: AbstractFileSystem) -> dict[str, int]:
    """Return options to read a whole file in one request, without a request for its size."""
    known = protocols(fs)
    return {"max_concurrency": 1} if "s3" in known else {"block_size": 0} if "hf" in known else {}


def range_options(fs: AbstractFileSystem) -> dict[str, str]:
    """Return options to read a range of a file without the bytes after it, which the file system of
    the Hugging Face Hub would read ahead."""
    return {"cache_type": "none"} if "hf" in protocols(fs) else {}


def local_path(url: str) -> Path | None:
    """Return the local folder of a path or a file:// URL; None for other URLs.

    Raises:
        InputError: no file system is installed for the protocol.
    """
    if not is_url(url):
        return Path(url)
    fs, path = file_system(url)
    return Path(path) if "file" in protocols(fs) else None
