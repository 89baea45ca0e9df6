"""The inbox of the service: a local folder, or a prefix of an object store.

Start reading at `inbox.py`.
"""
