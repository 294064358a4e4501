# SPDX-License-Identifier: Apache-2.0
"""Ray actors that hand tensors to each other by Ferry: a producer, two consumers, and the driver.

Of host memory here; where the actors have GPUs (--gpus) the tensors are PyTorch's on these, and go from GPU to GPU.

    pip install 'ferry-transfer[node]' ray numpy
    python examples/python/ray_transfer.py [--gpus]
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import numpy
import ray

import ferry
import ferry.ray

GPUS = "--gpus" in sys.argv
if GPUS:
    import torch

    ferry.ray.register(torch.Tensor)
else:
    ferry.ray.register(numpy.ndarray)  # before the classes that name it, and before the actors


class Producer:
    @ray.method(tensor_transport="FERRY")  # type: ignore[untyped-decorator, unused-ignore]
    def weights(self, step: int) -> Any:
        if GPUS:
            return {"w": torch.full((1024, 1024), float(step), device="cuda")}
        made = ferry.ray.session().empty((1024, 1024)).numpy()  # sent from where it is
        made[:] = step
        return {"w": made}


class Consumer:
    def mean(self, weights: dict[str, Any]) -> float:
        return float(weights["w"].mean())

    def routes(self) -> list[str]:
        return [f"{'+'.join(one.routes)}, {one.copied} copied" for one in ferry.ray.transfers]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--gpus", action="store_true", help="a GPU for each actor; the daemon is that of $FERRY_CLIENT_DIR")
    parser.parse_args()
    if GPUS:
        return run({"num_gpus": 1})
    with ferry.local_node() as node:
        os.environ.update(node.environment)  # before Ray starts its workers
        return run({"num_cpus": 0})


def run(resources: dict[str, Any]) -> int:
    ray.init(include_dashboard=False, logging_level="warning")
    # Whoever gets tensors needs a thread of Ray's for that, as whoever makes them does.
    transports = ray.remote(enable_tensor_transport=True)
    producer = transports(Producer).options(**resources).remote()
    consumers = [transports(Consumer).options(**resources).remote() for _ in range(2)]
    for step in range(3):
        weights = producer.weights.remote(step)
        means = ray.get([consumer.mean.remote(weights) for consumer in consumers])
        assert means == [step, step], means
    print(f"3 steps to 2 actors, by {ray.get(consumers[0].routes.remote())}")
    if not GPUS:
        print(f"and to the driver: {ray.get(producer.weights.remote(7))['w'][0, :3]}")
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
