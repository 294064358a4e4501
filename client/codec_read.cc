// SPDX-License-Identifier: Apache-2.0
// Decodes what the library receives.
#include "client/codec.h"

#include <protozero/pbf_reader.hpp>

namespace ferry::client {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// Matches a field by number and type. protozero does not check the type; a field of another type
// must be skipped, as protoc's code does.
constexpr uint32_t Varint(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::varint);
}
constexpr uint32_t Bytes(uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::length_delimited);
}

pbf_reader Reader(std::string_view bytes) { return pbf_reader(bytes.data(), bytes.size()); }

std::string Text(pbf_reader& reader) {
  const protozero::data_view view = reader.get_view();
  return std::string(view.data(), view.size());
}

std::string_view View(pbf_reader& reader) {
  const protozero::data_view view = reader.get_view();
  return {view.data(), view.size()};
}

// protozero throws on malformed bytes; no exception leaves this file.
template <typename Decode>
bool Decoded(std::string_view bytes, Decode decode) {
  try {
    pbf_reader reader = Reader(bytes);
    decode(reader);
    return true;
  } catch (const protozero::exception&) {
    return false;
  }
}

// ---- reading ----

// A google.protobuf.Duration in nanoseconds; 0 if it is negative or more than an hour.
uint64_t ReadDuration(pbf_reader reader) {
  int64_t seconds = 0;
  int64_t nanos = 0;
  while (reader.next()) {
    if (reader.tag_and_type() == Varint(1)) {
      seconds = reader.get_int64();
    } else if (reader.tag_and_type() == Varint(2)) {
      nanos = reader.get_int32();
    } else {
      reader.skip();
    }
  }
  constexpr int64_t kMost = 3600;
  if (seconds < 0 || seconds > kMost || nanos < 0 || nanos > 999'999'999) return 0;
  return static_cast<uint64_t>(seconds) * 1'000'000'000 + static_cast<uint64_t>(nanos);
}

void ReadDetail(pbf_reader any, ferry_status* status) {
  std::string type;
  std::string_view value;
  while (any.next()) {
    if (any.tag_and_type() == Bytes(1)) {
      type = Text(any);
    } else if (any.tag_and_type() == Bytes(2)) {
      value = View(any);
    } else {
      any.skip();
    }
  }
  pbf_reader detail = Reader(value);
  if (type == "type.googleapis.com/google.rpc.ErrorInfo") {
    while (detail.next()) {
      if (detail.tag_and_type() == Bytes(1)) {
        status->reason = Text(detail);
      } else {
        detail.skip();
      }
    }
  } else if (type == "type.googleapis.com/google.rpc.RetryInfo") {
    while (detail.next()) {
      if (detail.tag_and_type() == Bytes(1)) {
        status->retry_after_ns = ReadDuration(detail.get_message());
      } else {
        detail.skip();
      }
    }
  } else if (type == "type.googleapis.com/google.rpc.BadRequest") {
    while (detail.next(1, pbf_wire_type::length_delimited)) {
      pbf_reader violation = detail.get_message();
      std::pair<std::string, std::string> entry;
      while (violation.next()) {
        if (violation.tag_and_type() == Bytes(1)) {
          entry.first = Text(violation);
        } else if (violation.tag_and_type() == Bytes(2)) {
          entry.second = Text(violation);
        } else {
          violation.skip();
        }
      }
      status->violations.push_back(std::move(entry));
    }
  }
}

StatusPtr ReadStatus(pbf_reader reader) {
  StatusPtr status(new ferry_status);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        status->code = reader.get_int32();
        break;
      case Bytes(2):
        status->message = Text(reader);
        break;
      case Bytes(3):
        ReadDetail(reader.get_message(), status.get());
        break;
      default:
        reader.skip();
    }
  }
  return status->code == 0 ? nullptr : std::move(status);
}

void ReadLimits(pbf_reader reader, ferry_limits* limits) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        limits->bytes = reader.get_uint64();
        break;
      case Varint(2):
        limits->arenas = reader.get_uint64();
        break;
      case Varint(3):
        limits->transfers_in_flight = reader.get_uint64();
        break;
      case Varint(4):
        limits->batch_transfers = reader.get_uint32();
        break;
      default:
        reader.skip();
    }
  }
}

DeviceInfo ReadDevice(pbf_reader reader) {
  DeviceInfo device;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        device.id = reader.get_uint64();
        break;
      case Varint(2):
        device.kind = reader.get_enum();
        break;
      case Bytes(3):
        device.name = Text(reader);
        break;
      case Bytes(4):
        device.uuid = Text(reader);
        break;
      default:
        reader.skip();
    }
  }
  return device;
}

