"""The `thdpack` command: options of each subcommand, and what they print.

Start at `main.py`. A subcommand imports what it needs when it runs, so that `--help` is quick.
"""
