"""Measure how much slower a build is if it applies --where, or if it reads UniRef headers.

    python -m benchmarks.offline.filters swissprot.fasta uniref.fasta
    python -m benchmarks.offline.filters swissprot.fasta uniref.fasta --where "length > 50"
    python -m benchmarks.offline.filters swissprot.fasta uniref.fasta --unknown-headers other.fasta

Each command copies the first FASTA file to the second, unless the second file exists. The copy has
generated UniRef50 headers of about 128 bytes. The first two commands build from the copy, with a
filter and without. The third command measures the cost of reading the values in headers. It also
writes a file of the same size whose headers have an unknown format, and builds from both files.
Each command alternates its two kinds of build.
"""

from __future__ import annotations

import mmap
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import tyro

NAMES: Final = (
    "Uncharacterized protein",
    "DNA-directed RNA polymerase subunit beta",
    "Peptidylprolyl isomerase",
    "Glycosyltransferase family 2 protein (Fragment)",
)
GENERA: Final = ("Escherichia", "Bacillus", "Homo", "Streptomyces", "Candidatus Pelagibacter")
SPECIES: Final = ("coli", "subtilis", "sapiens", "sp.", "adhaerens")
STRAINS: Final = 60
MEMORY: Final = 4
"""Upper limit of a build's memory (mostly cached files), as a multiple of the size of its FASTA."""
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Time builds with and without a filter."""

    source: Annotated[Path, tyro.conf.Positional]
    """FASTA whose residues are used."""
    made: Annotated[Path, tyro.conf.Positional]
    """FASTA with generated headers; written if it does not exist."""
    where: str = "taxid between 100 and 1000 and not fragment and cluster_size > 1"
    """Filter to time."""
    unknown_headers: Path | None = None
    """Compare with this FASTA file, whose headers state no value, instead of timing a filter. The
    file is written if it does not exist."""
    rounds: int = 5
    """Number of timed builds of each kind, after one warm-up build."""


def write_made_headers(source: Path, made: Path) -> None:
    """Copy a FASTA file, and replace its headers by generated UniRef50 headers."""
    rng = random.Random(0)
    with source.open() as lines, made.open("w") as out:
        for line in lines:
            out.write(header(rng) if line.startswith(">") else line)


def header(rng: random.Random) -> str:
    accession = "A0A" + "".join(rng.choices(LETTERS, k=7))
    genus, species = rng.randrange(len(GENERA)), rng.randrange(len(SPECIES))
    strain = rng.randrange(STRAINS)
    organism = f"{GENERA[genus]} {SPECIES[species]}" + (f" strain {strain}" if strain else "")
    taxid = 100 + (genus * len(SPECIES) + species) * STRAINS + strain
    return (
        f">UniRef50_{accession} {rng.choice(NAMES)} n={rng.randint(1, 300)} Tax={organism} "
        f"TaxID={taxid} RepID={accession}_{GENERA[genus][:5].upper()}\n"
    )


def use_memory(size: int) -> None:
    """Use `size` bytes of memory, and free them.

    A virtual machine may have given its free memory back to the host. The next build would then
    spend CPU time to get memory again.
    """
    np.zeros(size, dtype=np.uint8)[:: mmap.PAGESIZE] = 1


def build(fasta: Path, where: str | None) -> float:
    """Build a dataset; return the seconds."""
    use_memory(MEMORY * fasta.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [sys.executable, "-m", "pipeline", "preprocess", str(fasta), "--out", str(out)]
        began = time.perf_counter()
        subprocess.run(
            [*words, *(("--where", where) if where else ())], check=True, capture_output=True
        )
        seconds = time.perf_counter() - began
        shutil.rmtree(out)
    return seconds


def write_unknown_headers(made: Path, other: Path) -> None:
    """Copy a FASTA file, and change its UniRef50 headers to headers of an unknown format."""
    with made.open() as lines, other.open("w") as out:
        out.writelines(line.replace(">UniRef50_", ">Cluster5_", 1) for line in lines)


def compare(rounds: int, first: tuple[Path, str | None], second: tuple[Path, str | None]) -> None:
    """Print times of two builds, and the speed of the second relative to the first.

    Args:
        first, second: input and filter of each build.
    """
    build(*second)
    times: dict[tuple[Path, str | None], list[float]] = {first: [], second: []}
    for _ in range(rounds):
        for kind, found in times.items():
            found.append(build(*kind))
    for (fasta, where), found in times.items():
        middle = statistics.median(found)
        speed = fasta.stat().st_size / 1e6 / middle
        print(f"{fasta.name}, {where or 'no filter'}: {middle:.2f} s, {speed:.1f} MB/s")
    ratios = [a / b for a, b in zip(*times.values(), strict=True)]
    low, high = min(ratios), max(ratios)
    print(
        f"speed of the second build, relative to the first: {statistics.median(ratios):.3f} "
        f"({low:.3f} to {high:.3f} in {rounds} rounds)"
    )


def main(options: Options) -> None:
    if not options.made.exists():
        write_made_headers(options.source, options.made)
    if options.unknown_headers is None:
        compare(options.rounds, (options.made, None), (options.made, options.where))
        return
    if not options.unknown_headers.exists():
        write_unknown_headers(options.made, options.unknown_headers)
    compare(options.rounds, (options.unknown_headers, None), (options.made, None))


if __name__ == "__main__":
    main(tyro.cli(Options, prog="python -m benchmarks.offline.filters"))