void ReadWelcome(pbf_reader reader, Welcome* welcome) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        welcome->protocol = reader.get_uint32();
        break;
      case Varint(3):
        welcome->session_id = reader.get_uint64();
        break;
      case Bytes(4):
        welcome->token = Text(reader);
        break;
      case Varint(5):
        welcome->incarnation = reader.get_uint64();
        break;
      case Bytes(6):
        welcome->node = Text(reader);
        break;
      case Bytes(8):
        welcome->devices.push_back(ReadDevice(reader.get_message()));
        break;
      case Bytes(9):
        ReadLimits(reader.get_message(), &welcome->limits);
        break;
      default:
        reader.skip();
    }
  }
}

TransferInfo ReadTransfer(pbf_reader reader) {
  TransferInfo transfer;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        transfer.id = reader.get_uint64();
        break;
      case Varint(2):
        transfer.state = reader.get_enum();
        break;
      case Bytes(3):
        transfer.status = ReadStatus(reader.get_message());
        break;
      case Varint(4):
        transfer.route = reader.get_enum();
        break;
      default:
        reader.skip();
    }
  }
  return transfer;
}

// CrossHostSendResponse, CrossHostReceiveResponse and RunResponse have the same fields.
template <typename Answer>
void ReadPosted(pbf_reader reader, Answer* answer) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        answer->first_transfer_id = reader.get_uint64();
        break;
      case Varint(2):
        answer->first_over_value = reader.get_uint64();
        break;
      case Varint(3):
        answer->prepared_batch = reader.get_uint32();
        break;
      default:
        reader.skip();
    }
  }
}

}  // namespace

bool DecodeAttachResponse(std::string_view bytes, AttachResponse* response) {
  using Kind = AttachResponse::Kind;
  return Decoded(bytes, [&](pbf_reader& reader) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          response->sequence = reader.get_uint64();
          break;
        case Bytes(2):
          response->error = ReadStatus(reader.get_message());
          break;
        case Bytes(3):
          response->kind = Kind::kWelcome;
          ReadWelcome(reader.get_message(), &response->welcome);
          break;
        case Bytes(4): {
          response->kind = Kind::kArenaRegistered;
          pbf_reader nested = reader.get_message();
          while (nested.next()) {
            if (nested.tag_and_type() == Varint(1)) {
              response->arena_id = nested.get_uint64();
            } else if (nested.tag_and_type() == Varint(2)) {
              response->mapped_bytes = nested.get_uint64();
            } else {
              nested.skip();
            }
          }
          break;
        }
        case Bytes(5):
          response->kind = Kind::kArenaReleased;
          reader.skip();
          break;
        case Bytes(6):
          response->kind = Kind::kTimelineReset;
          reader.skip();
          break;
        case Bytes(7): {
          response->kind = Kind::kNotice;
          pbf_reader nested = reader.get_message();
          // get_bool would read beyond a message that ends before the value.
          while (nested.next(1, pbf_wire_type::varint))
            response->draining = nested.get_uint64() != 0;
          break;
        }
        case Bytes(8):
        case Bytes(9):
        case Bytes(11):
          response->kind = Kind::kPosted;
          ReadPosted(reader.get_message(), response);
          break;
        case Bytes(10):
          response->kind = Kind::kPreparedReleased;
          reader.skip();
          break;
        case Bytes(12):
          response->kind = Kind::kPong;
          reader.skip();
          break;
        default:
          reader.skip();
      }
    }
  });
}

bool DecodePostAnswer(std::string_view bytes, PostAnswer* answer) {
  return Decoded(bytes, [&](pbf_reader& reader) { ReadPosted(reader, answer); });
}

bool DecodeGetTransfers(std::string_view bytes, std::vector<TransferInfo>* transfers) {
  return Decoded(bytes, [&](pbf_reader& reader) {
    while (reader.next(1, pbf_wire_type::length_delimited))
      transfers->push_back(ReadTransfer(reader.get_message()));
  });
}

bool DecodeClusterDevices(std::string_view bytes, std::vector<ClusterDeviceInfo>* devices) {
  return Decoded(bytes, [&](pbf_reader& reader) {
    while (reader.next(1, pbf_wire_type::length_delimited)) {
      pbf_reader nested = reader.get_message();
      ClusterDeviceInfo device;
      while (nested.next()) {
        switch (nested.tag_and_type()) {
          case Bytes(1):
            device.device = ReadDevice(nested.get_message());
            break;
          case Bytes(2):
            device.node = Text(nested);
            break;
          case Varint(3):
            device.local = nested.get_uint64() != 0;
            break;
          default:
            nested.skip();
        }
      }
      devices->push_back(std::move(device));
    }
  });
}

bool DecodeWatch(std::string_view bytes, WatchEvents* events) {
  return Decoded(bytes, [&](pbf_reader& reader) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          events->first_event = reader.get_uint64();
          break;
        case Bytes(2):
          events->ended.push_back(ReadTransfer(reader.get_message()));
          break;
        default:
          reader.skip();
      }
    }
  });
}

StatusPtr DecodeStatus(std::string_view bytes) {
  StatusPtr status;
  const bool decoded = Decoded(bytes, [&](pbf_reader& reader) { status = ReadStatus(reader); });
  return decoded ? std::move(status) : nullptr;
}

}  // namespace ferry::client
