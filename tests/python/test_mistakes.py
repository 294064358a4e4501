# SPDX-License-Identifier: Apache-2.0
"""What a user gets wrong, and that the message says what to do."""

import copy
import datetime
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import ferry
from ferry import errors


def test_no_daemon_is_running(tmp_path):
    with pytest.raises(ferry.UnavailableError, match=f"{tmp_path}.*is ferryd running") as failed:
        ferry.Session(tmp_path)
    assert failed.value.reason == "NOT_READY" and isinstance(failed.value, ConnectionError)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_no_permission_on_the_socket(nodes):
    program = (
        "import os, sys, ferry\n"
        "from ferry import _session, _abi; _abi.library()\n"  # while it may read what is installed
        "os.setgid(65534); os.setgroups([]); os.setuid(65534)\n"
        "try: ferry.Session(sys.argv[1])\n"
        "except ferry.NotAllowedError as error: print(error.reason, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, nodes.a], capture_output=True, text=True, check=False)
    assert "NOT_ALLOWED" in done.stdout and "ermission denied" in done.stdout, done.stdout + done.stderr
    assert "user 65534" in done.stdout and "sockets.client" in done.stdout, done.stdout
    assert nodes.a in done.stdout, done.stdout


def test_the_other_half_was_never_posted(a, key):
    with pytest.raises(ferry.DeadlineExceededError) as failed:
        a.send(b"x", to=2, key=key, deadline=0.1).result(20)
    assert failed.value.reason == "WAITING_FOR_PEER" and isinstance(failed.value, TimeoutError)
    assert not isinstance(failed.value, ferry.WaitTimeoutError)
    assert "receive" in failed.value.message and failed.value.keys == (key.encode(),)


@pytest.mark.parametrize("mistake", ["key", "domain"])
def test_the_other_half_has_another_key_or_domain(nodes, a, key, mistake):
    with ferry.Session(nodes.b, domain="another job" if mistake == "domain" else None) as other:
        wrong = other.recv(shape=1, dtype="uint8", frm=0, key=key if mistake == "domain" else key[:-1] + "?")
        with pytest.raises(ferry.DeadlineExceededError, match=f"(?s)another {mistake}|{mistake} differs|{mistake}") as failed:
            a.send(b"x", to=2, key=key, deadline=0.5).result(20)
        assert mistake == "key" or ("domain=" in str(failed.value) and "$FERRY_DOMAIN_FILE" in str(failed.value))
        wrong.cancel()


def test_type_shape_or_size_differ(a, b, key):
    for sent, like, said in (
        (np.zeros(4, "f4"), np.zeros(4, "i4"), ("F32", "S32")),
        (np.zeros((2, 2), "f4"), np.zeros(4, "f4"), ("[2,2]", "[4]")),
        (np.zeros(4, "u1"), np.zeros(5, "u1"), ("4", "5")),
        (np.zeros(4, "f4"), np.zeros(4, "f8"), ("16", "32")),
    ):
        sending = a.send(sent, to=2, key=key)
        with pytest.raises(ferry.MismatchError) as failed:
            b.recv(like, frm=0, key=key).result(20)
        assert all(word in failed.value.message.replace(" ", "") for word in said), failed.value.message
        assert failed.value.reason == "TRANSFER_MISMATCH"
        assert "give recv the sender's dtype= and shape=, or like= a tensor" in failed.value.message
        theirs = sending.exception(20)
        assert isinstance(theirs, ferry.MismatchError)
        # Each end says what it has: of different bytes the library's text has no type.
        for error, mine in ((failed.value, like), (theirs, sent)):
            assert error.message.endswith(f"This end has {mine.dtype.name} of shape {mine.shape}"), error.message
            assert str(error).endswith(error.message) and error.keys == (key.encode(),)


def test_a_key_is_in_use(a, key):
    first = a.send(b"x", to=2, key=f"{key}/y")
    with pytest.raises(ferry.KeyInUseError) as failed:
        a.send({"x": b"x", "y": b"x"}, to=2, key=key)
    assert failed.value.keys == (f"{key}/y".encode(),)
    first.cancel()


def test_a_prepared_batch_says_which_transfers_it_was(a, key):
    source = a.empty_like({"x": b"x", "y": b"y"})
    keys = (f"{key}/x".encode(), f"{key}/y".encode())
    with a.prepare_send(source, to=2, key=key, deadline=0.1) as out:
        out.fire()
        with pytest.raises(ferry.DeadlineExceededError) as waited:
            out.wait(timeout=20)
        with pytest.raises(ferry.DeadlineExceededError) as fired:
            out.fire()
        with pytest.raises(ferry.InvalidArgumentError, match="a firing is its number, from 1, not 'last'"):
            out.wait("last")
    for failed in (waited, fired):
        assert failed.value.keys == keys and len(set(failed.value.transfer_ids)) == 2 and 0 not in failed.value.transfer_ids


def test_tensors_that_do_not_do(a, key):
    class OfRocm:
        def __dlpack__(self, **_):
            raise AssertionError("not asked")

        def __dlpack_device__(self):
            return (10, 0)

    class OfNoSize:
        """As PyTorch's sparse tensors are."""

        @property
        def nbytes(self):
            raise RuntimeError("nbytes is not defined")

    for tensor, said in (
        (OfNoSize(), "an OfNoSize is no tensor"),
        (np.arange(12).reshape(3, 4).T, "make it contiguous"),
        (np.zeros((4, 4))[:, ::2], "make it contiguous"),
        (np.zeros(3, ">f4"), "convert the array"),
        (np.zeros(3, "M8[s]"), "convert the array"),
        (np.array(["text"]), "convert the array"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "masked array.*filled.*.data and .mask"),
        ("text", "a str is no tensor"),
        (5, "an int is no tensor"),
        ({1, 2}, "a set is no tensor"),
        (memoryview(bytes(8))[::2], "contiguous buffer"),
        (OfRocm(), "host memory and of CUDA GPUs: copy it to one of these"),
    ):
        with pytest.raises(ferry.FerryError, match=said.replace("(", r"\(")):
            a.send(tensor, to=2, key=key)


def test_a_daemon_that_is_lost_is_waited_for_by_a_name_of_this_package():
    """The library's text names its own function."""
    lost = errors.for_python("DAEMON_LOST", "the daemon went away (ferry_session_wait)")
    assert lost == "the daemon went away (Session.wait_daemon)"


def test_arguments_that_do_not_do(a, key):
    tensor = a.empty(4)
    for call, said in (
        (lambda: a.send(tensor, to=2, key=""), "a key has 1 to 64 bytes, not 0"),
        (lambda: a.send(tensor, to=2, key="k" * 65), "a key has 1 to 64 bytes, not 65"),
        (lambda: a.send(tensor, to=2, key=-1), "a key is text, bytes, or an integer from 0 and below 2.64, not -1"),
        (lambda: a.send(tensor, to=2, key=None), "a key is text, bytes, or an integer"),
        (
            lambda: a.send(tensor, to=2.5, key=key),
            "a device is its number, its name, a ferry.Device or .*, not 2.5",
        ),
        (lambda: a.send(tensor, to=2, key=key, deadline=float("inf")), "at most a year, not inf"),
        (lambda: a.empty("4"), "a shape is an integer or a sequence of them, not '4'"),
        (lambda: a.empty((4, 4))[1, 2], r"indexed along its first dimension alone, not by \(1, 2\): see .numpy"),
        (lambda: a.send(tensor, to=2, key=key, route="rdma"), "no route is called 'rdma'; known: any, local"),
        (lambda: a.send(tensor, to=2, key=key, deadline=0), "a deadline is a time in seconds from now, at most a year, not 0"),
        (lambda: a.send(tensor, to=2, key=key, priority=101), "priority"),
        (lambda: a.send(tensor, to=2, key=key, priority=1.5), "a priority is an integer from -100 to 100, not 1.5"),
        (lambda: a.send(tensor, to=2, key=key, deadline="5"), "a deadline is a time in seconds from now, .* not '5'"),
        (lambda: a.recv(shape=4, frm=2, key=key, deadline=datetime.timedelta(seconds=3)), "a deadline is a time in seconds"),
        (lambda: ferry.Session(timeout="5"), "a timeout is a time in seconds, at most a year, not '5'"),
        (lambda: a.recv(frm=2, key=key), "one of like=, shape= and into="),
        (lambda: a.recv(tensor, shape=4, frm=2, key=key), "one of like=, shape= and into="),
        (lambda: a.recv(into=np.zeros(4), frm=2, key=key), "make it by Session.empty"),
        (lambda: a.empty(4, "float33"), "no element type is called 'float33'; known: bool, int8"),
        (lambda: a.empty((4, -1)), "negative dimension"),
        (lambda: a.empty(4, device=2), "DEVICE_UNKNOWN|device 2"),
        (lambda: a.empty(1 << 60), "QUOTA_BYTES|DEVICE_MEMORY|memory|bytes"),
        (lambda: a.send(tensor, to=17, key=key), "17"),
    ):
        with pytest.raises(ferry.FerryError, match=said) as failed:
            call()
        assert failed.value.message in str(failed.value)
        assert failed.value.reason
    with pytest.raises(ValueError):
        a.send(tensor, to=2, key="")


@pytest.mark.parametrize("kind", [list, np.uint64, np.int32], ids=["list", "uint64", "int32"])
def test_a_block_beyond_its_tensor_is_refused(a, b, key, kind):
    """The next tensor of the same arena follows at once: without the refusal it would be sent, or written over."""

    def indices(*some):
        return list(some) if kind is list else np.array(some, kind)

    mine = a.empty_like({"kv": np.zeros((4, 64), "u1"), "other": np.zeros((4, 64), "u1")})
    theirs = b.empty_like(mine)
    said = r"block 4 .* 4 blocks of 64 bytes"
    with pytest.raises(ferry.InvalidArgumentError, match=said) as failed:
        a.send(ferry.Blocks(mine["kv"], indices(0, 4, 1)), to=2, key=key)
    assert failed.value.violations[0][0] == "indices"
    with pytest.raises(ferry.InvalidArgumentError, match=said):
        b.recv(into=ferry.Blocks(theirs["kv"], indices(4)), frm=0, key=key)
    with pytest.raises(ferry.InvalidArgumentError, match=r"block 8 .* 8 blocks of 32 bytes"):
        a.prepare_send(ferry.Blocks(mine["kv"], indices(8), 32), to=2, key=key)
    mine["kv"].numpy()[:] = 7
    into = b.recv(into=ferry.Blocks(theirs["kv"], indices(3, 0)), frm=0, key=key)
    a.send(ferry.Blocks(mine["kv"], indices(1, 3)), to=2, key=key).result(20)
    into.result(20)
    assert theirs["kv"].numpy()[:, 0].tolist() == [7, 0, 0, 7] and not theirs["other"].numpy().any()


HUGE = [(2**62 + 64, "float32"), (2**63, "uint8"), (2**70, "uint8"), ((2**32, 2**32), "float64"), ((2**64, 0), "uint8")]


@pytest.mark.parametrize(("shape", "dtype"), HUGE)
def test_a_tensor_larger_than_all_memory_is_refused(a, key, shape, dtype):
    """Were its bytes cut to 64 bits, its arena would be a small one."""
    for call in (
        lambda: a.empty(shape, dtype),
        lambda: a.recv(shape=shape, dtype=dtype, frm=2, key=key),
        lambda: a.prepare_recv(shape=shape, dtype=dtype, frm=2, key=key),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=r"2\^63") as failed:
            call()
        assert failed.value.violations[0][0] == "shape"


def test_trees_larger_than_all_memory_are_refused(a):
    wide = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), (2**40, 2**22), (0, 0))
    with pytest.raises(ferry.InvalidArgumentError, match=r"is 4611686018427387904 bytes, .* with those before it"):
        a.empty_like({"x": wide, "y": wide})


