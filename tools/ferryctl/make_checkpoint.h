// SPDX-License-Identifier: Apache-2.0
// Writes a .safetensors checkpoint with the names, shapes and type of a small Llama and random
// contents, for demos and tests without a real one. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ferry::tools {

struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;  // the elements are BF16
};

// Tensors of embedding, layers and final norm, with as many layers as come closest to `bytes` (at
// least one). Layers are narrow below half a gigabyte, and those of a 1B model above.
std::vector<CheckpointTensor> LlamaTensors(uint64_t bytes);

// The same seed gives the same bytes. Returns how many bytes were written.
absl::StatusOr<uint64_t> WriteCheckpoint(const std::string& path,
                                         const std::vector<CheckpointTensor>& tensors,
                                         uint64_t seed);

}  // namespace ferry::tools
