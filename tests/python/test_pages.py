# SPDX-License-Identifier: Apache-2.0
"""What the pages have, as it stands there; the examples."""

import ast
import builtins
import glob
import os
import re
import subprocess
import sys

import pytest
from conftest import interpreter_with

import ferry

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
EXAMPLES = {
    "weight_sync.py": "engine 0: 3 steps, 311296 bytes each",
    "kv_blocks.py": "request 3: 13 pages of 4 layers",
    "jax_arrays.py": "bfloat16 132.0 6.0",
    "checkpoint.py": "reader 2 has checkpoint-1200: 64000000 bytes",
}


# With the frameworks themselves tests/frameworks/run runs them: what they need is not installed in every run.
OF_FRAMEWORKS = {"ray_transfer.py", "vllm_transfer.py", "verl_transfer.py"}
SHARED = {"framework_workers.py"}  # what examples import
OVER_STAND_INS = {
    "vllm": {f"worker {rank}: 3 versions by route local" for rank in range(2)},
    "verl": {"2 rollouts have step 3 by route local", "one that has joined has step 3 by route local"},
}


def blocks_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)


# Of docs/python.md, in its order: a word of each block, and who runs it as it stands there.
BLOCKS = [
    ("local_node", "here"),
    ('to="node-b/host0"', "here"),
    ('frm="node-a/host0"', "here"),
    ("wait_stream", "tests/gpu/torch_tensors.py"),
    ("mem_pool", "tests/gpu/torch_tensors.py"),
    ("ferry.ray", "tests/python/test_ray.py"),
    ("WeightTransferTrainerFactory", "tests/python/test_vllm.py"),
]


def block_with(word):
    (block,) = [block for block in blocks_of("docs/python.md") if word in block]
    return block


def test_each_block_of_the_page_is_run_by_somebody():
    blocks = blocks_of("docs/python.md")
    assert len(blocks) == len(BLOCKS)
    for block, (word, runner) in zip(blocks, BLOCKS, strict=True):
        assert word in block
        if runner.startswith("tests/python"):
            with open(os.path.join(ROOT, runner), encoding="utf-8") as file:
                assert f'block_with("{word}")' in file.read(), runner


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_transfer_of_a_page(run, page):
    first = blocks_of(page)[0]
    assert len(first.splitlines()) <= 6
    assert run(first) == "[0. 1. 2. 3. 4. 5. 6. 7. 8. 9.]\n"


def test_the_two_processes_of_the_page(nodes):
    ends = []
    for word, directory in (('frm="node-a/host0"', nodes.b), ('to="node-b/host0"', nodes.a)):
        environment = {**os.environ, "FERRY_CLIENT_DIR": directory}
        command = [sys.executable, "-c", block_with(word)]
        ends.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [end.communicate(timeout=60)[0] for end in ends]
    assert said == ["[0. 1. 2. 3. 4. 5. 6. 7. 8. 9.]\n", ""]
    assert [end.returncode for end in ends] == [0, 0]


COMING_FROM = {"torch-distributed": ("torch", "True\n"), "jax": ("jax", "bfloat16 15\n"), "nixl": ("numpy", "[5 0 3]\n")}


@pytest.mark.parametrize("page", COMING_FROM)
def test_what_a_page_for_who_comes_from_elsewhere_shows(page):
    module, said = COMING_FROM[page]
    python = interpreter_with(module)
    (block,) = blocks_of(f"docs/from-{page}.md")
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ferry.__file__)), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", block], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", said)


