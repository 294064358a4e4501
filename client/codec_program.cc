// SPDX-License-Identifier: Apache-2.0
// Codes what the library sends and receives about programs.
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "client/arena.h"
#include "client/codec.h"

namespace ferry::client {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

// Zeros are not sent, as proto3 has it.
void Number(pbf_writer& writer, uint32_t tag, uint64_t value) {
  if (value != 0) writer.add_uint64(tag, value);
}

void WriteDuration(pbf_writer& parent, uint32_t tag, uint64_t ns) {
  if (ns == 0) return;
  pbf_writer writer(parent, tag);
  Number(writer, 1, ns / 1000000000);
  Number(writer, 2, ns % 1000000000);
}

void WriteBinding(pbf_writer& parent, const ferry_binding& binding, uint32_t joined) {
  pbf_writer writer(parent, 2);
  writer.add_string(1, Utf8(binding.name));
  {
    pbf_writer range(writer, 2);
    Number(range, 1, binding.range.arena->id);
    Number(range, 2, binding.range.offset);
    Number(range, 3, binding.range.length);
  }
  if (binding.data_type != 0) writer.add_enum(3, binding.data_type);
  if (joined != ProgramRun::kNotJoined) writer.add_uint32(4, joined);
}

void WriteIds(pbf_writer& parent, uint32_t tag, uint64_t first, size_t count) {
  if (count == 0) return;
  pbf_writer writer(parent, tag);
  Number(writer, 1, first);
  Number(writer, 2, count);
}

void WriteRun(pbf_writer& writer, const PostBatch& batch) {
  const ferry_post_options& options = *batch.options;
  if (options.request_id_bytes != 0) {
    writer.add_bytes(1, static_cast<const char*>(options.request_id), options.request_id_bytes);
  }
  Number(writer, 2, batch.device);
  for (size_t i = 0; i < batch.count; ++i) {
    const ferry_run& run = *batch.runs[i].given;
    pbf_writer nested(writer, 3);
    nested.add_bytes(1, batch.runs[i].fingerprint.data(), batch.runs[i].fingerprint.size());
    const std::vector<uint32_t>& joined = batch.runs[i].joined;
    for (size_t j = 0; j < run.binding_count; ++j) {
      WriteBinding(nested, run.bindings[j], joined.empty() ? ProgramRun::kNotJoined : joined[j]);
    }
    if (run.has_defined_at) {
      // A nested writer that is given nothing writes nothing, but the presence of the message
      // matters.
      if (run.defined_timeline == 0 && run.defined_value == 0) nested.add_message(3, std::string());
      pbf_writer defined(nested, 3);
      Number(defined, 1, run.defined_timeline);
      Number(defined, 2, run.defined_value);
    }
    WriteDuration(nested, 4, run.deadline_ns);
    WriteIds(nested, 5, batch.runs[i].first_after, batch.runs[i].after);
    if (run.defines_value != 0) {
      pbf_writer defines(nested, 6);
      Number(defines, 1, run.defines_timeline);
      Number(defines, 2, run.defines_value);
    }
    WriteIds(nested, 7, batch.runs[i].first_fed, batch.runs[i].fed);
    for (size_t j = 0; j < run.peer_count; ++j) {
      pbf_writer peer(nested, 8);
      peer.add_string(1, Utf8(run.peers[j].name));
      Number(peer, 2, run.peers[j].global_device);
    }
    if (run.key_suffix_bytes != 0) nested.add_bytes(9, run.key_suffix, run.key_suffix_bytes);
  }
  {
    pbf_writer given(writer, 4);
    Number(given, 1, options.over_timeline);
    WriteDuration(given, 2, options.deadline_ns);
    if (options.priority != 0) given.add_int32(3, options.priority);
    if (options.route != 0) given.add_enum(4, options.route);
  }
  if (batch.prepare) writer.add_bool(5, true);
  if (options.domain_bytes != 0) {
    writer.add_bytes(6, static_cast<const char*>(options.domain), options.domain_bytes);
  }
}

std::string TextOf(pbf_reader& reader) {
  const protozero::data_view view = reader.get_view();
  return std::string(view.data(), view.size());
}

ProgramInfo::Buffer ReadBuffer(pbf_reader reader) {
  ProgramInfo::Buffer buffer;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case protozero::tag_and_type(1, pbf_wire_type::length_delimited):
        buffer.name = TextOf(reader);
        break;
      case protozero::tag_and_type(2, pbf_wire_type::varint):
        buffer.access = reader.get_enum();
        break;
      case protozero::tag_and_type(3, pbf_wire_type::varint):
        buffer.bytes = reader.get_uint64();
        break;
      case protozero::tag_and_type(4, pbf_wire_type::varint):
        buffer.donated = reader.get_uint64() != 0;
        break;
      case protozero::tag_and_type(5, pbf_wire_type::varint):
        buffer.constant = reader.get_uint64() != 0;
        break;
      default:
        reader.skip();
    }
  }
  return buffer;
}

void ReadProgram(pbf_reader reader, ProgramInfo* program) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case protozero::tag_and_type(1, pbf_wire_type::length_delimited):
        program->fingerprint = TextOf(reader);
        break;
      case protozero::tag_and_type(2, pbf_wire_type::length_delimited):
        program->buffers.push_back(ReadBuffer(reader.get_message()));
        break;
      case protozero::tag_and_type(3, pbf_wire_type::varint):
        program->scratch_bytes = reader.get_uint64();
        break;
      case protozero::tag_and_type(5, pbf_wire_type::length_delimited):
        program->plan = TextOf(reader);
        break;
      default:
        reader.skip();
    }
  }
}

}  // namespace

std::string EncodeCompile(uint64_t device, std::string_view text) {
  std::string out;
  pbf_writer writer(out);
  Number(writer, 1, device);
  pbf_writer source(writer, 2);
  source.add_string(2, Utf8(text));
  source.commit();
  return out;
}

std::string EncodeRun(const PostBatch& batch) {
  std::string out;
  pbf_writer writer(out);
  WriteRun(writer, batch);
  return out;
}

std::string EncodeSocketRun(uint64_t sequence, const PostBatch& batch) {
  std::string out;
  pbf_writer writer(out);
  Number(writer, 1, sequence);
  const size_t before = out.size();
  pbf_writer run(writer, 9);
  WriteRun(run, batch);
  run.commit();
  // A program of defaults only writes nothing; without the field the request would be invalid.
  if (out.size() == before) writer.add_message(9, std::string());
  return out;
}

bool DecodeCompiled(std::string_view bytes, ProgramInfo* program) {
  try {
    pbf_reader reader(bytes.data(), bytes.size());
    while (reader.next(1, pbf_wire_type::length_delimited)) {
      ReadProgram(reader.get_message(), program);
    }
    return program->fingerprint.size() == FERRY_FINGERPRINT_BYTES;
  } catch (const protozero::exception&) {
    return false;
  }
}

}  // namespace ferry::client
