"""Prepare `--clusters mmseqs:0.5`, and the same value of --sample-clusters.

This module writes an empty table, which `cluster_records` replaces later.
"""

from __future__ import annotations

import json

import numpy as np
import xxhash

from pipeline.build.mmseqs.linclust import SETTINGS, linclust_identity
from pipeline.build.named_files.clusters.cluster_table import write_cluster_table
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder


def prepare_linclust(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Write an empty table. The hash in the result covers the version and the settings of MMseqs2.

    Raises:
        OptionError: the identity is wrong.
        BuildError: the work file cannot be written.
    """
    described = [file.mmseqs_version, linclust_identity(file.name, file.option), *SETTINGS]
    empty = np.empty(0, dtype=np.uint64)
    return PreparedFile(
        option=file.option,
        name=file.name,
        bytes=0,
        file=write_cluster_table([(empty, empty)], [], name, work),
        rows=0,
        xxh3_128=xxhash.xxh3_128_hexdigest(json.dumps(described).encode()),
    )
