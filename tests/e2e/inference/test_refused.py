"""Models, options and folders that `thdpack embed` refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess, run_here
from tests.helpers.processes.inference import (
    close,
    embed,
    hidden_states,
    rows,
    saved_model,
    started,
)
from tests.helpers.processes.ranks import TRAIN, Job
from tests.helpers.processes.runs import OPTIONS

RECORDS = made_records(60, longest=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    saved_model(folder)
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "made.fasta").write_bytes(fasta(RECORDS))
    words = "--capacity 256 --max-seq-len 64 --split train=0.8,valid=0.2"
    return preprocess(folder / "made.fasta", folder / "dataset", *words.split())


def refused(*words: object) -> tuple[int, str]:
    """Return the exit code and the output of a command that fails."""
    with started(*words) as job:
        code = job.wait()
        said = job.said
    assert code != 0, said
    assert "Traceback" not in said, said
    return code, said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--layers 3", "--layers is 3, expected numbers from 0 to 2, or last"),
        ("--layers x", "--layers is x, expected numbers from 0 to 2"),
        ("--pooling max", "--pooling is max, expected mean, cls, residues"),
        ("--precision fp8", "--precision fp8 needs a GPU of compute capability 8.9"),
        ("--row-tokens 128 --max-seq-len 200", "--row-tokens is 128, expected at least 200"),
        ("--overlap 62", "--overlap is 62, expected less than 62"),
        ("--poling mean", "did you mean --pooling?"),
        ("--format csv", "expected parquet or arrow"),
    ],
)
def test_a_wrong_option_is_named(
    model: Path, dataset: Path, tmp_path: Path, words: str, message: str
) -> None:
    found, said = refused(model, dataset, "--out", tmp_path / "out", *words.split())
    assert message in said
    assert found == 2
    assert not (tmp_path / "out").exists()


def test_missing_data_and_a_remote_destination_are_named(model: Path, tmp_path: Path) -> None:
    code, said = refused(model, "--out", tmp_path / "out")
    assert said == "thdpack embed: DATA is missing: name a dataset or FASTA files after MODEL\n"
    assert code == 2
    code, said = refused(model, "d", "--out", "s3://bucket/out")
    assert "--out is s3://bucket/out, a URL: use a local folder, and copy it to the store" in said
    assert code == 2
    code, said = refused(model, "d", "--out", "a/b.npy")
    assert "--out is a/b.npy, the name of a file, but the results are a folder of files: " in said
    assert said.endswith("choose a folder, such as a/b\n")
    assert code == 2


def test_folders_without_a_model_are_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, said = refused(tmp_path / "empty", dataset, "--out", tmp_path / "out")
    assert code == 1
    assert f"{tmp_path / 'empty'}: the folder has no config.json: give the folder of" in said
    assert "Errno" not in said
    _, said = refused(tmp_path / "none", dataset, "--out", tmp_path / "out")
    assert f"{tmp_path / 'none'}: no such folder: give the folder of a model" in said
    _, said = refused(dataset, dataset, "--out", tmp_path / "out")
    assert f"{dataset}: this is a dataset, not a model; give the folder of a model" in said


def test_a_refused_command_leaves_the_results_of_other_inputs_alone(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name, residues in (("one", "MKLV"), ("two", "MKLI"), ("longer", "MKLVA")):
        (tmp_path / f"{name}.fasta").write_text(f">a\n{residues}\n")
    embed(model, tmp_path / "one.fasta", "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, said = refused(model, tmp_path / "two.fasta", "--out", out)
    assert f"{out} holds results of another run: DATA was different. Use" in said
    assert code == 2
    # these need no temporary dataset, whose build would print its progress
    code, said = refused(model, tmp_path / "longer.fasta", "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    code, said = refused(model, tmp_path / "two.fasta", "--out", out, "--pooling", "cls")
    assert "another run: --pooling was mean, and is now cls. Use" in said
    assert (code, said.count("\n")) == (2, 1)
    said = embed(model, tmp_path / "one.fasta", "--out", out)
    assert said == f"{out} is complete already: nothing to do\n"
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_corrected_command_uses_the_folder_of_a_refused_command(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.fasta").write_bytes(fasta([RECORDS[0]]))
    words = (model, tmp_path / "one.fasta", "--out", tmp_path / "out")
    for option in ("--row-tokens 100", "--overlap 1022", "--generation 1"):
        code, said = refused(*words, *option.split())
        assert (code, said.count("\n")) == (2, 1)  # without the progress of a build
        assert not (tmp_path / "out").exists()
    # only a temporary dataset shows whether the cache suffices
    code, said = refused(*words, "--cache-dir", "/proc/cache")
    assert "the disk has 0 bytes of free space" in said
    assert [path.name[:9] for path in (tmp_path / "out").iterdir()] == [".dataset-"]
    (tmp_path / "one.fasta").write_bytes(fasta(RECORDS[1:3]))  # the FASTA is corrected, too
    embed(*words)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".json"}
    assert len(rows(tmp_path / "out")) == 2


def test_inputs_that_are_no_sequences_are_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a --b.fasta").write_text("hello, you\n")
    code, said = refused(model, tmp_path / "a --b.fasta", "--out", tmp_path / "out")
    assert code == 1
    assert f"\nthdpack embed: {tmp_path}/a --b.fasta:1: " in f"\n{said}"
    assert "(only `thdpack preprocess` has --format: build a dataset with it" in said
    (tmp_path / "genes.fasta").write_text(f">a\n{20 * 'ACGT'}\n")
    code, said = refused(model, tmp_path / "genes.fasta", "--out", tmp_path / "out")
    assert said.startswith(f"thdpack embed: {tmp_path}/genes.fasta: looks like nucleotides (")
    assert said.endswith(
        "or give --allow-nucleotides (only `thdpack preprocess` has --allow-nucleotides: build a "
        "dataset with it, and give the dataset as DATA)\n"
    )
    assert (code, said.count("\n")) == (1, 1)
    code, said = refused(model, "-", "--out", tmp_path / "out")
    assert "DATA is standard input: write the FASTA to a file first" in said
    assert code == 2


def test_the_columns_of_a_table_can_be_named_as_the_error_says(
    model: Path, dataset: Path, tmp_path: Path
) -> None:
    lines = [f"p{number},{RECORDS[number][1]}" for number in range(3)]
    (tmp_path / "table.csv").write_text("\n".join(["name,seq", *lines, ""]))
    words = (model, tmp_path / "table.csv", "--out", tmp_path / "out")
    _, said = refused(*words)
    assert "no column 'sequence' in the header line, which has name, seq" in said
    assert said.endswith("choose one of these columns with --sequence-column\n")
    embed(*words, "--sequence-column", "seq", "--id-column", "name")
    assert [row["id"] for row in rows(tmp_path / "out")] == ["p0", "p1", "p2"]
    code, said = refused(model, dataset, "--out", tmp_path / "other", "--id-column", "name")
    assert "--id-column is for tables, but DATA is a dataset: remove the option" in said
    assert code == 2


def test_a_folder_with_other_files_is_refused(model: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    code, said = refused(model, dataset, "--out", tmp_path)
    assert said == (
        f"thdpack embed: --out {tmp_path} is neither empty nor a folder of `thdpack embed` or "
        f"`thdpack score` (it holds notes.txt): choose a new folder, such as {tmp_path}/results\n"
    )
    assert code == 2
    code, said = refused(model, dataset, "--out", tmp_path / "notes.txt")
    assert f"--out {tmp_path}/notes.txt is a file, expected a folder: choose another" in said
    assert code == 2


def test_results_of_another_command_are_not_continued(
    model: Path, dataset: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed(model, dataset, "--out", out, "--row-tokens", 128)
    other = tmp_path / "other"
    shutil.copytree(model, other)
    saved_model(other, seed=1)
    code, said = refused(other, dataset, "--out", out, "--dtype", "fp16", "--layers", "1")
    assert code == 2
    assert f"{out} holds results of another run: the weights of MODEL were different; " in said
    assert "--layers was 2, and is now 1; --dtype was fp32, and is now fp16. Use the same" in said


def test_a_cache_on_a_full_disk_is_refused_before_any_work(
    model: Path, dataset: Path, tmp_path: Path
) -> None:
    # /proc has no free space, and nothing can be written there
    words = (model, dataset, "--out", tmp_path / "out", "--cache-dir", "/proc/cache")
    code, said = refused(*words)
    assert "thdpack embed: /proc/cache: the disk has 0 bytes of free space, but the cache" in said
    assert code == 1
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_on_a_dataset_that_grew_names_the_generation_to_continue(
    model: Path, dataset: Path, tmp_path: Path
) -> None:
    shutil.copytree(dataset, tmp_path / "dataset")
    words = (model, tmp_path / "dataset", "--out", tmp_path / "out")
    embed(*words)
    whole = rows(tmp_path / "out")
    (tmp_path / "out" / ".parts").mkdir()  # as if the run had been interrupted
    (tmp_path / "out" / "run.json").rename(tmp_path / "out" / ".parts" / "settings.json")
    (tmp_path / "more.fasta").write_bytes(fasta(made_records(70, longest=60)))
    assert run_here("append", tmp_path / "dataset", tmp_path / "more.fasta").returncode == 0
    code, said = refused(*words)
    assert code == 2
    assert said == (
        f"thdpack embed: {tmp_path / 'out'} holds results of generation 1 of DATA, but this "
        "command reads generation 2. To use generation 1, add --generation 1. To use generation "
        "2, choose another --out\n"
    )
    embed(*words, "--generation", 1)
    assert rows(tmp_path / "out") == whole


def test_the_model_of_a_run_is_its_export_or_its_last_checkpoint(
    dataset: Path, tmp_path: Path
) -> None:
    from transformers import EsmForMaskedLM

    run = tmp_path / "run"
    words = ["esm2-8m", "--data", dataset, "--out", run, *OPTIONS, "--steps", "2"]
    Job(TRAIN, [str(word) for word in words]).finish()
    exported = EsmForMaskedLM.from_pretrained(run / "export").eval()
    embed(run, dataset, "--out", tmp_path / "a")
    shutil.rmtree(run / "export")
    said = embed(run, dataset, "--out", tmp_path / "b")
    assert f"model {run} (step 2)" in said
    assert "Warning" not in said
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    for row, (_, residues) in zip(rows(tmp_path / "a"), RECORDS, strict=True):
        if row["used_residues"]:
            states = hidden_states(exported, residues)
            close(row[f"mean_{len(states) - 1}"], states[-1][1:-1].mean(0))
