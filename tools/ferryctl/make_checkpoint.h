// SPDX-License-Identifier: Apache-2.0
// Writes a .safetensors checkpoint with the names, shapes and type of a small Llama and random
// contents: what demos and tests send when there is no real one. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ferry::tools {

struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;  // of BF16
};

// Embedding, layers, final norm: as many layers as come closest to `bytes` (at least one). Narrow
// layers below half a gigabyte, those of a 1B model above.
std::vector<CheckpointTensor> LlamaTensors(uint64_t bytes);

// The same bytes for the same seed. Returns how many were written.
absl::StatusOr<uint64_t> WriteCheckpoint(const std::string& path,
                                         const std::vector<CheckpointTensor>& tensors,
                                         uint64_t seed);

}  // namespace ferry::tools
