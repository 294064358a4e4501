// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_protocol.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/safetensors.h"

namespace ferry::tools {
namespace {

// magic(8) version(4) kind(4) header_bytes(8) file_bytes(8) id(8) summed(8), little-endian.
constexpr char kMagic[8] = {'F', 'E', 'R', 'R', 'Y', 'F', 'I', 'L'};
constexpr uint32_t kVersion = 4;
constexpr size_t kMaxDims = 8;  // most dimensions of a transfer's shape

void PutInteger(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t GetInteger(absl::string_view in, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(in[at + i]);
  return value;
}

// A key that belongs to one sending.
std::string OfSending(absl::string_view name, uint64_t id) {
  return TransferKeyOf(absl::StrCat(name, "@", absl::Hex(id, absl::kZeroPad16)));
}

absl::Status Refused(absl::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               absl::StrCat("receive file: the sender's preamble ", why));
}

}  // namespace

std::string EncodePreamble(const Preamble& preamble) {
  std::string out(kMagic, sizeof(kMagic));
  PutInteger(out, kVersion, 4);
  PutInteger(out, static_cast<uint32_t>(preamble.kind), 4);
  PutInteger(out, preamble.header_bytes, 8);
  PutInteger(out, preamble.file_bytes, 8);
  PutInteger(out, preamble.id, 8);
  PutInteger(out, preamble.summed ? 1 : 0, 8);
  return out;
}

absl::StatusOr<Preamble> DecodePreamble(absl::string_view bytes) {
  if (bytes.size() != kPreambleBytes) return Refused(absl::StrCat("has ", bytes.size(), " bytes"));
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) return Refused("is not ferryctl's");
  if (const uint64_t version = GetInteger(bytes, 8, 4); version != kVersion) {
    return Refused(absl::StrCat("has version ", version, ", this ferryctl knows ", kVersion,
                                ": both ends need a ferryctl of one release"));
  }
  const uint64_t kind = GetInteger(bytes, 12, 4);
  if (kind < 1 || kind > 3) return Refused(absl::StrCat("has the unknown kind ", kind));
  Preamble preamble{static_cast<FileKind>(kind), GetInteger(bytes, 16, 8), GetInteger(bytes, 24, 8),
                    GetInteger(bytes, 32, 8), GetInteger(bytes, 40, 8) == 1};
  if (GetInteger(bytes, 40, 8) > 1) return Refused("is not one of this version");
  if (preamble.file_bytes > INT64_MAX) {
    return Refused(absl::StrCat("tells of a file of ", preamble.file_bytes, " bytes"));
  }
  if (preamble.header_bytes > preamble.file_bytes) {
    return Refused(absl::StrCat("tells of a header of ", preamble.header_bytes,
                                " bytes in a file of ", preamble.file_bytes));
  }
  if (preamble.kind == FileKind::kStream && preamble.file_bytes != 0) {
    return Refused(absl::StrCat("tells of a stream of ", preamble.file_bytes, " bytes"));
  }
  const bool raw = preamble.kind != FileKind::kSafetensors;
  if ((raw && preamble.header_bytes != 0) ||
      preamble.header_bytes > kSafetensorsLengthBytes + kLongestHeader ||
      (!raw && preamble.header_bytes < kSafetensorsLengthBytes)) {
    return Refused(absl::StrCat("tells of a header of ", preamble.header_bytes, " bytes"));
  }
  return preamble;
}

std::string EncodeTrailer(uint64_t bytes) {
  std::string out;
  PutInteger(out, bytes, kTrailerBytes);
  return out;
}

absl::StatusOr<uint64_t> DecodeTrailer(absl::string_view trailer, uint64_t chunk_bytes) {
  const uint64_t bytes = GetInteger(trailer, 0, kTrailerBytes);
  if (bytes <= chunk_bytes) return bytes;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
               absl::StrCat("receive file: the sender tells of ", bytes, " bytes in a chunk of ",
                            chunk_bytes));
}

std::string TransferKeyOf(absl::string_view name) {
  return name.size() <= kTransferKeyBytes ? std::string(name) : Sha256Of(name);
}
std::string PreambleKey(absl::string_view file_key) {
  return TransferKeyOf(absl::StrCat(file_key, "#file"));
}
std::string WatchedKey(absl::string_view file_key) {
  return TransferKeyOf(absl::StrCat(file_key, "#received"));
}

std::string SentKey(absl::string_view file_key, uint64_t id) {
  return OfSending(absl::StrCat(file_key, "#sent"), id);
}
std::string ReceivedKey(absl::string_view file_key, uint64_t id) {
  return OfSending(absl::StrCat(file_key, "#received"), id);
}
std::string MetKey(absl::string_view file_key, uint64_t id) {
  return OfSending(absl::StrCat(file_key, "#met"), id);
}
std::string HeaderKey(absl::string_view file_key, uint64_t id) {
  return OfSending(absl::StrCat(file_key, "#header"), id);
}
std::string SumKey(absl::string_view file_key, uint64_t id) {
  return OfSending(absl::StrCat(file_key, "#sum"), id);
}

