"""The journal of the service: a list of what the service has begun and finished. When the service
starts, it reads the list to find the step with which it must continue.

Start reading at `ledger.py`.
"""
