# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch on the CPU, in an interpreter that has it: this one, or Debian's with python3-torch."""

import os
import subprocess

from conftest import interpreter_with

import ferry

PROGRAM = """
import ferry, os, torch
NEW = int(torch.__version__.partition(".")[0]) >= 2
a, b = ferry.Session(os.environ["A"]), ferry.Session(os.environ["B"])

model, other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
sent = a.send(model.state_dict(), to=2, key="torch/state")
got = b.recv(other.state_dict(), frm=0, key="torch/state").result(20)
sent.result(20)
other.load_state_dict({name: torch.from_dlpack(tensor) for name, tensor in got.items()})
assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)
print("state dict")

for kind in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.complex64):
    tensor = torch.arange(12).reshape(3, 4).to(kind)
    sent = a.send(tensor, to=2, key="torch/type")
    back = torch.from_dlpack(b.recv(tensor, frm=0, key="torch/type").result(20))
    assert back.dtype == kind and torch.equal(back, tensor), (back, tensor)
    sent.result(20)
for name in ("uint16", "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
    if NEW:  # DLPack of PyTorch before 2 has no bool, nor are the others there
        tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, name))
        sent = a.send(tensor, to=2, key="torch/type")
        back = torch.from_dlpack(b.recv(tensor, frm=0, key="torch/type").result(20))
        assert back.dtype == tensor.dtype and torch.equal(back.view(torch.uint8), tensor.view(torch.uint8)), name
        sent.result(20)
print("types")

for tensor in (torch.tensor([True, False, True]), torch.nn.Parameter(torch.ones(2))):
    sent = a.send(tensor, to=2, key="torch/cpu")
    assert b.recv(tensor, frm=0, key="torch/cpu").result(20).numpy().tolist() == tensor.tolist()
    sent.result(20)
meta = torch.ones((2, 3), dtype=torch.bfloat16, device="meta")
assert (b.empty_like(meta).shape, b.empty_like(meta).dtype) == ((2, 3), "bfloat16")
class NoMemory(torch.Tensor):
    def data_ptr(self):  # as of MaskedTensor, FakeTensor and other wrappers
        return 0
refused = {
    "resolve_conj": torch.ones(2, dtype=torch.complex64).conj(),
    "layout torch.sparse_coo": torch.eye(2).to_sparse(),
    "int_repr": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "like=": meta,
    "complex32', the bytes of whose tensors .view(torch.uint8) has": torch.empty(2, dtype=torch.complex32),
    "has no memory of its own": torch.empty(2).as_subclass(NoMemory),
}
for said, tensor in refused.items():
    try:
        a.send({"x": torch.ones(1), "y": tensor}, to=2, key="torch/refused")
    except ferry.InvalidArgumentError as error:
        assert said in str(error) and "key 'torch/refused/y': " in str(error), error
    else:
        raise AssertionError(said)
print("refused")

arena = a.empty((6, 4), torch.bfloat16)
seen = torch.from_dlpack(arena)
seen[:] = torch.arange(24).reshape(6, 4)
assert seen.data_ptr() == arena.address
for piece in (seen, seen[1], seen[:, 1:3], seen.requires_grad_()):
    assert a.explain(piece).startswith("zero-copy"), a.explain(piece)
if NEW:
    assert torch.as_tensor(arena).data_ptr() == torch.asarray(arena).data_ptr() == arena.address
sent = a.send(seen[:, 1:3], to=2, key="torch/columns")
back = torch.from_dlpack(b.recv(shape=(6, 2), dtype=torch.bfloat16, frm=0, key="torch/columns").result(20))
assert torch.equal(back, seen[:, 1:3])
print("zero-copy")

try:
    a.send(torch.zeros(3, 4).t(), to=2, key="torch/transposed")
except ferry.InvalidArgumentError as error:
    assert ".contiguous()" in str(error)
    print("contiguous")
kept = (seen, back, torch.from_dlpack(a.empty(4)))  # to the interpreter's end
"""


def test_torch_tensors(nodes):
    environment = {**os.environ, "A": nodes.a, "B": nodes.b, "PYTHONPATH": os.path.dirname(os.path.dirname(ferry.__file__))}
    done = subprocess.run(
        [interpreter_with("torch"), "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n") == ["state dict", "types", "refused", "zero-copy", "contiguous", ""]
