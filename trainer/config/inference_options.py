"""Options of `thdpack embed` and `thdpack score`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Optional, TypeVar

import tyro

from schemas.text.byte_size_option import ByteSize
from schemas.text.generation import parse_generation
from schemas.text.option_checks import LOCAL_CACHE, check_local, check_range
from schemas.text.option_help import (
    InvalidOptionError,
    own_errors,
    refuse_foreign_options,
    suggest_choices,
    with_flowing_help,
)
from schemas.text.option_words import check_words, one_line_errors
from trainer.config.compute_options import Backend
from trainer.config.other_trainers import OTHERS_OF_TORCHRUN

Options = TypeVar("Options", bound="InferenceOptions")
_LOCAL_RESULTS: Final = (
    "use a local folder, and copy it to the store with a command such as `aws s3 sync FOLDER URL`"
)
FILE_ENDINGS: Final = (
    *(".arrow", ".csv", ".feather", ".h5", ".json", ".npy"),
    *(".npz", ".parquet", ".pt", ".safetensors", ".tsv"),
)
"""Endings of the names of files, which a folder of results should not have."""
Dtype = Literal["fp32", "fp16", "bf16"]
Format = Literal["parquet", "arrow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceOptions:
    """Model, data and computation."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """Folder of a run of `thdpack train`, of an export of a run, or of published ESM-2 weights in
    the format of Hugging Face. For a run, the model of its last step is used."""
    data: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA")]
    """A dataset that `thdpack preprocess` wrote (folder or URL), or FASTA files or tables (Parquet,
    Arrow, CSV, TSV)."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder to write to. If it holds an interrupted run of the same command, that run
    continues."""
    max_seq_len: int = 0
    """Maximum number of tokens that the model sees at once, <cls> and <eos> included. Longer
    sequences are cut into windows. 0: 1024 for FASTA, and for a dataset its own --max-seq-len."""
    overlap: Optional[int] = None  # noqa: UP045 (tyro needs 0.1 s to understand `int | None`)
    """Number of residues that two neighbouring windows of a long sequence share, at least. A
    residue in an overlap takes its result from the window in which it is farther from the ends.
    Default: 256, or half a window if that is less."""
    row_tokens: int = 0
    """Number of tokens in a forward pass. Sequences are packed into rows of this length. 0: 65536
    on a GPU, 4096 on a CPU."""
    backend: Backend = "auto"
    """Implementation of the layers; see `thdpack train PRESET --help`."""
    precision: Literal["auto", "fp32", "bf16", "fp8"] = "auto"
    """Precision of matrix products. auto: bf16 on a GPU, fp32 on a CPU. fp8 is faster and less
    exact. It needs backend te, and a GPU of compute capability 8.9 or above (Ada, Hopper,
    Blackwell). docs/guides/inference.md has the errors."""
    format: Format = "parquet"
    """Format of the output files."""
    sequence_column: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """Name of the column with the residues, if DATA is a table. Default: sequence."""
    id_column: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """Name of the column with record ids, if DATA is a table. Default: id, and if the table has
    none, Entry or accession."""
    generation: Annotated[str, tyro.conf.arg(metavar="N|latest")] = ""
    """Generation of the dataset to read: latest, or a number or digest that `thdpack generations`
    prints. Default: latest. If the dataset has grown since an interruption, give the generation
    that the run began with."""
    cache_dir: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """Folder on a local disk, to cache shards of a remote dataset. Default:
    $XDG_CACHE_HOME/thdpack, usually ~/.cache/thdpack. A dataset at a local path is cached only if
    this option is given."""
    cache_bytes: ByteSize = 32 << 30
    """Maximum total size of the shards in --cache-dir, in bytes or for example 20G."""

    def __post_init__(self) -> None:
        check_local("--cache-dir", self.cache_dir, LOCAL_CACHE)
        if self.generation:
            parse_generation(self.generation, name="--generation")
        check_range(self, "max_seq_len", "row_tokens", least=0)
        if self.overlap is not None:
            check_range(self, "overlap", least=0)
        if 0 < self.max_seq_len < 3:
            raise ValueError(f"--max-seq-len is {self.max_seq_len}, expected at least 3")

    @property
    def columns(self) -> tuple[str, ...]:
        """Options of `thdpack preprocess` that name the columns of tables."""
        given = {"--sequence-column": self.sequence_column, "--id-column": self.id_column}
        return tuple(word for pair in given.items() if pair[1] for word in pair)

    def check_out(self) -> None:
        """Refuse an --out that is no local folder, or is named like a file.

        Raises:
            ValueError: see above.
        """
        check_local("--out", self.out, _LOCAL_RESULTS)
        out = Path(self.out)
        if out.suffix.lower() in FILE_ENDINGS and not out.is_dir():
            raise ValueError(
                f"--out is {out}, the name of a file, but the results are a folder of files: "
                f"choose a folder, such as {out.with_suffix('')}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedOptions(InferenceOptions):
    """Options of `thdpack embed`."""

    pooling: str = "mean"
    """Kinds of embeddings, separated by commas. mean: mean over the residues of a record. cls: the
    hidden state of <cls>. residues: the hidden state of each residue."""
    layers: str = "last"
    """Layers whose hidden states are taken, separated by commas, numbered as in transformers'
    `hidden_states`: 0 is the embedding, and `last` is the output of the last layer."""
    dtype: Dtype = "fp32"
    """Dtype of the embeddings in the output files. bf16 is stored as uint16, because Arrow and
    Parquet have no bf16."""

    def __post_init__(self) -> None:
        InferenceOptions.__post_init__(self)
        self.check_out()
        if not self.data:
            raise ValueError("DATA is missing: name a dataset or FASTA files after MODEL")


def parse_embed(words: Sequence[str]) -> EmbedOptions:
    """Return the options of `thdpack embed`; see `parse`."""
    return parse(
        words,
        EmbedOptions,
        "thdpack embed",
        "Compute embeddings with a trained model.\n\n"
        "Example: thdpack embed runs/esm2-8m proteins.fasta --out embeddings",
    )


def parse(words: Sequence[str], options: type[Options], prog: str, description: str) -> Options:
    """Return the options of a command line.

    Raises:
        SystemExit: the command line asks for --help (code 0) or is wrong (code 2).
    """
    with_flowing_help(options)
    try:
        refuse_foreign_options(words, OTHERS_OF_TORCHRUN, takes_files=True)
        check_words(words, options, prog=prog)
        suggest_choices(words, options)
        with own_errors(*options.__mro__[:-1]), one_line_errors():
            return tyro.cli(
                options,
                prog=prog,
                description=description,
                args=list(words),
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except InvalidOptionError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
