# SPDX-License-Identifier: Apache-2.0
"""Adapters where $FERRY_DOMAIN_FILE names a job's domain: each is a member of it, by itself, on every device of its node."""

import sys
import types

import fake_ray
import fake_verl
import fake_vllm
import pytest

import ferry


@pytest.fixture
def adapter(monkeypatch):
    """Imports ferry.NAME over stand-ins."""
    names = []

    def load(name, install):
        install(monkeypatch)
        sys.modules.pop(f"ferry.{name}", None)
        names.append(name)
        return __import__(f"ferry.{name}", fromlist=["session"])

    yield load
    for name in names:
        sys.modules.pop(f"ferry.{name}", None)
        del ferry.__dict__[name]


def ray(load):
    session = load("ray", fake_ray.install).session()
    return session.close


def vllm_worker(load):
    backend = load("vllm", fake_vllm.install)
    config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(rank=0), model_config=None)
    engine = backend.FerryWeightTransferEngine(None, config, "cpu", None)
    none = {name: [] for name in ("names", "dtype_names", "shapes", "owners", "mesh_shapes", "placements")}
    engine.init_transfer_engine(engine.parse_init_info(none))
    return engine.shutdown


def vllm_trainer(load):
    backend = load("vllm", fake_vllm.install)
    info = backend.FerryTrainerInitInfo(rank=1)
    return backend.FerryTrainerWeightTransferEngine(client=None, source=None, info=info).shutdown


def verl(load):
    engine = load("verl", fake_verl.install).FerryCheckpointEngine(bucket_size=64)
    engine.prepare()
    return engine.close


@pytest.mark.parametrize("join", [ray, vllm_worker, vllm_trainer, verl])
def test_an_adapter_joins_the_domain_of_its_job(nodes, adapter, monkeypatch, tmp_path, key, join):
    """Who waits for its process hears that it is gone, though it had posted nothing; who waits in another domain does not."""
    file = tmp_path / "domain"
    file.write_text(f"job {key}"[-32:])
    monkeypatch.setenv("FERRY_DOMAIN_FILE", str(file))
    monkeypatch.setenv("FERRY_CLIENT_DIR", nodes.b)
    end = join(adapter)
    with ferry.Session(nodes.a) as mine, ferry.Session(nodes.a, domain="another job") as other:
        waiting = [mine.recv(shape=1, frm=device, key=key) for device in (2, 3)]
        elsewhere = other.recv(shape=1, frm=2, key=key)
        assert not any(one.done() for one in waiting)
        end()
        for one in waiting:
            with pytest.raises(ferry.PeerClientGoneError):
                one.result(20)
        assert not elsewhere.done()
