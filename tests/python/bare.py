# SPDX-License-Identifier: Apache-2.0
"""What the package does without NumPy or anything else, in one process with a daemon of its own: for interpreters beside the
one that the tests have."""

import asyncio
import pickle
import sys

import ferry


async def awaited(future):
    return await future


def main():
    assert "numpy" not in sys.modules
    with ferry.local_node() as node, node.session() as session:
        tree = {"a": b"bytes", "b": [memoryview(bytes(range(12))).cast("B", (3, 4))]}
        got = session.recv(tree, frm="host0", key="tree", device="host1")
        session.send(tree, to="host1", key="tree").result(20)
        came = asyncio.run(awaited(got))
        assert bytes(came["a"].memory) == b"bytes" and bytes(came["b"][0].memory) == bytes(range(12))
        assert came["b"][0].shape == (3, 4) and came["b"][0].__dlpack_device__() == (1, 0)
        tensor, into = session.empty(8, "uint8"), session.empty(8, "uint8", device="host1")
        send = session.prepare_send(tensor, to="host1", key="fired")
        with send, session.prepare_recv(into=into, frm="host0", key="fired") as receive:
            for step in range(1, 4):
                tensor.memory[:] = bytes([step]) * 8
                receive.fire()
                send.fire()
                receive.wait(timeout=20)
                send.wait(timeout=20)  # each end is over by a word of its own
                assert bytes(into.memory) == bytes([step]) * 8
        try:
            session.recv(shape=8, frm="host0", key="never", device="host1", deadline=0.01).result(20)
        except ferry.DeadlineExceededError as error:
            again = pickle.loads(pickle.dumps(error))
            assert (again.reason, again.keys, str(again)) == ("WAITING_FOR_PEER", (b"never",), str(error))
        else:
            raise AssertionError("nobody has sent it")
    print(f"tests/python/bare.py: fine with CPython {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
