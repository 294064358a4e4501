// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_gather.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

// What nvcc made of gather.cu, for every architecture that Ferry knows, and PTX for later ones.
asm(".section .rodata\n"
    ".balign 16\n"
    ".global ferry_gather_image\n"
    ".hidden ferry_gather_image\n"
    "ferry_gather_image:\n"
    ".incbin \"" FERRY_GATHER_IMAGE
    "\"\n"
    ".previous\n");
extern "C" const unsigned char ferry_gather_image[];

namespace ferry {
namespace {

constexpr unsigned kThreads = 256;

constexpr absl::Duration kKernelStart = absl::Microseconds(12);
constexpr double kKernelBytesPerSecond = 330e9;
constexpr absl::Duration kEngineStart = absl::Microseconds(8);
constexpr absl::Duration kEnginePiece = absl::Nanoseconds(1200);
constexpr double kEngineBytesPerSecond = 385e9;
// More than what is expected: then it was not we who had the SMs.
constexpr absl::Duration kLate = absl::Microseconds(200);

absl::Duration BytesAt(size_t bytes, double per_second) {
  return absl::Seconds(static_cast<double>(bytes) / per_second);
}

absl::Duration KernelTime(size_t bytes) {
  return kKernelStart + BytesAt(bytes, kKernelBytesPerSecond);
}

}  // namespace

size_t CudaGather::TasksOf(absl::Span<const CopyPiece> pieces) {
  size_t tasks = 0;
  for (const CopyPiece& piece : pieces) tasks += (piece.size + kTaskBytes - 1) / kTaskBytes;
  return tasks;
}

absl::StatusOr<std::unique_ptr<CudaGather>> CudaGather::Make(const CudaApi& api, size_t steps,
                                                             size_t most_tasks,
                                                             size_t most_blocks) {
  std::unique_ptr<CudaGather> gather(new CudaGather(api));
  gather->most_tasks_ = most_tasks;
  gather->most_blocks_ = most_blocks;
  RETURN_IF_CUDA(api, api.cuModuleLoadData(&gather->module_, ferry_gather_image),
                 "load the gather kernel");
  RETURN_IF_CUDA(api, api.cuModuleGetFunction(&gather->kernel_, gather->module_, "ferry_gather"),
                 "find the gather kernel");
  void* tables = nullptr;
  RETURN_IF_CUDA(api,
                 api.cuMemHostAlloc(&tables, steps * most_tasks * sizeof(GatherTask),
                                    CU_MEMHOSTALLOC_DEVICEMAP),
                 "make the gather kernel's tables");
  gather->tables_ = static_cast<GatherTask*>(tables);
  return gather;
}

CudaGather::~CudaGather() {
  if (tables_ != nullptr) api_.cuMemFreeHost(tables_);
  if (module_ != nullptr) api_.cuModuleUnload(module_);
}

uint32_t CudaGather::Fill(size_t step, absl::Span<const CopyPiece> pieces) {
  GatherTask* const table = tables_ + step * most_tasks_;
  uint32_t count = 0;
  for (const CopyPiece& piece : pieces) {
    for (size_t at = 0; at < piece.size; at += kTaskBytes) {
      FERRY_CHECK(count < most_tasks_);
      table[count++] = {reinterpret_cast<uintptr_t>(piece.destination) + at,
                        reinterpret_cast<uintptr_t>(piece.source) + at,
                        std::min(kTaskBytes, piece.size - at)};
    }
  }
  return count;
}

absl::Status CudaGather::Launch(CUstream stream, size_t step, absl::Span<const CopyPiece> pieces) {
  const uint32_t tasks = Fill(step, pieces);
  CUdeviceptr address = 0;
  RETURN_IF_CUDA(api_, api_.cuMemHostGetDevicePointer(&address, tables_ + step * most_tasks_, 0),
                 "find a table");
  return LaunchTables(stream, {{{address, tasks, 0, 0}}}, 1);
}

absl::StatusOr<uint32_t> CudaGather::Upload(CUstream stream, size_t step,
                                            absl::Span<const CopyPiece> pieces, CUdeviceptr to) {
  const uint32_t tasks = Fill(step, pieces);
  RETURN_IF_CUDA(api_,
                 api_.cuMemcpyAsync(to, reinterpret_cast<uintptr_t>(tables_ + step * most_tasks_),
                                    tasks * sizeof(GatherTask), stream),
                 "copy a table");
  return tasks;
}

absl::Status CudaGather::LaunchTables(CUstream stream, GatherTables tables, size_t count) {
  FERRY_CHECK(count > 0 && count <= kGatherTables);
  auto tasks = static_cast<uint32_t>(tables.tables[count - 1].end);
  void* arguments[] = {&tables, &tasks};
  const auto blocks = static_cast<unsigned>(std::min<size_t>(tasks, most_blocks_));
  RETURN_IF_CUDA(
      api_,
      api_.cuLaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr),
      absl::StrCat("gather by ", tasks, " tasks"));
  return absl::OkStatus();
}

bool MoverChoice::PreferKernel(size_t pieces, size_t bytes, absl::Time now) const {
  const absl::Duration kernel =
      KernelTime(bytes) + (sms_.busy(now) ? SmLoad::kSlice : absl::ZeroDuration());
  const absl::Duration engine = kEngineStart + std::max(static_cast<double>(pieces) * kEnginePiece,
                                                        BytesAt(bytes, kEngineBytesPerSecond));
  return kernel < engine;
}

void MoverChoice::OnStepBegun(size_t bytes, bool tells, absl::Time now) {
  if (under_way_ == 0) {
    since_ = now;
    shared_ = 0;
    disturbed_ = false;
  }
  under_way_ += bytes;
  shared_ += bytes;
  silent_ += tells ? 0 : 1;
  disturbed_ |= !tells;
}

void MoverChoice::OnStepOver(size_t bytes, bool tells, absl::Time now) {
  if (!disturbed_) sms_.OnKernelOver(now - since_ > KernelTime(shared_) + kLate, now);
  under_way_ -= bytes;
  silent_ -= tells ? 0 : 1;
  since_ = now;
  shared_ = under_way_;
  disturbed_ = silent_ > 0;
}

}  // namespace ferry
