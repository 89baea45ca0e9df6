"""torch's conventions for the reader: a dataset for DataLoader, and masked tokens for its batches.

Only this package of the reader imports torch. `import pipeline.reader` does not.
"""

from pipeline.reader.torch.mask_tokens import MaskTokens
from pipeline.reader.torch.shard_dataset import ShardDataset

__all__ = ["MaskTokens", "ShardDataset"]
