"""The `thdpack` command: the options and the output of each subcommand.

Start reading at `main.py`. A subcommand imports its modules when it runs, so that `--help` is
quick.
"""
