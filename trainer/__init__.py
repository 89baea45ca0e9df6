"""The trainer: ESM-2 on Transformer Engine or plain torch, straight from shards. Start at train.py."""
