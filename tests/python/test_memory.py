# SPDX-License-Identifier: Apache-2.0
"""Tensors: shapes and types, zero-copy both ways, what is copied."""

import copy
import ctypes
import gc
import pickle

import ml_dtypes
import numpy as np
import pytest

import ferry
from ferry import _dlpack, _memory

NUMPY_TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
OTHERS = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
SMALL = [1, 2, 0.5, 4, 1]


def address_of(array):
    return array.__array_interface__["data"][0]


def move(a, b, key, tensor, like=None):
    sent = a.send(tensor, to=2, key=key)
    got = b.recv(tensor if like is None else like, frm=0, key=key).result(20)
    sent.result(20)
    return got


@pytest.mark.parametrize("kind", ["numpy", "ml_dtypes"])
def test_every_type_moves_and_is_seen_without_a_copy(a, b, key, kind):
    names = NUMPY_TYPES if kind == "numpy" else OTHERS
    tree = {name: np.array(SMALL).astype(name if kind == "numpy" else getattr(ml_dtypes, name)) for name in names}
    for name, got in move(a, b, key, tree).items():
        assert got.dtype == name and got.shape == (5,)
        seen = got.numpy()
        assert seen.dtype == tree[name].dtype and (seen == tree[name]).all()
        assert seen.ctypes.data == got.address
        seen[0] = seen[1]
        assert got.numpy()[0] == seen[1]


def test_float4_is_packed_on_the_way(a, b, key):
    values = np.array([1, 2, 3, 0.5, -1, 6, -6], ml_dtypes.float4_e2m1fn)
    got = move(a, b, key, values)
    assert (got.dtype, got.nbytes) == ("float4_e2m1fn", 4)
    assert bytes(got.memory) == bytes([0x42, 0x15, 0x7A, 0x0F])
    assert (got.numpy() == values).all()
    assert "copied once" in a.explain(values)
    with pytest.raises(ValueError, match="is a copy"):
        np.asarray(got, copy=False)
    rows = np.arange(-6, 6).reshape(2, 6).astype(ml_dtypes.float4_e2m1fn)[:, ::2]
    assert (move(a, b, key, rows).numpy() == rows).all()


def test_memory_that_is_given_back_is_in_no_arena(a):
    """What another thread has got at the same address, before the name is gone, is its own."""
    tensor = a.empty(16, "uint8")
    array = np.frombuffer((ctypes.c_ubyte * 16).from_address(tensor.address), "u1")
    assert a.explain(array).startswith("zero-copy")
    arena, said = tensor._arena, []
    dispose = arena._dispose
    arena._dispose = lambda *what: (said.append(a.explain(array)), dispose(*what))
    del tensor, arena
    assert said == ["copied once: the 16 bytes are in no arena of this session (Session.empty makes one)"]


def test_arrays_over_a_tensor_are_its_memory(a):
    tensor = a.empty((3, 4), "float32")
    by_interface, by_dlpack = np.asarray(tensor), np.from_dlpack(tensor)
    by_interface[1, 2] = 7
    assert by_dlpack[1, 2] == 7 and bytes(tensor.memory[24:28]) == by_interface[1, 2].tobytes()
    assert address_of(by_interface) == by_dlpack.__array_interface__["data"][0] == tensor.address
    for view in (tensor, by_interface, by_interface[1:], tensor[1:], tensor[1], by_dlpack):
        assert a.explain(view).startswith("zero-copy")
    assert a.explain(np.zeros(4, "f4")).startswith("copied once: the 16 bytes are in no arena")


def test_memory_lives_as_long_as_anybody_sees_it(a):
    arrays = [np.from_dlpack(a.empty(4096, "uint8")) for _ in range(2)] + [a.empty(4096, "uint8").numpy()]
    arrays += [np.asarray(a.empty(4096, "uint8")), np.frombuffer(a.empty(4096, "uint8").memory, "u1")]
    a.close()
    gc.collect()
    for array in arrays:
        array[:] = 5
        assert array.sum() == 5 * 4096
    del arrays, array
    gc.collect()
    assert not _dlpack._out


def test_a_capsule_that_nobody_takes_is_given_back(a):
    for version in (None, (1, 0)):
        capsule = a.empty(4).__dlpack__(max_version=version)
        assert len(_dlpack._out) == 1
        del capsule
        assert not _dlpack._out
    with pytest.raises(BufferError, match="without a copy"):
        a.empty(4).__dlpack__(copy=True)
    with pytest.raises(BufferError, match="no name for float4"):
        a.empty(4, "float4_e2m1fn").__dlpack__()
    assert a.empty(4).__dlpack_device__() == (1, 0)


def test_empty_ones_and_scalars_move(a, b, key):
    got = move(a, b, key, [np.zeros((0, 3)), np.float32(7), np.array(8), b"", a.empty(0, "bfloat16")])
    assert [tensor.shape for tensor in got] == [(0, 3), (), (), (0,), (0,)]
    assert [float(tensor.numpy()) for tensor in got[1:3]] == [7, 8]
    assert got[0].numpy().shape == (0, 3) and np.from_dlpack(got[0]).shape == (0, 3)


