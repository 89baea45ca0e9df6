"""A build as a task list for a scheduler's arrays: plan it once, run its tasks anywhere, commit.

Start at `task_list.py`.
"""
