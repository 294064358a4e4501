# SPDX-License-Identifier: Apache-2.0
"""For tests of GPU memory: a daemon with two GPUs of the fake driver ($FERRY_TEST_CUDA), which the test's process uses too, and
a torch over them."""

import gc
import os
import subprocess
import sys

import fake_torch
import pytest

import ferry

HOST, GPU, OTHER = 0, 1, 2
MIB = 1 << 20


@pytest.fixture(scope="module")
def gpus(tmp_path_factory):
    """A daemon with two GPUs of the fake driver, which this process uses too: the driver, and the client directory."""
    from ferry.node import program

    path = os.environ.get("FERRY_TEST_CUDA")
    if not path:
        pytest.skip("FERRY_TEST_CUDA names no fake CUDA driver")
    settings = {"FERRY_CUDA_LIBRARY": path, "FERRY_FAKE_CUDA": f"seed={os.getpid()}", "FERRY_NVML_LIBRARY": path}
    folder = tmp_path_factory.mktemp("gpus")
    runtime = folder / "run"
    before = dict(os.environ)
    os.environ.update(settings, FERRY_CLIENT_DIR=str(runtime / "client"))
    config = folder / "node.yaml"
    config.write_text(
        f"node: {{ name: gpu, runtime_dir: {runtime} }}\ndevices: {{ host: 1, gpus: all }}\ndrain: {{ timeout: 1s }}\n"
    )
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen([program(), "--config", str(config)], stdout=log, stderr=log)
    while True:
        try:
            ferry.Session().close()
            break
        except ferry.UnavailableError:
            assert daemon.poll() is None, (folder / "log").read_text()
    yield fake_torch.Driver(path)
    gc.collect()
    daemon.terminate()
    assert daemon.wait(30) == 0, (folder / "log").read_text()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def torch(gpus, monkeypatch):
    made = fake_torch.module(gpus)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture(name="session")
def session_of_gpus(gpus, torch):
    with ferry.Session(name="cuda") as made:
        yield made


def pattern(nbytes, seed=1):
    return bytes((i * 7 + seed) % 251 for i in range(min(nbytes, 4096))) * (-(-nbytes // 4096))


def arrives(session, tensor, data, key):
    """What is sent of `tensor` is `data`."""
    got = session.recv(shape=tensor.shape, dtype="uint8", frm=GPU, key=key, device=HOST)
    session.send(tensor, to=HOST, key=key).result(20)
    assert bytes(got.result(20).memory) == data