uint64_t NewFileId() {
  uint64_t id = 0;
  while (id == 0) FERRY_CHECK(getrandom(&id, sizeof(id), 0) == sizeof(id));
  return id;
}

namespace {

// Takes "device 7" off the front of `text`.
bool TakeDevice(absl::string_view& text, absl::string_view& device) {
  constexpr absl::string_view kWord = "device ";
  if (!absl::StartsWith(text, kWord)) return false;
  const size_t digits = text.find_first_not_of("0123456789", kWord.size());
  device = text.substr(0, digits);
  if (device.size() == kWord.size()) return false;
  text.remove_prefix(device.size());
  return true;
}

// " from device 0 to device 2" off the front of `text`, the other way round; else "".
std::string TakeDevicesTurned(absl::string_view& text) {
  absl::string_view rest = text, from, to;
  if (!absl::ConsumePrefix(&rest, " from ") || !TakeDevice(rest, from) ||
      !absl::ConsumePrefix(&rest, " to ") || !TakeDevice(rest, to)) {
    return "";
  }
  text = rest;
  return absl::StrCat(" from ", to, " to ", from);
}

// The receiver's promise travels against the file, so its send is told as the file's receive.
std::string TurnedRound(absl::string_view text, absl::string_view promise_key,
                        absl::string_view file_key) {
  const std::string marked = absl::StrCat(" of key '", promise_key, "'");
  std::string turned;
  for (size_t at; (at = text.find(marked)) != absl::string_view::npos;) {
    absl::string_view before = text.substr(0, at);
    const bool send = absl::ConsumeSuffix(&before, "send");
    if (send || absl::ConsumeSuffix(&before, "receive")) {
      absl::StrAppend(&turned, before, send ? "receive" : "send");
    } else {
      absl::StrAppend(&turned, before);
    }
    text.remove_prefix(at + marked.size());
    const std::string devices = TakeDevicesTurned(text);
    absl::StrAppend(&turned, " of key '", file_key, "'", devices);
  }
  return absl::StrCat(turned, text);
}

}  // namespace

absl::Status InTermsOfFile(const absl::Status& status, absl::string_view file_key, uint64_t id) {
  const auto said = [&](absl::string_view text) {
    std::string turned(text);
    for (const std::string& key :
         {WatchedKey(file_key), ReceivedKey(file_key, id), MetKey(file_key, id)}) {
      turned = TurnedRound(turned, key, file_key);
    }
    if (turned != text) {  // the text says which half came too late for the other
      turned = absl::StrReplaceAll(turned, {{"; that send ended ", "; that receive ended "},
                                            {"; that receive ended ", "; that send ended "},
                                            {" this send was posted", " this receive was posted"},
                                            {" this receive was posted", " this send was posted"}});
    }
    return absl::StrReplaceAll(turned, {{PreambleKey(file_key), file_key},
                                        {HeaderKey(file_key, id), file_key},
                                        {SumKey(file_key, id), file_key},
                                        {WatchedKey(file_key), file_key},
                                        {SentKey(file_key, id), file_key},
                                        {ReceivedKey(file_key, id), file_key},
                                        {MetKey(file_key, id), file_key}});
  };
  absl::Status told(status.code(), said(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    told.SetPayload(url, absl::Cord(said(std::string(payload))));
  });
  return told;
}

namespace {

bool CanBeSaid(const std::vector<uint64_t>& shape) {
  return shape.size() <= kMaxDims &&
         std::all_of(shape.begin(), shape.end(), [](uint64_t dim) { return dim <= INT64_MAX; });
}

// Adds a tensor that is too long for one transfer, in parts.
void CutTensor(const RangeTransfer& whole, absl::string_view name, uint64_t id,
               std::vector<RangeTransfer>& transfers) {
  for (uint64_t at = 0; at < whole.bytes; at += kTransferBytes) {
    RangeTransfer part;
    part.key = OfSending(absl::StrCat(name, "#", at / kTransferBytes), id);
    part.offset = whole.offset + at;
    part.bytes = std::min(kTransferBytes, whole.bytes - at);
    transfers.push_back(std::move(part));
  }
}

}  // namespace

