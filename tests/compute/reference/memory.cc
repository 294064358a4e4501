// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/reference/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

constexpr uint64_t kLargestElement = 8;

bool IsCertain(DType type, const Element& element) {
  return element.error == 0 && !(HasManyNans(type) && IsNan(type, element.code));
}

}  // namespace

void Memory::Forget(uint64_t begin, uint64_t end) {
  auto at = stored_.lower_bound(begin < kLargestElement ? 0 : begin - kLargestElement + 1);
  while (at != stored_.end() && at->first < end) {
    const uint64_t size = BytesOf(at->second.type, 1);
    at = at->first + size > begin ? stored_.erase(at) : std::next(at);
  }
}

Element Memory::Read(DType type, uint64_t offset, uint64_t index) const {
  const uint64_t begin = offset + (type == DType::kF4E2M1FN ? index / 2 : index * BytesOf(type, 1));
  const uint64_t end = begin + BytesOf(type, 1);
  const Bytes bytes(bytes_.begin() + static_cast<int64_t>(begin),
                    bytes_.begin() + static_cast<int64_t>(end));
  Element element;
  element.code = BitsAt(type, bytes, type == DType::kF4E2M1FN ? index % 2 : 0);
  if (type == DType::kBool) element.code = element.code != 0;
  const auto first = certain_.begin() + static_cast<int64_t>(begin);
  if (std::all_of(first, first + static_cast<int64_t>(end - begin), [](bool is) { return is; })) {
    return element;
  }
  const auto at = stored_.find(begin);
  if (at != stored_.end() && at->second.type == type) return at->second.element;
  element.error = kAnything;
  return element;
}

void Memory::Write(DType type, uint64_t offset, uint64_t index, const Element& element) {
  const uint64_t size = BytesOf(type, 1);
  const bool half = type == DType::kF4E2M1FN;
  const uint64_t begin = offset + (half ? index / 2 : index * size);
  const bool second_half = half && index % 2 != 0;
  Forget(begin, begin + size);
  const bool certain =
      IsCertain(type, element) && (!second_half || certain_[begin]);  // the first half may not be
  for (uint64_t i = 0; i < size; ++i) {
    auto byte = static_cast<std::byte>(element.code >> (8 * i));
    if (second_half) byte = (bytes_[begin] & std::byte{0xF}) | byte << 4;
    bytes_[begin + i] = byte;
    certain_[begin + i] = certain;
  }
  if (!certain && !half) stored_[begin] = {type, element};
}

void Memory::EndHalfByte(uint64_t offset, uint64_t elements) {
  if (elements % 2 != 0) bytes_[offset + elements / 2] &= std::byte{0xF};
}

void Memory::Copy(uint64_t offset, const Memory& from, uint64_t from_offset, uint64_t bytes) {
  const Memory source = from;  // which may be this
  Forget(offset, offset + bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    bytes_[offset + i] = source.bytes_[from_offset + i];
    certain_[offset + i] = source.certain_[from_offset + i];
  }
  for (const auto& [at, stored] : source.stored_) {
    const bool whole = at >= from_offset && at + BytesOf(stored.type, 1) <= from_offset + bytes;
    if (whole) stored_[at - from_offset + offset] = stored;
  }
}

std::string Memory::DifferenceOf(const Bytes& got) const {
  if (got.size() != bytes_.size()) return absl::StrCat(got.size(), " bytes");
  for (uint64_t i = 0; i < got.size(); ++i) {
    if (certain_[i] && got[i] != bytes_[i]) {
      return absl::StrCat("byte ", i, ": ", absl::Hex(static_cast<uint32_t>(got[i])),
                          " instead of ", absl::Hex(static_cast<uint32_t>(bytes_[i])));
    }
  }
  for (const auto& [at, stored] : stored_) {
    Bytes bytes(got.begin() + static_cast<int64_t>(at),
                got.begin() + static_cast<int64_t>(at + BytesOf(stored.type, 1)));
    std::string text =
        testing::DifferenceOf(stored.type, stored.element, BitsAt(stored.type, bytes, 0));
    if (!text.empty()) return absl::StrCat("at byte ", at, ": ", text);
  }
  return "";
}

}  // namespace ferry::compute::testing
