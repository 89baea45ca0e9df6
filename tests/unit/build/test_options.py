"""Options of builds: defaults, sizes, refused combinations, and names of inputs and URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.build.options import PreprocessOptions
from pipeline.cli.main import _run
from pipeline.inputs.find import find_sources, relative_names
from schemas.errors import InputError
from schemas.shard import slots_for
from schemas.text.byte_size import parse_bytes
from schemas.text.redact import holds_secret, without_credentials


def options(**changes: object) -> PreprocessOptions:
    return PreprocessOptions(inputs=("x",), out="y", **changes)  # type: ignore[arg-type]


def test_the_default_of_max_seqs_grows_with_the_capacity() -> None:
    assert options().most_seqs == 127
    assert options(capacity=65_536).most_seqs == 511
    assert options(capacity=65_536, max_seqs=9).most_seqs == 9


def test_the_method_shape_returns_options_that_change_the_bytes_and_no_other_options() -> None:
    shape = options().shape()
    assert {
        "capacity",
        "seed",
        "packer",
        "max_seqs",
        "split",
        "length_multiple",
        "format",
        "sequence_column",
    } <= set(shape)
    assert not {
        "inputs",
        "out",
        "ignore",
        "workers",
        "memory",
        "scratch",
        "overwrite",
        "dry_run",
        "log_json",
    } & set(shape)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("1.5GiB", 3 << 29), ("100", 100), ("1kb", 1024)],
)
def test_sizes_are_parsed(text: str, expected: int) -> None:
    assert parse_bytes(text, name="--memory") == expected


@pytest.mark.parametrize("text", ["", "lots", "-1G", "0", "inf", "nan"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text, name="--memory")


@pytest.mark.parametrize(
    ("most", "slots"), [(0, 32), (1, 32), (32, 32), (33, 64), (64, 64), (65, 128), (128, 128)]
)
def test_slots_are_a_power_of_two_of_at_least_32(most: int, slots: int) -> None:
    assert slots_for(most) == slots


def test_input_names_are_relative_to_the_common_folder_of_inputs_with_the_same_protocol() -> None:
    assert relative_names(["/a/b/x.fa", "/a/c/y.fa"]) == {
        "/a/b/x.fa": "b/x.fa",
        "/a/c/y.fa": "c/y.fa",
    }
    assert relative_names(["/a/b/x.fa"]) == {"/a/b/x.fa": "x.fa"}
    assert relative_names(["-"]) == {"-": "-"}
    assert relative_names(["/a/x.fa", "s3://k/d/x.fa", "s3://k/e.fa"]) == {
        "/a/x.fa": "file/x.fa",
        "s3://k/d/x.fa": "s3/d/x.fa",
        "s3://k/e.fa": "s3/e.fa",
    }


def test_input_names_contain_no_credentials_and_stay_distinct() -> None:
    urls = [
        "https://me:pw@host/d/x.fa?sig=1",
        "https://host/d/x.fa?sig=2",
        "https://host/d/y.fa?token=3",
    ]
    assert list(relative_names(urls).values()) == ["x.fa~1", "x.fa~2", "y.fa"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("https://me:pw@host/x?sig=1: gone", "https://host/x gone"),
        ("s3://AKIA:a/b+c@bucket/x", "s3://bucket/x"),
        ("s3://bucket/a@b/x.fa", "s3://bucket/a@b/x.fa"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("a letter? yes", "a letter? yes"),
        ("s3://AKIAX:7/abcdefSECRET@bucket/x", "s3://bucket/x"),
        ("'s3://AKIA:a/b+c@bucket/x' s3://b/y", "'s3://bucket/x' s3://b/y"),
        ("https://me:p@ssSECRET@host", "https://host"),
        ("https://me:p/ss?w@rd@host/x?sig=1", "https://host/x"),
        ("http://me:80@host/x", "http://host/x"),
        ("s3://bucket/part-?.fa: no object matches", "s3://bucket/part-?.fa: no object matches"),
        ("s3://bucket/a:b@c.fa", "s3://bucket/a:b@c.fa"),
        ("sftp://host:22/a@b", "sftp://host:22/a@b"),
        (
            "abfs://container@account.dfs.core.windows.net/x",
            "abfs://account.dfs.core.windows.net/x",
        ),
    ],
)
def test_urls_are_shown_without_credentials(said: str, shown: str) -> None:
    assert without_credentials(said) == shown


@pytest.mark.parametrize(
    "url",
    [
        "https://me@host/x",
        "https://host/x?sig=1",
        "@https://me:pw@host/list",
        "s3://AKIA:a/b@bucket/x",
        "sftp://me:pw@host/x",
    ],
)
def test_credentials_in_urls_are_recognized(url: str) -> None:
    assert holds_secret(url)


@pytest.mark.parametrize(
    "url",
    [
        "/a?b.fa",
        "s3://bucket/a?b.fa",
        "abfs://container@account.net/x",
        "sftp://me@host/x",
        "https://host:80/x",
        "s3://b/x?versionId=1",
    ],
)
def test_urls_without_credentials_are_not_mistaken_for_urls_with_credentials(url: str) -> None:
    assert not holds_secret(url)


@pytest.mark.parametrize("out", ["y", "file:///y", "local:///y"])
def test_the_option_scratch_is_refused_if_out_is_a_local_folder(out: str) -> None:
    with pytest.raises(ValueError, match="for --out in a store"):
        PreprocessOptions(inputs=("x",), out=out, scratch="/tmp")


def test_the_option_memory_is_refused_for_a_remote_ray_cluster() -> None:
    with pytest.raises(ValueError, match="give --workers instead"):
        options(memory="2G", executor="ray", ray_address="auto")
    assert options(memory="2G", executor="ray").memory == "2G"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["commit", "d", "--workers", "0"], "--workers is 0"),
        (
            ["plan-tasks", "x", "--out", "y", "--executor", "ray", "--ray-address", "auto"],
            "no option --executor: a scheduler runs planned tasks",
        ),
        (
            ["plan-tasks", "x", "--out", "s3://b/y", "--scratch", "/tmp"],
            "other machines run the tasks, and cannot read a folder of this machine",
        ),
    ],
)
def test_commands_of_task_lists_refuse_invalid_or_unsupported_options(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = _run(arguments)
    except SystemExit as leaving:  # raised by tyro
        code = leaving.code
    assert code == 2
    assert said in "".join(capsys.readouterr())


def test_a_list_of_inputs_cannot_name_standard_input(tmp_path: Path) -> None:
    (tmp_path / "files.txt").write_text("# what we have\n-\n")
    with pytest.raises(InputError, match=r"standard input .* on the command line"):
        find_sources((f"@{tmp_path}/files.txt",), "auto", spool=None)
