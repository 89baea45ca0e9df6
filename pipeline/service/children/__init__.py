"""Processes that the service starts: appends, reports and the hook.

The service itself reads no sequences. Its memory stays small, and it survives an append that is
killed. Start reading at `run_child.py`.
"""