absl::StatusOr<FilePlan> PlanFile(const Preamble& preamble, absl::string_view header,
                                  absl::string_view file_key) {
  FilePlan plan;
  plan.preamble = preamble;
  plan.key = std::string(file_key);
  if (preamble.kind != FileKind::kSafetensors) return plan;
  ASSIGN_OR_RETURN(uint64_t length, ParseSafetensorsLength(header, preamble.file_bytes));
  if (length + kSafetensorsLengthBytes != header.size()) {
    return Refused(absl::StrCat("tells of a header of ", header.size(),
                                " bytes, the header itself of ", length + kSafetensorsLengthBytes));
  }
  ASSIGN_OR_RETURN(SafetensorsHeader parsed,
                   ParseSafetensorsHeader(header.substr(kSafetensorsLengthBytes),
                                          preamble.file_bytes - preamble.header_bytes));
  absl::flat_hash_set<std::string> taken = {
      HeaderKey(file_key, preamble.id), SumKey(file_key, preamble.id),
      SentKey(file_key, preamble.id), ReceivedKey(file_key, preamble.id),
      MetKey(file_key, preamble.id)};
  for (const SafetensorsTensor& tensor : parsed.tensors) {
    const size_t first = plan.transfers.size();
    RangeTransfer transfer;
    transfer.key = OfSending(tensor.name, preamble.id);
    transfer.offset = preamble.header_bytes + tensor.begin;
    transfer.bytes = tensor.end - tensor.begin;
    // A type or shape that a transfer cannot have is left out; the bytes are compared anyway.
    if (tensor.type != nullptr && CanBeSaid(tensor.shape)) {
      transfer.data_type = tensor.type->data_type;
      transfer.dims.assign(tensor.shape.begin(), tensor.shape.end());
    }
    if (transfer.bytes > kTransferBytes) {
      CutTensor(transfer, tensor.name, preamble.id, plan.transfers);
    } else {
      plan.transfers.push_back(std::move(transfer));
    }
    for (size_t i = first; i < plan.transfers.size(); ++i) {
      if (taken.insert(plan.transfers[i].key).second) continue;
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kKeyInUse,
          absl::StrCat("plan file: tensor '", tensor.name,
                       "' has the key of another transfer of this file; choose another --key"));
    }
  }
  return plan;
}

absl::Status NoSafetensors(const absl::Status& why, absl::string_view path) {
  return Error(why.code(), ReasonOf(why),
               absl::StrCat(path, ": ", why.message(), "; --raw sends it as bytes, as it is"));
}

absl::StatusOr<FileHead> ReadFileHead(const InputFile& file, absl::string_view path, bool raw) {
  FileHead head;
  head.preamble.file_bytes = file.bytes();
  if (raw || !absl::EndsWith(path, ".safetensors")) return head;
  head.header.resize(std::min<uint64_t>(kSafetensorsLengthBytes, file.bytes()));
  RETURN_IF_ERROR(file.Read(0, head.header.data(), head.header.size()));
  const absl::StatusOr<uint64_t> length = ParseSafetensorsLength(head.header, file.bytes());
  if (!length.ok()) return NoSafetensors(length.status(), path);
  if (*length > kLongestHeader) {
    head.header.clear();
    return head;
  }
  head.preamble.kind = FileKind::kSafetensors;
  head.header.resize(kSafetensorsLengthBytes + *length);
  RETURN_IF_ERROR(
      file.Read(kSafetensorsLengthBytes, head.header.data() + kSafetensorsLengthBytes, *length));
  head.preamble.header_bytes = head.header.size();
  return head;
}

ChunkCutter::ChunkCutter(const FilePlan& plan, size_t max_transfers)
    : plan_(plan), max_transfers_(max_transfers), offset_(plan.preamble.header_bytes) {}

std::optional<FileChunk> ChunkCutter::Next() {
  if (plan_.preamble.kind == FileKind::kSafetensors) return NextOfTensors();
  const bool stream = plan_.preamble.kind == FileKind::kStream;
  FileChunk chunk;
  chunk.offset = offset_;
  if (stream) {
    chunk.bytes = number_ < 32 ? std::min(kFirstStreamBytes << number_, kChunkBytes) : kChunkBytes;
  } else {
    chunk.bytes = std::min(plan_.preamble.file_bytes - offset_, kChunkBytes);
    if (chunk.bytes == 0) return std::nullopt;
  }
  RangeTransfer transfer;
  transfer.key = OfSending(absl::StrCat(plan_.key, "#", number_), plan_.preamble.id);
  transfer.bytes = chunk.bytes + (stream ? kTrailerBytes : 0);
  chunk.transfers.push_back(std::move(transfer));
  offset_ += chunk.bytes;
  ++number_;
  return chunk;
}

std::optional<FileChunk> ChunkCutter::NextOfTensors() {
  FileChunk chunk;
  chunk.offset = offset_;
  while (number_ < plan_.transfers.size() && chunk.transfers.size() < max_transfers_) {
    const RangeTransfer& next = plan_.transfers[number_];
    if (!chunk.transfers.empty() && chunk.bytes + next.bytes > kChunkBytes) break;
    chunk.transfers.push_back(next);
    chunk.transfers.back().offset = chunk.bytes;
    chunk.bytes += next.bytes;
    ++number_;
  }
  offset_ += chunk.bytes;
  if (chunk.transfers.empty()) return std::nullopt;
  return chunk;
}

std::optional<uint64_t> BytesOf(const FilePlan& plan) {
  if (plan.preamble.kind == FileKind::kStream) return std::nullopt;
  return plan.preamble.file_bytes;
}

uint64_t LongestChunk(const FilePlan& plan) {
  if (plan.preamble.kind == FileKind::kStream) return kChunkBytes + kTrailerBytes;
  uint64_t longest = std::min(plan.preamble.file_bytes - plan.preamble.header_bytes, kChunkBytes);
  for (const RangeTransfer& transfer : plan.transfers) longest = std::max(longest, transfer.bytes);
  return longest;
}

}  // namespace ferry::tools
