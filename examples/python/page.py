"""A page behind the WSGI middleware: python3 page.py 127.0.0.1:8080"""

import sys
from wsgiref.simple_server import make_server

from penstock import Limited


def page(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    make_server(host, int(port), Limited(page, "api")).serve_forever()
