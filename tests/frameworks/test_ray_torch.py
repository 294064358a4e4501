# SPDX-License-Identifier: Apache-2.0
"""ferry.ray in Ray itself, with tensors of PyTorch, on the CPU: where both are installed, as beside verl."""

import sys

import pytest
import ray
import torch
from ray.experimental import set_target_for_ref

import ferry
import ferry.ray

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
ferry.ray.register()  # before classes name it


@ray.remote(enable_tensor_transport=True, num_cpus=0)
class Actor:
    @ray.method(tensor_transport="FERRY")
    def make(self, count, kind=torch.float32):
        return {"a": torch.arange(count).to(kind), "b": [torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(True)]}

    @ray.method(tensor_transport="FERRY")
    def shared(self, count):
        made = torch.from_dlpack(ferry.ray.session().empty(count))
        made[:] = 7
        return made

    def told(self, tree):
        a, (b, _) = tree["a"], tree["b"]
        return {"a": str(a.dtype), "b": str(b.dtype)}, float(a.to(torch.float32).sum())

    def doubled(self, tensor):
        return (tensor * 2).tolist(), [one.copied for one in ferry.ray.transfers]


@pytest.fixture(scope="module", autouse=True)
def cluster(node):
    ray.init(num_cpus=4, include_dashboard=False, logging_level="warning")
    yield
    ray.shutdown()


@pytest.fixture
def actors():
    made = [Actor.remote() for _ in range(2)]
    yield made
    for actor in made:
        ray.kill(actor)


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.float8_e4m3fn], ids=str)
def test_a_tree_of_tensors_goes_as_such(actors, kind):
    maker, taker = actors
    assert ray.get(taker.told.remote(maker.make.remote(5, kind)), timeout=60) == (
        {"a": str(kind), "b": "torch.bfloat16"},
        10.0,
    )


def test_the_driver_gets_and_puts_tensors(actors):
    got = ray.get(actors[0].make.remote(5), timeout=60)
    assert isinstance(got["a"], torch.Tensor) and got["a"].tolist() == [0, 1, 2, 3, 4] and got["b"][1].item() is True
    ref = ray.put(torch.full((3,), 4.0), _tensor_transport="FERRY")
    assert ray.get(actors[1].doubled.remote(ref), timeout=60)[0] == [8.0] * 3


def test_what_is_of_the_session_goes_from_where_it_is(actors):
    assert ray.get(actors[1].doubled.remote(actors[0].shared.remote(3)), timeout=60) == ([14.0] * 3, [0])


def test_a_tensor_comes_into_a_buffer_that_ray_was_given(actors):
    buffer, ref = torch.zeros(4), actors[0].shared.remote(4)
    set_target_for_ref(ref, [buffer])
    got = ray.get(ref, timeout=60)
    assert got.data_ptr() == buffer.data_ptr() and buffer.tolist() == [7.0] * 4
    other, too_large = actors[0].shared.remote(4), torch.zeros(5)  # Ray keeps no buffer
    set_target_for_ref(other, [too_large])
    with pytest.raises(ValueError, match="5"):
        ray.get(other, timeout=60)