@pytest.mark.parametrize("mask", [np.array([False, True] * 2), [False, True] * 2], ids=["array", "list"])
def test_a_mask_is_no_row_of_indices(a, key, mask):
    """As numbers it would be blocks 0 and 1, some twice."""
    tensor = a.empty((4, 64), "uint8")
    with pytest.raises(ferry.InvalidArgumentError, match=r"numpy.flatnonzero\(mask\)") as failed:
        a.send(ferry.Blocks(tensor, mask), to=2, key=key)
    assert failed.value.violations[0][0] == "indices"


def test_blocks_that_do_not_do(a, key):
    tensor = a.empty((4, 64), "uint8")
    for blocks, said in (
        (ferry.Blocks(tensor, [-1]), "a block index is negative: -1"),
        (ferry.Blocks(tensor, [1 << 64]), "block 18446744073709551616 is not inside"),
        (ferry.Blocks(tensor, [0.5]), "block indices are integers"),
        (ferry.Blocks(tensor, np.zeros((2, 2), "u8")), "block indices are integers in one row"),
        (ferry.Blocks(tensor, [0], -64), "block_bytes"),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=said):
            a.send(blocks, to=2, key=key)


def test_a_mistyped_option_of_a_session_is_a_type_error_alone(run):
    """What was never begun is nothing to close: no `Exception ignored in` beside it, at which `run` fails."""
    program = "import ferry\ntry: ferry.Session(doman='job')\nexcept TypeError as error: print(error)\n"
    assert "doman" in run(program)


