// SPDX-License-Identifier: Apache-2.0
// ferryctl send: a file goes to a device where `ferryctl recv` takes it. See file_protocol.h.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/file_transfer.h"
#include "tools/ferryctl/progress.h"

namespace ferry::tools {
namespace {

struct Posted {
  BatchPtr batch;
  uint64_t bytes = 0;
};

class SendCommand : public Command {
 public:
  SendCommand() : Command("send", "Send a file; .safetensors as one buffer per tensor") {}
  void Define(CLI::App& app) override {
    flags_.Define(app, "--from", "--to");
    app.add_flag("--raw", raw_, "One buffer, whatever the file's name");
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(flags_.file));
    ASSIGN_OR_RETURN(FileHead head, ReadFileHead(file, flags_.file, raw_));
    ASSIGN_OR_RETURN(FilePlan plan, PlanFile(head.preamble, head.header, flags_.Key()));
    ASSIGN_OR_RETURN(FileSession session, OpenFileSession(flags_, globals, End::kSend));
    const absl::Time start = absl::Now();

    const uint64_t head_bytes = kPreambleBytes + head.header.size();
    ASSIGN_OR_RETURN(FileLayout layout, LayOutFile(plan, session.session.get(), head_bytes));
    ASSIGN_OR_RETURN(ArenaPtr head_arena,
                     CreateArena(session.session.get(), session.target.device, head_bytes));
    ASSIGN_OR_RETURN(BatchPtr head_batch, PostHead(head, session, head_arena));

    const absl::Time first_post = absl::Now();
    Progress progress(absl::StrCat("send ", flags_.Key()), file.bytes(), !globals.json);
    uint64_t done = head_bytes;
    for (const FileWindow& window : layout.windows) {
      RETURN_IF_ERROR(SendWindow(file, plan, layout, window, session, progress, done));
    }
    RETURN_IF_ERROR(Wait(head_batch));

    FileSummary summary;
    summary.did = "sent";
    summary.kind = head.preamble.kind;
    summary.tensors = plan.pieces.size();
    summary.bytes = file.bytes();
    summary.elapsed = absl::Now() - start;
    summary.moving = absl::Now() - first_post;
    if (flags_.checksum) {
      ASSIGN_OR_RETURN(summary.sha256, Sha256OfFile(flags_.file));
    }
    PrintSummary(flags_, globals, session, summary);
    return kExitOk;
  }

 private:
  absl::StatusOr<BatchPtr> PostHead(const FileHead& head, const FileSession& session,
                                    const ArenaPtr& arena) {
    const std::string preamble = EncodePreamble(head.preamble);
    std::copy(preamble.begin(), preamble.end(), reinterpret_cast<char*>(DataOf(arena)));
    std::copy(head.header.begin(), head.header.end(),
              reinterpret_cast<char*>(DataOf(arena)) + kPreambleBytes);
    std::vector<Piece> pieces = {
        {PreambleKey(flags_.Key()), 0, kPreambleBytes, FERRY_UNSPECIFIED, {}}};
    if (!head.header.empty()) {
      pieces.push_back(
          {HeaderKey(flags_.Key()), kPreambleBytes, head.header.size(), FERRY_UNSPECIFIED, {}});
    }
    return Post(session.session.get(), session.target, arena.get(), pieces);
  }

  // Reads batch after batch into one arena and posts each as soon as it is there, so that the
  // daemon moves one while the next is read. The arena's pages are first touched by the reads
  // themselves.
  absl::Status SendWindow(const InputFile& file, const FilePlan& plan, const FileLayout& layout,
                          const FileWindow& window, const FileSession& session, Progress& progress,
                          uint64_t& done) {
    ASSIGN_OR_RETURN(ArenaPtr arena,
                     CreateArena(session.session.get(), session.target.device,
                                 std::max<uint64_t>(window.bytes, 1), FERRY_ARENA_NO_POPULATE));
    std::deque<Posted> posted;
    const auto settle = [&](bool all) -> absl::Status {
      while (!posted.empty() && (all || ferry_batch_over(posted.front().batch.get()))) {
        RETURN_IF_ERROR(Wait(posted.front().batch));
        done += posted.front().bytes;
        progress.Show(done);
        posted.pop_front();
      }
      return absl::OkStatus();
    };
    for (size_t i = window.first; i < window.last; ++i) {
      const FileBatch& batch = layout.batches[i];
      RETURN_IF_ERROR(
          file.Read(batch.offset, DataOf(arena) + (batch.offset - window.offset), batch.bytes));
      ASSIGN_OR_RETURN(BatchPtr handle, Post(session.session.get(), session.target, arena.get(),
                                             PiecesInWindow(plan, batch, window)));
      posted.push_back({std::move(handle), batch.bytes});
      RETURN_IF_ERROR(settle(false));
    }
    return settle(true);
  }

  FileFlags flags_;
  bool raw_ = false;
};

}  // namespace

void AddSendCommand(CommandList& commands) { commands.push_back(std::make_unique<SendCommand>()); }

}  // namespace ferry::tools
