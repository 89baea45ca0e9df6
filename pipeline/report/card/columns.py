"""Columns of shards and records/: a description and a Croissant type for each."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

SHARD_COLUMNS: Final = {
    "input_ids": "Token ids of one bucket, from the first <cls> to the padding at its end.",
    "cu_seqlens": "Offsets of the sequences in input_ids, from 0 to the capacity.",
    "num_seqs": "Number of sequences.",
    "num_tokens": "Number of tokens without padding.",
    "max_seqlen": "Number of tokens of the longest sequence.",
    "record": "For each sequence, the ordinal of its record in records/.",
    "start": "For each sequence, the position of its first residue in its record.",
}
"""Description of each column of a shard."""
RECORD_COLUMNS: Final = {
    "ordinal": "Number of the record in input order, from 0.",
    "id": "First word of the record's header.",
    "source": "Input that holds the record.",
    "offset": "Position of the record in its input.",
    "residues": "Number of residues before cropping.",
    "unknown": "Number of letters outside the vocabulary.",
    "hash": "xxh3_128 of the record's token ids before cropping, 16 bytes.",
    "split": "Split of the record; missing if the record was left out.",
    "shard": "Shard of the record's first sequence.",
    "bucket": "Row in that shard.",
    "status": "kept, or the reason why the record was left out.",
    "duplicate_of": "Ordinal of the kept record that has the same sequence.",
    "exclusion": "For excluded records: how the record matches an entry of a file of --exclude.",
    "match": "For excluded records: id of the matching entry.",
    "match_file": "For excluded records: name of the file with the matching entry.",
    "accession": "Accession in the record's database.",
    "name": "Entry name in the record's database.",
    "taxid": "NCBI taxonomy id of the organism.",
    "organism": "Name of the organism.",
    "gene": "Name of the gene.",
    "pe": "UniProt's level of evidence that the protein exists: 1 (best) to 5 (uncertain).",
    "fragment": "Whether the header says that the sequence is a fragment.",
    "cluster_size": "Number of members of the UniRef cluster.",
    "database": "Database that the header names.",
    "header": "Full text of the record's header.",
    "cluster": "Cluster of the record. All records of a cluster are in the same split.",
}
"""Description of each column of records/ that thdpack itself defines."""


def croissant_type(kind: pa.DataType) -> tuple[str, bool] | None:
    """Return the Croissant type of a column's values, and whether each value is a list.

    Return None if Croissant 1.0 has no such type.
    """
    if pa.types.is_dictionary(kind):
        return croissant_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        inner = croissant_type(kind.value_type)
        return None if inner is None or inner[1] else (inner[0], True)
    for name, fits in _TYPES.items():
        if any(fit(kind) for fit in fits):
            return name, False
    return None


_TYPES: Final = {
    "sc:Boolean": (pa.types.is_boolean,),
    "sc:Integer": (pa.types.is_integer,),
    "sc:Float": (pa.types.is_floating,),
    "sc:Date": (pa.types.is_date, pa.types.is_timestamp),
    "sc:Text": (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    ),
}
