"""Summary of a dataset on one screen. `thdpack preprocess` and `thdpack inspect` print it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.build.assemble_manifest import Built
from pipeline.build.progress.timeline import PhaseTimes
from pipeline.build.reduce_stage.residue_fates import ResidueFates, fates_in_records
from pipeline.inputs.file_names import as_text, some_names
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.open_folder import folder_of
from schemas.manifest import Manifest
from schemas.manifest_entries import SampledClusters
from schemas.records import Status
from schemas.split_fractions import SplitFractions
from schemas.text.phrases import percent_of_tokens, plural
from schemas.text.redact import without_credentials
from schemas.vocabulary import GAPS

KNOWN: Final = "already built from these inputs and options"


def padding_waste(manifest: Manifest) -> float:
    """Return the share of padding if each sequence were padded to max_seq_len tokens (BSHD)."""
    sequences = sum(totals.sequences for totals in manifest.splits.values())
    tokens = sum(totals.tokens for totals in manifest.splits.values())
    return 1 - tokens / (sequences * manifest.max_seq_len) if sequences else 0.0


def summary_lines(
    manifest: Manifest, fates: ResidueFates | None, *, advises_split: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the lines of the summary: pairs of a name and a value.

    The spread of Σ length² is its standard deviation over the buckets of a split, divided by its
    mean.

    Args:
        fates: for each reason, the number of residues that are in no bucket. With None, the lines
            with these numbers are omitted.
        advises_split: whether the line of an empty split suggests a larger share. An append cannot
            change the shares.
    """
    by_status = manifest.records_by_status
    left_out = ", ".join(
        f"{by_status[status]:,} {status.replace('_', ' ')}"
        for status in Status
        if status not in (Status.KEPT, Status.DUPLICATE) and by_status[status]
    )
    metadata = metadata_line(manifest)
    unknown = manifest.residue_counts.get("<unk>", 0)
    in_buckets = f"{manifest.residues_kept:,} in buckets, {unknown:,} of them <unk>"
    yield "records in", f"{sum(by_status.values()):,}"
    yield "kept", f"{by_status[Status.KEPT]:,}"
    yield "duplicate", f"{by_status[Status.DUPLICATE]:,}"
    yield "left out", left_out or "0"
    if manifest.retired:
        rows = sum(entry.rows for entry in manifest.retired)
        yield "retired", f"{plural(rows, 'record')}, listed in retired/; readers do not skip them"
    if metadata is not None:
        yield "metadata", metadata
    if manifest.sampled_clusters is not None:
        yield "clusters", _sampled(manifest.sampled_clusters)
    yield "residues", f"{manifest.residues_in:,} in, {in_buckets}"
    if manifest.variants > 1:
        variants = f"{manifest.variants:,}, and each epoch reads the next one"
        yield "variants", f"{variants}; numbers of buckets and tokens are of variant 0"
    if gaps := sum(manifest.residue_counts.get(gap, 0) for gap in GAPS):
        kept = f"{plural(gaps, 'gap character')} ({' or '.join(GAPS)}) in buckets, one token each"
        yield "gaps", f"{kept}: remove them from the input if they are left over from an alignment"
    if fates is not None:
        yield from _left_out_lines(manifest, fates)
    fractions = SplitFractions.parse(str(manifest.options["split"]))
    for split, totals in manifest.splits.items():
        if not (totals.buckets or fractions.share(split)):
            continue  # the user has not asked for this split
        counts = f"{plural(totals.buckets, 'bucket')}, {plural(totals.sequences, 'sequence')}"
        share = percent_of_tokens(totals.fill(manifest.capacity))
        fill = f"{totals.tokens:,} tokens, fill {share} %"
        balance = f"Σ length² spread {totals.spread:.4f}, max / mean {totals.peak:.3f}"
        empty = _empty(manifest, split) if advises_split else "empty"
        yield split, f"{counts}, {fill}, {balance}" if totals.buckets else empty
    most = max(totals.seqs_max for totals in manifest.splits.values())
    bucket = f"a bucket of {manifest.capacity:,} tokens"
    yield "slots", f"{manifest.slots} (at most {plural(most, 'sequence')} in {bucket})"
    waste = f"{100 * padding_waste(manifest):.1f} % of tokens"
    padded = f"compared with padding each sequence to {manifest.max_seq_len:,} (BSHD)"
    yield "padding avoided", f"{waste}, {padded}"
    if provenance := _provenance(manifest):
        yield "source", provenance


