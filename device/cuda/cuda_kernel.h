// SPDX-License-Identifier: Apache-2.0
// A kernel that is loaded into a GPU's context, from its machine code. Made, used and destroyed
// while something holds the context, by the thread that has it current (CudaStream::MakeCurrent).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct CUmod_st;
struct CUfunc_st;

namespace ferry {

struct CudaApi;
class CudaStream;

class CudaKernel {
 public:
  // Loads the kernel `entry` of `image` into the context of `stream`. INTERNAL if the image is not
  // one that this GPU runs, or has no such kernel.
  static absl::StatusOr<std::unique_ptr<CudaKernel>> Load(const CudaStream& stream,
                                                          const std::string& image,
                                                          const char* entry);
  ~CudaKernel();
  CudaKernel(const CudaKernel&) = delete;
  CudaKernel& operator=(const CudaKernel&) = delete;

  // So many threads share a multiprocessor, about, of a kernel that runs beside copies of its GPU.
  // Of 512, 768, 1,024, 1,536 and 2,048 this is best where bytes are dequantised or added on
  // arrival (docs/performance.md, "In parts, with transfers").
  static constexpr uint32_t kThreadsBesideCopies = 768;
  // Bytes of dynamic shared memory that have no more blocks of `threads` threads on a
  // multiprocessor than kThreadsBesideCopies says, but at least one; 0 if the driver does not say
  // how much there is, or if the kernel's own are enough.
  uint32_t SharedBesideCopies(uint32_t threads) const;

 private:
  friend class CudaStream;
  explicit CudaKernel(const CudaApi& api) : api_(api) {}
  // Asks what SharedBesideCopies needs, and lets the kernel have as much shared memory.
  void AskForShared(int ordinal);

  const CudaApi& api_;
  // Bytes of shared memory: all of a multiprocessor, what each block has on top of its own, and
  // what a block of this kernel may have beside what it has anyway. 0: not known.
  int of_multiprocessor_ = 0;
  int of_block_ = 0;
  int most_ = 0;
  int own_ = 0;
  CUmod_st* module_ = nullptr;
  CUfunc_st* function_ = nullptr;
};

}  // namespace ferry
