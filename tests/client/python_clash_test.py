#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One Python process with pip's grpcio and protobuf and libferry, loaded in either order.

python_clash_test.py LIBFERRY DAEMON [ARGUMENT...]: runs the daemon with the arguments and a client directory
(tests/client/fake's, which says "ready"), or, if FERRY_CLIENT_DIR is set, uses the daemon that is there.
Runs in the interpreter that tools/setup makes, .cache/venv, if it is there when the test begins: a build may have been
configured before (tools/demo makes none). Exit status 77 (a skip) if grpcio or protobuf is not installed.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

from ferry_ctypes import Ferry, Options, Range

VENV = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".cache", "venv"))

def ferry_transfers(library, directory):
    """Two sessions' worth of real transfers through the C ABI."""
    ferry = Ferry(library)
    lib = ferry.lib
    for empty in (0, 40000):  # ranges without bytes, so many that the batch does not fit the session's socket
        options = Options(ctypes.sizeof(Options), directory.encode(), b"python", 0)
        session = ctypes.c_void_p()
        ferry.call("ferry_session_open", ctypes.byref(options), ctypes.byref(session))
        ids = [lib.ferry_session_device(session, ctypes.c_size_t(i)).global_device_id for i in (0, 1)]
        arenas = []
        for device in ids:
            arena = ctypes.c_void_p()
            ferry.call("ferry_arena_create", session, ctypes.c_uint64(device), ctypes.c_uint64(4096), 0,
                       ctypes.byref(arena))
            arenas.append(arena)
        data = [lib.ferry_arena_data(arena) for arena in arenas]
        text = b"ferried %d" % empty
        ctypes.memmove(data[0], text, len(text))
        ranges = [(Range * (1 + empty))(Range(arena.value, 0, len(text)), *[Range(arena.value, 0, 0)] * empty)
                  for arena in arenas]
        batches = [ferry.post(end == 0, session, ids[end], ids[1 - end], ranges[end], end) for end in (1, 0)]
        for batch in batches:
            ferry.call("ferry_batch_wait", batch, ctypes.c_uint64(10 * 10**9))
            lib.ferry_batch_free(batch)
        assert ctypes.string_at(data[1], len(text)) == text
        for arena in arenas:
            lib.ferry_arena_free(arena)
        lib.ferry_session_close(session)


def grpcio_calls(directory):
    """pip's own gRPC and protobuf at work: a server and a client of the health service's shape."""
    from concurrent import futures

    import grpc
    from google.protobuf import wrappers_pb2

    def echo(request, _):
        return wrappers_pb2.StringValue(value=request.value + "!")

    handler = grpc.method_handlers_generic_handler("test.Echo", {
        "Echo": grpc.unary_unary_rpc_method_handler(
            echo, request_deserializer=wrappers_pb2.StringValue.FromString,
            response_serializer=wrappers_pb2.StringValue.SerializeToString)})
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    address = "unix:" + os.path.join(directory, "python-echo.sock")
    assert server.add_insecure_port(address)
    server.start()
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/test.Echo/Echo",
                                   request_serializer=wrappers_pb2.StringValue.SerializeToString,
                                   response_deserializer=wrappers_pb2.StringValue.FromString)
        assert call(wrappers_pb2.StringValue(value="hello"), timeout=10).value == "hello!"
    server.stop(0).wait()


def one_order(order, library, directory, scratch):
    for what in order:
        if what == "ferry":
            ferry_transfers(library, directory)
        else:
            grpcio_calls(scratch)
    # And both once more, now that all is loaded.
    grpcio_calls(scratch)
    ferry_transfers(library, directory)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--order":
        one_order(sys.argv[2].split(","), *sys.argv[3:6])
        return 0
    if os.path.exists(VENV + "/bin/python3") and os.path.abspath(sys.prefix) != VENV:
        os.execv(VENV + "/bin/python3", [VENV + "/bin/python3", "-B", *sys.argv])
    try:
        import google.protobuf  # noqa: F401
        import grpc
    except ImportError as missing:
        print(f"SKIPPED: {missing}; `pip install grpcio protobuf` to run this test", file=sys.stderr)
        return 77
    library = sys.argv[1]
    scratch = tempfile.mkdtemp(prefix="ferry-python-")
    directory = os.environ.get("FERRY_CLIENT_DIR")
    daemon = None
    try:
        if not directory:
            directory = os.path.join(scratch, "client")
            os.mkdir(directory)
            daemon = subprocess.Popen(sys.argv[2:] + [directory], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
            assert daemon.stdout.readline() == b"ready\n"
        for order in ("ferry,grpc", "grpc,ferry"):
            subprocess.run([sys.executable, __file__, "--order", order, library, directory, scratch],
                           check=True, timeout=120)
            print(f"{order}: fine (grpcio {grpc.__version__}, protobuf {google.protobuf.__version__})")
    finally:
        if daemon:
            daemon.stdin.close()
            daemon.wait(timeout=30)
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
