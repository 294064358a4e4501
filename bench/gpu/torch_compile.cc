// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/torch_compile.h"

#include <cstdio>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/ferryctl/child_process.h"

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
  tools::SpawnOptions options;
  options.arguments = {"timeout", "-k", "5", "120", "python3", "-c", kProgram};
  const auto output = tools::RunAndRead(options);
  if (!output.ok()) {
    std::fprintf(stderr, "not measured: torch.compile: %s\n",
                 std::string(output.status().message()).c_str());
    return {};
  }
  std::map<std::string, double> seconds;
  for (absl::string_view line : absl::StrSplit(*output, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double value = 0;
    if (words.size() == 2 && absl::SimpleAtod(words[1], &value)) seconds[words[0]] = value;
  }
  return seconds;
}

}  // namespace ferry::bench
