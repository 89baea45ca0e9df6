"""The command line of `thdpack score`."""

from __future__ import annotations

import pytest

from trainer.config.score_options import parse_score


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "m --out o",
            "DATA is missing: give a dataset or FASTA files, or a table with --mutations",
        ),
        ("m d --out o --mutations t.csv", "--mutations scores the mutants of a table: remove DATA"),
        ("m d --out o --masked --contacts", "--masked and --contacts cannot be used together"),
        ("m d --out o --marginals masked", "--marginals needs --mutations TABLE: to mask residues"),
        ("m d --out o --measured a", "--measured needs --mutations TABLE"),
        ("m d --out o --wild-type a", "--wild-type needs --mutations TABLE"),
        ("m d --out o --overwrite", "--overwrite needs --mutations TABLE"),
        ("m --out o --mutations t.csv --generation 1", "--generation is for DATA"),
        ("m --out o --mutations t.csv --cache-dir c", "--cache-dir is for DATA"),
        ("m --out o --mutations t.csv --id-column c", "--id-column is for DATA"),
        ("m d --out o --generation x", "--generation is x, expected the number"),
        ("m d --out o --contacts --format arrow", "--format is for scores: --contacts writes .npy"),
        ("m d --out s3://bucket/o", "--out is s3://bucket/o, a URL: use a local folder"),
        ("m d --out so.parquet", "--out is so.parquet, the name of a file, but the results are a"),
        (
            "m --mutations t --out s.tsv",
            "OUT is a CSV file: choose a name that ends with .csv",
        ),
        ("m --out o --mutations t.csv --masked", "use --marginals masked"),
        ("m --out o --mutations t.csv --contacts", "--contacts is for DATA"),
        ("m --out o --mutations t.csv --format arrow", "--format is for DATA"),
        ("m --out o --mutations s3://b/t.csv", "--mutations is s3://b/t.csv, a URL"),
        ("m --out o --mutations t.csv --overlap -1", "--overlap is -1, expected at least 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_score(words.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.startswith("thdpack score: ")
    assert error in said
    assert said.count("\n") == 1


def test_data_or_a_table_is_enough() -> None:
    assert parse_score(["m", "a", "b", "--out", "o"]).data == ("a", "b")
    assert parse_score(["m", "--mutations", "t.csv", "--out", "o"]).data == ()
