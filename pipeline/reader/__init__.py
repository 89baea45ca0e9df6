"""The streaming shard reader: buckets in one global order, which any number of ranks share.

`ShardReader` reads one dataset, and `Mixture` reads several. Neither needs torch or compiled code.
`ShardDataset` and `MaskTokens` are for torch's DataLoader, and need torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.reader.adapters import (
        bshd,
        flash_attention,
        hugging_face,
        merge,
        position_ids,
        transformer_engine,
    )
    from pipeline.reader.guards.data_loader_guard import DataLoaderError
    from pipeline.reader.guards.fork_guard import ForkedReaderError
    from pipeline.reader.mixture import Mixture
    from pipeline.reader.shard_reader import ShardReader
    from pipeline.reader.torch.mask_tokens import MaskTokens as MaskTokens
    from pipeline.reader.torch.shard_dataset import ShardDataset as ShardDataset
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        adapters=(
            "bshd",
            "flash_attention",
            "hugging_face",
            "merge",
            "position_ids",
            "transformer_engine",
        ),
        mixture=("Mixture",),
        shard_reader=("ShardReader",),
        **{
            "guards.data_loader_guard": ("DataLoaderError",),
            "guards.fork_guard": ("ForkedReaderError",),
            "torch.mask_tokens": ("MaskTokens",),
            "torch.shard_dataset": ("ShardDataset",),
        },
    )

# without MaskTokens and ShardDataset, because `import *` must work without torch
__all__ = [
    "DataLoaderError",
    "ForkedReaderError",
    "Mixture",
    "ShardReader",
    "bshd",
    "flash_attention",
    "hugging_face",
    "merge",
    "position_ids",
    "transformer_engine",
]
