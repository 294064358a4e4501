// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/host/host_program.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {
namespace {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

absl::StatusOr<Memory> Allocate(const std::string& what, uint64_t bytes) {
  constexpr uint64_t kAlignment = 256;
  const uint64_t rounded = std::max(bytes, uint64_t{1}) + kAlignment - 1;
  Memory memory(rounded < bytes ? nullptr
                                : static_cast<std::byte*>(std::aligned_alloc(
                                      kAlignment, rounded / kAlignment * kAlignment)));
  if (memory != nullptr) return memory;
  return Error(absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
               absl::StrCat("run a program: no memory for the ", bytes, " bytes of ", what));
}

absl::Status Invalid(const std::string& text) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("run a program: ", text));
}

absl::StatusOr<std::map<std::string, std::string>> PathsOf(
    const compute::Program& program, const std::vector<std::string>& bindings) {
  std::map<std::string, std::string> paths;
  for (const std::string& binding : bindings) {
    const size_t equals = binding.find('=');
    if (equals == std::string::npos) return Invalid(binding + " is not NAME=FILE");
    const std::string name = binding.substr(0, equals);
    const bool known =
        std::any_of(program.buffers.begin(), program.buffers.end(),
                    [&](const compute::Buffer& buffer) { return buffer.name == name; });
    if (!known) return Invalid(absl::StrCat("it has no buffer @", name));
    if (!paths.emplace(name, binding.substr(equals + 1)).second) {
      return Invalid(absl::StrCat("@", name, " is bound twice"));
    }
  }
  for (const compute::Buffer& buffer : program.buffers) {
    if (paths.count(buffer.name) == 0) {
      return Invalid(absl::StrCat("@", buffer.name, " of ", buffer.bytes,
                                  " bytes is not bound: --bind ", buffer.name, "=FILE"));
    }
  }
  return paths;
}

absl::Status Load(const std::string& path, const compute::Buffer& buffer, std::byte* to) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.bytes() != buffer.bytes) {
    return Invalid(
        absl::StrCat(path, " has ", file.bytes(), " bytes, @", buffer.name, " has ", buffer.bytes));
  }
  return file.Read(0, to, buffer.bytes);
}

}  // namespace

absl::Status RunProgram(const compute::Program& program, const std::vector<std::string>& bindings,
                        size_t threads) {
  ASSIGN_OR_RETURN(const auto paths, PathsOf(program, bindings));
  ASSIGN_OR_RETURN(const compute::HostProgram made, compute::HostProgram::Make(program, threads));
  std::vector<Memory> memories;
  std::vector<absl::Span<std::byte>> spans;
  for (const compute::Buffer& buffer : program.buffers) {
    ASSIGN_OR_RETURN(Memory memory, Allocate(absl::StrCat("@", buffer.name), buffer.bytes));
    if (buffer.access == compute::Access::kWrite) {
      std::memset(memory.get(), 0, buffer.bytes);
    } else {
      RETURN_IF_ERROR(Load(paths.at(buffer.name), buffer, memory.get()));
    }
    spans.push_back({memory.get(), buffer.bytes});
    memories.push_back(std::move(memory));
  }
  ASSIGN_OR_RETURN(const Memory arena, Allocate("its intermediate values", made.arena_bytes()));
  compute::Workers workers(threads);
  made.Run(spans, {arena.get(), made.arena_bytes()}, &workers);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (program.buffers[i].access == compute::Access::kRead) continue;
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(paths.at(program.buffers[i].name)));
    RETURN_IF_ERROR(file.Write(0, spans[i].data(), spans[i].size()));
    RETURN_IF_ERROR(file.Commit());
  }
  return absl::OkStatus();
}

}  // namespace ferry::tools
