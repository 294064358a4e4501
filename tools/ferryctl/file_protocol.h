// SPDX-License-Identifier: Apache-2.0
// How `ferryctl send` and `ferryctl recv` move a file with nothing but transfers. The receiver does
// not know any size beforehand, so three rounds under keys made of the file's key (here "F"):
//
//   1. "F#preamble", always kPreambleBytes: what kind of file, how long, and how long its header
//   is.
//   2. "F#header" (if it is not empty): the first `header_bytes` of the file as they are. For a
//      .safetensors file these are its length and its JSON, from which both ends compute the rest.
//   3. The data. A raw file: one transfer "F" of all its bytes. A .safetensors file: one transfer a
//      tensor, keyed by the tensor's name, with its dtype and shape, so that any other program can
//      take part with just the names.
//
// Bytes of the file are header then data, both in order, so the receiver rebuilds it bit for bit. A
// key that would be longer than a transfer key may be is replaced by its SHA-256 in hexadecimal.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {

enum class FileKind : uint32_t { kRaw = 1, kSafetensors = 2 };

struct Preamble {
  FileKind kind = FileKind::kRaw;
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  bool operator==(const Preamble&) const = default;
};
inline constexpr size_t kPreambleBytes = 32;
std::string EncodePreamble(const Preamble& preamble);
// Refuses what no ferryctl sends: another magic, version or kind, a header longer than the file.
absl::StatusOr<Preamble> DecodePreamble(absl::string_view bytes);

inline constexpr size_t kTransferKeyBytes = 64;
std::string TransferKeyOf(absl::string_view name);
std::string PreambleKey(absl::string_view file_key);
std::string HeaderKey(absl::string_view file_key);

// An error of any round told as one of the file: who asked for "F" never heard of "F#preamble".
absl::Status InTermsOfFile(const absl::Status& status, absl::string_view file_key);

// The transfers of round 3, in the order of the file; offsets are within the file and without
// holes.
struct FilePlan {
  Preamble preamble;
  std::vector<Piece> pieces;
};
absl::StatusOr<FilePlan> PlanFile(const Preamble& preamble, absl::string_view header,
                                  absl::string_view file_key);

// What the sender reads off its file: the preamble and the header's bytes. `raw`: whatever its
// name.
struct FileHead {
  Preamble preamble;
  std::string header;
};
absl::StatusOr<FileHead> ReadFileHead(const InputFile& file, absl::string_view path, bool raw);

// Pieces [first, last) that are posted in one call; a contiguous part of the file.
struct FileBatch {
  size_t first = 0;
  size_t last = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};
// At most `max_pieces` and, unless one piece alone is longer, `max_bytes` a batch.
std::vector<FileBatch> CutBatches(absl::Span<const Piece> pieces, size_t max_pieces,
                                  uint64_t max_bytes);

// Batches [first, last) that share one arena at a time.
struct FileWindow {
  size_t first = 0;
  size_t last = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
// At most `max_bytes` a window; RESOURCE_EXHAUSTED if one batch is longer.
absl::StatusOr<std::vector<FileWindow>> CutWindows(absl::Span<const FileBatch> batches,
                                                   uint64_t max_bytes);

}  // namespace ferry::tools
