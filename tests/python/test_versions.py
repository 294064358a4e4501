# SPDX-License-Identifier: Apache-2.0
"""A daemon of another version: what a Python program is told."""

import contextlib
import os
import shutil
import socket
import tempfile
import threading

import pytest

import ferry

NOW = b"\x08\x02\x10\x02"  # of Hello in proto/ferry/v1/session.proto: protocol_min, protocol_max


@pytest.fixture
def other(nodes):
    """The client directory of node a's daemon as one of another version has it: a client's versions of the protocol come
    there as `spoken`."""
    with contextlib.ExitStack() as ended:
        directory = tempfile.mkdtemp(prefix="ferry-py-")
        ended.callback(shutil.rmtree, directory)
        listener = ended.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(os.path.join(directory, "attach.sock"))
        listener.listen(8)
        threads = []

        def serve(spoken):
            with (
                contextlib.suppress(OSError),
                listener.accept()[0] as client,
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon,
            ):
                daemon.connect(os.path.join(nodes.a, "attach.sock"))
                hello = client.recv(1 << 16)
                assert hello.count(NOW) == 1, hello
                daemon.send(hello.replace(NOW, bytes((0x08, spoken, 0x10, spoken))))
                client.send(daemon.recv(1 << 16))

        def speaks(spoken):
            threads.append(threading.Thread(target=serve, args=(spoken,)))
            threads[-1].start()
            return directory

        yield speaks
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("spoken", "update"), [(1, "libferry, or the program that has its own"), (9, "ferryd")])
def test_a_daemon_of_another_version_says_who_is_to_be_updated(other, spoken, update):
    with pytest.raises(ferry.FailedPreconditionError) as refused:
        ferry.Session(other(spoken), timeout=20)
    error = refused.value
    assert error.reason == "PROTOCOL_VERSION"
    assert f"the client speaks version {spoken} of the protocol with clients, this daemon speaks" in error.message
    assert f"; update {update}" in error.message
