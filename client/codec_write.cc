// SPDX-License-Identifier: Apache-2.0
// Encodes what the library sends.
#include "client/codec.h"

#include <protozero/pbf_writer.hpp>

#include "client/arena.h"

namespace ferry::client {
namespace {

using protozero::pbf_writer;

// ---- sizes, so that nested messages are written once and never moved ----

size_t VarintSize(uint64_t value) {
  return static_cast<size_t>(protozero::length_of_varint(value));
}

// All fields here have numbers below 16, so a tag is one byte.
size_t VarintField(uint64_t value) { return value == 0 ? 0 : 1 + VarintSize(value); }
size_t LengthField(size_t length) { return 1 + VarintSize(length) + length; }

size_t RangeSize(const ferry_range& range) {
  return VarintField(range.arena->id) + VarintField(range.offset) + VarintField(range.length);
}

size_t StridedSize(const ferry_strided_range& strided) {
  return VarintField(strided.arena->id) + VarintField(strided.offset) +
         VarintField(strided.block_bytes) + VarintField(strided.stride_bytes) +
         VarintField(strided.count);
}

size_t IndicesSize(const ferry_block_table& blocks) {
  size_t size = 0;
  for (size_t i = 0; i < blocks.index_count; ++i) size += VarintSize(blocks.indices[i]);
  return size;
}

size_t BlocksSize(const ferry_block_table& blocks) {
  return VarintField(blocks.arena->id) + VarintField(blocks.offset) +
         VarintField(blocks.block_bytes) +
         (blocks.index_count != 0 ? LengthField(IndicesSize(blocks)) : 0);
}

size_t DurationSize(uint64_t ns) {
  return VarintField(ns / 1000000000) + VarintField(ns % 1000000000);
}

size_t DimsSize(const ferry_transfer& transfer) {
  size_t size = 0;
  for (size_t i = 0; i < transfer.dim_count; ++i) {
    size += VarintSize(static_cast<uint64_t>(transfer.dims[i]));
  }
  return size;
}

size_t BufferSize(const ferry_transfer& transfer) {
  size_t size = 0;
  for (size_t i = 0; i < transfer.range_count; ++i) {
    size += LengthField(RangeSize(transfer.ranges[i]));
  }
  if (transfer.strided != nullptr) size += LengthField(StridedSize(*transfer.strided));
  if (transfer.blocks != nullptr) size += LengthField(BlocksSize(*transfer.blocks));
  size += VarintField(static_cast<uint64_t>(static_cast<int64_t>(transfer.data_type)));
  if (transfer.dims != nullptr) {
    if (transfer.dim_count != 0) size += LengthField(DimsSize(transfer));
    size += VarintField(1);
  }
  if (transfer.has_defined_at) {
    size +=
        LengthField(VarintField(transfer.defined_timeline) + VarintField(transfer.defined_value));
  }
  if (transfer.deadline_ns != 0) size += LengthField(DurationSize(transfer.deadline_ns));
  return size;
}

size_t OptionsSize(const ferry_post_options& options) {
  return VarintField(options.over_timeline) +
         (options.deadline_ns != 0 ? LengthField(DurationSize(options.deadline_ns)) : 0) +
         VarintField(static_cast<uint64_t>(static_cast<int64_t>(options.priority))) +
         VarintField(static_cast<uint64_t>(static_cast<int64_t>(options.route))) +
         VarintField(options.continues);
}

size_t PostSize(const PostBatch& batch) {
  const ferry_post_options& options = *batch.options;
  size_t size = 0;
  if (options.request_id_bytes != 0) size += LengthField(options.request_id_bytes);
  if (options.domain_bytes != 0) size += LengthField(options.domain_bytes);
  size += VarintField(batch.device);
  size_t remotes = 0;
  for (size_t i = 0; i < batch.count; ++i) {
    size += LengthField(BufferSize(batch.transfers[i]));
    size += LengthField(batch.transfers[i].key_bytes);
    remotes += VarintSize(batch.transfers[i].remote_device);
  }
  if (batch.count != 0) size += LengthField(remotes);
  if (const size_t given = OptionsSize(options); given != 0) size += LengthField(given);
  size += VarintField(batch.prepare ? 1 : 0);
  return size;
}

// ---- writing; zeros are not sent, as proto3 has it ----

struct Writer : pbf_writer {
  explicit Writer(std::string& out) : pbf_writer(out), out(out) {}
  std::string& out;
};

void Varint(Writer& writer, uint32_t tag, uint64_t value) {
  if (value != 0) writer.add_uint64(tag, value);
}

// A nested message of known size. Its fields follow the header in the same buffer, so nothing is
// moved. An empty message is written too, because its presence matters.
template <typename Write>
void Nested(Writer& writer, uint32_t tag, size_t size, Write write) {
  constexpr uint32_t kLengthDelimited = 2;
  protozero::add_varint_to_buffer(&writer.out, tag << 3 | kLengthDelimited);
  protozero::add_varint_to_buffer(&writer.out, size);
  write(writer);
}

void Duration(Writer& parent, uint32_t tag, uint64_t ns) {
  Nested(parent, tag, DurationSize(ns), [&](Writer& writer) {
    Varint(writer, 1, ns / 1000000000);
    Varint(writer, 2, ns % 1000000000);
  });
}

void WriteBuffer(Writer& writer, const ferry_transfer& transfer) {
  for (size_t i = 0; i < transfer.range_count; ++i) {
    const ferry_range& range = transfer.ranges[i];
    Nested(writer, 1, RangeSize(range), [&](Writer& nested) {
      Varint(nested, 1, range.arena->id);
      Varint(nested, 2, range.offset);
      Varint(nested, 3, range.length);
    });
  }
  if (const ferry_strided_range* strided = transfer.strided; strided != nullptr) {
    Nested(writer, 2, StridedSize(*strided), [&](Writer& nested) {
      Varint(nested, 1, strided->arena->id);
      Varint(nested, 2, strided->offset);
      Varint(nested, 3, strided->block_bytes);
      Varint(nested, 4, strided->stride_bytes);
      Varint(nested, 5, strided->count);
    });
  }
  if (const ferry_block_table* blocks = transfer.blocks; blocks != nullptr) {
    Nested(writer, 3, BlocksSize(*blocks), [&](Writer& nested) {
      Varint(nested, 1, blocks->arena->id);
      Varint(nested, 2, blocks->offset);
      Varint(nested, 3, blocks->block_bytes);
      nested.add_packed_uint64(4, blocks->indices, blocks->indices + blocks->index_count);
    });
  }
  if (transfer.data_type != 0) writer.add_enum(4, transfer.data_type);
  if (transfer.dims != nullptr) {
    writer.add_packed_int64(5, transfer.dims, transfer.dims + transfer.dim_count);
    writer.add_bool(6, true);
  }
  if (transfer.has_defined_at) {
    const size_t size =
        VarintField(transfer.defined_timeline) + VarintField(transfer.defined_value);
    Nested(writer, 7, size, [&](Writer& nested) {
      Varint(nested, 1, transfer.defined_timeline);
      Varint(nested, 2, transfer.defined_value);
    });
  }
  if (transfer.deadline_ns != 0) Duration(writer, 8, transfer.deadline_ns);
}

// CrossHostSendRequest and CrossHostReceiveRequest have the same fields under the same numbers.
void WritePost(Writer& writer, const PostBatch& batch) {
  const ferry_post_options& options = *batch.options;
  if (options.request_id_bytes != 0) {
    writer.add_bytes(1, static_cast<const char*>(options.request_id), options.request_id_bytes);
  }
  if (options.domain_bytes != 0) {
    writer.add_bytes(2, static_cast<const char*>(options.domain), options.domain_bytes);
  }
  Varint(writer, 3, batch.device);
  for (size_t i = 0; i < batch.count; ++i) {
    const ferry_transfer& transfer = batch.transfers[i];
    Nested(writer, 4, BufferSize(transfer), [&](Writer& nested) { WriteBuffer(nested, transfer); });
  }
  if (batch.count != 0) {
    size_t remotes = 0;
    for (size_t i = 0; i < batch.count; ++i)
      remotes += VarintSize(batch.transfers[i].remote_device);
    std::string packed;
    packed.reserve(remotes);
    for (size_t i = 0; i < batch.count; ++i) {
      protozero::add_varint_to_buffer(&packed, batch.transfers[i].remote_device);
    }
    writer.add_bytes(5, packed);
  }
  for (size_t i = 0; i < batch.count; ++i) {
    writer.add_bytes(6, static_cast<const char*>(batch.transfers[i].key),
                     batch.transfers[i].key_bytes);
  }
  if (const size_t size = OptionsSize(options); size != 0) {
    Nested(writer, 7, size, [&](Writer& nested) {
      Varint(nested, 1, options.over_timeline);
      if (options.deadline_ns != 0) Duration(nested, 2, options.deadline_ns);
      if (options.priority != 0) nested.add_int32(3, options.priority);
      if (options.route != 0) nested.add_enum(4, options.route);
      Varint(nested, 5, options.continues);
    });
  }
  Varint(writer, 8, batch.prepare ? 1 : 0);
}

std::string Ids(uint64_t first_id, size_t count) {
  std::string out;
  Writer writer(out);
  std::string packed;
  packed.reserve(count * VarintSize(first_id + count));
  for (size_t i = 0; i < count; ++i) protozero::add_varint_to_buffer(&packed, first_id + i);
  if (count != 0) writer.add_bytes(1, packed);
  return out;
}

std::string EncodeResume(const Resumption& resume) {
  std::string out;
  Writer writer(out);
  for (const CounterLine& line : resume.over) {
    const size_t size =
        VarintField(line.value) + VarintField(line.first_failed) + VarintField(line.failures);
    Nested(writer, 1, size, [&](Writer& counter) {
      Varint(counter, 1, line.value);
      Varint(counter, 2, line.first_failed);
      Varint(counter, 3, line.failures);
    });
  }
  Varint(writer, 2, resume.next_transfer_id);
  Varint(writer, 3, resume.incarnation);
  Varint(writer, 4, resume.prepared_from);
  return out;
}

}  // namespace

std::string Utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t size = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
    bool good = size > 0 && size <= text.size();
    for (size_t i = 1; good && i < size; ++i) good = (text[i] & 0xC0) == 0x80;
    if (good && size > 2) {  // no overlong form, no surrogate, not too large
      const auto second = static_cast<unsigned char>(text[1]);
      good = !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F) &&
             !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
    }
    out.append(good ? text.substr(0, size) : std::string_view("?"));
    text.remove_prefix(good ? size : 1);
  }
  return out;
}

