// SPDX-License-Identifier: Apache-2.0
// Single buffers (ranges, type, shape, 'defined') and which of a batch may lie over each other.
#include <limits>
#include <string>
#include <vector>

#include "daemon/rpc/convert.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

v1::Buffer OfBytes(uint64_t bytes) {
  v1::Buffer buffer;
  v1::BufferRange* range = buffer.add_ranges();
  range->set_arena_id(1);
  range->set_length(bytes);
  return buffer;
}

v1::Buffer OfShape(uint64_t bytes, v1::DataType type, const std::vector<int64_t>& dims) {
  v1::Buffer buffer = OfBytes(bytes);
  buffer.set_data_type(type);
  buffer.set_has_shape(true);
  for (const int64_t dim : dims) buffer.add_dims(dim);
  return buffer;
}

// What is wrong with a send of `buffer` between two good ones, and that it is said of `field` of
// it; OK if nothing is.
absl::Status Check(const v1::Buffer& buffer, const std::string& field = "") {
  v1::CrossHostSendRequest request;
  for (int i = 0; i < 3; ++i) {
    *request.add_buffers() = i == 1 ? buffer : OfBytes(8);
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys(absl::StrCat("k", i));
  }
  const PostBatch batch = Convert(request);
  if (batch.violations.empty()) return absl::OkStatus();
  EXPECT_THAT(batch.violations, SizeIs(1));
  EXPECT_EQ(batch.violations[0].field, absl::StrCat("buffers[1]", field));
  return batch.violations[0].status;
}

TEST(ConvertBuffer, DefinedCountersAre0To63) {
  v1::Buffer buffer = OfBytes(8);
  buffer.mutable_defined_at()->set_timeline(63);
  EXPECT_THAT(Check(buffer), Is("OK"));
  buffer.mutable_defined_at()->set_timeline(64);
  EXPECT_THAT(Check(buffer),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "defined_at.timeline 64 is not below 64"));
}

TEST(ConvertBuffer, DataTypesAreThoseOfTheProto) {
  for (int type = 0; type < kDataTypes; ++type) {
    v1::Buffer buffer = OfBytes(16);
    buffer.set_data_type(static_cast<v1::DataType>(type));
    EXPECT_THAT(Check(buffer), Is("OK")) << type;
  }
  for (const int type : {-1, kDataTypes, 4096}) {
    v1::Buffer buffer = OfBytes(16);
    buffer.set_data_type(static_cast<v1::DataType>(type));
    EXPECT_THAT(Check(buffer), Is("INVALID_ARGUMENT/FIELD_INVALID",
                                  absl::StrCat("data_type ", type, " is unknown")));
  }
}

TEST(ConvertBuffer, WithATypeAloneTheBytesAreWholeElements) {
  v1::Buffer buffer = OfBytes(12);
  buffer.set_data_type(v1::DATA_TYPE_F32);
  EXPECT_THAT(Check(buffer), Is("OK"));
  buffer.set_data_type(v1::DATA_TYPE_F64);
  EXPECT_THAT(Check(buffer), Is("INVALID_ARGUMENT/FIELD_INVALID",
                                "12 bytes are not a whole number of elements of F64"));
  // Half a byte an element: any number of bytes is whole.
  buffer = OfBytes(3);
  buffer.set_data_type(v1::DATA_TYPE_F4E2M1FN);
  EXPECT_THAT(Check(buffer), Is("OK"));
}

TEST(ConvertBuffer, DimsWithoutHasShapeAreAMistake) {
  v1::Buffer buffer = OfBytes(8);
  buffer.add_dims(8);
  EXPECT_THAT(Check(buffer),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "dims are given but has_shape is false"));
}

