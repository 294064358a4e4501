# SPDX-License-Identifier: Apache-2.0
"""Prefill to decode: the blocks of a request's KV cache, from the pages where prefill has them to those that decode has free.

Each end gives the table of its own pages; there is one transfer a layer, so that decode may begin with the first layer
while the last ones are under way.

    python examples/python/kv_blocks.py [--requests 4]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys

import ferry

LAYERS, PAGES = 4, 256
PAGE = (2, 16, 8, 64)  # keys and values, tokens, heads, head size


def prefill(requests: int) -> None:
    with ferry.Session(name="prefill") as session:
        cache = [session.empty((PAGES, *PAGE), "bfloat16") for _ in range(LAYERS)]
        sent = []
        for request in range(requests):
            pages = random.Random(request).sample(range(PAGES // requests), 10 + request)
            pages = [request * (PAGES // requests) + page for page in pages]
            for layer, tensor in enumerate(cache):
                for place, page in enumerate(pages):  # what attention writes
                    tensor[page].view(4, "uint8").memory[:] = bytes((request, layer, place, 42))
                sent.append(session.send(ferry.Blocks(tensor, pages), to="host1", key=f"request-{request}/{layer}"))
        for future in sent:
            future.result()  # the pages are free again


def decode(requests: int) -> None:
    with ferry.Session(name="decode") as session:
        cache = [session.empty((PAGES, *PAGE), "bfloat16", device="host1") for _ in range(LAYERS)]
        free = list(range(PAGES))
        random.Random(17).shuffle(free)
        for request in range(requests):
            pages = [free.pop() for _ in range(10 + request)]
            layers = [
                session.recv(into=ferry.Blocks(tensor, pages), frm="host0", key=f"request-{request}/{layer}", deadline=30)
                for layer, tensor in enumerate(cache)
            ]
            for layer, (tensor, there) in enumerate(zip(cache, layers, strict=True)):
                there.result()
                for place, page in enumerate(pages):
                    assert bytes(tensor[page].view(4, "uint8").memory) == bytes((request, layer, place, 42))
            # In one piece: others write too.
            sys.stdout.write(f"request {request}: {len(pages)} pages of {LAYERS} layers\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=4)
    requests = parser.parse_args().requests
    spawn = multiprocessing.get_context("spawn")
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        ends = [spawn.Process(target=end, args=(requests,)) for end in (prefill, decode)]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
    return max(abs(end.exitcode or 0) for end in ends)


if __name__ == "__main__":
    sys.exit(main())