std::string EncodeJoinDomain(const DomainMember& member) {
  std::string out;
  Writer writer(out);
  if (!member.domain.empty()) writer.add_bytes(1, member.domain);
  Varint(writer, 2, member.device);
  if (!member.name.empty()) writer.add_bytes(3, member.name);
  return out;
}

std::string EncodeHello(uint64_t sequence, std::string_view name, const Resumption* resume) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  pbf_writer hello(writer, 2);
  hello.add_uint32(1, kOldestProtocol);
  hello.add_uint32(2, kProtocol);
  if (!name.empty()) hello.add_string(4, name.data(), name.size());
  hello.add_string(5, FERRY_VERSION);
  if (resume != nullptr) hello.add_message(7, EncodeResume(*resume));
  hello.commit();
  return out;
}

std::string EncodeRegisterArena(uint64_t sequence, const ArenaRequest& arena) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  pbf_writer request(writer, 3);
  if (arena.device != 0) request.add_uint64(1, arena.device);
  if (arena.bytes != 0) request.add_uint64(2, arena.bytes);
  if (arena.imported) request.add_bool(3, true);
  request.add_enum(4, static_cast<int>(arena.memory));
  request.add_packed_uint64(5, arena.segment_bytes.begin(), arena.segment_bytes.end());
  if (!arena.ipc_handle.empty()) request.add_bytes(6, arena.ipc_handle);
  if (arena.ipc_offset != 0) request.add_uint64(7, arena.ipc_offset);
  request.commit();
  return out;
}

