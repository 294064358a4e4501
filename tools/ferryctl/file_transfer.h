// SPDX-License-Identifier: Apache-2.0
// What `send` and `recv` share: their flags, the session they run in and the summary they print.
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
  std::string key;  // empty: the file's base name
  std::string domain;
  int route = FERRY_ROUTE_ANY;
  // Until the other end is there; zero: the daemon's default.
  absl::Duration deadline = absl::ZeroDuration();
  std::string name;
  bool checksum = false;
  int64_t own_device = -1;
  uint64_t remote_device = 0;

  // --from and --to are the source and the destination of the file at both ends.
  void Define(CLI::App& app, End end);
  std::string Key() const;
};

// An open session and where its transfers go.
struct FileSession {
  UniqueFd stop;  // an eventfd that the session writes to (FilePromises::SignalEnd)
  SessionPtr session;
  PostTarget target;
  uint64_t last = 0;      // transfer of the file's bytes that was posted
  bool gives_up = false;  // has only to tell why, and waits for nobody who comes later

  size_t BatchTransfers() const;  // at most so many in one call
};
absl::StatusOr<FileSession> OpenFileSession(const FileFlags& flags, const Globals& globals,
                                            End end);

// A transfer of `bytes` bytes of host memory under `key`, sent or received: until it is over, or
// the other end gives up or is gone. If the ends have not met, and all that there is is word of an
// end that is gone, that is said, and the next one waited for.
absl::Status SendBytes(const FileSession& session, FilePromises& promises, const std::string& key,
                       absl::string_view bytes);
absl::StatusOr<std::string> ReceiveBytes(const FileSession& session, FilePromises& promises,
                                         const std::string& key, uint64_t bytes);

// We cannot begin, and `why`: an end that waits already hears it. Changes the session.
void TellOther(FileSession& session, const std::string& file_key, const absl::Status& why);

struct FileSummary {
  const char* did = "";
  FileKind kind = FileKind::kRaw;
  uint64_t buffers = 0;  // of a .safetensors file its tensors, or their parts; else its chunks
  uint64_t bytes = 0;
  absl::Duration elapsed;  // file to file: memory, reading and writing included
  absl::Duration moving;   // from the first data transfer posted to the last over
  std::string sha256;      // empty: not asked for
};
// On stdout, or on stderr if that has what was received.
void PrintSummary(const FileFlags& flags, const Globals& globals, const FileSession& session,
                  const FileSummary& summary);

}  // namespace ferry::tools
