"""The HTTP server of the service: status page, metrics, health, reports.

Start reading at `server.py`. This package needs the extra `service`.
"""
