// SPDX-License-Identifier: Apache-2.0
// ferry_make_kernels: compiles the kernels of the programs over which GPUs are compared with the
// reference (suite.h) into a directory, for a machine that has a GPU. Kernels that are there stay;
// files of others are removed. Exit status: 0 done, 1 a kernel does not compile, 2 usage.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/kernel_compiler.h"
#include "tests/gpu/suite/suite.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;

// The sources of all kernels, by key.
absl::StatusOr<std::map<std::string, std::string>> Sources(const fc::GpuArch& arch,
                                                           const std::string& version,
                                                           uint64_t most_programs) {
  std::map<std::string, std::string> sources;
  absl::Status failed;
  for (const Suite suite : kSuites) {
    ForEachProgram(suite, 0, most_programs, [&](const SuiteProgram& made) {
      const absl::StatusOr<fc::GpuPlan> plan = fc::MakeGpuPlan(made.program, arch, made.options);
      failed = plan.status();
      if (!failed.ok()) return false;
      for (const fc::GpuKernel& kernel : plan->kernels) {
        sources[fc::KernelKey(kernel.source, fc::CompileOptions(arch), version)] =
            absl::StrReplaceAll(kernel.source, {{fc::kEntryPlace, fc::kStoredEntry}});
      }
      return true;
    });
    RETURN_IF_ERROR(failed);
  }
  return sources;
}

void RemoveOthers(const std::string& directory, const std::map<std::string, std::string>& sources) {
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    if (sources.count(file.path().filename()) == 0) std::filesystem::remove(file);
  }
}

// Compiles every `step`th kernel from `first` on. Its files are there wholly or not at all.
absl::Status CompileSome(const std::vector<std::pair<std::string, std::string>>& kernels,
                         const std::string& directory, const fc::NvrtcApi& nvrtc,
                         const fc::GpuArch& arch, size_t first, size_t step) {
  ASSIGN_OR_RETURN(fc::CubinCache cache,
                   fc::CubinCache::Open(directory, fc::CubinCache::Access::kOwn));
  for (size_t i = first; i < kernels.size(); i += step) {
    ASSIGN_OR_RETURN(const fc::CompiledKernel made,
                     fc::CompileKernel(nvrtc, kernels[i].second, arch));
    RETURN_IF_ERROR(cache.Add(kernels[i].first, made));
  }
  return absl::OkStatus();
}

// By several processes: NVRTC compiles for one thread of a process at a time.
absl::Status CompileAll(const std::vector<std::pair<std::string, std::string>>& kernels,
                        const std::string& directory, const fc::NvrtcApi& nvrtc,
                        const fc::GpuArch& arch, int processes) {
  std::fflush(stdout);
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child > 0) continue;
    const absl::Status made =
        child < 0 ? absl::InternalError("fork")
                  : CompileSome(kernels, directory, nvrtc, arch, static_cast<size_t>(i),
                                static_cast<size_t>(processes));
    if (!made.ok()) std::fprintf(stderr, "ferry_make_kernels: %s\n", made.ToString().c_str());
    if (child == 0) _exit(made.ok() ? 0 : 1);
    return made;
  }
  bool all = true;
  int status = 0;
  while (wait(&status) > 0) all = all && status == 0;
  return all ? absl::OkStatus() : absl::InternalError("not all kernels were compiled");
}

absl::Status Make(const std::string& directory, const std::string& nvrtc_library,
                  const std::string& arch_name, int processes, uint64_t most_programs) {
  ASSIGN_OR_RETURN(const fc::NvrtcApi* const nvrtc, fc::LoadNvrtc(nvrtc_library));
  ASSIGN_OR_RETURN(const fc::GpuArch arch, fc::GpuArchOf(arch_name));
  ASSIGN_OR_RETURN(fc::CubinCache cache,
                   fc::CubinCache::Open(directory, fc::CubinCache::Access::kOwn));
  ASSIGN_OR_RETURN(const auto sources, Sources(arch, nvrtc->version, most_programs));
  RemoveOthers(directory, sources);
  std::vector<std::pair<std::string, std::string>> missing;
  for (const auto& [key, source] : sources) {
    if (!cache.Find(key)) missing.emplace_back(key, source);
  }
  std::printf("%zu kernels, of which %zu are to be compiled\n", sources.size(), missing.size());
  RETURN_IF_ERROR(CompileAll(missing, directory, *nvrtc, arch, processes));
  std::ofstream(std::filesystem::path(directory) / kVersionFile) << nvrtc->version << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace ferry::testing

int main(int argc, char** argv) {
  std::string directory, nvrtc, arch = "sm_90a";
  int processes = 2;
  uint64_t programs = ferry::testing::kRandomPrograms;
  CLI::App app("Compiles the kernels of the programs that GPUs are tested with.",
               "ferry_make_kernels");
  app.add_option("directory", directory, "Where they go")->required();
  app.add_option("--arch", arch, "The GPU's architecture (sm_90a)");
  app.add_option("--nvrtc", nvrtc, "NVRTC's library (the one that the loader finds)");
  app.add_option("--processes", processes, "How many kernels to compile at a time (2)")
      ->check(CLI::Range(1, 256));
  app.add_option("--programs", programs, "At most so many programs of each suite (2000)");
  CLI11_PARSE(app, argc, argv);
  const absl::Status made = ferry::testing::Make(directory, nvrtc, arch, processes, programs);
  if (!made.ok()) std::fprintf(stderr, "ferry_make_kernels: %s\n", made.ToString().c_str());
  return made.ok() ? 0 : 1;
}
