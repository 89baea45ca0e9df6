"""The first request of a command to a store, which finds permanent faults before any work."""
