"""`thdpack append`: a dataset that grows keeps the records that one build of all inputs has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.build.hash_index.index_state import read_state
from pipeline.storage.local_folder import LocalFolder
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.data.damaged_datasets import deep, shallow
from tests.helpers.data.growth import OPTIONS, SIZES, grow, sequences, statuses, write_inputs
from tests.helpers.processes.command_line import Run, use_few_small_tasks

INPUTS = 5
STEPS = ([1, 1, 1, 1, 1], [2, 3], [1, 4], [4, 1])
"""Numbers of inputs that each step adds."""


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"), INPUTS)


@pytest.mark.parametrize("runs", ["one", "many"])
@pytest.mark.parametrize("long", ["truncate", "split", "crop", "drop"])
def test_appends_in_any_number_of_steps_give_the_records_and_sequences_of_one_build(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    inputs: list[Path],
    tmp_path: Path,
    long: str,
    runs: str,
) -> None:
    """With `many`, a partition does not fit into memory and is read in several runs."""
    if runs == "many":
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 5_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 4_000)
    options = (*OPTIONS, "--long", long, "--variants", 2)
    whole = grow(run, inputs, tmp_path / "whole", [INPUTS], *options)
    for number, steps in enumerate(STEPS):
        out = grow(run, inputs, tmp_path / str(number), steps, *options)
        assert statuses(out) == statuses(whole)
        for variant in range(2):
            assert sequences(out, variant) == sequences(whole, variant)
        assert shallow(out) == deep(out) == []
        manifest, expected = read_manifest(out), read_manifest(whole)
        assert manifest.generation == len(steps)
        assert manifest.inputs == expected.inputs
        assert manifest.records_by_status == expected.records_by_status
        assert manifest.residue_counts == expected.residue_counts


def test_earlier_generations_keep_their_files_and_manifests(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:2], tmp_path / "out", [2], *OPTIONS)
    before, first = digest(out), read_manifest(out)
    run("append", out, *inputs[2:], **SIZES)
    after, second = digest(out), read_manifest(out)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"manifest.json"}
    assert after["generations/1.json"] == before["manifest.json"]
    assert second.parent == first.digest
    assert [entry.digest for entry in second.history] == [first.digest]


def test_inputs_that_the_dataset_has_are_skipped(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    """An input is also skipped if only its name differs."""
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    before = digest(out)
    renamed = tmp_path / "renamed.fasta"
    renamed.write_bytes(inputs[0].read_bytes())
    done = run("append", out, inputs[1], renamed, **SIZES)
    assert "generation 2 already has all inputs; nothing to do" in done.stdout
    assert digest(out) == before
    run("append", out, inputs[1], inputs[2], **SIZES)
    names = [entry.name for entry in read_manifest(out).inputs]
    assert names == ["0.fasta", "1.fasta", "2.fasta"]


def test_inputs_of_the_same_name_but_other_content_get_a_suffix(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    for number in (1, 2):
        other = tmp_path / "0.fasta"
        other.write_bytes(inputs[number].read_bytes())
        run("append", out, other, **SIZES)
    names = [entry.name for entry in read_manifest(out).inputs]
    assert names == ["0.fasta", "0.fasta~1", "0.fasta~2"]
    assert deep(out) == []


def test_an_append_without_a_new_sequence_still_lists_its_records(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:2], tmp_path / "out", [2], *OPTIONS)
    first = read_manifest(out)
    copies = tmp_path / "copies.fasta"
    copies.write_text(inputs[0].read_text().replace(">", ">again-"))
    run("append", out, copies, **SIZES)
    manifest = read_manifest(out)
    assert manifest.shards == first.shards
    assert sum(manifest.records_by_status.values()) > sum(first.records_by_status.values())
    assert manifest.records_by_status["kept"] == first.records_by_status["kept"]
    assert shallow(out) == deep(out) == []


def test_a_dry_run_names_the_next_generation_and_writes_nothing(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    before = digest(out)
    done = run("append", out, *inputs[1:3], "--dry-run", **SIZES)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("1.fasta (an input of the dataset has this size)")
    assert lines[1].endswith("2.fasta")
    assert f"would add generation 3 to {out}" in lines
    dna = tmp_path / "dna.fasta"
    dna.write_text(">a\n" + "ACGT" * 300 + "\n")
    for path, code, said in (
        (dna, 1, "looks like nucleotides"),
        (tmp_path / "no.fasta", 2, "no such file"),
    ):
        done = run("append", out, path, "--dry-run", **SIZES)
        assert done.returncode == code
        assert said in done.stderr
    assert digest(out) == before


def test_without_deduplication_copies_are_kept(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    options = (*OPTIONS, "--dedup", "none")
    whole = grow(run, inputs, tmp_path / "whole", [INPUTS], *options)
    out = grow(run, inputs, tmp_path / "out", [2, 2, 1], *options)
    assert statuses(out) == statuses(whole)
    assert sequences(out, 0) == sequences(whole, 0)
    assert not (out / "index").exists()
    assert deep(out) == []


@pytest.mark.parametrize("damage", ["missing", "changed", "no list"])
def test_a_damaged_index_is_rebuilt(
    run: Run, inputs: list[Path], tmp_path: Path, damage: str
) -> None:
    whole = grow(run, inputs[:3], tmp_path / "whole", [3], *OPTIONS)
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    for path in sorted((out / "index").iterdir()):
        if (path.suffix == ".json") != (damage == "no list"):
            continue
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content) if damage != "missing" else path.unlink()
    run("append", out, inputs[2], **SIZES)
    assert statuses(out) == statuses(whole)


def test_an_index_of_many_runs_finds_the_same_duplicates(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first append writes several runs, which stay. Runs of later appends are merged."""
    inputs = write_inputs(tmp_path, 7)
    whole = grow(run, inputs, tmp_path / "whole", [7], *OPTIONS)
    monkeypatch.setattr("pipeline.build.append.update_index.ROWS_APART", 100)
    out = grow(run, inputs[:5], tmp_path / "out", [4, 1], *OPTIONS)
    first = read_state(LocalFolder(out, scratch=out), read_manifest(out).records).runs
    assert len(first) > 1
    assert all(each.apart for each in first)
    monkeypatch.setattr("pipeline.build.append.update_index.ROWS_APART", 10_000)
    monkeypatch.setattr("pipeline.build.append.update_index.MOST_SMALL", 1)
    for path in inputs[5:]:
        assert run("append", out, path, **SIZES).returncode == 0
    runs = read_state(LocalFolder(out, scratch=out), read_manifest(out).records).runs
    assert runs[: len(first)] == first
    [merged] = runs[len(first) :]
    assert not merged.apart
    assert statuses(out) == statuses(whole)
    assert sequences(out, 0) == sequences(whole, 0)