TEST(ConvertBuffer, AShapeHasAtMost8DimensionsThatAreNotNegative) {
  EXPECT_THAT(Check(OfShape(8, v1::DATA_TYPE_U8, {1, 2, 1, 2, 1, 2, 1, 1})), Is("OK"));
  EXPECT_THAT(Check(OfShape(8, v1::DATA_TYPE_U8, {1, 2, 1, 2, 1, 2, 1, 1, 1})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "at most 8 dimensions, not 9"));
  EXPECT_THAT(Check(OfShape(8, v1::DATA_TYPE_U8, {-8, -1})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "dimension -8 is negative"));
}

TEST(ConvertBuffer, AShapeThatOverflowsIsRefusedAndDoesNotWrap) {
  constexpr int64_t kBig = int64_t{1} << 62;
  // 2^64 elements would be 0 elements in 64 bits, and 0 bytes.
  EXPECT_THAT(Check(OfShape(0, v1::DATA_TYPE_U8, {kBig, 4})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "overflows"));
  EXPECT_THAT(Check(OfShape(0, v1::DATA_TYPE_UNSPECIFIED, {kBig, kBig, kBig, kBig})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "overflows"));
  // 2^61 elements of 8 bytes: the elements fit, the bytes do not.
  EXPECT_THAT(
      Check(OfShape(0, v1::DATA_TYPE_F64, {kBig / 2})),
      Is("INVALID_ARGUMENT/FIELD_INVALID", "the bytes of F64[2305843009213693952] overflow"));
}

TEST(ConvertBuffer, TypeAndShapeTellTheBytes) {
  EXPECT_THAT(Check(OfShape(48, v1::DATA_TYPE_F32, {3, 4})), Is("OK"));
  EXPECT_THAT(Check(OfShape(47, v1::DATA_TYPE_F32, {3, 4})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "F32[3,4] has 48 bytes, the ranges have 47"));
  EXPECT_THAT(Check(OfShape(0, v1::DATA_TYPE_C128, {5, 0})), Is("OK"));
  // Without a type a shape says nothing of bytes.
  EXPECT_THAT(Check(OfShape(47, v1::DATA_TYPE_UNSPECIFIED, {3, 4})), Is("OK"));
}

TEST(ConvertBuffer, AScalarIsOneElement) {
  EXPECT_THAT(Check(OfShape(4, v1::DATA_TYPE_F32, {})), Is("OK"));
  EXPECT_THAT(Check(OfShape(0, v1::DATA_TYPE_F32, {})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "F32[] has 4 bytes, the ranges have 0"));
}

TEST(ConvertBuffer, F4E2M1FNHasTwoElementsAByte) {
  EXPECT_THAT(Check(OfShape(4, v1::DATA_TYPE_F4E2M1FN, {2, 4})), Is("OK"));
  EXPECT_THAT(Check(OfShape(4, v1::DATA_TYPE_F4E2M1FN, {7})), Is("OK"));  // the last half is unused
  EXPECT_THAT(Check(OfShape(1, v1::DATA_TYPE_F4E2M1FN, {})), Is("OK"));
  EXPECT_THAT(Check(OfShape(8, v1::DATA_TYPE_F4E2M1FN, {8})),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "has 4 bytes, the ranges have 8"));
}

TEST(ConvertBuffer, LengthsThatOverflowAreRefused) {
  v1::Buffer buffer = OfBytes(kMax);
  EXPECT_THAT(Check(buffer), Is("OK"));  // it is the session that knows the arena
  buffer.add_ranges()->set_length(1);
  EXPECT_THAT(Check(buffer, ".ranges[1]"),
              Is("INVALID_ARGUMENT/RANGE_INVALID", "up to this one, which has 1 bytes, overflow"));
}

TEST(ConvertBuffer, ABufferHasAtMost65536Ranges) {
  v1::Buffer buffer;
  for (int i = 0; i < 65536; ++i) buffer.add_ranges();
  EXPECT_THAT(Check(buffer), Is("OK"));
  buffer.add_ranges();
  EXPECT_THAT(Check(buffer, ".ranges"),
              Is("INVALID_ARGUMENT/RANGE_INVALID", "at most 65536 ranges, not 65537"));
}

