"""The first request of a build to a store."""
