"""The commands that the guides on data, on growing datasets and on the service show run."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.pages import shell_commands
from tests.helpers.processes.command_line import REPO, run_here
from tests.helpers.stores.object_store import object_store, point_s3_at, put

ELSEWHERE = {
    "mmseqs:": "tests in tests/e2e/build, which skip without MMseqs2",
    "hf://": "tests/e2e/hub",
    "…": "a part of the command is left out",
}
"""Words of commands that do not run here, each with the reason."""


@pytest.fixture
def folder(tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with all files that the commands of the guides read, each of 60 records."""
    monkeypatch.chdir(tmp_path)
    records = [f">{record}" for record in sample.read_text().split(">")[1:]]
    ids = [record[1:].split()[0] for record in records]
    accessions = [name.split("|")[1] for name in ids]
    first, more = records[:60], records[60:120]
    for place in ("dir", "more", "data", "inbox"):
        (tmp_path / place).mkdir()
    plain = {
        "uniref50.fasta": first,
        "uniref90.fasta": [record.replace(">sp|", ">UniRef90_", 1) for record in first],
        "dir/b.fa": more,
        "more/c.faa": more,
        "data/a.fasta": first,
        "benchmark.fasta": first[:3],
        "test.fasta": first[:3],
        "inbox/new.fasta": more,
        "proteins.fasta": first[:3],
    }
    for name, content in plain.items():
        (tmp_path / name).write_text("".join(content))
    zipped = {
        "uniref50.fasta.gz": first,
        "uniprot.fasta.gz": [re.sub(r"OX=\d+", "OX=9606", record) for record in first],
        "uniprot-2026_03.fasta.gz": first,
        "news.fasta.gz": more,
    }
    for name, content in zipped.items():
        (tmp_path / name).write_bytes(gzip.compress("".join(content).encode()))
    uniref90 = (tmp_path / "uniref90.fasta").read_text()
    (tmp_path / "uniref90.fasta").write_text(re.sub(r"(>UniRef90_\w+)\|\w+", r"\1", uniref90))
    pairs = "".join(f"{ids[i - i % 3]}\t{ids[i]}\n" for i in range(120))
    for name in ("clusters_cluster.tsv", "clusters-2026_04.tsv"):
        (tmp_path / name).write_text(pairs)
    mapping = "".join(f"{accessions[i]}{9 * chr(9)}UniRef50_{i // 3}\n" for i in range(60))
    mapping = re.sub(r"^(\w+)\t{9}", r"\1" + 8 * r"\t" + r"UniRef90_\1\t", mapping, flags=re.M)
    (tmp_path / "idmapping_selected.tab.gz").write_bytes(gzip.compress(mapping.encode()))
    table = "Entry\tReviewed\tAnnotation\n" + "".join(f"{a}\treviewed\t5\n" for a in accessions)
    (tmp_path / "uniprot.tsv.gz").write_bytes(gzip.compress(table.encode()))
    (tmp_path / "more-ids.txt").write_text(f"{ids[5]}\n")
    (tmp_path / "removed.txt").write_text(f"{ids[7]}\n")
    hit = f"{ids[6]}\tquery\t0.9\t{9 * chr(9)}"
    (tmp_path / "search.m8").write_text(hit.replace(9 * "\t", "\t".join("123456789")) + "\n")
    return tmp_path


def _run(page: str, folder: Path) -> list[str]:
    """Run the commands of a page in their order. Return the names of the commands that ran."""
    ran = []
    for _, *words in shell_commands(page, "thdpack"):
        text = " ".join(words)
        if any(word in text for word in ELSEWHERE):
            continue
        words = words[: words.index("#")] if "#" in words else words
        if words[0] == "preprocess" and "s3://" not in text:
            shutil.rmtree(folder / words[words.index("--out") + 1], ignore_errors=True)
        done = run_here(*words, where=folder)
        assert done.returncode == 0, f"thdpack {text}\n{done.stderr}"
        ran.append(words[0])
    return ran


def test_the_commands_of_the_guide_on_data_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "docs/guides/data.md"
    [line] = re.findall(r"^    (zcat .*)", (REPO / page).read_text(), flags=re.MULTILINE)
    subprocess.run(line, shell=True, cwd=folder, check=True)
    assert (folder / "uniref50.tsv").read_text().count("\n") == 60
    with object_store() as store:
        point_s3_at(store.endpoint, monkeypatch)
        put("s3://bucket/x.fa", (folder / "uniref90.fasta").read_bytes())
        put("s3://bucket/uniref/a.fasta.gz", (folder / "uniref50.fasta.gz").read_bytes())
        ran = _run(page, folder)
    assert ran.count("preprocess") >= 10
    assert {"stats", "inspect", "card"} <= set(ran)


def test_the_commands_of_the_guide_on_growing_datasets_run(folder: Path) -> None:
    table = "clusters_cluster.tsv"
    made = f"preprocess uniref50.fasta.gz --out data/uniref50 --clusters {table}"
    assert run_here(*made.split(), where=folder).returncode == 0
    ran = _run("docs/guides/growing.md", folder)
    assert ran.count("append") == 4
    assert {"preprocess", "generations", "compact", "gc"} <= set(ran)


def test_the_commands_of_the_guide_on_the_service_run(folder: Path) -> None:
    page = "docs/guides/service.md"
    commands = [words for _, *words in shell_commands(page, "thdpack")]
    assert [words[0] for words in commands] == ["preprocess", "watch", "watch"]
    for words in (commands[0], [*commands[2][: commands[2].index("#")], "--settle", "0"]):
        done = run_here(*words[: words.index("#")] if "#" in words else words, where=folder)
        assert done.returncode == 0, done.stderr
    shown = run_here("generations", "data/uniref50", "--json", where=folder).stdout
    assert shown.count('"generation"') == 2