def test_new_records_are_compared_with_the_same_excluded_sequences(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    held_out = tmp_path / "held-out.fasta"
    held_out.write_bytes(b"".join(path.read_bytes()[:1500] for path in inputs))
    exclude = ("--exclude", held_out)
    whole = tmp_path / "whole"
    assert run("preprocess", *inputs, "--out", whole, *OPTIONS, *exclude, **SIZES).returncode == 0
    out = grow(run, inputs[:2], tmp_path / "out", [2], *OPTIONS, *exclude)
    before = digest(out)
    done = run("append", out, *inputs[2:], **SIZES)
    assert done.returncode == 1
    assert "give --exclude held-out.fasta" in done.stderr
    assert digest(out).items() >= before.items()
    for path in inputs[2:]:
        assert run("append", out, path, *exclude, **SIZES).returncode == 0
    assert statuses(out) == statuses(whole)
    assert sequences(out, 0) == sequences(whole, 0)
    assert deep(out) == []
    assert run("compact", out, *inputs, *exclude, **SIZES).returncode == 0
    named = {entry.name for entry in read_manifest(out).files()}
    assert {name: digest(out)[name] for name in named}.items() <= digest(whole).items()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--dedup", "cropped"), "was built with --dedup cropped, which append does not support"),
        (("--sample-clusters", "{table}"), "built with --sample-clusters, which append does not"),
        (("--exclude", "{ids}"), "a list of ids or a result table of --exclude"),
    ],
)
def test_options_under_which_old_records_could_change_are_refused(
    run: Run, inputs: list[Path], tmp_path: Path, options: tuple[str, str], said: str
) -> None:
    names = [line[1:].split()[0] for line in inputs[0].read_text().splitlines() if line[0] == ">"]
    (tmp_path / "table.tsv").write_text("".join(f"{names[0]}\t{name}\n" for name in names[:4]))
    (tmp_path / "ids.txt").write_text("\n".join(names[:3]) + "\n")
    value = options[1].format(table=tmp_path / "table.tsv", ids=tmp_path / "ids.txt")
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS, options[0], value)
    again = (options[0], value) if options[0] == "--exclude" else ()
    done = run("append", out, inputs[1], *again, **SIZES)
    assert done.returncode == 1
    assert said in done.stderr
    assert read_manifest(out).generation == 1
