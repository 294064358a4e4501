// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/cuda/runs/host_kernels.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ferry::compute::testing {
namespace {

constexpr size_t kStackBytes = size_t{1} << 18;  // of a fiber; sanitizers make frames large

// Behind each buffer, where no sanitizer sees what is written beyond it.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuardBytes = 0;
#else
constexpr size_t kGuardBytes = 4096;
#endif
constexpr std::byte kGuard{0xC3};

struct HostGpu {  // as in host_gpu.h
  unsigned thread;
  unsigned block;
  unsigned long long (*shuffle)(unsigned long long value, int lane);
  void (*sync_warp)();
  void (*sync_block)();
};

// The threads of one block. All that wait are asked in turn whether they still have to.
class Block {
 public:
  Block(HostGpu& gpu, void (*entry)(const uint64_t*), const uint64_t* arguments)
      : gpu_(gpu), entry_(entry), arguments_(arguments) {}

  void Run(uint32_t threads) {
    running_ = this;
    const auto warps = (threads + 31) / 32;
    fibers_.assign(threads, {});
    values_.assign(threads, {});
    warp_steps_.assign(warps, 0);
    arrived_.assign(warps, 0);
    if (stacks_.size() < threads * kStackBytes) stacks_.resize(threads * kStackBytes);
    for (uint32_t i = 0; i < threads; ++i) {
      getcontext(&fibers_[i].context);
      fibers_[i].context.uc_stack.ss_sp = &stacks_[i * kStackBytes];
      fibers_[i].context.uc_stack.ss_size = kStackBytes;
      fibers_[i].context.uc_link = &back_;
      makecontext(&fibers_[i].context, &Block::Begin, 0);
    }
    for (uint32_t left = threads; left > 0;) {
      for (current_ = 0; current_ < threads; ++current_) {
        if (fibers_[current_].done) continue;
        gpu_.thread = current_;
        swapcontext(&back_, &fibers_[current_].context);
        if (fibers_[current_].done) --left;
      }
    }
  }

  static unsigned long long Shuffle(unsigned long long value, int lane) {
    Block& block = *running_;
    Fiber& me = block.fibers_[block.current_];
    const size_t slot = me.step++ % 2;
    block.values_[block.current_][slot] = value;
    block.WaitForWarp(me.step);
    return block.values_[block.current_ / 32 * 32 + static_cast<uint32_t>(lane)][slot];
  }
  static void SyncWarp() {
    Block& block = *running_;
    block.WaitForWarp(++block.fibers_[block.current_].step);
  }
  static void SyncBlock() {
    Block& block = *running_;
    const uint64_t mine = ++block.fibers_[block.current_].syncs;
    block.WaitUntil([&] {
      return std::all_of(block.fibers_.begin(), block.fibers_.end(),
                         [&](const Fiber& fiber) { return fiber.done || fiber.syncs >= mine; });
    });
  }

 private:
  struct Fiber {
    ucontext_t context;
    bool done = false;
    uint64_t step = 0;   // shuffles that it came to
    uint64_t syncs = 0;  // of the block
  };

  static void Begin() {
    Block& block = *running_;
    block.entry_(block.arguments_);
    block.fibers_[block.current_].done = true;
  }
  template <typename Condition>
  void WaitUntil(Condition condition) {
    while (!condition()) {
      const uint32_t me = current_;
      swapcontext(&fibers_[me].context, &back_);
      current_ = me;
    }
  }
  void WaitForWarp(uint64_t step) {
    const uint32_t first = current_ / 32 * 32;
    const uint32_t end = std::min<uint32_t>(first + 32, static_cast<uint32_t>(fibers_.size()));
    WaitUntil([&] {
      return std::all_of(fibers_.begin() + first, fibers_.begin() + end,
                         [&](const Fiber& fiber) { return fiber.step >= step; });
    });
  }

  static Block* running_;
  HostGpu& gpu_;
  void (*entry_)(const uint64_t*);
  const uint64_t* arguments_;
  std::vector<Fiber> fibers_;
  std::vector<std::array<unsigned long long, 2>> values_;
  std::vector<uint64_t> warp_steps_, arrived_;
  std::vector<char> stacks_;
  uint32_t current_ = 0;
  ucontext_t back_;
};
Block* Block::running_ = nullptr;

// A function that takes its arguments as numbers.
std::string WrapperOf(const GpuKernel& kernel, const std::vector<GpuArgument>& arguments) {
  std::string text =
      absl::StrCat("extern \"C\" void run_", kernel.name, "(const u64* a) {\n  ", kernel.name, "(");
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", arguments[i].place ? "(Byte*)a[" : "a[", i, "]");
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
      at->second.waits = absl::StrContains(source, "Lanes<") ||
                         absl::StrContains(source, "Largest") ||
                         absl::StrContains(source, "__sync");
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
  auto* gpu = static_cast<HostGpu*>(dlsym(made->library_, "host_gpu"));
  gpu->shuffle = &Block::Shuffle;
  gpu->sync_warp = &Block::SyncWarp;
  gpu->sync_block = &Block::SyncBlock;
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
  Block block(gpu, kernel.entry, numbers.data());
  for (uint64_t i = 0; i < blocks; ++i) {
    gpu.block = static_cast<unsigned>(i);
    if (kernel.waits) {
      block.Run(threads);
      continue;
    }
    for (gpu.thread = 0; gpu.thread < threads; ++gpu.thread) kernel.entry(numbers.data());
  }
}

}  // namespace ferry::compute::testing
