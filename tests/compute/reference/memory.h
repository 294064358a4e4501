// SPDX-License-Identifier: Apache-2.0
// A buffer of a reference run: its bytes, and which of them an executor may leave otherwise, and
// how far. Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/compute/reference/tensor.h"

namespace ferry::compute::testing {

class Memory {
 public:
  explicit Memory(Bytes bytes) : bytes_(std::move(bytes)), certain_(bytes_.size(), true) {}

  const Bytes& bytes() const { return bytes_; }

  // The element of `type` that is `index` elements after byte `offset`.
  Element Read(DType type, uint64_t offset, uint64_t index) const;
  void Write(DType type, uint64_t offset, uint64_t index, const Element& element);
  // Sets the half byte after the last 4-bit element to 0.
  void EndHalfByte(uint64_t offset, uint64_t elements);
  void Copy(uint64_t offset, const Memory& from, uint64_t from_offset, uint64_t bytes);

  // "", or the first place where an executor's bytes may not be as they are.
  std::string DifferenceOf(const Bytes& got) const;

 private:
  struct Stored {
    DType type;
    Element element;
  };

  // Forgets the elements that have a byte in the range; their other bytes become uncertain.
  void Forget(uint64_t begin, uint64_t end);

  Bytes bytes_;
  std::vector<bool> certain_;          // by byte
  std::map<uint64_t, Stored> stored_;  // elements of which the uncertain bytes are part, by offset
};

}  // namespace ferry::compute::testing