@pytest.mark.parametrize("page", COMING_FROM)
def test_what_the_table_of_such_a_page_says(nodes, page):
    """Every right-hand side, as it stands there."""
    environment = {**os.environ, "A": nodes.a, "B": nodes.b, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.path.dirname(os.path.dirname(ferry.__file__))
    done = subprocess.run(
        [interpreter_with(COMING_FROM[page][0]), "-W", "ignore", os.path.join(ROOT, "tests", "python", "page_rows.py"), page],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert int(re.fullmatch(r"\d+ rows, (\d+) run\n", done.stdout).group(1)) >= 10


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(example):
    path = os.path.join(ROOT, "examples", "python", example)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    assert EXAMPLES[example] in done.stdout.splitlines()


@pytest.mark.parametrize("framework", OVER_STAND_INS)
def test_an_example_over_stand_ins(framework):
    path = os.path.join(ROOT, "examples", "python", f"{framework}_transfer.py")
    folders = [os.path.join(ROOT, "tests", "python", "stand_ins"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), "FERRY_STAND_IN": f"fake_{framework}"}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == OVER_STAND_INS[framework]


def test_no_example_is_forgotten():
    found = {os.path.basename(path) for path in glob.glob(os.path.join(ROOT, "examples", "python", "*.py"))}
    assert found == set(EXAMPLES) | OF_FRAMEWORKS | SHARED


def public():
    """(name, what it is, its docstring) of whatever a user may call, or ask of an object."""
    for name in ferry.__all__:
        value = getattr(ferry, name)
        if not callable(value):
            continue
        yield name, "class" if isinstance(value, type) else "function", value.__doc__
        for member, given in vars(value).items() if isinstance(value, type) else ():
            if not member.startswith("_") and (callable(given) or isinstance(given, property)):
                kind = "property" if isinstance(given, property) else "function"
                yield f"{name}.{member}", kind, given.__doc__


# Modules beside `ferry` itself, and those that have the classes which these export.
MODULES = ["torch", "_layout", "ray", "vllm", "_vllm_infos", "_vllm_worker", "verl", "node"]
PRIVATE = {"hash_of", "overlap", "piece", "slices"}  # of the modules that begin with "_"


def public_of_modules():
    """The same of these, as it is written: to import them takes a framework."""
    for module in MODULES:
        with open(os.path.join(os.path.dirname(ferry.__file__), f"{module}.py"), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if node.name.startswith("_") or node.name in PRIVATE:
                continue
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield f"{module}.{node.name}", kind, ast.get_docstring(node)
            for member in node.body if kind == "class" else ():
                if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and not member.name.startswith("_"):
                    decorated = {one.id for one in member.decorator_list if isinstance(one, ast.Name)}
                    what = "property" if "property" in decorated else "function"
                    yield f"{module}.{node.name}.{member.name}", what, ast.get_docstring(member)


def test_each_public_function_has_a_docstring_with_its_errors():
    found = [*public(), *public_of_modules()]
    some = {"Session.send", "Session.node", "Tensor.device", "LocalNode.log", "local_node", "torch.send_shards", "ray.register"}
    some |= {"ray.FerryTransport.abort_transport", "verl.FerryCheckpointEngine.send_weights", "vllm.register"}
    some |= {"_vllm_worker.FerryWeightTransferEngine.receive_weights", "_layout.Layout.pieces", "node.LocalNode.session"}
    assert some <= {name for name, _, _ in found}
    assert [name for name, _, doc in found if not doc] == []
    known = re.compile(r"\b[A-Z][A-Za-z]+Error\b|[Rr]aises (nothing|what|why|how)")
    assert [name for name, kind, doc in found if kind == "function" and not known.search(" ".join(doc.split()))] == []


def test_errors_that_docstrings_name_exist():
    docs = [doc for _, _, doc in (*public(), *public_of_modules())]
    # With a dot before it, it is somebody else's: torch.cuda.OutOfMemoryError.
    names = {error for doc in docs for error in re.findall(r"(?<![.\w])[A-Z][A-Za-z]+Error\b", doc)}
    assert [name for name in sorted(names) if not hasattr(ferry, name) and not hasattr(builtins, name)] == []


def test_the_page_has_every_name():
    with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
        page = file.read()
    generic = {"FerryError", "OutOfRangeError", "InternalError", "UnauthenticatedError", "__version__"}
    names = set(ferry.__all__) - generic - {"Future", "Prepared", "LocalNode"}
    names |= {name for kind in (ferry.Session, ferry.Future) for name in vars(kind) if not name.startswith("_")}
    missing = {name for name in names if name not in page} - {"handle", "id", "node", "close", "device_id", "is_gpu"}
    assert not missing
