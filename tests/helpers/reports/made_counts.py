"""Counts of headers and of leaks for a synthetic report."""

from __future__ import annotations

from typing import Any, Final

from pipeline.report.model_headers import Counts, Group, HeaderCounts, Taxon
from pipeline.report.model_leaks import Exclusion, FileOverlap, SharedValues, SimilarEntries
from schemas.records import Status
from schemas.shard import SPLITS

HOSTILE_ORGANISM: Final = "</text><script>document.title='owned'</script>"


def made_counts(records: int) -> dict[str, Any]:
    """Return the fields of a dataset's report that `thdpack stats` counts in records/."""
    return {
        "headers": HeaderCounts(
            databases=(_group("UniRef50", records - 100), _group(None, 100)),
            existence=tuple(_group(level, records // 6) for level in (1, 2, 3, 4, 5, None)),
            fragments=(_group(True, records // 9), _group(False, records - records // 9)),
            taxa=tuple(_taxon(i, records // (i + 3)) for i in range(20)),
            distinct_taxa=4_321,
            without_taxon=_counts(Counts, 9),
        ),
        "exclusions": (
            Exclusion(kind="contained", file=HOSTILE_ORGANISM, records=515, residues=61_616),
        ),
        "leaks": tuple(
            SharedValues(of=of, splits=("train", split), shared=2, records=(3, 2))
            for of in ("sequences", "clusters")
            for split in SPLITS[1:]
        ),
        "against": (
            FileOverlap(
                name=HOSTILE_ORGANISM,
                entries=1_717,
                in_splits=dict.fromkeys(SPLITS, 313),
                in_records=414,
                by_status=dict.fromkeys((status.value for status in Status), 21),
                similar=SimilarEntries(
                    identity=0.3,
                    coverage=0.5,
                    in_splits=dict.fromkeys(SPLITS, 616),
                    in_kept=717,
                    records=dict.fromkeys(SPLITS, 1_818),
                ),
            ),
        ),
    }


def _counts(kind: type[Any], records: int, **names: Any) -> Any:
    numbers = {"kept": records * 9 // 10, "residues_kept": records * 320}
    return kind(records=records, residues=records * 350, **numbers, **names)


def _group(value: str | int | bool | None, records: int) -> Group:
    group: Group = _counts(Group, records, value=value)
    return group


def _taxon(i: int, records: int) -> Taxon:
    organism = HOSTILE_ORGANISM if not i else None if i == 2 else f"Made organism {i}"
    taxon: Taxon = _counts(Taxon, records, taxid=None if i == 1 else 9_600 + i, organism=organism)
    return taxon
