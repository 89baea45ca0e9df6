"""Errors for a folder of a new run that cannot be created."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import ThdpackError
from trainer.checkpoints.new_folder import exists_or_creatable, with_folder_errors
from trainer.checkpoints.run_lock import take


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_the_error_for_a_run_folder_that_is_a_file_or_below_a_file_names_the_option(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / name
    expected = f"^cannot write to --out {out}: Not a directory; choose another --out$"
    with pytest.raises(ThdpackError, match=expected):
        with_folder_errors(take, out)


def test_a_dry_run_gives_the_same_error_for_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ThdpackError, match=r"^cannot write to --out .*; choose another --out$"):
        exists_or_creatable(tmp_path / "file" / "run")
