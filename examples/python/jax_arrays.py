# SPDX-License-Identifier: Apache-2.0
"""JAX arrays between two processes, by DLPack: neither end copies what arrives.

python examples/python/jax_arrays.py     # needs jax; exit status 77 without it
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from typing import Any

import ferry


def parameters(scale: float) -> dict[str, Any]:
    import jax.numpy as jnp

    return {"w": jnp.arange(12.0, dtype=jnp.bfloat16).reshape(3, 4) * scale, "b": [jnp.ones(3) * scale]}


def learner() -> None:
    with ferry.Session(name="learner") as session:
        session.send(parameters(2.0), to="host1", key="step-1").result()


def actor() -> None:
    import jax

    with ferry.Session(name="actor") as session:
        got = session.recv(parameters(0.0), frm="host0", key="step-1", device="host1", deadline=30).result()
        arrays = jax.tree.map(jax.dlpack.from_dlpack, got)
        assert arrays["w"].unsafe_buffer_pointer() == got["w"].address  # the memory that it arrived in
        print(arrays["w"].dtype, float(arrays["w"].sum()), float(arrays["b"][0].sum()), flush=True)


def main() -> int:
    if importlib.util.find_spec("jax") is None:
        print("there is no jax: pip install jax", file=sys.stderr)
        return 77
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    spawn = multiprocessing.get_context("spawn")
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        ends = [spawn.Process(target=end) for end in (learner, actor)]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
    return max(abs(end.exitcode or 0) for end in ends)


if __name__ == "__main__":
    sys.exit(main())