def _sampled(found: SampledClusters) -> str:
    """Return a text with the numbers of clusters, members (kept records) and drawn members."""
    of = f"{plural(found.clusters, 'cluster')} with {plural(found.members, 'member')}"
    drawn = f"{of}; a variant has one member of each"
    shown = found.members_shown
    return (
        drawn
        if len(shown) == 1
        else f"{drawn}, and {len(shown)} variants show {shown[-1]:,} members"
    )


def _provenance(manifest: Manifest) -> str:
    """Return release and licence of the inputs; "" if the user gave neither."""
    licensed = f"licence {manifest.license}" if manifest.license else None
    return ", ".join(text for text in (manifest.source_release, licensed) if text)


def metadata_line(manifest: Manifest) -> str | None:
    """Return the number of records with a row in the table of --metadata; None without a table."""
    table = next((file for file in manifest.named_files if file.option == "metadata"), None)
    if table is None:
        return None
    total = sum(manifest.records_by_status.values())
    rows = plural(table.rows, "row")
    if not manifest.metadata_records:
        return (
            f"{table.name} ({rows}) matches no record of the inputs: its keys must be accessions "
            "or ids, as `thdpack inspect --record` shows them"
        )
    return f"{manifest.metadata_records:,} of {total:,} records found in {table.name} ({rows})"


def _empty(manifest: Manifest, split: str) -> str:
    """Return the text for an empty split, which suggests a larger share."""
    fractions = SplitFractions.parse(str(manifest.options["split"]))
    kept = manifest.records_by_status[Status.KEPT]
    if kept < 2:
        return "empty"
    text = f"empty: --split {fractions} set none of {kept:,} records aside for {split}"
    larger = fractions.larger(split, kept)
    return f"{text}; {larger}" if larger else text


def _left_out_lines(manifest: Manifest, fates: ResidueFates) -> Iterator[tuple[str, str]]:
    """Yield a line for each reason why residues are in no bucket, with the number of residues."""
    for status, residues in fates.by_status.items():
        if status == Status.EXCLUDED and residues:
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in fates.excluded.items() if n)
            yield "in excluded", f"{plural(residues, 'residue')} left out (records: {kinds})"
        elif status != Status.KEPT and residues:
            name = "duplicates" if status == Status.DUPLICATE else status.replace("_", " ")
            yield f"in {name}", f"{plural(residues, 'residue')} left out"
    if fates.not_drawn:
        records = f"{plural(fates.not_drawn, 'record')} with {fates.residues_not_drawn:,} residues"
        others = (
            "--variants adds draws" if manifest.variants == 1 else "other variants may hold them"
        )
        yield "not drawn", f"{records} left out by --sample-clusters ({others})"
    if fates.cropped_records:
        records = (
            f"{plural(fates.cropped_records, 'record')} to {manifest.longest_piece:,} residues"
        )
        lost = plural(fates.cropped(manifest), "residue")
        yield "cropped", f"{records}: {lost} left out ({_keeping_residues(manifest)})"


def _keeping_residues(manifest: Manifest) -> str:
    """Return a hint: how a build can keep the residues that cropping leaves out."""
    if manifest.options["long"] != "crop":
        return "--long split keeps them"
    if manifest.variants > 1:
        return "other variants hold other windows; `thdpack stats` shows the coverage"
    return "--long split keeps them, and --variants 8 adds other windows"


def known_fates(manifest: Manifest, dataset: str) -> ResidueFates | None:
    """Count, by reason, the residues of an existing dataset that are in no bucket.

    Returns:
        None if the dataset is not on a local disk.
    """
    folder = folder_of(dataset)
    return fates_in_records(folder, manifest) if isinstance(folder, LocalFolder) else None


