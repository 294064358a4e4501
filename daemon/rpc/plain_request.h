// SPDX-License-Identifier: Apache-2.0
// Reads a CrossHostSendRequest or CrossHostReceiveRequest in place, without protobuf's messages;
// making and filling those is most of what a batch of small transfers costs to read. Reads only
// what most batches consist of: buffers of one range each, without deadlines or 'defined' counters
// of their own, and no request id. Everything else is left to protoc's code.
//
// The methods have the names of those of protoc's classes, so that daemon/rpc/convert reads both in
// one way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ferry/v1/transfer.pb.h"

namespace ferry {

class PlainRange {
 public:
  PlainRange(uint64_t arena, uint64_t offset, uint64_t length)
      : arena_(arena), offset_(offset), length_(length) {}
  uint64_t arena_id() const { return arena_; }
  uint64_t offset() const { return offset_; }
  uint64_t length() const { return length_; }

 private:
  uint64_t arena_, offset_, length_;
};

class PlainBuffer {
 public:
  using Dims = absl::InlinedVector<int64_t, 4>;
  PlainBuffer(PlainRange range, int data_type, bool has_shape, Dims dims)
      : range_(range), data_type_(data_type), has_shape_(has_shape), dims_(std::move(dims)) {}

  absl::Span<const PlainRange> ranges() const { return {&range_, 1}; }
  int ranges_size() const { return 1; }
  int data_type() const { return data_type_; }
  bool has_shape() const { return has_shape_; }
  int dims_size() const { return static_cast<int>(dims_.size()); }
  const Dims& dims() const { return dims_; }
  // What a plain buffer never has.
  bool has_strided() const { return false; }
  bool has_blocks() const { return false; }
  bool has_defined_at() const { return false; }
  bool has_deadline() const { return false; }
  const v1::StridedRange& strided() const { return v1::StridedRange::default_instance(); }
  const v1::BlockTable& blocks() const { return v1::BlockTable::default_instance(); }
  const v1::DefinedAt& defined_at() const { return v1::DefinedAt::default_instance(); }
  const google::protobuf::Duration& deadline() const {
    return google::protobuf::Duration::default_instance();
  }

 private:
  PlainRange range_;
  int data_type_;
  bool has_shape_;
  Dims dims_;
};

class PlainRequest {
 public:
  // Nothing if the bytes are not a plain request. The result refers to the bytes.
  static std::optional<PlainRequest> Read(absl::string_view bytes);

  absl::string_view domain() const { return domain_; }
  uint64_t device_id() const { return device_; }
  int buffers_size() const { return static_cast<int>(buffers_.size()); }
  const PlainBuffer& buffers(int index) const { return buffers_[static_cast<size_t>(index)]; }
  // The field dst_global_device_ids or src_global_device_ids.
  const std::vector<uint64_t>& remotes() const { return remotes_; }
  int transfer_keys_size() const { return static_cast<int>(keys_.size()); }
  absl::string_view transfer_keys(int index) const { return keys_[static_cast<size_t>(index)]; }
  const v1::PostOptions& options() const { return options_; }
  bool prepare() const { return prepare_; }

 private:
  bool ReadFields(absl::string_view bytes);

  absl::string_view domain_;
  uint64_t device_ = 0;
  std::vector<PlainBuffer> buffers_;
  std::vector<uint64_t> remotes_;
  std::vector<absl::string_view> keys_;
  v1::PostOptions options_;
  bool prepare_ = false;
};

}  // namespace ferry
