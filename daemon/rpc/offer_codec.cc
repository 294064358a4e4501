// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/offer_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "daemon/rpc/peer_hello_codec.h"
#include "daemon/rpc/status_proto.h"
#include "transfer/convoy.h"

namespace ferry {
namespace {

void EncodeLayout(const Layout& layout, peer::v1::Offer* out) {
  const Layout::Blocks* blocks = layout.blocks();
  if (blocks == nullptr) {
    for (const Range& range : layout.extents()) {
      v1::BufferRange* entry = out->add_ranges();
      entry->set_arena_id(range.arena.value());
      entry->set_offset(range.offset);
      entry->set_length(range.length);
    }
  } else if (blocks->is_table) {
    v1::BlockTable* table = out->mutable_blocks();
    table->set_arena_id(blocks->arena.value());
    table->set_offset(blocks->offset);
    table->set_block_bytes(blocks->block_bytes);
    table->mutable_indices()->Add(blocks->indices.begin(), blocks->indices.end());
  } else {
    v1::StridedRange* strided = out->mutable_strided();
    strided->set_arena_id(blocks->arena.value());
    strided->set_offset(blocks->offset);
    strided->set_block_bytes(blocks->block_bytes);
    strided->set_stride_bytes(blocks->stride_bytes);
    strided->set_count(blocks->count);
  }
}

absl::StatusOr<Layout> DecodeLayout(const peer::v1::Offer& in) {
  const v1::StridedRange& strided = in.strided();
  const v1::BlockTable& table = in.blocks();
  if (static_cast<size_t>(in.ranges_size()) > kMaxRanges || strided.count() > kMaxBlocks ||
      static_cast<uint64_t>(table.indices_size()) > kMaxBlocks ||
      (in.ranges_size() > 0) + in.has_strided() + in.has_blocks() > 1) {
    return Broken("an offer whose layout is out of bounds");
  }
  absl::StatusOr<Layout> layout;
  if (in.has_strided()) {
    layout = Layout::Strided(ArenaId(strided.arena_id()), strided.offset(), strided.block_bytes(),
                             strided.stride_bytes(), strided.count());
  } else if (in.has_blocks()) {
    layout = Layout::BlockTable(ArenaId(table.arena_id()), table.offset(), table.block_bytes(),
                                {table.indices().begin(), table.indices().end()});
  } else {
    std::vector<Range> ranges;
    ranges.reserve(in.ranges_size());
    uint64_t left = in.bytes();
    for (const v1::BufferRange& range : in.ranges()) {
      if (range.length() > left) return Broken("an offer whose ranges pass its bytes");
      left -= range.length();
      ranges.push_back({ArenaId(range.arena_id()), range.offset(), range.length()});
    }
    layout = Layout::Merged(std::move(ranges));
  }
  if (!layout.ok()) return Broken("an offer whose blocks overflow");
  if (layout->bytes() != in.bytes()) return Broken("an offer whose layout is not of its bytes");
  return layout;
}

}  // namespace

void EncodeOffer(const Offer& offer, peer::v1::Offer* out) {
  out->set_domain(offer.key.domain);
  out->set_src_global_device_id(offer.key.source.value());
  out->set_dst_global_device_id(offer.key.destination.value());
  out->set_key(offer.key.key);
  out->set_bytes(offer.bytes);
  out->set_data_type(static_cast<v1::DataType>(offer.data_type));
  out->set_has_shape(offer.shape.given);
  for (const int64_t dim : offer.shape.dims) out->add_dims(dim);
  EncodeLayout(offer.layout, out);
  out->set_ready(offer.ready);
  if (offer.deadline != absl::InfiniteDuration())
    SetDuration(offer.deadline, out->mutable_deadline());
  out->set_priority(offer.priority);
  out->set_route(static_cast<v1::Route>(offer.route));
  out->set_prepared(offer.prepared);
  out->set_slot(offer.slot);
  out->set_uid(offer.uid);
  out->set_continues(offer.continues);
  if (offer.key.count > 1) out->set_count(offer.key.count);
}

int32_t PriorityFrom(int32_t priority) { return std::clamp(priority, -kMaxPriority, kMaxPriority); }

absl::StatusOr<Offer> DecodeOffer(const peer::v1::PeerEvent& event) {
  const peer::v1::Offer& in = event.offer();
  const uint32_t count = std::max(in.count(), uint32_t{1});
  if (in.key().empty() || count > kMostInConvoy ||
      in.key().size() > (count == 1 ? kMaxKeyBytes : count * (kMaxKeyBytes + 1)) ||
      in.domain().size() > kMaxDomainBytes || in.dims_size() > 8 || in.data_type() < 0 ||
      in.data_type() >= kDataTypes || in.route() < 0 || in.route() >= kRoutes ||
      in.slot() > kPreparedSlots ||
      std::any_of(in.dims().begin(), in.dims().end(), [](int64_t dim) { return dim < 0; })) {
    return Broken("an offer out of bounds");
  }
  Offer offer;
  offer.transfer = TransferId(event.transfer());
  offer.key = {in.domain(), GlobalDeviceId(in.src_global_device_id()),
               GlobalDeviceId(in.dst_global_device_id()), in.key(), count};
  offer.bytes = in.bytes();
  offer.data_type = static_cast<DataType>(in.data_type());
  offer.shape.given = in.has_shape();
  offer.shape.dims.assign(in.dims().begin(), in.dims().end());
  ASSIGN_OR_RETURN(offer.layout, DecodeLayout(in));
  offer.ready = in.ready();
  if (in.has_deadline()) {
    offer.deadline =
        absl::Seconds(in.deadline().seconds()) + absl::Nanoseconds(in.deadline().nanos());
  }
  offer.priority = PriorityFrom(in.priority());
  offer.route = static_cast<Route>(in.route());
  offer.prepared = in.prepared();
  offer.slot = in.slot();
  offer.uid = in.uid();
  offer.continues = in.continues();
  return offer;
}

}  // namespace ferry
