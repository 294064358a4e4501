// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/torch_compile.h"

#include "bench/gpu/python_program.h"

namespace ferry::bench {
namespace {

// Thirty runs one behind the other, each over memory of its own, as Ferry's programs do.
constexpr char kProgram[] = R"py(
import statistics, time
import torch
RUNS = 30
def chain(x):
    a, b = 0.5, 1.25
    x = x * a
    x = x + b
    x = torch.clamp_min(x, a)
    x = x - b
    x = x * a
    x = x + b
    x = torch.clamp_max(x, a)
    x = x * b
    return x.to(torch.bfloat16)
def softmax(x):
    return torch.softmax(x.float(), -1).to(torch.bfloat16)
def norm(x):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).to(torch.bfloat16)
def measure(name, act, make):
    compiled = torch.compile(act, dynamic=False)
    inputs = [make() for _ in range(RUNS)]
    assert torch.allclose(compiled(inputs[0]).float(), act(inputs[0]).float(), rtol=2e-2, atol=1e-3)
    took = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.monotonic_ns()
        made = [compiled(x) for x in inputs]
        torch.cuda.synchronize()
        took.append((time.monotonic_ns() - begin) / 1e9 / RUNS)
        del made
    print(name, statistics.median(took[2:]), flush=True)
with torch.inference_mode():
    measure('chain', chain, lambda: torch.randn(64 << 20, device='cuda'))
    measure('softmax', softmax, lambda: torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16))
    measure('norm', norm, lambda: torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16))
)py";

}  // namespace

std::map<std::string, double> MeasureTorchCompile() {
  return RunPython("torch.compile", kProgram, 120);
}

}  // namespace ferry::bench