def print_built(
    built: Built,
    dataset: str,
    *,
    as_json: bool,
    seconds: float | None = None,
    known: str = KNOWN,
) -> None:
    """Print the summary of a dataset.

    Args:
        seconds: duration of the build in seconds; None if array jobs built the dataset.
        known: reason to print if nothing was built.
    """
    folder, manifest, dataset = dataset, built.manifest, without_credentials(dataset)
    size = sum(entry.bytes for entry in manifest.inputs)
    if as_json:
        summary = {
            "event": "summary",
            "fresh": built.fresh,
            "dataset": dataset,
            "manifest_digest": manifest.digest,
        }
        timed = {} if seconds is None else {"seconds": round(seconds, 3), **_stages(built.phases)}
        records = {"records": dict(manifest.records_by_status), "input_bytes": size}
        skipped = {"skipped_files": [as_text(name) for name in _skipped_names(built)]}
        found = (
            {}
            if metadata_line(manifest) is None
            else {"metadata_records": manifest.metadata_records}
        )
        print(json.dumps({**summary, **timed, **records, **found, **skipped}), flush=True)
        return
    if not built.fresh:
        print(f"{known}; nothing to do")
    # also on a store: `preprocess` has just read all inputs, which takes longer
    fates = built.fates if built.fresh else fates_in_records(folder_of(folder), manifest)
    for name, value in summary_lines(manifest, fates):
        print(f"{name:>16}  {value}")
    if names := _skipped_names(built):
        files = f"{plural(len(names), 'file')} of input folders"
        print(f"{'skipped':>16}  {files}: {as_text(some_names('', names))}")
    for line in built.notes:
        print(f"{'note':>16}  {line}")
    if built.fresh and seconds is not None:
        rate = speed(manifest, seconds, built.mmseqs_seconds, resumed=built.resumed)
        print(f"{'speed':>16}  {rate}")
        for i, text in enumerate(_stage_lines(built.phases, seconds)):
            print(f"{'' if i else 'stages':>16}  {text}")
    print(f"{'dataset':>16}  {dataset}")


def speed(manifest: Manifest, seconds: float, mmseqs_seconds: float = 0.0, *, resumed: bool) -> str:
    """Return the speed of a build; only its duration if the build was resumed.

    Args:
        manifest: manifest of the inputs that the build read.
        seconds: duration of the build.
        mmseqs_seconds: duration of the runs of MMseqs2.
        resumed: True if an earlier run finished some tasks.
    """
    if resumed:
        return f"{seconds:.1f} s since the build was resumed, verified"
    size, own = sum(entry.bytes for entry in manifest.inputs), seconds - mmseqs_seconds
    mmseqs = f", besides {mmseqs_seconds:.1f} s of MMseqs2" if mmseqs_seconds else ""
    read = f"{_number(size / 1e6, 1)} MB in {own:.1f} s{mmseqs}"
    return f"{_number(size / own / 1e6)} MB/s of input ({read}), verified"


def _stage_lines(phases: Sequence[PhaseTimes], seconds: float) -> Iterator[str]:
    """Yield a line for each phase of a build with its duration and speed, and then one line for
    the remaining time."""
    for phase in phases:
        rate = "" if phase.rate is None else f", {_number(phase.rate / 1e6)} MB/s"
        yield f"{phase.name}: {phase.seconds:.1f} s{rate}"
    other = max(0.0, seconds - sum(phase.seconds for phase in phases))
    yield f"start, commit, removal of intermediate files: {other:.1f} s"


def _stages(phases: Sequence[PhaseTimes]) -> dict[str, object]:
    """Return the durations of the phases for the JSON summary."""
    return {
        "stages": [
            {"name": phase.name, "seconds": round(phase.seconds, 3), "bytes": phase.bytes}
            for phase in phases
        ]
    }


def _number(value: float, digits: int = 0) -> str:
    """Return a number with `digits` digits after the point. If this would be 0, return one
    significant digit instead."""
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")):
        return text
    return f"{value:.1g}" if value >= 0.001 else "under 0.001"


def _skipped_names(built: Built) -> list[str]:
    """Return the names of the files that a build skipped, each below its input folder."""
    return [name for skipped in built.skipped for name in skipped.names]
