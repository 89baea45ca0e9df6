"""Snakemake wrapper of `thdpack stats`."""

__author__ = "The thdpack authors"
__license__ = "Apache-2.0"

import os
import shlex

from snakemake.shell import shell

log = snakemake.log_fmt_shell(stdout=True, stderr=True)  # noqa: F821 (Snakemake defines it)
extra = snakemake.params.get("extra", "")  # noqa: F821
dataset = os.path.dirname(snakemake.input.manifest) or "."  # noqa: F821
json = snakemake.output.get("json")  # noqa: F821
table = f"--json {shlex.quote(json)}" if json else ""

shell("thdpack stats {dataset:q} --html {snakemake.output.html:q} {table} {extra} {log}")
