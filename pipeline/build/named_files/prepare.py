"""Convert a file that an option names into a work file in which tasks look up values quickly."""

from __future__ import annotations

from pipeline.build.named_files.clusters.linclust import prepare_linclust
from pipeline.build.named_files.clusters.read_clusters import prepare_clusters
from pipeline.build.named_files.named_file import CLUSTER_OPTIONS, NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.errors import BuildError


def prepare(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Read a named file, check it, and write its content as the work file `name`.

    Raises:
        InputError: the file cannot be read or breaks a rule.
        BuildError: the work file cannot be written.
    """
    if file.option == "metadata":
        # imported here, because pyarrow.compute takes 0.2 s in every process
        from pipeline.build.named_files.metadata.prepare_table import prepare_metadata

        return prepare_metadata(file, name, work)
    if file.option in CLUSTER_OPTIONS:
        read = prepare_linclust if file.mmseqs else prepare_clusters
        return read(file, name, work)
    if file.option == "exclude":
        from pipeline.build.named_files.exclude.exclude_file import prepare_exclusions

        return prepare_exclusions(file, name, work)
    raise BuildError(f"--{file.option} is not implemented")
