// SPDX-License-Identifier: Apache-2.0
// Reads the header of a .safetensors file as the format's own library does. The file is 8 bytes of
// little-endian length, that many bytes of JSON ({"name": {"dtype", "shape", "data_offsets"}, ...,
// "__metadata__": {...}}), then the tensors' bytes without gaps. Everything that a header claims is
// checked against the file first; a header that does not fit is refused. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ferry::tools {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

struct SafetensorsType {
  const char* name;  // as in the file: "BF16"
  int data_type;     // FERRY_*; FERRY_UNSPECIFIED if Ferry has no such type
  int bits;          // bits of one element
};
// Null if there is no such type.
const SafetensorsType* FindSafetensorsType(absl::string_view name);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;  // null if the type is unknown
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // offset in the data, which starts right after the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// The header's length, from the first 8 bytes of a file of `file_bytes` bytes.
absl::StatusOr<uint64_t> ParseSafetensorsLength(absl::string_view first_bytes, uint64_t file_bytes);

// Parses the header's JSON; `data_bytes` is the number of bytes that follow it in the file.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes);

}  // namespace ferry::tools
