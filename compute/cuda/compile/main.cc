// SPDX-License-Identifier: Apache-2.0
// ferry-compile MEMORY_BYTES [LIBRARY]: compiles kernels for the process that has started it, as
// compile_wire.h says, by NVRTC, which it first loads, tries and then confines itself with. Nobody
// starts it by hand.
#include <errno.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "compute/cuda/compile/compile_wire.h"
#include "compute/cuda/compile/confine.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/kernel_compiler.h"
#include "compute/cuda/nvrtc.h"

namespace ferry::compute {
namespace {

// What NVRTC opens and keeps with its first kernel is there afterwards.
constexpr char kFirst[] = "extern \"C\" __global__ void first(float* x) { x[0] = sqrtf(x[0]); }";

// What one compilation frees, up to what a small kernel takes, the next one takes again without a
// page fault for each page (some 1,200 of them).
void KeepMemory() {
  constexpr int kMebi = 1 << 20;
  mallopt(M_TRIM_THRESHOLD, 64 * kMebi);
  mallopt(M_TOP_PAD, 16 * kMebi);
  mallopt(M_MMAP_THRESHOLD, 32 * kMebi);
}

// False at the end of the stream, also in the middle of a frame.
bool Read(std::string& bytes) {
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = read(STDIN_FILENO, bytes.data() + got, bytes.size() - got);
    if (more == 0 || (more < 0 && errno != EINTR)) return false;
    if (more > 0) got += static_cast<size_t>(more);
  }
  return true;
}

bool Write(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t more = write(STDOUT_FILENO, bytes.data() + sent, bytes.size() - sent);
    if (more < 0 && errno != EINTR) return false;
    if (more > 0) sent += static_cast<size_t>(more);
  }
  return true;
}

absl::StatusOr<const NvrtcApi*> Prepare(uint64_t memory_bytes, const std::string& library) {
  RETURN_IF_ERROR(LimitProcess(memory_bytes));
  KeepMemory();
  ASSIGN_OR_RETURN(const NvrtcApi* nvrtc, LoadNvrtc(library));
  RETURN_IF_ERROR(CompileKernel(*nvrtc, kFirst, kGpuArchs[0]).status());
  RETURN_IF_ERROR(Confine());
  return nvrtc;
}

absl::StatusOr<CompiledKernel> Answer(const NvrtcApi& nvrtc, absl::string_view payload) {
  ASSIGN_OR_RETURN(const CompileRequest request, DecodeRequest(payload));
  ASSIGN_OR_RETURN(const GpuArch arch, GpuArchOf(request.arch));
  return CompileKernel(nvrtc, request.source, arch, request.tier);
}

int Serve(uint64_t memory_bytes, const std::string& library) {
  const absl::StatusOr<const NvrtcApi*> nvrtc = Prepare(memory_bytes, library);
  const absl::StatusOr<std::string> version =
      nvrtc.ok() ? absl::StatusOr<std::string>((*nvrtc)->version) : nvrtc.status();
  if (!Write(Framed(EncodeGreeting(version))) || !nvrtc.ok()) return 1;
  while (true) {
    std::string header(kFrameHeader, '\0');
    if (!Read(header)) return 0;
    const absl::StatusOr<uint64_t> bytes = PayloadOf(header);
    if (!bytes.ok()) return 1;
    std::string payload(*bytes, '\0');
    if (!Read(payload) || !Write(Framed(EncodeAnswer(Answer(**nvrtc, payload))))) return 1;
  }
}

}  // namespace
}  // namespace ferry::compute

int main(int count, char** words) {
  uint64_t memory_bytes = 0;
  if (count < 2 || count > 3 || !absl::SimpleAtoi(words[1], &memory_bytes)) {
    std::fputs("usage: ferry-compile MEMORY_BYTES [LIBRARY]; a daemon or ferryctl starts it\n",
               stderr);
    return 2;
  }
  return ferry::compute::Serve(memory_bytes, count == 3 ? words[2] : "");
}
