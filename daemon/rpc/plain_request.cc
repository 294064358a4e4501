// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/plain_request.h"

#include <limits>
#include <protozero/exception.hpp>
#include <utility>

#include "daemon/rpc/field_reader.h"

namespace ferry {
namespace {

// The fewest bytes that a buffer takes with its key and device.
constexpr size_t kLeastBytes = 12;
// The most dimensions of a shape. A request with more is refused by the reader of protoc's
// messages.
constexpr size_t kMostDims = 8;

template <typename List>
void ReadPacked(absl::string_view bytes, List& list) {
  const char* at = bytes.data();
  for (const char* const end = at + bytes.size(); at != end;) {
    list.push_back(static_cast<typename List::value_type>(protozero::decode_varint(&at, end)));
  }
}

std::optional<PlainBuffer> ReadBuffer(absl::string_view bytes) {
  FieldReader buffer(bytes);
  const std::optional<absl::string_view> said = buffer.Bytes(1);
  if (!said.has_value()) return std::nullopt;
  FieldReader range(*said);
  const uint64_t arena = range.Number(1);
  const uint64_t offset = range.Number(2);
  const uint64_t length = range.Number(3);
  const uint64_t data_type = buffer.Number(4);
  PlainBuffer::Dims dims;
  if (const auto packed = buffer.Bytes(5)) ReadPacked(*packed, dims);
  const bool has_shape = buffer.OneOf<bool>(6, 2);
  if (!range.AtEnd() || !buffer.AtEnd() || dims.size() > kMostDims ||
      data_type > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
    return std::nullopt;
  }
  return PlainBuffer({arena, offset, length}, static_cast<int>(data_type), has_shape,
                     std::move(dims));
}

}  // namespace

bool PlainRequest::ReadFields(absl::string_view bytes) {
  FieldReader in(bytes);
  domain_ = in.Bytes(2).value_or(absl::string_view());
  device_ = in.Number(3);
  const size_t most = bytes.size() / kLeastBytes;
  buffers_.reserve(most);
  while (const auto said = in.Bytes(4)) {
    std::optional<PlainBuffer> buffer = ReadBuffer(*said);
    if (!buffer.has_value()) return false;
    buffers_.push_back(*std::move(buffer));
  }
  remotes_.reserve(buffers_.size());
  if (const auto packed = in.Bytes(5)) ReadPacked(*packed, remotes_);
  keys_.reserve(buffers_.size());
  while (const auto key = in.Bytes(6)) keys_.push_back(*key);
  if (const auto options = in.Bytes(7)) {
    if (!options_.ParseFromArray(options->data(), static_cast<int>(options->size()))) return false;
  }
  prepare_ = in.OneOf<bool>(8, 2);
  return in.AtEnd();
}

std::optional<PlainRequest> PlainRequest::Read(absl::string_view bytes) try {
  PlainRequest request;
  if (!request.ReadFields(bytes)) return std::nullopt;
  return request;
} catch (const protozero::exception&) {
  return std::nullopt;
}

}  // namespace ferry
