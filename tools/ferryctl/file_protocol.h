// SPDX-License-Identifier: Apache-2.0
// How `ferryctl send` and `ferryctl recv` move a file with nothing but transfers, under keys made
// of the file's key (here "F") and the random id of this sending (here "I"):
//
//   "F#received", "F#sent@I", "F#received@I", "F#met@I": what the ends promise each other, see
//     file_promises.h.
//   "F#file", always kPreambleBytes: the kind of the file, its length, the length of its header,
//   and
//     I. I is part of the key of all that follows: two files between two devices may have tensors
//     of the same names, and of a sending whose end was killed something may be left.
//   "F#header@I" (if it is not empty): the first `header_bytes` of the file as they are. For a
//     .safetensors file these are its length and its JSON, from which both ends compute the rest.
//   The data, in order, through a ring of buffers at each end (FileRing), so that any file takes
//   the
//     same memory:
//     - A raw file: chunks of kChunkBytes (the last one shorter) as "F#0@I", "F#1@I", ...
//     - A .safetensors file: one transfer for each tensor, as "name@I", with its dtype and shape. A
//       tensor of more than kTransferBytes is cut into "name#0@I", "name#1@I", ... without a type.
//     - A stream, whose length nobody knows: chunks as of a raw file, the first ones shorter, each
//       followed by kTrailerBytes that say how many of its bytes are the stream's. The first chunk
//       that is not full is the last.
//   "F#sum@I" (if the sender was asked for it): the SHA-256 of the file in hexadecimal, which the
//     receiver compares.
//
// An end that cannot begin, such as a sender without the file, still meets the other end with an
// empty raw file as "F#file", and breaks its promise (TellOther). All that follows "F#file"
// continues the promise of its end, so that draining daemons take it. An end that posts "F#file"
// may hear at once how an earlier end, which had found no other end, has ended; then it posts
// "F#file" again.
//
// The bytes of the file are header then data, both in order, so the receiver rebuilds the file bit
// for bit. A key that would be longer than a transfer key may be is replaced by its SHA-256 in
// hexadecimal. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {

enum class FileKind : uint32_t { kRaw = 1, kSafetensors = 2, kStream = 3 };

struct Preamble {
  FileKind kind = FileKind::kRaw;
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;  // 0 for a stream
  uint64_t id = 0;          // random id of this sending
  bool summed = false;      // the file's sum follows the file
  bool operator==(const Preamble&) const = default;
};
inline constexpr size_t kPreambleBytes = 48;
std::string EncodePreamble(const Preamble& preamble);
// Refuses what no ferryctl sends: another magic, version or kind, or a header longer than the file.
absl::StatusOr<Preamble> DecodePreamble(absl::string_view bytes);

inline constexpr size_t kTransferKeyBytes = 64;
std::string TransferKeyOf(absl::string_view name);
std::string PreambleKey(absl::string_view file_key);
std::string WatchedKey(absl::string_view file_key);
// Keys of this sending alone.
std::string SentKey(absl::string_view file_key, uint64_t id);
std::string ReceivedKey(absl::string_view file_key, uint64_t id);
std::string MetKey(absl::string_view file_key, uint64_t id);
std::string HeaderKey(absl::string_view file_key, uint64_t id);
std::string SumKey(absl::string_view file_key, uint64_t id);
inline constexpr size_t kSumBytes = 64;
uint64_t NewFileId();

// Rewrites an error about any of the keys as an error about the file: a user who asked for "F" has
// never heard of "F#file". The receiver's send "F#received" is told as the file's receive. `id` is
// 0 as long as it is not known.
absl::Status InTermsOfFile(const absl::Status& status, absl::string_view file_key, uint64_t id);

// How much of a file moves at once: enough that the cost of a call does not show, and little enough
// to stay in the caches between reading, moving and writing.
inline constexpr uint64_t kChunkBytes = uint64_t{8} << 20;
// The longest tensor that is not cut.
inline constexpr uint64_t kTransferBytes = uint64_t{32} << 20;
// The size of a stream's first chunk. Each chunk is twice as long as the one before, up to
// kChunkBytes.
inline constexpr uint64_t kFirstStreamBytes = uint64_t{64} << 10;
inline constexpr uint64_t kTrailerBytes = 8;

// The longest header of a .safetensors file that is sent as one; a file with a longer header is
// sent raw. While they read a header both ends need about twenty times its size.
inline constexpr uint64_t kLongestHeader = uint64_t{4} << 20;

struct FilePlan {
  Preamble preamble;
  std::string key;
  // For a .safetensors file, its tensors in order; offsets are within the file, without gaps.
  std::vector<RangeTransfer> transfers;
};
absl::StatusOr<FilePlan> PlanFile(const Preamble& preamble, absl::string_view header,
                                  absl::string_view file_key);

// What the sender learns from its file: the preamble, without the fields of this sending, and the
// header's bytes. `raw`: takes a .safetensors file as a raw file.
struct FileHead {
  Preamble preamble;
  std::string header;
};
// The error that says why a file named .safetensors is not sent as one.
absl::Status NoSafetensors(const absl::Status& why, absl::string_view path);
absl::StatusOr<FileHead> ReadFileHead(const InputFile& file, absl::string_view path, bool raw);

// A contiguous part of the file, posted in one call.
struct FileChunk {
  uint64_t offset = 0;                   // offset in the file
  uint64_t bytes = 0;                    // size in the file; of a stream the most it can be
  std::vector<RangeTransfer> transfers;  // their offsets are within the chunk
};

// The trailer after a stream's chunk: how many of the chunk's bytes, from its start, are the
// stream's.
std::string EncodeTrailer(uint64_t bytes);
// Refuses a number above `chunk_bytes`.
absl::StatusOr<uint64_t> DecodeTrailer(absl::string_view trailer, uint64_t chunk_bytes);

// Cuts a file into chunks.
class ChunkCutter {
 public:
  // `plan` must outlive the cutter. `max_transfers`: the most transfers of one chunk.
  ChunkCutter(const FilePlan& plan, size_t max_transfers);
  // The next chunk; nothing after the last. A stream has no last chunk.
  std::optional<FileChunk> Next();

 private:
  std::optional<FileChunk> NextOfTensors();
  const FilePlan& plan_;
  const size_t max_transfers_;
  uint64_t offset_;
  uint64_t number_ = 0;  // chunks before; for a .safetensors file transfers before
};

// The size of the file; nothing for a stream.
std::optional<uint64_t> BytesOf(const FilePlan& plan);

// The memory for the longest chunk and its trailer.
uint64_t LongestChunk(const FilePlan& plan);

}  // namespace ferry::tools
