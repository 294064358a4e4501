// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/program/cost.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {
namespace {

constexpr uint64_t kAlignment = 256;

absl::Status CannotRun(const std::string& text) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("run a program: ", text));
}

// No output file may replace a file that another buffer is bound to, however the two are spelled.
absl::Status CheckWrittenOnce(const std::vector<compute::Buffer>& buffers,
                              const std::map<std::string, std::string>& paths) {
  std::map<std::filesystem::path, const compute::Buffer*> files;
  for (const compute::Buffer& buffer : buffers) {
    const auto bound = paths.find(buffer.name);
    if (bound == paths.end()) continue;
    ASSIGN_OR_RETURN(const std::string followed, FollowLinks(bound->second));
    std::error_code error;
    std::filesystem::path file = std::filesystem::weakly_canonical(followed, error);
    if (error) file = followed;
    const auto [other, fresh] = files.try_emplace(std::move(file), &buffer);
    const auto reads = [](const compute::Buffer& one) {
      return one.access == compute::Access::kRead;
    };
    if (fresh || (reads(buffer) && reads(*other->second))) continue;
    return CannotRun(absl::StrCat("@", other->second->name, " and @", buffer.name,
                                  " are bound to one file, ", bound->second,
                                  ", which is written: give each its own"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> PathsOf(
    const std::vector<compute::Buffer>& buffers, const std::vector<std::string>& bindings,
    const std::set<std::string>& moved) {
  std::map<std::string, std::string> paths;
  for (const std::string& binding : bindings) {
    const size_t equals = binding.find('=');
    if (equals == std::string::npos) return CannotRun(binding + " is not NAME=FILE");
    const std::string name = binding.substr(0, equals);
    const bool known =
        std::any_of(buffers.begin(), buffers.end(),
                    [&](const compute::Buffer& buffer) { return buffer.name == name; });
    if (!known) return CannotRun(absl::StrCat("it has no buffer @", name));
    if (!paths.emplace(name, binding.substr(equals + 1)).second) {
      return CannotRun(absl::StrCat("@", name, " is bound twice"));
    }
  }
  std::string unbound;
  for (const compute::Buffer& buffer : buffers) {
    if (paths.count(buffer.name) != 0 && moved.count(buffer.name) != 0) {
      return CannotRun(absl::StrCat("@", buffer.name, " is bound to a file, and sent or received"));
    }
    if (paths.count(buffer.name) == 0 && moved.count(buffer.name) == 0) {
      absl::StrAppend(&unbound, unbound.empty() ? "" : ", ", "@", buffer.name, " of ", buffer.bytes,
                      " bytes is not bound: --bind ", buffer.name, "=FILE");
    }
  }
  if (!unbound.empty()) return CannotRun(unbound);
  RETURN_IF_ERROR(CheckWrittenOnce(buffers, paths));
  return paths;
}

absl::Status Load(const std::string& path, const compute::Buffer& buffer, std::byte* to) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.bytes() != buffer.bytes) {
    return CannotRun(
        absl::StrCat(path, " has ", file.bytes(), " bytes, @", buffer.name, " has ", buffer.bytes));
  }
  return file.Read(0, to, buffer.bytes);
}

// The memory that the kernel could give without swapping; all there is if it does not say.
uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (uint64_t number = 0; file >> name >> number; std::getline(file, name)) {
    if (name == "MemAvailable:") return number * 1024;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace

void FreeRunMemory::operator()(std::byte* memory) const { std::free(memory); }

absl::StatusOr<RunMemory> AllocateRun(const std::string& what, uint64_t bytes) {
  const uint64_t rounded = PlaceOf(std::max(bytes, uint64_t{1}));
  RunMemory memory(rounded == UINT64_MAX
                       ? nullptr
                       : static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (memory != nullptr) return memory;
  return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
               absl::StrCat("run a program: no memory for the ", bytes, " bytes of ", what));
}

absl::Status CheckMemory(const compute::HostProgram& made, uint64_t buffers) {
  const uint64_t available = AvailableMemory();
  if (buffers > available) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 absl::StrCat("run a program: its buffers have ", buffers, " bytes, ", available,
                              " are available (MemAvailable)"));
  }
  return compute::CheckFits(made.plan(), made.scratch_bytes() - made.plan().memory.bytes,
                            available - buffers, "memory (MemAvailable, without its buffers)");
}

uint64_t PlaceOf(uint64_t bytes) {
  return bytes > UINT64_MAX - kAlignment ? UINT64_MAX
                                         : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status CheckNoTransfers(const compute::Program& program, absl::string_view doing,
                              absl::string_view advice) {
  for (const compute::Node& node : program.nodes) {
    if (node.op != compute::Op::kSend && node.op != compute::Op::kRecv) continue;
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat(doing, ": it has a ", compute::InfoOf(node.op).name,
                              ", which a daemon does: ", advice));
  }
  return absl::OkStatus();
}

absl::Status RunOverFiles(
    const std::vector<compute::Buffer>& buffers, const std::vector<std::string>& bindings,
    const std::set<std::string>& moved,
    const std::function<absl::StatusOr<std::byte*>(uint64_t bytes)>& allocate,
    const std::function<absl::Status(const std::vector<absl::Span<std::byte>>&)>& run) {
  ASSIGN_OR_RETURN(const auto paths, PathsOf(buffers, bindings, moved));
  uint64_t bytes = 0;
  for (const compute::Buffer& buffer : buffers) {
    bytes = compute::SaturatingAdd(bytes, PlaceOf(buffer.bytes));
  }
  ASSIGN_OR_RETURN(std::byte * next, allocate(bytes));
  std::vector<absl::Span<std::byte>> spans;
  for (const compute::Buffer& buffer : buffers) {
    spans.push_back({next, buffer.bytes});
    next += PlaceOf(buffer.bytes);
    if (buffer.access == compute::Access::kWrite || moved.count(buffer.name) != 0) {
      std::memset(spans.back().data(), 0, buffer.bytes);
    } else {
      RETURN_IF_ERROR(Load(paths.at(buffer.name), buffer, spans.back().data()));
    }
  }
  // Checks before the run, which may take long, whether these files can be made.
  std::vector<std::pair<size_t, OutputFile>> files;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (buffers[i].access == compute::Access::kRead || moved.count(buffers[i].name) != 0) continue;
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(paths.at(buffers[i].name)));
    files.emplace_back(i, std::move(file));
  }
  RETURN_IF_ERROR(run(spans));
  for (const auto& [i, file] : files) {
    RETURN_IF_ERROR(file.Write(0, spans[i].data(), spans[i].size()));
  }
  for (auto& [i, file] : files) RETURN_IF_ERROR(file.Commit());
  return absl::OkStatus();
}

absl::Status RunProgram(const compute::Program& program, const std::vector<std::string>& bindings,
                        size_t threads, bool poison) {
  RETURN_IF_ERROR(CheckNoTransfers(program, "run a program", "run --daemon"));
  ASSIGN_OR_RETURN(const compute::HostProgram made,
                   compute::HostProgram::Make(
                       program, {.threads = threads, .poison = poison || compute::kPoisons}));
  RunMemory memory;
  return RunOverFiles(
      program.buffers, bindings, {},
      [&](uint64_t bytes) -> absl::StatusOr<std::byte*> {
        RETURN_IF_ERROR(CheckMemory(made, bytes));
        ASSIGN_OR_RETURN(memory, AllocateRun("its buffers", bytes));
        return memory.get();
      },
      [&](const std::vector<absl::Span<std::byte>>& spans) -> absl::Status {
        ASSIGN_OR_RETURN(const RunMemory arena,
                         AllocateRun("its intermediate values", made.scratch_bytes()));
        compute::Workers workers(threads);
        made.Run(spans, {arena.get(), made.scratch_bytes()}, &workers);
        return absl::OkStatus();
      });
}

}  // namespace ferry::tools
