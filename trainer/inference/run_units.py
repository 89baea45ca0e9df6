"""Run a model on all units of a dataset, and join the results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from pipeline.storage.atomic_write import sync_folder
from schemas.text.phrases import plural
from trainer.checkpoints.new_folder import refuse_file, refuse_foreign_folder, removed_if_empty
from trainer.checkpoints.run_lock import LOCK, run_lock
from trainer.config.checks import option_errors
from trainer.config.inference_options import Format, InferenceOptions
from trainer.distributed.agreement import all_gather, run_on_main
from trainer.distributed.topology import Topology
from trainer.inference.join.assemble import assemble, output_path
from trainer.inference.join.window_index import WindowIndex
from trainer.inference.load_model import Weights
from trainer.inference.open_data import DATASETS
from trainer.inference.packed_model import Launched, PackedModel
from trainer.inference.parts import PARTS, Parts
from trainer.inference.prepare import Prepared, Work, prepare
from trainer.inference.progress import InferenceProgress
from trainer.inference.rows import PackedRow, RowShape, rows_of
from trainer.inference.settings import SETTINGS, SUMMARY
from trainer.inference.units import Unit, Units
from trainer.inference.windows import one_residue_each
from trainer.inference.work_size import tokens_per_residue


def run_units(
    options: InferenceOptions, topology: Topology, plan: Callable[[Weights], Work]
) -> None:
    """Compute the results of each record, and write them to OUT.

    Args:
        plan: function that returns the work for a model.
    Raises:
        ValueError, ThdpackError: options, model or data cannot be used, or another run writes to
            OUT.
    """
    with prepared(options, topology, plan) as run:
        if run is not None:
            _run_units(run, options.format)


@contextmanager
def prepared(
    options: InferenceOptions, topology: Topology, plan: Callable[[Weights], Work]
) -> Iterator[Prepared | None]:
    """Lock OUT and prepare the run; see `prepare`. If the run is complete, say so and yield None.
    All ranks must call this.

    Raises:
        ValueError, ThdpackError: see `run_units`.
    """
    out = Path(options.out)
    with option_errors():
        run_on_main(topology, lambda: _refuse_other_contents(out))
    with removed_if_empty(out, topology), run_lock(out, topology):
        run = prepare(options, topology, plan)
        if run is None and topology.is_main:
            _remove_intermediate(out)
            print(f"{out} is complete already: nothing to do")
        yield run


def _refuse_other_contents(out: Path) -> None:
    """Refuse an --out that is a file, or a folder of other files.

    A refused or killed command may have left nothing but a temporary dataset.

    Raises:
        ValueError: `out` cannot be used.
    """
    refuse_file(out, whose="a folder")
    refuse_foreign_folder(
        out,
        own=(LOCK, PARTS, SUMMARY, DATASETS),
        whose="a folder of `thdpack embed` or `thdpack score`",
        example="results",
    )


def _run_units(run: Prepared, form: Format) -> None:
    topology = run.topology
    units = Units(
        run.url,
        run.manifest,
        buckets=run.settings.unit_buckets,
        pieces=run.settings.unit_pieces,
        storage=run.storage,
    )
    parts = Parts(run.out / PARTS, run.work.results, merge=run.work.per_residue)
    missing: list[Unit] = run_on_main(topology, lambda: parts.missing(units.all))
    progress = InferenceProgress(
        name=run.work.name,
        total=_tokens(run) * len(missing) // max(len(units.all), 1),
        ranks=topology.world_size,
        shown=topology.is_main,
    )
    with progress:
        progress.say(run.description())
        if len(missing) < len(units.all):
            progress.say(
                f"continuing: {len(units.all) - len(missing)} of {len(units.all)} parts exist"
            )
        model = model_of(run)
        _compute(run, model, units, missing[topology.rank :: topology.world_size], parts, progress)
    units.close()
    partly = _assemble(run, units.all, parts, form)
    run_on_main(topology, lambda: finish(run))
    if topology.is_main:
        rows = sum(entry.rows for entry in run.manifest.records)
        print(f"wrote {plural(rows, 'row')} to {run.out}{progress.summary()}")
        if partly:
            print(
                f"warning: {plural(partly, 'record')} are longer than the dataset's sequences, and "
                "the results are about the part that the dataset holds (column used_residues). For "
                "whole records, give the FASTA as DATA"
            )


def model_of(run: Prepared) -> PackedModel:
    """Return the model on the device of this rank. All ranks must call this."""
    compute, topology = run.compute, run.topology
    esm2 = run.weights.on_device(compute, topology, fp8=run.settings.precision == "fp8")
    return PackedModel(esm2, compute, topology, run.work.function)


def _compute(
    run: Prepared,
    model: PackedModel,
    units: Units,
    mine: Sequence[Unit],
    parts: Parts,
    progress: InferenceProgress,
) -> None:
    """Write the parts of this rank's units.

    While the device computes a row, the host writes the results of the row before. The row before
    may belong to another unit.
    """

    def launched() -> Iterator[tuple[Unit, Launched]]:
        before: tuple[Unit, Launched] | None = None
        for unit, rows in _rows_ahead(run, units, mine):
            if not rows:
                with parts.written(unit):
                    pass
            for row in rows:
                found = unit, model.launch(row)
                progress.advance(row.bucket.num_tokens)
                if before is not None:
                    yield before
                before = found
        if before is not None:
            yield before

    for unit, of_unit in groupby(launched(), key=itemgetter(0)):
        with parts.written(unit) as writer:
            for _, found in of_unit:
                writer.write(found.row, found.wait())
                progress.received()


def _tokens(run: Prepared) -> int:
    """Return the approximate number of tokens to compute. Windows that overlap count once."""
    if run.work.per_residue:
        return tokens_per_residue(run.manifest, run.settings.max_seq_len)
    return sum(split.tokens for split in run.manifest.splits.values())


def _rows_ahead(
    run: Prepared, units: Units, mine: Sequence[Unit]
) -> Iterator[tuple[Unit, list[PackedRow]]]:
    """Yield units with their rows. A thread reads and packs the next unit in advance."""
    settings = run.settings
    shape = RowShape(tokens=settings.row_tokens, longest=settings.max_seq_len)

    def packed(unit: Unit) -> list[PackedRow]:
        windows = units.windows(unit, longest=settings.max_seq_len, overlap=settings.overlap)
        if run.work.per_residue:
            windows = one_residue_each(windows, piece=unit.piece, pieces=unit.pieces)
        return list(rows_of(windows, shape))

    with ThreadPoolExecutor(1) as thread:
        coming = [thread.submit(packed, unit) for unit in mine[:1]]
        for number, unit in enumerate(mine):
            rows = coming.pop().result()
            if number + 1 < len(mine):
                coming.append(thread.submit(packed, mine[number + 1]))
            yield unit, rows


def _assemble(run: Prepared, units: Sequence[Unit], parts: Parts, form: Format) -> int:
    """Write the output files. Return the number of records whose results are about a part only."""
    topology = run.topology
    run_on_main(topology, lambda: None)  # all parts exist
    index = WindowIndex([parts.path(unit) for unit in units])
    partly = 0
    for entry in run.manifest.records[topology.rank :: topology.world_size]:
        path = output_path(run.out, entry, form)
        partly += assemble(run.url, entry, index, run.work.results, path, form)
    return sum(all_gather(topology, partly))


def finish(run: Prepared) -> None:
    """Leave OUT/run.json, and remove intermediate files."""
    os.replace(run.out / PARTS / SETTINGS, run.out / SUMMARY)
    sync_folder(run.out)
    _remove_intermediate(run.out)


def _remove_intermediate(out: Path) -> None:
    for path in (out / PARTS, *out.glob(DATASETS)):
        shutil.rmtree(path, ignore_errors=True)
