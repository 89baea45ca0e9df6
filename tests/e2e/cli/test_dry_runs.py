"""A dry run writes nothing, and finds the faults of the inputs' first records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.data.growth import OPTIONS, SIZES, grow, write_inputs
from tests.helpers.processes.command_line import Run, preprocess

FASTA = fasta(made_records(30))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(FASTA)
    return path


def test_a_dry_run_of_plan_tasks_prints_the_stages_and_writes_nothing(
    run: Run, corpus: Path
) -> None:
    out = corpus.parent / "out"
    done = run("plan-tasks", corpus, "--out", out, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "would write a task list: 1 map task, 1 reduce task\n" in done.stdout
    as_json = run("plan-tasks", corpus, "--out", out, "--dry-run", "--log-json")
    assert '"stages": {"map": 1, "reduce": 1}' in as_json.stdout
    refused = run("plan-tasks", "-", "--out", out, "--dry-run")
    assert refused.returncode == 2
    assert not out.exists()


@pytest.mark.parametrize("command", ["preprocess", "plan-tasks"])
def test_a_dry_run_refuses_an_out_that_cannot_be_written_as_the_build_does(
    run: Run, corpus: Path, command: str
) -> None:
    (linked := corpus.parent / "linked").mkdir()
    (linked / "train").symlink_to(corpus.parent)
    # root passes the permissions of /proc, but nothing can be created there
    for out in (Path("/proc/thdpack"), corpus / "out" / "inner", linked):
        real = run(command, corpus, "--out", out)
        dry = run(command, corpus, "--out", out, "--dry-run")
        assert (dry.returncode, dry.stdout, dry.stderr) == (1, "", real.stderr)
        assert real.returncode == 1
        assert "choose another --out\n" in dry.stderr
    assert sorted(path.name for path in corpus.parent.iterdir()) == ["linked", "made.fasta"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--executor ray", "no option --executor: a scheduler runs planned tasks, so this option"),
        ("--ray-address auto", "no option --ray-address: a scheduler runs planned tasks"),
        ("--workers 2", "no option --workers: a scheduler runs planned tasks; `thdpack commit`"),
        ("-j 2", "no option -j: a scheduler runs planned tasks; `thdpack commit` has this option"),
        ("--scratch /tmp", "no option --scratch: other machines run the tasks"),
    ],
)
def test_plan_tasks_refuses_options_that_do_not_apply_and_its_help_leaves_them_out(
    run: Run, corpus: Path, words: str, said: str
) -> None:
    done = run("plan-tasks", corpus, "--out", corpus.parent / "out", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"thdpack plan-tasks: {said}")
    assert f" {words.split()[0]} " not in run("plan-tasks", "--help").stdout


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.fasta", b"", ": the file is empty"),
        ("x.csv", b"", ": the file is empty"),
        ("x.parquet", b"", ": the file is empty"),
        ("x.fasta.gz", gzip.compress(b"", mtime=0), ": the file is empty after decompression"),
        ("x.csv.gz", gzip.compress(b"", mtime=0), ": the file is empty after decompression"),
        ("x.fasta", b"##gff-version 3\nchr1\t.\tgene\t1\t9\n", ":1: not FASTA but a GFF file: "),
        ("x.gff", b"##gff-version 3\nchr1\t.\tgene\t1\t9\n", ":1: not FASTA but a GFF file: "),
        ("x.fasta", b">a\n>b\n", ":2: no residue in this file"),
        ("x.fasta.gz", gzip.compress(FASTA, mtime=0)[:9], ": truncated gzip archive: "),
        ("x.fasta.gz", gzip.compress(FASTA, mtime=0)[:99], ": truncated gzip archive: "),
        ("x.swiss", b"hello\n", ":1: Biopython cannot read"),
    ],
)
def test_a_dry_run_gives_the_error_that_the_build_would_give(
    run: Run, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    lines = []
    for words in (("--dry-run",), ()):
        done = run("preprocess", path, "--out", tmp_path / "out", *words)
        assert done.returncode == 1
        [error] = [line for line in done.stderr.splitlines() if line.startswith("thdpack ")]
        lines.append(error)
    assert lines[0] == lines[1]
    assert lines[0].startswith(f"thdpack preprocess: {path}{said}")


def test_a_dry_run_names_the_option_that_leaves_out_a_faulty_file_of_a_folder(
    run: Run, corpus: Path
) -> None:
    (corpus.parent / "bad.fasta").write_bytes(b"##gff-version 3\n")
    out = corpus.parent.parent / f"{corpus.parent.name}-out"
    done = run("preprocess", corpus.parent, "--out", out, "--dry-run")
    assert done.returncode == 1
    assert "to leave this file out, give --ignore bad.fasta" in done.stderr


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"Dear reader, this is prose.\nNothing here.\n", "plain text, which begins with"),
        (b"Dear reader, this is prose.\nNothing, here.\n", "plain text, which begins with"),
        (b"Dear reader, hello\n", "plain text, which begins with"),
        (b"id,sequence\na,MKV\n", "CSV, a table of text"),
        (b'id,name,sequence\na,"x, y",MKV\nb,z,MK\n', "CSV, a table of text"),
        (b"Entry\tEntry Name\tSequence\nP1\tA_B\tMKV\n", "TSV, a table of text"),
    ],
)
def test_a_text_is_called_a_table_only_if_its_lines_have_the_same_number_of_cells(
    run: Run, tmp_path: Path, text: bytes, kind: str
) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(text)
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"not FASTA but {kind}" in done.stderr


def test_a_dry_run_of_train_finds_a_missing_and_a_truncated_shard(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainer.train import main

    dataset = preprocess(corpus, corpus.parent / "dataset")
    words = ["esm2-tiny", "--data", str(dataset), "--out", str(corpus.parent / "run"), "--dry-run"]
    main(words)
    shard = next((dataset / "train").iterdir())
    content = shard.read_bytes()
    for change, said in (
        (lambda: shard.write_bytes(content[:-1]), f"has {len(content) - 1:,} of {len(content):,} "),
        (shard.unlink, "missing; `thdpack verify"),
    ):
        change()
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 1
        assert f"{shard}: {said}" in capsys.readouterr().err


def test_a_dry_run_of_compact_compares_the_inputs_and_writes_nothing(
    run: Run, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 3)
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    before = digest(out)
    done = run("compact", out, *inputs[:2], "--dry-run")
    assert done.returncode == 0
    assert f"would rewrite 2 generations of {out} as one build" in done.stdout
    for given, said in (
        (inputs[:1], "1 input of the dataset not given, judged by size: 1.fasta"),
        (inputs, "not in the dataset, judged by size: 2.fasta"),
    ):
        done = run("compact", out, *given, "--dry-run")
        assert done.returncode == 1
        assert said in done.stderr
    assert digest(out) == before
    assert run("compact", out, *inputs[:2], **SIZES).returncode == 0
    assert "nothing to do" in run("compact", out, *inputs[:2], "--dry-run").stdout


def test_with_log_json_an_error_is_also_a_json_object(run: Run, tmp_path: Path) -> None:
    done = run("preprocess", tmp_path / "none.fasta", "--out", tmp_path / "d", "--log-json")
    assert done.returncode == 2
    [line] = done.stdout.splitlines()
    event = json.loads(line)
    assert (event["event"], event["command"]) == ("error", "thdpack preprocess")
    assert done.stderr == f"thdpack preprocess: {event['text']}\n"