std::string EncodeReleaseArena(uint64_t sequence, uint64_t arena, bool freed) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  Nested(writer, 4, VarintField(arena) + VarintField(freed), [&](Writer& request) {
    Varint(request, 1, arena);
    Varint(request, 2, freed);
  });
  return out;
}

std::string EncodeResetTimeline(uint64_t sequence, uint32_t timeline) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  Nested(writer, 5, VarintField(timeline), [&](Writer& request) { Varint(request, 1, timeline); });
  return out;
}

std::string EncodeReleasePrepared(uint64_t sequence, uint32_t batch) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  Nested(writer, 8, VarintField(batch), [&](Writer& request) { Varint(request, 1, batch); });
  return out;
}

std::string EncodePing(uint64_t sequence) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, sequence);
  writer.add_message(10, "", 0);
  return out;
}

std::string EncodePost(const PostBatch& batch) {
  if (batch.direction == Direction::kRun) return EncodeRun(batch);
  std::string out;
  out.reserve(PostSize(batch));
  Writer writer(out);
  WritePost(writer, batch);
  return out;
}

std::string EncodeSocketPost(uint64_t sequence, const PostBatch& batch) {
  if (batch.direction == Direction::kRun) {
    std::string packet = EncodeSocketRun(sequence, batch);
    return packet.size() > kMaxPacket ? "" : packet;
  }
  std::string out;
  const size_t size = PostSize(batch);
  const size_t all = VarintField(sequence) + LengthField(size);
  if (all > kMaxPacket) return out;
  out.reserve(all);
  Writer writer(out);
  Varint(writer, 1, sequence);
  Nested(writer, batch.direction == Direction::kSend ? 6 : 7, size,
         [&](Writer& nested) { WritePost(nested, batch); });
  return out;
}

std::string EncodeCancel(uint64_t first_id, size_t count, const char* poison) {
  std::string out = Ids(first_id, count);
  if (poison != nullptr) {
    constexpr int kAborted = 10;
    Writer writer(out);
    pbf_writer status(writer, 2);
    status.add_int32(1, kAborted);
    if (*poison != '\0') status.add_string(2, Utf8(poison));
  }
  return out;
}

std::string EncodeGetTransfers(uint64_t first_id, size_t count) { return Ids(first_id, count); }

std::string EncodeWatch(uint64_t after_event) {
  std::string out;
  Writer writer(out);
  Varint(writer, 1, after_event);
  return out;
}

}  // namespace ferry::client