v1::Buffer OfStride(uint64_t arena, uint64_t offset, uint64_t block, uint64_t stride,
                    uint64_t count) {
  v1::Buffer buffer;
  v1::StridedRange* strided = buffer.mutable_strided();
  strided->set_arena_id(arena);
  strided->set_offset(offset);
  strided->set_block_bytes(block);
  strided->set_stride_bytes(stride);
  strided->set_count(count);
  return buffer;
}

v1::Buffer OfTable(uint64_t arena, uint64_t offset, uint64_t block,
                   const std::vector<uint64_t>& indices) {
  v1::Buffer buffer;
  v1::BlockTable* table = buffer.mutable_blocks();
  table->set_arena_id(arena);
  table->set_offset(offset);
  table->set_block_bytes(block);
  table->mutable_indices()->Add(indices.begin(), indices.end());
  return buffer;
}

TEST(ConvertBuffer, StridedAndBlocksBecomeLayouts) {
  v1::CrossHostSendRequest request;
  *request.add_buffers() = OfStride(7, 100, 8, 64, 5);
  *request.add_buffers() = OfTable(9, 4, 16, {3, 1, 3});
  for (const char* key : {"a", "b"}) {
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys(key);
  }
  const PostBatch batch = Convert(request);
  ASSERT_THAT(batch.violations, IsEmpty());
  EXPECT_EQ(batch.specs[0].bytes, 40u);
  EXPECT_EQ(batch.specs[0].layout, *Layout::Strided(ArenaId(7), 100, 8, 64, 5));
  EXPECT_EQ(batch.specs[1].bytes, 48u);
  EXPECT_EQ(batch.specs[1].layout, *Layout::BlockTable(ArenaId(9), 4, 16, {3, 1, 3}));
}

TEST(ConvertBuffer, OnlyOneFormCanBeGiven) {
  const auto two_forms = Is("INVALID_ARGUMENT/FIELD_INVALID", "at most one of");
  v1::Buffer buffer = OfStride(1, 0, 8, 8, 1);
  buffer.add_ranges();
  EXPECT_THAT(Check(buffer), two_forms);
  buffer.clear_ranges();
  *buffer.mutable_blocks() = OfTable(1, 0, 8, {0}).blocks();
  EXPECT_THAT(Check(buffer), two_forms);
  buffer.clear_strided();
  EXPECT_THAT(Check(buffer), Is("OK"));
  buffer.add_ranges();
  EXPECT_THAT(Check(buffer), two_forms);
}

TEST(ConvertBuffer, BlocksThatOverflowAreRefused) {
  EXPECT_THAT(Check(OfStride(1, kMax - 8, 8, 0, 1)), Is("OK"));
  EXPECT_THAT(Check(OfStride(1, 0, 8, kMax / 2, 4), ".strided"),
              Is("INVALID_ARGUMENT/RANGE_INVALID",
                 "block 3 ends beyond 2^64: it has 8 bytes at offset 0 + 3 x 9223372036854775807 "
                 "of arena 1"));
  EXPECT_THAT(
      Check(OfTable(1, 5, 8, {1, kMax, 2}), ".blocks"),
      Is("INVALID_ARGUMENT/RANGE_INVALID",
         "block 1 (index 18446744073709551615) ends beyond 2^64: it has 8 bytes at offset 5 "
         "+ 18446744073709551615 x 8 of arena 1"));
  // Each ends well, but their sum does not.
  EXPECT_THAT(Check(OfStride(1, 7, kMax - 7, 0, 2), ".strided"),
              Is("INVALID_ARGUMENT/RANGE_INVALID",
                 "2 blocks of 18446744073709551608 bytes at offset 7 of arena 1 overflow"));
}

