// SPDX-License-Identifier: Apache-2.0
// A safetensors header: the input's first 8 bytes are the length that a file claims, and the bytes
// of data that follow the header, which is the rest. What is accepted covers the data without a
// hole.
#include "tools/ferryctl/safetensors.h"

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::tools;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<uint64_t> length = ParseSafetensorsLength(input.substr(0, 8), size);
  if (length.ok()) FERRY_CHECK(*length >= 2 && *length <= size - kSafetensorsLengthBytes);
  if (size < kSafetensorsLengthBytes) return 0;
  uint64_t data_bytes = 0;
  for (int i = 7; i >= 0; --i) data_bytes = data_bytes << 8 | data[i];
  const absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(input.substr(kSafetensorsLengthBytes), data_bytes);
  if (!header.ok()) return 0;
  uint64_t at = 0;
  for (const SafetensorsTensor& tensor : header->tensors) {
    FERRY_CHECK(tensor.begin == at && tensor.end >= at);
    at = tensor.end;
    if (tensor.type == nullptr) continue;  // one that has no name here, and goes as bytes
    unsigned __int128 bits = static_cast<unsigned>(tensor.type->bits);
    for (const int64_t dim : tensor.shape) bits *= static_cast<uint64_t>(dim);
    FERRY_CHECK(bits == static_cast<unsigned __int128>(tensor.end - tensor.begin) * 8);
  }
  FERRY_CHECK(at == data_bytes);
  return 0;
}