def test_buffers_move_without_numpy(a, b, key):
    import array

    tree = {"bytes": b"ferry", "array": array.array("d", [1, 2]), "view": memoryview(bytearray(6)).cast("h", (3, 1))}
    got = move(a, b, key, tree)
    assert bytes(got["bytes"].memory) == b"ferry"
    assert (got["array"].dtype, got["array"].numpy().tolist()) == ("float64", [1, 2])
    assert (got["view"].dtype, got["view"].shape) == ("int16", (3, 1))


def test_a_capsule_is_of_the_device_that_was_asked_for(a):
    tensor = a.empty(4)
    assert "dltensor" in repr(tensor.__dlpack__(dl_device=(1, 0)))
    with pytest.raises(BufferError, match=r"on DLPack device \(1, 0\), not \(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))


def test_copies_of_a_tensor(a, key):
    tensor = a.empty((2, 3), "int16")
    tensor.numpy()[:] = 5
    same, other = copy.copy(tensor), copy.deepcopy({"x": tensor})["x"]
    tensor.numpy()[:] = 6
    assert (same.numpy() == 6).all() and (other.numpy() == 5).all() and other.shape == (2, 3) and other.device == 0
    with pytest.raises(TypeError, match="memory of this process and its daemon"):
        pickle.dumps({"x": tensor})
    made = _memory.Arena.__new__(_memory.Arena)  # as of a copy that failed
    made.__del__()


def test_a_column_of_a_matrix_goes_from_where_it_is(a, b, key):
    matrix = a.empty((6, 8), "float32").numpy()
    matrix[:] = np.arange(48).reshape(6, 8)
    for piece in (matrix[:, 2:5], matrix[::2], matrix[1:4, 7:], matrix.reshape(2, 3, 8)[:, :, :2]):
        assert a.explain(piece).startswith("zero-copy: ")
        assert (move(a, b, key, piece).numpy() == piece).all()
    assert "blocks, one every 32 bytes" in a.explain(matrix[:, 2:5])


def test_a_matrix_may_be_received_into_columns(a, b, key):
    matrix = b.empty((4, 6), "int32").numpy()
    halves = [matrix[:, :3], matrix[:, 3:]]
    sent = a.send([np.full((4, 3), 1, "i4"), np.full((4, 3), 2, "i4")], to=2, key=key)
    assert b.recv(into=halves, frm=0, key=key).result(20) is halves
    sent.result(20)
    assert matrix.tolist() == [[1, 1, 1, 2, 2, 2]] * 4


def test_rows_and_views_of_a_tensor(a):
    tensor = a.empty((4, 6), "float16")
    tensor.numpy()[:] = np.arange(24).reshape(4, 6)
    assert tensor[-1].numpy().tolist() == [18, 19, 20, 21, 22, 23]
    assert tensor[1:3].shape == (2, 6) and tensor[1:3].numpy()[0, 0] == 6 and len(tensor) == 4
    assert tensor.view((2, 2), "uint32", offset=16).nbytes == 16
    assert [row.shape for row in tensor] == [(6,)] * 4
    assert repr(tensor) == "ferry.Tensor(shape=(4, 6), dtype='float16', device=0)"
    with pytest.raises(IndexError):
        tensor[4]
    with pytest.raises(ferry.InvalidArgumentError, match="step of 1"):
        tensor[::2]
    with pytest.raises(ferry.InvalidArgumentError, match="not inside a tensor of 48"):
        tensor.view(5, "float64", offset=16)


@pytest.mark.parametrize(
    "name", ["float32", "torch.bfloat16", "<f4", "f4", np.float32, np.dtype("f4"), float, ml_dtypes.bfloat16]
)
def test_types_by_all_their_names(a, name):
    assert a.empty(2, name).dtype in ("float32", "bfloat16", "float64")


def test_one_element_is_a_number(a):
    tensor = a.empty((2, 2), "int32")
    tensor.numpy()[:] = [[1, 2], [3, 4]]
    assert tensor[1][0].item() == 3 and float(tensor[1][1]) == 4.0 and int(tensor[0][0]) == 1
    with pytest.raises(ValueError):
        tensor.item()
    with pytest.raises(TypeError, match=r"becomes an array by numpy\.asarray, torch\.from_dlpack or jax\.numpy\.asarray"):
        len(tensor[0][0])  # of which torch.as_tensor and torch.tensor ask, to which a tensor is a list of lists


def test_jax_takes_a_tensor_where_it_takes_an_array(a):
    numpy = pytest.importorskip("jax.numpy")
    tensor = a.empty((2, 2), "int32")
    array = numpy.asarray(tensor)
    tensor.numpy()[:] = 5
    assert array.tolist() == [[5, 5], [5, 5]] and numpy.array(tensor).sum() == 20
