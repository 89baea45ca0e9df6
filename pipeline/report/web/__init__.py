"""Web pages on loopback: the HTTP server that `stats --serve` and `watch` share, and the page of
`stats --serve`.

Start reading at `serve.py`. `pipeline.service` also uses `http_server.py` and `page_templates.py`.
"""
