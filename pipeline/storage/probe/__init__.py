"""Find permanent faults of a store, by the first request of a command, before any work is done."""
