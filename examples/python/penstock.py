"""Asks a Penstock node by HTTP. Python's own library is all that is needed."""

import http.client
import json
import os
import urllib.parse

NODE = os.environ.get("PENSTOCK", "127.0.0.1:7949")


def check(limit, key, cost=1, timeout=0.5):
    """Charges cost units, and returns (allowed, answer's headers, answer).

    A node that does not answer in time admits the request: a rate limiter that is away should
    not take the site down. Return False instead where a limit guards money or passwords.
    """
    query = urllib.parse.urlencode({"limit": limit, "key": key, "cost": cost})
    connection = http.client.HTTPConnection(NODE, timeout=timeout)
    try:
        connection.request("GET", "/v1/check?" + query)
        response = connection.getresponse()
        answer = json.load(response)
    except (OSError, http.client.HTTPException, ValueError):
        return True, {}, {}
    finally:
        connection.close()
    if response.status not in (200, 429):  # an unknown limit, a key that is too long
        raise ValueError(answer.get("detail", f"Penstock answers {response.status}"))
    return response.status == 200, dict(response.getheaders()), answer


class Limited:
    """WSGI middleware: each request of a user charges one unit of a limit."""

    SHOWN = ("RateLimit", "RateLimit-Policy", "Retry-After")

    def __init__(self, app, limit, user="HTTP_X_USER"):
        self.app, self.limit, self.user = app, limit, user

    def __call__(self, environ, start_response):
        key = environ.get(self.user) or environ["REMOTE_ADDR"]
        allowed, headers, answer = check(self.limit, key)
        shown = [(name, headers[name]) for name in self.SHOWN if name in headers]
        if not allowed:
            body = json.dumps(answer).encode()
            start_response("429 Too Many Requests", shown + [
                ("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))])
            return [body]

        def start(status, own, exc_info=None):
            return start_response(status, own + shown, exc_info)

        return self.app(environ, start)
