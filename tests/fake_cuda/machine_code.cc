// SPDX-License-Identifier: Apache-2.0
#include "machine_code.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "tests/compute/cuda/runs/gpu_block.h"

namespace fake_cuda {
namespace {

using ferry::compute::testing::HostGpu;

// Before the source: what its kernel is called by, whatever it takes.
constexpr char kBefore[] = R"(
#include <cstddef>
#include <utility>
template <typename... A, std::size_t... I>
void FakeCall(void (*kernel)(A...), void** a, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(a[I])...);
}
template <typename... A>
void FakeRun(void (*kernel)(A...), void** a) {
  FakeCall(kernel, a, std::index_sequence_for<A...>());
}
template <typename... A>
unsigned FakeSizes(void (*)(A...), unsigned* sizes) {
  unsigned count = 0;
  ((sizes[count++] = sizeof(A)), ...);
  return count;
}
#include "host_gpu.h"
)";
constexpr char kBehind[] = R"(
extern "C" void fake_run(void** a) { FakeRun(&ferry_kernel, a); }
extern "C" unsigned fake_sizes(unsigned* sizes) { return FakeSizes(&ferry_kernel, sizes); }
)";
constexpr size_t kMostParameters = 512;

// Fibers have one thread's state, and each library one `host_gpu`.
std::mutex& Running() {
  static std::mutex mutex;
  return mutex;
}

void* Compile(const std::string& source, const std::string& folder) {
  std::ofstream(folder + "/kernel.cc") << kBefore << source << kBehind;
  const std::string command =
      std::string(HOST_COMPILER) +
      " -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing " +
      HOST_COMPILER_FLAGS + " -I" + HOST_GPU_DIRECTORY + " -I" + KERNEL_DIRECTORY + " " + folder +
      "/kernel.cc -o " + folder + "/kernel.so 2> " + folder + "/log";
  if (system(command.c_str()) != 0) {
    std::stringstream log;
    log << std::ifstream(folder + "/log").rdbuf();
    fprintf(stderr, "fake GPU: %s\n%s\n", command.c_str(), log.str().substr(0, 4000).c_str());
    return nullptr;
  }
  void* const library = dlopen((folder + "/kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fprintf(stderr, "fake GPU: %s\n", dlerror());
  return library;
}

}  // namespace

std::shared_ptr<HostKernel> HostKernel::Make(const std::string& source) {
  char folder[] = "/tmp/fake-gpu-XXXXXX";
  if (mkdtemp(folder) == nullptr) return nullptr;
  std::shared_ptr<HostKernel> kernel(new HostKernel);
  kernel->library_ = Compile(source, folder);
  std::filesystem::remove_all(folder);
  if (kernel->library_ == nullptr) return nullptr;
  kernel->waits_ = ferry::compute::testing::ThreadsWait(source);
  kernel->sizes_.resize(kMostParameters);
  const auto sizes =
      reinterpret_cast<unsigned (*)(unsigned*)>(dlsym(kernel->library_, "fake_sizes"));
  kernel->sizes_.resize(sizes(kernel->sizes_.data()));
  ferry::compute::testing::Connect(*static_cast<HostGpu*>(dlsym(kernel->library_, "host_gpu")));
  return kernel;
}

HostKernel::~HostKernel() {
  if (library_ != nullptr) dlclose(library_);
}

std::vector<uint64_t> HostKernel::Take(void** arguments) const {
  std::vector<uint64_t> values(sizes_.size());
  for (size_t i = 0; i < sizes_.size(); ++i) memcpy(&values[i], arguments[i], sizes_[i]);
  return values;
}

void HostKernel::Run(uint64_t blocks, uint32_t threads, std::vector<uint64_t>& values) const {
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);
  const auto run = reinterpret_cast<void (*)(void**)>(dlsym(library_, "fake_run"));
  const std::lock_guard lock(Running());
  ferry::compute::testing::RunBlocks(*static_cast<HostGpu*>(dlsym(library_, "host_gpu")), blocks,
                                     threads, waits_, [&] { run(arguments.data()); });
}

}  // namespace fake_cuda