def test_a_refused_argument_is_named(a, key):
    with pytest.raises(ferry.InvalidArgumentError) as failed:
        a.send(a.empty(4), to=2, key=key, priority=101)
    assert failed.value.violations[0][0] == "priority" and failed.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ferry.NotFoundError) as failed:
        a.send(a.empty(4), to=17, key=key)
    assert failed.value.reason == "DEVICE_UNKNOWN"


def test_a_full_queue_says_when_to_try_again(nodes):
    with ferry.Session(nodes.a) as session, pytest.raises(ferry.ResourceExhaustedError) as failed:
        tensor = session.empty(4, "uint8")
        for i in range(6):  # conftest.IN_FLIGHT
            session.send([tensor] * 4096, to=2, key=f"full-{i}")
    assert failed.value.reason == "QUEUE_FULL" and failed.value.retry_after > 0


def test_what_dies_at_the_other_end_is_told_within_a_moment(nodes, a, key, run):
    program = (
        "import ferry, os, sys\n"
        "session = ferry.Session(os.environ['B'])\n"
        "with session.prepare_recv(shape=1, dtype='uint8', frm=0, key=sys.argv[1]) as into:\n"
        "    into.fire()\n"
        "    print('there', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environment = {**os.environ, "B": nodes.b}
    with subprocess.Popen(
        [sys.executable, "-c", program, key], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        out = a.prepare_send(a.empty(1, "uint8"), to=2, key=key)
        out.fire()
        out.wait(timeout=20)  # a receive that dies before the send has met it is waited for
        out.fire()
        other.kill()
        with pytest.raises(ferry.PeerClientGoneError):
            out.wait(timeout=20)


ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ferry.FerryError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind):
    error = kind("why", "REASON", (("field", "text"),), 0.5, (3, 4), (b"k",))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind and str(back) == str(error) == f"{kind.code} REASON: why"
    assert vars(back) == vars(error)
    assert (back.reason, back.retry_after, back.transfer_ids, back.keys) == ("REASON", 0.5, (3, 4), (b"k",))


@pytest.mark.parametrize(
    "call, said, argument",
    [
        (lambda a: a.send(np.zeros(3), to=None, key="k"), "to= names the device at the other end", "to"),
        (lambda a: a.recv(shape=3, frm=None, key="k"), "frm= names the device at the other end", "frm"),
        (lambda a: a.prepare_send(a.empty(3), to=None, key="k"), "to= names the device at the other end", "to"),
        (lambda a: a.send(None, to=1, key="k"), "key 'k': there is None to be sent", "tensor"),
        (lambda a: a.recv((3, 4), frm=1, key="k"), "key 'k/0': 3 is no tensor: .* a shape is shape=", "like"),
        (lambda a: a.empty(3, "float"), "NumPy has 64 bits by this name, PyTorch 32", "dtype"),
        (lambda a: a.prepare_send(np.zeros(3), to=1, key="k"), "what is prepared is not copied: .*empty$", "tensor"),
        (lambda a: a.empty(3, "float4_e2m1fn").__setitem__(0, 1), "no elements of whole bytes", "index"),
    ],
)
def test_what_is_meant_otherwise_says_how_it_is_written(a, call, said, argument):
    with pytest.raises(ferry.InvalidArgumentError, match=said) as info:
        call(a)
    assert info.value.violations[0][0] == argument


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_of_one_process_is_not_carried_to_another(a, key, how):
    prepared = a.prepare_send(a.empty(3), to=1, key=key)
    for one, said in (
        (a, "opens its own"),
        (a.send(b"x", to=1, key=f"{key}-sent"), "send what"),
        (prepared, "each end prepares"),
    ):
        with pytest.raises(TypeError, match=said):
            how(one)


def test_what_is_natural_is_taken(a, key):
    """Names of types that are the same everywhere; keys of text; elements that are assigned."""
    assert [a.empty(1, name).dtype for name in ("half", "single", "double")] == ["float16", "float32", "float64"]
    tensor = a.empty((2, 3), "uint8")
    tensor[0] = 7
    tensor[1, 1:] = [8, 9]
    assert tensor.numpy().tolist() == [[7, 7, 7], [0, 8, 9]]
    a.send_many(tensor, to=1, keys=np.array([f"{key}-ä", f"{key}-b"]), offsets=np.array([0, 3]), lengths=np.array([3, 3]))
    for name, row in (("ä", [7, 7, 7]), ("b", [0, 8, 9])):
        got = a.recv(shape=3, dtype="uint8", frm=0, key=f"{key}-{name}", device=1)
        assert got.result(20).numpy().tolist() == row
