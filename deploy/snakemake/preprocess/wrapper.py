"""Snakemake wrapper of `thdpack preprocess`."""

__author__ = "The thdpack authors"
__license__ = "Apache-2.0"

import os

from snakemake.shell import shell

log = snakemake.log_fmt_shell(stdout=True, stderr=True)  # noqa: F821 (Snakemake defines it)
extra = snakemake.params.get("extra", "")  # noqa: F821
workers = snakemake.threads  # noqa: F821
# The output is the manifest and not the folder, because Snakemake removes an output folder before
# it repeats a job. The build could then not resume. --overwrite replaces the dataset of other
# inputs; it also resumes an unfinished build.
out, name = os.path.split(snakemake.output.manifest)  # noqa: F821
if not out or name != "manifest.json":
    raise ValueError(
        f"the output `manifest` is {snakemake.output.manifest!r}: write"  # noqa: F821
        " FOLDER/manifest.json, where FOLDER is the folder of the dataset"
    )

shell(
    "thdpack preprocess {snakemake.input.fasta:q} --out {out:q} --workers {workers}"
    " --overwrite {extra} {log}"
)
