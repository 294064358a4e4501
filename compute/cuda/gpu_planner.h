// SPDX-License-Identifier: Apache-2.0
// Makes a GpuPlan's commands from the steps of its plan. Single-threaded; used once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/kernel_code.h"
#include "compute/cuda/product_pieces.h"
#include "compute/plan/part.h"

namespace ferry::compute {

class GpuPlanner {
 public:
  GpuPlanner(GpuPlan& made, const GpuOptions& options) : made_(made), options_(options) {}

  absl::Status Run();

 private:
  absl::Status AddSteps(const std::vector<Step>& steps, std::vector<GpuCommand>& commands);
  absl::Status AddStep(const Step& step, std::vector<GpuCommand>& commands);
  // Adds the launches of `program`, whose buffers are at `places`.
  absl::Status AddKernel(const Program& program, std::vector<GpuPlace> places,
                         std::vector<GpuCommand>& commands, absl::string_view label);
  // The same, but first copies the buffers that the program reads and that overlap what it writes.
  absl::Status AddApart(Program program, std::vector<GpuPlace> places,
                        std::vector<GpuCommand>& commands, absl::string_view label);
  // `first`, if it is not null, has launches that do the same one by one, over the same scratch.
  absl::Status AddLaunches(const KernelCode& code, const KernelCode* first,
                           absl::Span<const GpuPlace> places, std::vector<GpuCommand>& commands,
                           absl::string_view label);
  // The code of the program, into `code`, and into `first` that of the first tier, if it is wanted
  // and there is one that needs no more than `code` does.
  absl::Status WriteTiers(const Program& program, absl::Span<const GpuPlace> places,
                          KernelCode& code, std::optional<KernelCode>& first) const;
  void AddCopy(const GpuPlace& to, const GpuPlace& from, uint64_t bytes,
               std::vector<GpuCommand>& commands);
  static uint32_t KernelOf(const std::string& source, absl::string_view label,
                           std::map<std::string, uint32_t>& known, std::vector<GpuKernel>& kernels);

  // The op of a kernel that takes tensors as bytes, if it has one.
  static std::optional<OpIndex> BytesOpOf(const Program& program);
  absl::Status AddBytesOp(const Step& step, OpIndex index, std::vector<GpuCommand>& commands);
  GpuPlace PlaceBytes(const Step& step, ValueId value, std::vector<const Node*>& stores);

  // gpu_products.cc
  absl::Status AddProduct(const Step& step, std::vector<GpuCommand>& commands);
  absl::StatusOr<bool> AddLibraryProduct(const Step& step, const Node& node,
                                         std::vector<GpuCommand>& commands);
  std::optional<GpuPlace> PlaceOfResult(const Step& step, const GpuProduct& product,
                                        const Node& sink) const;
  absl::Status AddSums(const Step& step, int64_t count, const TensorType& result,
                       const std::optional<GpuPlace>& place, GpuMatrix& sums,
                       std::vector<GpuCommand>& commands);
  // Puts the global scale of a product into memory for a library, as `factors` of `product`.
  absl::Status AddGlobalScale(const Step& step, ValueId scale, GpuProduct& product,
                              std::vector<GpuCommand>& commands);
  // What is after a product that a library has made: its result, which is still to be scaled or
  // converted, goes where `sinks` put it.
  absl::Status AddAfterProduct(const Step& step, const Node& node, const GpuProduct& product,
                               const std::vector<const Node*>& sinks,
                               std::vector<GpuCommand>& commands);
  absl::Status AddFactor(const Step& step, const Node& product, size_t index, bool native,
                         GpuMatrix& matrix, std::vector<GpuCommand>& commands);
  absl::Status AddScales(const Step& step, const Node& node, const ProductPieces& pieces,
                         GpuProduct& product, std::vector<GpuCommand>& commands);
  absl::Status AddSwizzled(const Step& step, const Node& product, size_t index, GpuMatrix& matrix,
                           std::vector<GpuCommand>& commands);
  bool IsNative(const Program& program, const Node& product) const;
  // Adds commands that put `value` of the step's program into memory that lasts until the end of
  // the step, dense and as `type`. `dequantize`, if set, has scales that the value is multiplied
  // with.
  absl::StatusOr<GpuPlace> Compute(const Step& step, ValueId value, DType type,
                                   const Node* dequantize, std::vector<GpuCommand>& commands);
  // `value` of the step's program in `part`, for a kernel that takes elements of it in another
  // order than it makes them: what only moves things in memory is taken with it, all else is put
  // into memory before. `places`: of the part's buffers.
  absl::StatusOr<ValueId> InMemory(const Step& step, ValueId value, Part& part,
                                   std::vector<GpuPlace>& places,
                                   std::vector<GpuCommand>& commands);
  // Where the value is in memory, if it is a dense tensor there that libraries take.
  std::optional<GpuPlace> DenseInput(const Step& step, ValueId value) const;

  GpuPlace PlaceOf(const Binding& binding) const;
  uint32_t AlignmentOf(const GpuPlace& place) const;
  // Memory that lasts until the end of the step.
  GpuPlace Temporary(uint64_t bytes, absl::string_view use);
  // Whether the two places may have memory in common, given their sizes.
  bool Overlap(const GpuPlace& a, uint64_t a_bytes, const GpuPlace& b, uint64_t b_bytes) const;

  GpuPlan& made_;
  const GpuOptions options_;
  std::map<std::string, uint32_t> kernels_, first_kernels_;  // by source
  // Of the present step.
  uint32_t step_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace ferry::compute
