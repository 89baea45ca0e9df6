"""Pin a dataset on the Hugging Face Hub to a commit.

A branch may move while a dataset is read. So each command and each reader asks once for the commit
of the branch, and reads every file from that commit.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pipeline.storage.hub.address import hub_address, is_hub
from pipeline.storage.hub.hub_errors import explained, hub_host
from pipeline.storage.retries import RemoteStore, call_with_deadline
from schemas.errors import DatasetError, MissingPackageError
from schemas.text.phrases import install_command

_SECONDS = 30.0


def pinned(url: str | Path, *, stopped: threading.Event | None = None) -> str:
    """Return a URL of the hub with its branch or tag replaced by the commit. Return any other path
    or URL, and a URL that already names a commit, unchanged and without a request.

    Raises:
        DatasetError: there is no such repository or revision, or the hub does not answer.
        InputError: the URL does not name a dataset repository.
        MissingPackageError: huggingface_hub is not installed.
    """
    if not is_hub(str(url)):
        return str(url)
    address = hub_address(str(url))
    if address.is_pinned:
        return str(address)
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingPackageError(
            f"cannot open hf://, which needs the extra hf: {install_command('hf')}", source=str(url)
        ) from None
    event = stopped or threading.Event()

    def ask() -> str | DatasetError:
        try:
            info = HfApi(endpoint=hub_host()).dataset_info(
                address.repo, revision=address.revision, timeout=_SECONDS
            )
        except Exception as error:
            said = explained(error, address.revision)
            if said is None:
                raise
            return DatasetError(f"{url}: {said}")
        if info.sha is None:
            return DatasetError(f"{url}: the repository is empty: it has no commit")
        return info.sha

    store = RemoteStore(str(url), event)
    found = store.with_retries("revision", lambda: call_with_deadline(ask, 0, event))
    if isinstance(found, DatasetError):
        raise found
    return str(address.at(found))
