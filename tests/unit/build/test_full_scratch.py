"""The error for a full disk names the folder that is full."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from pipeline.build.spill.spill_files import create_spill
from pipeline.storage.object_folder import ObjectFolder
from schemas.errors import BuildError


def test_the_error_for_a_full_temporary_folder_of_a_build_on_a_store_names_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    work = ObjectFolder("memory://full/work")
    expected = f"make room in {tmp_path}, or set TMPDIR to a folder with more room"
    with pytest.raises(BuildError, match=expected), create_spill(work, "map-0.arrow", 4):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
