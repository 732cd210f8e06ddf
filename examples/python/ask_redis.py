"""Asks a Penstock node as redis-cell: python3 ask_redis.py 127.0.0.1:7950 KEY

The limit comes with the command: 5 at once, and one a minute from then on.
(Debian: python3-redis.)
"""

import sys

import redis

host, port = sys.argv[1].rsplit(":", 1)
client = redis.Redis(host=host, port=int(port), socket_timeout=5)
denied, most, left, again, full = client.execute_command("CL.THROTTLE", sys.argv[2], 4, 1, 60)
print(f"denied, again in {again} s" if denied else "allowed")
