"""Examine the inputs of a dry run of `thdpack append` or `thdpack compact`."""

from __future__ import annotations

from pipeline.build.append.build_options import build_options
from pipeline.build.append.options import GenerationOptions
from pipeline.build.build_plan import plan
from pipeline.build.options import PreprocessOptions
from pipeline.inputs.named.expand import refuse_inside
from pipeline.inputs.source import Source
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import OptionError
from schemas.manifest import Manifest


def dry_run_inputs(
    options: GenerationOptions, *, rebuild: bool = False
) -> tuple[Manifest, PreprocessOptions, tuple[Source, ...]]:
    """Return the manifest of the current generation, the options of the build that would add the
    next one, and its inputs.

    Args:
        rebuild: True if the build reads all inputs of the dataset.
    Raises:
        ThdpackError: as the build would.
        OptionError: standard input is one of the inputs.
    """
    if "-" in options.inputs:
        raise OptionError("--dry-run cannot examine standard input without consuming it")
    existing = read_manifest(options.dataset)
    refuse_inside(options.dataset, options.inputs, is_dataset=True)
    build = build_options(options, existing, rebuild=rebuild)
    return existing, build, plan(build).sources if options.inputs else ()
