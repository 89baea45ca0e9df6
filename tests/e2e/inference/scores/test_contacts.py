"""Contact maps by categorical Jacobian."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers.data.corpus import fasta
from tests.helpers.oracles.slow_scores import slow_contacts
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.scores import SCORE, content, score

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM

KILLED = """
import os, signal, sys
import trainer.scores.contacts as contacts
save, left = contacts._save, 1
def die(path, array):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    save(path, array)
contacts._save = die
from trainer.score import main
main(sys.argv[1:])
"""
"""Program that kills itself before it writes its second contact map."""
RECORDS = [("a/b", "MKVLAAGIVGLN"), ("b", "ACDEFGHIKLMNP"), ("one", "M"), ("long", "ACDEF" * 8)]


def test_contact_maps_equal_a_plain_loop_also_after_a_kill(
    model: Path, plain: EsmForMaskedLM, tmp_path: Path
) -> None:
    (tmp_path / "proteins.fasta").write_bytes(fasta(RECORDS))
    # "a/b", so that a name with a slash must become a safe file name
    words = [str(model), str(tmp_path / "proteins.fasta"), "--contacts", "--max-seq-len", "32"]
    with Job(KILLED, [*words, "--out", str(tmp_path / "out")]) as job:
        assert job.wait() == -9, job.said
    assert len(list((tmp_path / "out").glob("*.npy"))) == 1
    said = Job(SCORE, [*words, "--out", str(tmp_path / "out")], ranks=2).finish()
    assert "wrote 3 contact maps" in said
    assert "warning: 1 record longer than --max-seq-len 32" in said
    names = ["00000000_a_b.npy", "00000001_b.npy", "00000002_one.npy"]
    assert sorted(content(tmp_path / "out")) == [*names, "run.json"]
    for name, (_, residues) in zip(names, RECORDS, strict=False):
        found = np.load(tmp_path / "out" / name)
        assert found.dtype == np.float32
        assert (found == found.T).all()
        if len(residues) > 1:
            expected = slow_contacts(plain, residues)
            assert found == pytest.approx(expected, abs=1e-4 * np.abs(expected).max())
    assert "is complete already" in score(*words, "--out", tmp_path / "out")
