// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/host_kernels.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/compute/cuda/runs/gpu_block.h"

namespace ferry::compute::testing {
namespace {

// Behind each buffer, where no sanitizer sees what is written beyond it.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuardBytes = 0;
#else
constexpr size_t kGuardBytes = 4096;
#endif
constexpr std::byte kGuard{0xC3};

// A function that takes its arguments as numbers.
std::string WrapperOf(const GpuKernel& kernel, const std::vector<GpuArgument>& arguments) {
  std::string text = absl::StrCat("extern \"C\" void run_", kernel.name, "(const u64* a) {\n  ",
                                  kernel.name, "((u64*)a[0], a[1]");
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::StrAppend(&text, arguments[i].place ? ", (Byte*)a[" : ", a[", i + 2, "]");
  }
  return text + ");\n}\n";
}

void FindArguments(const std::vector<GpuCommand>& commands,
                   std::map<uint32_t, std::vector<GpuArgument>>& found) {
  for (const GpuCommand& command : commands) {
    if (command.kind == GpuCommand::Kind::kLaunch) found[command.kernel] = command.arguments;
    FindArguments(command.body, found);
  }
}

}  // namespace

void HostKernels::Free::operator()(std::byte* memory) const { free(memory); }

HostKernels::Compiler HostKernels::OwnCompiler() { return {HOST_COMPILER, HOST_COMPILER_FLAGS}; }

std::optional<HostKernels::Compiler> HostKernels::OtherCompiler() {
  const std::string command = OTHER_COMPILER;
  if (command.empty()) return std::nullopt;
  return Compiler{command, ""};
}

std::unique_ptr<HostKernels> HostKernels::Make(const std::vector<const GpuPlan*>& plans,
                                               const Compiler& compiler) {
  std::unique_ptr<HostKernels> made(new HostKernels);
  std::string text = "#include \"host_gpu.h\"\n";
  for (const GpuPlan* plan : plans) {
    std::map<uint32_t, std::vector<GpuArgument>> arguments;
    FindArguments(plan->commands, arguments);
    for (const auto& [index, of_kernel] : arguments) {
      const GpuKernel& kernel = plan->kernels[index];
      const auto [at, fresh] = made->kernels_.try_emplace(kernel.name);
      if (!fresh) continue;
      const std::string source = SourceOf(kernel);
      at->second.waits = ThreadsWait(source);
      absl::StrAppend(&text, source, WrapperOf(kernel, of_kernel));
    }
  }
  char folder[] = "/tmp/ferry-kernels-XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    ADD_FAILURE() << "no temporary folder";
    return nullptr;
  }
  made->folder_ = folder;
  std::ofstream(made->folder_ + "/kernels.cc") << text;
  const std::string command = absl::StrCat(
      compiler.command, " -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing ",
      compiler.flags, " -I", HOST_GPU_DIRECTORY, " -I", KERNEL_DIRECTORY, " ", folder,
      "/kernels.cc -o ", folder, "/kernels.so 2> ", folder, "/log");
  if (system(command.c_str()) != 0) {
    std::stringstream log;
    log << std::ifstream(made->folder_ + "/log").rdbuf();
    ADD_FAILURE() << command << "\n" << log.str().substr(0, 4000);
    return nullptr;
  }
  made->library_ = dlopen((made->folder_ + "/kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (made->library_ == nullptr) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  Connect(*static_cast<HostGpu*>(dlsym(made->library_, "host_gpu")));
  for (auto& [name, kernel] : made->kernels_) {
    kernel.entry =
        reinterpret_cast<Entry>(dlsym(made->library_, absl::StrCat("run_", name).c_str()));
  }
  return made;
}

HostKernels::~HostKernels() {
  if (library_ != nullptr) dlclose(library_);
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

uint64_t HostKernels::Allocate(const Bytes& bytes) {
  // Exactly so many, so that sanitizers see each too far; but whole words, since a half byte is
  // written by an atomic operation on the word around it (PutHalf), as a GPU has no smaller ones.
  void* memory = nullptr;
  const size_t words = (bytes.size() + 3) / 4 * 4;
  EXPECT_EQ(posix_memalign(&memory, 1024, words + kGuardBytes), 0);
  auto* const guard = static_cast<std::byte*>(memory) + words;
  std::fill_n(guard, kGuardBytes, kGuard);
  memory_.push_back({std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(memory)), guard});
  if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
  return reinterpret_cast<uint64_t>(memory);
}

Bytes HostKernels::Read(uint64_t address, uint64_t bytes) {
  const auto* memory = reinterpret_cast<const std::byte*>(address);
  return Bytes(memory, memory + bytes);
}

void HostKernels::Write(uint64_t address, const Bytes& bytes) {
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(address));
}

void HostKernels::FreeAll() {
  for (const Allocation& one : memory_) {
    EXPECT_EQ(std::count(one.guard, one.guard + kGuardBytes, kGuard), kGuardBytes)
        << "a kernel wrote beyond a buffer";
  }
  memory_.clear();
}

void HostKernels::Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

void HostKernels::Launch(const std::string& name, uint64_t blocks, uint32_t threads,
                         const std::vector<std::pair<uint64_t, uint32_t>>& arguments) {
  const Kernel& kernel = kernels_.at(name);
  std::vector<uint64_t> numbers;
  for (const auto& argument : arguments) numbers.push_back(argument.first);
  auto& gpu = *static_cast<HostGpu*>(dlsym(library_, "host_gpu"));
  RunBlocks(gpu, blocks, threads, kernel.waits, [&] { kernel.entry(numbers.data()); });
}

}  // namespace ferry::compute::testing
