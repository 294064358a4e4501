// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/kernel_compiler.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

// NVRTC of CUDA 13 has these; an older one may not, and compiles without them.
constexpr const char* kFaster[] = {"--minimal", "--Ofast-compile=mid"};

// Raised if the key's own form changes.
constexpr absl::string_view kKeyVersion = "ferry kernel 2";

std::string Hash(absl::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// So that no two lists of parts give one text.
void AddPart(std::string& text, absl::string_view part) {
  absl::StrAppend(&text, part.size(), ":", part);
}

// The number before `words` in what ptxas says, the largest.
int LargestBefore(absl::string_view log, absl::string_view words) {
  int most = 0;
  for (size_t at = log.find(words); at != absl::string_view::npos; at = log.find(words, at + 1)) {
    size_t begin = at;
    while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(log[begin - 1]))) --begin;
    int number = 0;
    if (absl::SimpleAtoi(log.substr(begin, at - begin), &number)) most = std::max(most, number);
  }
  return most;
}

}  // namespace

std::vector<std::string> CompileOptions(const GpuArch& arch, Tier tier) {
  std::vector<std::string> options = {absl::StrCat("--gpu-architecture=", arch.name),
                                      "--std=c++20",
                                      "--fmad=false",
                                      "--ftz=false",
                                      "--prec-div=true",
                                      "--prec-sqrt=true",
                                      "--ptxas-options=-v"};
  if (tier == Tier::kFirst) {
    options.push_back("--define-macro=FERRY_ROLLED");
    options.insert(options.end(), std::begin(kFaster), std::end(kFaster));
  }
  return options;
}

std::string DigestOf(absl::Span<const KernelHeader> headers) {
  std::string text;
  for (const KernelHeader& header : headers) AddPart(text, header.name), AddPart(text, header.text);
  return Hash(text);
}

const std::string& KernelHeadersDigest() {
  static const std::string& digest = *new std::string(DigestOf(KernelHeaders()));
  return digest;
}

std::string KernelKey(absl::string_view source, absl::Span<const std::string> options,
                      absl::string_view nvrtc_version, absl::string_view headers_digest) {
  std::string text;
  AddPart(text, kKeyVersion);
  AddPart(text, source);
  AddPart(text, headers_digest);
  for (const std::string& option : options) AddPart(text, option);
  AddPart(text, nvrtc_version);
  return Hash(text);
}

std::string SourceMark(absl::string_view source) { return Hash(source).substr(0, 8); }

namespace {

absl::StatusOr<CompiledKernel> CompileWith(const NvrtcApi& nvrtc, const std::string& source,
                                           const GpuArch& arch,
                                           const std::vector<std::string>& options, int& result) {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const KernelHeader& header : KernelHeaders()) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }
  const auto failed = [&](absl::string_view doing, int code, absl::string_view log) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("compile a kernel for ", arch.name, ": ", doing, ": ",
                              nvrtc.nvrtcGetErrorString(code), log.empty() ? "" : "\n", log));
  };
  NvrtcProgram program = nullptr;
  result = nvrtc.nvrtcCreateProgram(&program, source.c_str(), "kernel.cu",
                                    static_cast<int>(names.size()), texts.data(), names.data());
  if (result != kNvrtcSuccess) return failed("take the source", result, "");
  const auto destroy = [&](NvrtcProgram* made) { nvrtc.nvrtcDestroyProgram(made); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> owner(&program, destroy);
  std::vector<const char*> flags;
  for (const std::string& option : options) flags.push_back(option.c_str());
  result = nvrtc.nvrtcCompileProgram(program, static_cast<int>(flags.size()), flags.data());
  CompiledKernel made;
  size_t size = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &size) == kNvrtcSuccess && size > 1) {
    made.log.resize(size);
    nvrtc.nvrtcGetProgramLog(program, made.log.data());
    made.log.resize(size - 1);  // it ends with a 0
  }
  if (result != kNvrtcSuccess) return failed("compile", result, made.log);
  result = nvrtc.nvrtcGetCUBINSize(program, &size);
  if (result == kNvrtcSuccess) {
    made.cubin.resize(size);
    result = nvrtc.nvrtcGetCUBIN(program, made.cubin.data());
  }
  if (result != kNvrtcSuccess) return failed("take the machine code", result, made.log);
  made.registers = LargestBefore(made.log, " registers");
  made.spilled = LargestBefore(made.log, " bytes spill stores");
  return made;
}

}  // namespace

absl::StatusOr<CompiledKernel> CompileKernel(const NvrtcApi& nvrtc, const std::string& source,
                                             const GpuArch& arch, Tier tier) {
  std::vector<std::string> options = CompileOptions(arch, tier);
  int result = kNvrtcSuccess;
  absl::StatusOr<CompiledKernel> made = CompileWith(nvrtc, source, arch, options, result);
  if (result != kNvrtcInvalidOption || tier == Tier::kFull) return made;
  options.resize(options.size() - std::size(kFaster));  // the last ones
  return CompileWith(nvrtc, source, arch, options, result);
}

}  // namespace ferry::compute
