// SPDX-License-Identifier: Apache-2.0
// What `send` and `recv` share: their flags, the session they run in and the summary they print.
// Single-threaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/file_protocol.h"
#include "tools/ferryctl/globals.h"

namespace CLI {
class App;
}

namespace ferry::tools {

struct FileFlags {
  std::string file;
  std::string key;  // empty: the file's base name
  std::string domain;
  int route = FERRY_ROUTE_ANY;
  absl::Duration deadline = absl::ZeroDuration();  // the daemon's default
  std::string name;
  bool checksum = false;
  int64_t own_device = -1;
  uint64_t remote_device = 0;

  // `own` and `remote` are the flags' names: --from and --to mean the source and the destination.
  void Define(CLI::App& app, const char* own, const char* remote);
  std::string Key() const;
};

// An open session and where its transfers go.
struct FileSession {
  SessionPtr session;
  PostTarget target;
  uint64_t last = 0;  // transfer of the file's bytes that was posted
};
absl::StatusOr<FileSession> OpenFileSession(const FileFlags& flags, const Globals& globals,
                                            End end);

// Waits for what only ends if the other end is there. If that takes until `posted` + 2 s, says on
// stderr whom for, once.
absl::Status AwaitOtherEnd(const FileFlags& flags, const FileSession& session,
                           const BatchPtr& batch, absl::Time posted);

// How much of a batch travels at once: enough that its call does not show, little enough that
// reading, moving and writing a file overlap.
inline constexpr uint64_t kFileBatchBytes = uint64_t{64} << 20;

// The batches of a file and the arenas they share one after the other.
struct FileLayout {
  std::vector<FileBatch> batches;
  std::vector<FileWindow> windows;
};
// `reserved`: bytes of the session's quota that other arenas hold.
absl::StatusOr<FileLayout> LayOutFile(const FilePlan& plan, const ferry_session* session,
                                      uint64_t reserved);
// The pieces of `batch` as ranges of an arena that begins at `window`'s first byte.
std::vector<Piece> PiecesInWindow(const FilePlan& plan, const FileBatch& batch,
                                  const FileWindow& window);

// Between the file and the same bytes of an arena that begins at `window`'s first byte, on whatever
// device that is.
absl::Status ReadBatch(const InputFile& file, const FileBatch& batch, const FileWindow& window,
                       const ArenaPtr& arena);
absl::Status WriteBatch(const OutputFile& file, const FileBatch& batch, const FileWindow& window,
                        const ArenaPtr& arena);

struct FileSummary {
  const char* did = "";
  FileKind kind = FileKind::kRaw;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  absl::Duration elapsed;  // file to file: memory, reading and writing included
  absl::Duration moving;   // from the first data transfer posted to the last over
  std::string sha256;      // empty: not asked for
};
void PrintSummary(const FileFlags& flags, const Globals& globals, const FileSession& session,
                  const FileSummary& summary);

}  // namespace ferry::tools
