// SPDX-License-Identifier: Apache-2.0
// What `send` and `recv` share: their flags, their session and the summary that they print.
// Single-threaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/file_promises.h"
#include "tools/ferryctl/file_protocol.h"
#include "tools/ferryctl/globals.h"

namespace CLI {
class App;
}

namespace ferry::tools {

struct FileFlags {
  std::string file;
  std::string key;  // empty: the base name of the file
  std::string domain;
  int route = FERRY_ROUTE_ANY;
  // How long to wait for the other end; zero: the daemon's default.
  absl::Duration deadline = absl::ZeroDuration();
  std::string name;
  bool checksum = false;
  int64_t own_device = -1;
  uint64_t remote_device = 0;

  // Adds the flags. At both ends --from and --to are the source and the destination of the file.
  void Define(CLI::App& app, End end);
  std::string Key() const;
};

// An open session, and where its transfers go.
struct FileSession {
  // An eventfd; readable once the other end's promise is over (FilePromises::SignalEnd).
  UniqueFd stop;
  SessionPtr session;
  PostTarget target;
  uint64_t last = 0;  // the last transfer of the file's bytes that was posted
  // This end only tells why it cannot begin, and does not wait for an end that comes later
  bool gives_up = false;

  size_t BatchTransfers() const;  // the most transfers of one call
};
absl::StatusOr<FileSession> OpenFileSession(const FileFlags& flags, const Globals& globals,
                                            End end);

// Sends or receives `bytes` bytes of host memory as one transfer under `key`. Waits until it is
// over, or until the other end gives up or is gone. If the ends have not met, and there is only
// word of an earlier end that is gone, that is printed, and the next end waited for.
absl::Status SendBytes(const FileSession& session, FilePromises& promises, const std::string& key,
                       absl::string_view bytes);
absl::StatusOr<std::string> ReceiveBytes(const FileSession& session, FilePromises& promises,
                                         const std::string& key, uint64_t bytes);

// Tells an end that waits already that this end cannot begin, because of `why`. Changes the
// session.
void TellOther(FileSession& session, const std::string& file_key, const absl::Status& why);

struct FileSummary {
  const char* did = "";
  FileKind kind = FileKind::kRaw;
  uint64_t buffers = 0;  // tensors, or their parts, of a .safetensors file; chunks of another file
  uint64_t bytes = 0;
  absl::Duration elapsed;  // from file to file, with memory, reading and writing
  absl::Duration moving;   // from the post of the first data transfer to the end of the last
  std::string sha256;      // empty: it was not asked for
};
// Prints on stdout, or on stderr if the received file went to stdout.
void PrintSummary(const FileFlags& flags, const Globals& globals, const FileSession& session,
                  const FileSummary& summary);

}  // namespace ferry::tools
