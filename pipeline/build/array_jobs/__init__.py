"""A build as a list of tasks for the array jobs of a scheduler such as Slurm.

A user plans the list once, runs its tasks on any machines, and commits the dataset. Start reading
at `task_list.py`.
"""
