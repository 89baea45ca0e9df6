"""Text that users type or read: sizes, URLs, command-line options, phrases of messages.

`redact.py` removes credentials from messages. The package has no I/O.
"""