TEST(ConvertBuffer, ABufferHasAtMost1048576Blocks) {
  EXPECT_THAT(Check(OfStride(1, 0, 1, 1, kMaxBlocks)), Is("OK"));
  EXPECT_THAT(Check(OfStride(1, 0, 1, 1, kMaxBlocks + 1), ".strided"),
              Is("INVALID_ARGUMENT/RANGE_INVALID", "at most 1048576 blocks, not 1048577"));
}

TEST(ConvertBuffer, TypeAndShapeAreThoseOfAllBlocks) {
  v1::Buffer buffer = OfTable(1, 0, 16, {5, 7, 9});
  buffer.set_data_type(v1::DATA_TYPE_F32);
  buffer.set_has_shape(true);
  buffer.add_dims(3);
  buffer.add_dims(4);
  EXPECT_THAT(Check(buffer), Is("OK"));
  buffer.mutable_blocks()->add_indices(11);
  EXPECT_THAT(Check(buffer),
              Is("INVALID_ARGUMENT/FIELD_INVALID", "F32[3,4] has 48 bytes, the ranges have 64"));
}

struct Extent {
  uint64_t arena, offset, length;
};

// Violations of a batch of `buffers`, as "field: text".
template <typename Request>
std::vector<std::string> Overlaps(const std::vector<std::vector<Extent>>& buffers) {
  Request request;
  for (const std::vector<Extent>& extents : buffers) {
    v1::Buffer* buffer = request.add_buffers();
    for (const Extent& extent : extents) {
      v1::BufferRange* range = buffer->add_ranges();
      range->set_arena_id(extent.arena);
      range->set_offset(extent.offset);
      range->set_length(extent.length);
    }
    request.add_transfer_keys(absl::StrCat("k", request.buffers_size()));
  }
  for (int i = 0; i < request.buffers_size(); ++i) {
    if constexpr (std::is_same_v<Request, v1::CrossHostSendRequest>) {
      request.add_dst_global_device_ids(2);
    } else {
      request.add_src_global_device_ids(2);
    }
  }
  std::vector<std::string> found;
  for (const Violation& violation : Convert(request).violations) {
    EXPECT_THAT(violation.status, Is("INVALID_ARGUMENT/RANGE_OVERLAP"));
    found.push_back(absl::StrCat(violation.field, ": ", violation.status.message()));
  }
  return found;
}
const auto OfReceives = Overlaps<v1::CrossHostReceiveRequest>;
const auto OfSends = Overlaps<v1::CrossHostSendRequest>;

TEST(ConvertOverlaps, ReceivesMayTouch) {
  EXPECT_THAT(OfReceives({{{1, 0, 10}}, {{1, 10, 10}}, {{1, 30, 5}, {1, 20, 10}}}), IsEmpty());
}

TEST(ConvertOverlaps, TheSameOffsetsOfTwoArenasAreNotTheSameBytes) {
  EXPECT_THAT(OfReceives({{{1, 0, 10}}, {{2, 0, 10}}}), IsEmpty());
}

TEST(ConvertOverlaps, RangesOfNoLengthWriteNothing) {
  EXPECT_THAT(OfReceives({{{1, 0, 10}}, {{1, 5, 0}}, {{1, 5, 0}}, {{1, 0, 0}}}), IsEmpty());
}

TEST(ConvertOverlaps, TwoReceivesMayNotWriteTheSameBytes) {
  EXPECT_THAT(
      OfReceives({{{1, 0, 10}}, {{1, 9, 10}}}),
      ::testing::ElementsAre("buffers[1].ranges[0]: writes bytes of arena 1 at offset 9 that "
                             "buffers[0].ranges[0] writes too"));
  EXPECT_THAT(OfReceives({{{1, 8, 8}}, {{1, 8, 8}}}), SizeIs(1));
}

