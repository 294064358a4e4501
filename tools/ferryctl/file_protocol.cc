// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_protocol.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/safetensors.h"

namespace ferry::tools {
namespace {

// magic(8) version(4) kind(4) header_bytes(8) file_bytes(8), little-endian.
constexpr char kMagic[8] = {'F', 'E', 'R', 'R', 'Y', 'F', 'I', 'L'};
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxDims = 8;  // of a transfer's shape

void PutInteger(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t GetInteger(absl::string_view in, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(in[at + i]);
  return value;
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
  return out;
}

absl::StatusOr<Preamble> DecodePreamble(absl::string_view bytes) {
  if (bytes.size() != kPreambleBytes) return Refused(absl::StrCat("has ", bytes.size(), " bytes"));
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) return Refused("is not ferryctl's");
  if (const uint64_t version = GetInteger(bytes, 8, 4); version != kVersion) {
    return Refused(absl::StrCat("has version ", version, ", this ferryctl knows ", kVersion));
  }
  const uint64_t kind = GetInteger(bytes, 12, 4);
  if (kind != 1 && kind != 2) return Refused(absl::StrCat("has the unknown kind ", kind));
  Preamble preamble{static_cast<FileKind>(kind), GetInteger(bytes, 16, 8),
                    GetInteger(bytes, 24, 8)};
  if (preamble.file_bytes > INT64_MAX) {
    return Refused(absl::StrCat("tells of a file of ", preamble.file_bytes, " bytes"));
  }
  if (preamble.header_bytes > preamble.file_bytes) {
    return Refused(absl::StrCat("tells of a header of ", preamble.header_bytes,
                                " bytes in a file of ", preamble.file_bytes));
  }
  const bool raw = preamble.kind == FileKind::kRaw;
  if ((raw && preamble.header_bytes != 0) ||
      preamble.header_bytes > kSafetensorsLengthBytes + kSafetensorsMaxHeaderBytes ||
      (!raw && preamble.header_bytes < kSafetensorsLengthBytes)) {
    return Refused(absl::StrCat("tells of a header of ", preamble.header_bytes, " bytes"));
  }
  return preamble;
}

std::string TransferKeyOf(absl::string_view name) {
  return name.size() <= kTransferKeyBytes ? std::string(name) : Sha256Of(name);
}
std::string PreambleKey(absl::string_view file_key) {
  return TransferKeyOf(absl::StrCat(file_key, "#preamble"));
}
std::string HeaderKey(absl::string_view file_key) {
  return TransferKeyOf(absl::StrCat(file_key, "#header"));
}

absl::Status InTermsOfFile(const absl::Status& status, absl::string_view file_key) {
  const auto said = [&](absl::string_view text) {
    return absl::StrReplaceAll(
        text, {{PreambleKey(file_key), file_key}, {HeaderKey(file_key), file_key}});
  };
  absl::Status told(status.code(), said(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    told.SetPayload(url, absl::Cord(said(std::string(payload))));
  });
  return told;
}

absl::StatusOr<FilePlan> PlanFile(const Preamble& preamble, absl::string_view header,
                                  absl::string_view file_key) {
  FilePlan plan;
  plan.preamble = preamble;
  if (preamble.kind == FileKind::kRaw) {
    plan.pieces.push_back({TransferKeyOf(file_key), 0, preamble.file_bytes, FERRY_UNSPECIFIED, {}});
    return plan;
  }
  ASSIGN_OR_RETURN(uint64_t length, ParseSafetensorsLength(header, preamble.file_bytes));
  if (length + kSafetensorsLengthBytes != header.size()) {
    return Refused(absl::StrCat("tells of a header of ", header.size(),
                                " bytes, the header itself of ", length + kSafetensorsLengthBytes));
  }
  ASSIGN_OR_RETURN(SafetensorsHeader parsed,
                   ParseSafetensorsHeader(header.substr(kSafetensorsLengthBytes),
                                          preamble.file_bytes - preamble.header_bytes));
  absl::flat_hash_set<std::string> taken = {PreambleKey(file_key), HeaderKey(file_key)};
  for (const SafetensorsTensor& tensor : parsed.tensors) {
    Piece piece;
    piece.key = TransferKeyOf(tensor.name);
    if (!taken.insert(piece.key).second) {
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kKeyInUse,
          absl::StrCat("plan file: tensor '", tensor.name,
                       "' has the key of another transfer of this file; choose another --key"));
    }
    piece.offset = preamble.header_bytes + tensor.begin;
    piece.bytes = tensor.end - tensor.begin;
    // A shape that a transfer cannot say is left out; the bytes are compared anyway.
    if (tensor.shape.size() <= kMaxDims) {
      piece.data_type = tensor.type->data_type;
      piece.dims = tensor.shape;
    }
    plan.pieces.push_back(std::move(piece));
  }
  return plan;
}

absl::StatusOr<FileHead> ReadFileHead(const InputFile& file, absl::string_view path, bool raw) {
  FileHead head;
  head.preamble.file_bytes = file.bytes();
  if (raw || !absl::EndsWith(path, ".safetensors")) return head;
  head.preamble.kind = FileKind::kSafetensors;
  head.header.resize(std::min<uint64_t>(kSafetensorsLengthBytes, file.bytes()));
  RETURN_IF_ERROR(file.Read(0, head.header.data(), head.header.size()));
  const absl::StatusOr<uint64_t> length = ParseSafetensorsLength(head.header, file.bytes());
  if (!length.ok()) return Annotate(length.status(), path);
  head.header.resize(kSafetensorsLengthBytes + *length);
  RETURN_IF_ERROR(
      file.Read(kSafetensorsLengthBytes, head.header.data() + kSafetensorsLengthBytes, *length));
  head.preamble.header_bytes = head.header.size();
  return head;
}

std::vector<FileBatch> CutBatches(absl::Span<const Piece> pieces, size_t max_pieces,
                                  uint64_t max_bytes) {
  std::vector<FileBatch> batches;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool fits = !batches.empty() && i - batches.back().first < max_pieces &&
                      batches.back().bytes + pieces[i].bytes <= max_bytes;
    if (!fits) batches.push_back({i, i, pieces[i].offset, 0});
    batches.back().last = i + 1;
    batches.back().bytes += pieces[i].bytes;
  }
  return batches;
}

absl::StatusOr<std::vector<FileWindow>> CutWindows(absl::Span<const FileBatch> batches,
                                                   uint64_t max_bytes) {
  std::vector<FileWindow> windows;
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].bytes > max_bytes) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kQuotaBytes,
                   absl::StrCat("plan file: one buffer has ", batches[i].bytes,
                                " bytes, the session may hold ", max_bytes));
    }
    const bool fits = !windows.empty() && windows.back().bytes + batches[i].bytes <= max_bytes;
    if (!fits) windows.push_back({i, i, batches[i].offset, 0});
    windows.back().last = i + 1;
    windows.back().bytes += batches[i].bytes;
  }
  return windows;
}

}  // namespace ferry::tools
