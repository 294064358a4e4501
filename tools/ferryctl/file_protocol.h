// SPDX-License-Identifier: Apache-2.0
// How `ferryctl send` and `ferryctl recv` move a file with nothing but transfers, under keys made
// of the file's key (here "F"):
//
//   "F#received", and of this sending "F#sent@I", "F#received@I", "F#met@I": what the ends promise
//     each other, see file_promises.h.
//   "F#file", always kPreambleBytes: what kind of file, how long, and how long its header is.
//     It has a random id of this sending, "I", which is part of the key of all that follows: two
//     files between two devices may have tensors of the same names, and of one whose end was killed
//     something may be left.
//   "F#header@I" (if it is not empty): the first `header_bytes` of the file as they are. For a
//     .safetensors file these are its length and its JSON, from which both ends compute the rest.
//   The data, in order, through a ring of buffers at each end (FileRing), so that a file of any
//     size takes the same memory. A raw file: chunks of kChunkBytes (the last one shorter) as
//     "F#0@I", "F#1@I", ... A .safetensors file: a transfer a tensor, keyed by the tensor's name,
//     as "name@I", with its dtype and shape; one of more than kPieceBytes is cut, into "name#0@I",
//     "name#1@I", ... without a type. A stream, whose length nobody knows: chunks as of a raw file,
//     the first ones shorter, each followed by kTrailerBytes that say how many bytes of it are the
//     stream's. The first one that is not full is the last.
//   "F#sum@I" (if the sender was asked for it): the SHA-256 of the file in hexadecimal, which the
//     receiver compares.
//
// An end that cannot begin, such as a sender without the file, meets the other with "F#file" all
// the same, of an empty raw file, and breaks its promise (TellOther). What follows "F#file"
// continues the promise of its end, so that daemons that drain take it. Who posts "F#file" may be
// told at once how an end of before ended that had found no other one: it posts it again.
//
// Bytes of the file are header then data, both in order, so the receiver rebuilds it bit for bit. A
// key that would be longer than a transfer key may be is replaced by its SHA-256 in hexadecimal.
// Pure; any thread.
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
  uint64_t file_bytes = 0;  // of a stream 0
  uint64_t id = 0;          // of this sending, random
  bool summed = false;      // the file's sum follows it
  bool operator==(const Preamble&) const = default;
};
inline constexpr size_t kPreambleBytes = 48;
std::string EncodePreamble(const Preamble& preamble);
// Refuses what no ferryctl sends: another magic, version or kind, a header longer than the file.
absl::StatusOr<Preamble> DecodePreamble(absl::string_view bytes);

inline constexpr size_t kTransferKeyBytes = 64;
std::string TransferKeyOf(absl::string_view name);
std::string PreambleKey(absl::string_view file_key);
std::string WatchedKey(absl::string_view file_key);
// Of what is of this sending alone.
std::string SentKey(absl::string_view file_key, uint64_t id);
std::string ReceivedKey(absl::string_view file_key, uint64_t id);
std::string MetKey(absl::string_view file_key, uint64_t id);
std::string HeaderKey(absl::string_view file_key, uint64_t id);
std::string SumKey(absl::string_view file_key, uint64_t id);
inline constexpr size_t kSumBytes = 64;
uint64_t NewFileId();

// An error of any round told as one of the file: who asked for "F" never heard of "F#file", nor
// that the receiver sends anything ("F#received"): that send is told as the file's receive. `id`: 0
// as long as it is not known.
absl::Status InTermsOfFile(const absl::Status& status, absl::string_view file_key, uint64_t id);

// How much of a file moves at once: enough that its call does not show, little enough that it stays
// in the caches between reading, moving and writing.
inline constexpr uint64_t kChunkBytes = uint64_t{8} << 20;
// The longest tensor that is not cut.
inline constexpr uint64_t kPieceBytes = uint64_t{32} << 20;
// Of a stream's first chunk; each is twice as long as the one before, up to kChunkBytes.
inline constexpr uint64_t kFirstStreamBytes = uint64_t{64} << 10;
inline constexpr uint64_t kTrailerBytes = 8;

// Of a .safetensors file whose header is not longer; any other goes as a raw file. Both ends keep
// some twenty times as much as a header has while they read it.
inline constexpr uint64_t kLongestHeader = uint64_t{4} << 20;

struct FilePlan {
  Preamble preamble;
  std::string key;
  // Of a .safetensors file, in its order; offsets are within the file and without holes.
  std::vector<Piece> pieces;
};
absl::StatusOr<FilePlan> PlanFile(const Preamble& preamble, absl::string_view header,
                                  absl::string_view file_key);

// What the sender reads off its file: the preamble, but for what is of this sending, and the
// header's bytes. `raw`: whatever its name.
struct FileHead {
  Preamble preamble;
  std::string header;
};
// Why a file that is called one is not sent as one.
absl::Status NoSafetensors(const absl::Status& why, absl::string_view path);
absl::StatusOr<FileHead> ReadFileHead(const InputFile& file, absl::string_view path, bool raw);

// What is posted in one call; a contiguous part of the file.
struct FileChunk {
  uint64_t offset = 0;        // in the file
  uint64_t bytes = 0;         // of the file; of a stream at most
  std::vector<Piece> pieces;  // offsets are within the chunk
};

// What follows a stream's chunk: how many bytes of it, from its start, are the stream's.
std::string EncodeTrailer(uint64_t bytes);
// Refuses more than the chunk has.
absl::StatusOr<uint64_t> DecodeTrailer(absl::string_view trailer, uint64_t chunk_bytes);

// Cuts a file, chunk by chunk.
class ChunkCutter {
 public:
  // `plan` must outlive it. `max_pieces`: at most so many in one call.
  ChunkCutter(const FilePlan& plan, size_t max_pieces);
  // Nothing after the last one; a stream has no last one.
  std::optional<FileChunk> Next();

 private:
  std::optional<FileChunk> NextOfTensors();
  const FilePlan& plan_;
  const size_t max_pieces_;
  uint64_t offset_;
  uint64_t number_ = 0;  // of chunks before; of a .safetensors file of pieces before
};

// All of the file; nothing for a stream.
std::optional<uint64_t> BytesOf(const FilePlan& plan);

// The memory that the longest chunk takes, with its trailer.
uint64_t LongestChunk(const FilePlan& plan);

}  // namespace ferry::tools
