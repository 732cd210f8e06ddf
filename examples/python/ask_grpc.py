"""Asks a Penstock node by gRPC: python3 ask_grpc.py 127.0.0.1:7948 LIMIT KEY

The messages are made from the .proto file (Debian: protobuf-compiler, python3-grpcio), in a
package of another name than penstock.py has:

    mkdir -p pb/penstock_pb/v1 && cp proto/penstock/v1/penstock.proto pb/penstock_pb/v1/
    protoc -I pb --python_out=. pb/penstock_pb/v1/penstock.proto
"""

import sys

import grpc
from penstock_pb.v1 import penstock_pb2 as v1

address, limit, key = sys.argv[1:]
with grpc.insecure_channel(address) as channel:
    check = channel.unary_unary(
        "/penstock.v1.RateLimiter/Check",
        request_serializer=v1.CheckRequest.SerializeToString,
        response_deserializer=v1.CheckResponse.FromString,
    )
    # wait_for_ready: the first call waits for the connection, and not longer than its timeout.
    answer = check(v1.CheckRequest(items=[v1.Item(limit=limit, key=key.encode())]), timeout=5,
                   wait_for_ready=True)
decision = answer.decisions[0]
print("allowed" if decision.allowed else f"denied, again in {decision.retry_after_ms} ms")
