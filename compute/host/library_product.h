// SPDX-License-Identifier: Apache-2.0
// A product of matrices by oneDNN, where its sums are within the tolerance of numerics.md: f32 by
// f32, and bf16 by bf16 to f32 or bf16. The rows of the left side are divided among as many parts
// as there are threads, each done by one: its own threads are not used. Immutable; any thread runs
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compute/host/run_control.h"
#include "compute/host/whole_ops.h"
#include "compute/host/workers.h"

namespace ferry::compute {

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;

  // Nothing if the library has none for the types or the layout, if there are no elements, or where
  // it may not make code. Each of `parts` is done in so many launches, rows after rows.
  static std::unique_ptr<LibraryProduct> Make(const WholeOp& op, size_t parts,
                                              uint64_t launches = 1);

  virtual uint64_t scratch_bytes() const = 0;
  // Left half done if the run stops. False, and nothing done: products of these factors may be so
  // small that the library drops them.
  virtual bool Run(const std::byte* lhs, const std::byte* rhs, std::byte* out, std::byte* scratch,
                   Workers* workers, RunControl& control) const = 0;
};

}  // namespace ferry::compute