TEST(ConvertOverlaps, OneReceiveMayNotWriteBytesTwice) {
  EXPECT_THAT(
      OfReceives({{{1, 0, 10}}, {{1, 40, 10}, {1, 100, 1}, {1, 35, 6}}}),
      ::testing::ElementsAre("buffers[1].ranges[0]: writes bytes of arena 1 at offset 40 that "
                             "buffers[1].ranges[2] writes too"));
}

TEST(ConvertOverlaps, EveryReceiveInsideALargeOneIsListed) {
  const std::vector<std::string> found =
      OfReceives({{{1, 0, 100}}, {{1, 10, 5}}, {{1, 30, 5}}, {{1, 99, 5}}, {{1, 104, 5}}});
  ASSERT_THAT(found, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(found[i], ::testing::StartsWith(absl::StrCat("buffers[", i + 1, "].ranges[0]: ")));
    EXPECT_THAT(found[i], ::testing::EndsWith("that buffers[0].ranges[0] writes too"));
  }
}

TEST(ConvertOverlaps, AnEndBeyondAllNumbersDoesNotWrap) {
  // Out of any arena's bounds, which the session says; here it must not hide an overlap.
  EXPECT_THAT(OfReceives({{{1, 10, kMax}}, {{1, 20, 5}}}), SizeIs(1));
}

// What a batch of two receives is told, with the field that it is about.
absl::Status OfTwo(const v1::Buffer& first, const v1::Buffer& second) {
  v1::CrossHostReceiveRequest request;
  for (const v1::Buffer* buffer : {&first, &second}) {
    *request.add_buffers() = *buffer;
    request.add_src_global_device_ids(2);
    request.add_transfer_keys(absl::StrCat("k", request.buffers_size()));
  }
  const PostBatch batch = Convert(request);
  return batch.violations.empty() ? absl::OkStatus() : RefusedBatch(batch.violations, batch.size);
}

TEST(ConvertOverlaps, BlocksOfEveryFormAreCompared) {
  const v1::Buffer column = OfStride(1, 0, 16, 64, 1000);
  EXPECT_THAT(OfTwo(column, OfStride(1, 16, 48, 64, 1000)), Is("OK"));
  EXPECT_THAT(OfTwo(column, OfStride(1, 15, 1, 64, 1000)),
              Is("INVALID_ARGUMENT/RANGE_OVERLAP",
                 "buffers[1].strided: block 999 writes bytes of arena 1 at offset 63951 that block "
                 "999 of buffers[0].strided writes too"));
  EXPECT_THAT(OfTwo(column, OfTable(1, 0, 16, {1, 2, 3, 5})), Is("OK"));
  EXPECT_THAT(OfTwo(OfTable(1, 0, 16, {1, 2, 3, 8}), column),
              Is("INVALID_ARGUMENT/RANGE_OVERLAP",
                 "buffers[0].blocks: block 3 (index 8) writes bytes of arena 1 at offset 128 that "
                 "block 2 of buffers[1].strided writes too"));
  EXPECT_THAT(OfTwo(OfTable(1, 0, 16, {9, 4}), OfTable(1, 8, 32, {0, 3})), Is("OK"));
  EXPECT_THAT(OfTwo(OfTable(1, 0, 16, {9, 4}), OfTable(1, 8, 32, {0, 4})),
              Is("INVALID_ARGUMENT/RANGE_OVERLAP"));
  EXPECT_THAT(OfTwo(OfBytes(1), OfTable(2, 0, 16, {4, 7, 4})),
              Is("INVALID_ARGUMENT/RANGE_OVERLAP",
                 "buffers[1].blocks: block 2 (index 4) writes bytes of arena 2 at offset 64 that "
                 "block 0 (index 4) of buffers[1].blocks writes too"));
}

TEST(ConvertOverlaps, SendsMayReadTheSameBytes) {
  EXPECT_THAT(OfSends({{{1, 0, 10}}, {{1, 0, 10}}, {{1, 5, 10}, {1, 5, 10}}}), IsEmpty());
}

}  // namespace
}  // namespace ferry
