"""Choose the generation of each dataset that a run reads. Each build, append or compaction leaves a
new state of the dataset, called a generation.

A new run reads the latest generation. A resumed run continues with the generation that its
checkpoint names, even if the dataset has grown. --generation overrides both. All ranks read the
generation that rank 0 has found, because the dataset may grow while a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.reader import ShardReader
from schemas.errors import CheckpointError, NoGenerationError
from schemas.manifest import Manifest
from schemas.text.generation import LATEST, Generation, generation_of_each
from schemas.text.redact import without_credentials
from trainer.checkpoints.run_state import RunState
from trainer.config import TrainOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The generation of a dataset that a run reads.

    latest: number of the dataset's latest generation.
    """

    url: str
    manifest: Manifest
    latest: int

    @property
    def note(self) -> str:
        """Sentence about the generation; "" if the dataset has only one."""
        if self.latest == 1:
            return ""
        url, read = without_credentials(self.url), self.manifest.generation
        if read == self.latest:
            return f"reading generation {read} of {url}, which is the latest"
        return (
            f"reading generation {read} of {url}, not generation {self.latest}, which is the "
            "latest; a new run in another --out reads the latest"
        )


def choose_generations(
    urls: Sequence[str],
    options: TrainOptions,
    before: RunState | None,
    topology: Topology,
    storage: Mapping[str, Any],
) -> list[Chosen]:
    """Return the generation of each dataset that a run reads.

    Args:
        urls: datasets of --data.
        before: state of the run to resume; None for a new run.
        storage: arguments of ShardReader about the cache.
    Raises:
        ValueError: --generation has a wrong value, not one value for each dataset, or names another
            generation than the run began with.
        CheckpointError: the generation that the run began with was removed.
        DatasetError: a dataset or generation is missing or damaged.
    """
    given, out = options.data.generation, options.output.out
    asked = generation_of_each(given, len(urls), name="--generation")
    begun = _begun_with(before) if before else ()
    if len(begun) != len(urls):
        begun = ("",) * len(urls)
    return [
        _Choice(url, generation, digest, bool(given), out, storage).made(topology)
        for url, generation, digest in zip(urls, asked, begun, strict=True)
    ]


def _begun_with(before: RunState) -> tuple[str, ...]:
    """Return the digest of each dataset's manifest in a checkpoint; () if it has none."""
    if before.manifests or len(before.options.data.data) > 1:
        return before.manifests
    return (str(before.reader.get("manifest", "")),)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choice of the generation of one dataset.

    begun: digest of the generation that the run began with; "" if there is none. If the dataset
        never had this generation, its URL now names another dataset, and `asked` decides.
    given: True if the user gave --generation.
    """

    url: str
    asked: Generation
    begun: str
    given: bool
    out: str
    storage: Mapping[str, Any]

    def made(self, topology: Topology) -> Chosen:
        """Return the generation that rank 0 chooses."""
        found: list[Manifest] = []

        def find() -> tuple[int, str]:
            latest = self._manifest(LATEST)
            found.append(self._wanted(latest))
            return latest.generation, found[0].digest

        number, digest = run_on_main(topology, find)
        if not found:
            latest = self._manifest(LATEST)
            # a rank that sees another dataset reads it; a later check finds the difference
            found.append(self._manifest(digest) if digest in _digests(latest) else latest)
        return Chosen(url=self.url, manifest=found[0], latest=number)

    def _wanted(self, latest: Manifest) -> Manifest:
        asked = LATEST if self.asked in (LATEST, latest.generation) else self.asked
        if self.begun not in _digests(latest):
            return latest if asked == LATEST else self._manifest(asked)
        if not self.given:
            return latest if self.begun == latest.digest else self._manifest_of_run()
        wanted = latest if asked == LATEST else self._manifest(asked)
        if wanted.digest != self.begun:
            raise ValueError(
                f"{self.out} holds the state of a run on another generation of {self.url} than "
                f"generation {wanted.generation}: omit --generation to resume that run, or choose "
                f"another --out for a run on generation {wanted.generation}"
            )
        return wanted

    def _manifest(self, generation: Generation) -> Manifest:
        with ShardReader(self.url, prefetch=0, generation=generation, **self.storage) as reader:
            return reader.manifest

    def _manifest_of_run(self) -> Manifest:
        """Return the manifest of the generation that the run began with.

        Raises:
            CheckpointError: the generation was removed.
        """
        try:
            return self._manifest(self.begun)
        except NoGenerationError as error:
            raise CheckpointError(
                f"{error}. The run in {self.out} began with the removed generation: restore its "
                "files from a copy of the dataset, or choose another --out for a new run"
            ) from error


def _digests(latest: Manifest) -> set[str]:
    return {latest.digest, *(entry.digest for entry in latest.history)}
