"""Compare our attention kernels with Transformer Engine's (cuDNN) on this machine's GPU: forward
and backward of one layer, with the rotary embedding.

    python -m benchmarks.training.attention DATASET

The input is a row of 16,384 tokens: a bucket of the dataset, or sequences of equal length. For each
shape, the outputs and gradients of the two implementations are first compared with those of
scaled_dot_product_attention in fp32. An error is ‖difference‖ / ‖reference‖. Then torch's profiler
measures the device time of all kernels, from the fused QKV tensor to its gradient. The two
implementations alternate, and results are medians of 5 runs. Sines, cosines and our kernel's tiles
(blocks of a sequence's tokens) are computed before timing, because all layers share these tensors.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
import transformer_engine.pytorch as te
from torch import Tensor

from pipeline.reader import ShardReader
from trainer.distributed.context_parallel import Slices
from trainer.model import layer_te
from trainer.model.esm2 import SequenceLayout

TOKENS = 16_384
GPU = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument(
        "--heads",
        nargs="+",
        default=["20x16", "20x24", "20x32", "20x64", "40x64", "40x128"],
        help="number of heads x head size",
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096])
    arguments = parser.parse_args()
    bucket = next(iter(ShardReader(arguments.dataset)))
    rows = {
        "bucket": SequenceLayout(
            torch.tensor(bucket.cu_seqlens.copy(), device=GPU), bucket.max_seqlen
        )
    }
    for length in arguments.lengths:
        rows[str(length)] = SequenceLayout(
            torch.arange(0, TOKENS + 1, length, dtype=torch.int32, device=GPU), length
        )
    print(
        "heads    row      ours ms  TE ms   ratio  "
        "error: ours forward, backward   TE forward, backward",
        flush=True,
    )
    for shape in arguments.heads:
        heads, size = (int(number) for number in shape.split("x"))
        for name, sequences in rows.items():
            compare(shape, name, sequences, heads, size)


def compare(shape: str, name: str, sequences: SequenceLayout, heads: int, size: int) -> None:
    qkv = torch.randn(TOKENS, heads, 3, size, device=GPU, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(TOKENS, heads * size, device=GPU, dtype=torch.bfloat16)
    angles = torch.rand(TOKENS, size // 2, device=GPU) * 6
    module = te.DotProductAttention(heads, size, attention_dropout=0.0)
    context = layer_te.Context(sequences, angles, Slices())

    def attend(ours: bool, leaf: Tensor) -> list[Tensor]:
        """Return output and gradient.

        Each call rotates QKV in place. This changes the input of the next call, but not the time of
        that call.
        """
        layer_te.is_ours = lambda *_: ours
        out = context.attend(module, leaf)
        return [out.detach(), *torch.autograd.grad(out, leaf, grad)]

    kernels = {"ours": True, "te": False}
    found = {
        who: attend(ours, qkv.detach().clone().requires_grad_()) for who, ours in kernels.items()
    }
    expected = reference(qkv.detach(), angles, sequences, grad)
    errors = {
        who: [float((a.float() - b).norm() / b.norm()) for a, b in zip(pair, expected, strict=True)]
        for who, pair in found.items()
    }
    times: dict[str, list[float]] = {who: [] for who in kernels}
    for _ in range(5):
        for who, ours in kernels.items():
            times[who].append(device_ms(partial(attend, ours, qkv)))
    our_ms, their_ms = (statistics.median(times[who]) for who in ("ours", "te"))
    print(
        f"{shape:8} {name:8} {our_ms:6.3f}  {their_ms:6.3f}   {their_ms / our_ms:5.2f}  "
        + "   ".join(f"{e[0]:.1e}, {e[1]:.1e}" for e in errors.values()),
        flush=True,
    )


def reference(qkv: Tensor, angles: Tensor, sequences: SequenceLayout, grad: Tensor) -> list[Tensor]:
    """Compute output and gradient in fp32, with plain torch."""
    leaf = qkv.float().requires_grad_()
    cos, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
    first, second = leaf[:, :, :2].chunk(2, -1)
    q, k = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).unbind(2)
    ends = sequences.cu_seqlens.tolist()
    spans = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False) if b > a]
    outs = [
        F.scaled_dot_product_attention(
            *(t[span].transpose(0, 1) for t in (q, k, leaf[:, :, 2]))
        ).transpose(0, 1)
        for span in spans
    ]
    out = torch.cat(outs).flatten(1)
    out.backward(grad.float())
    assert leaf.grad is not None
    return [out.detach(), leaf.grad]


def device_ms(function: Callable[[], object]) -> float:
    """Call a function twice; return the device time of the second call's kernels, in ms."""
    function()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        function()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in trace.key_averages()) / 1e3


if __name__ == "__main__":
    main()
