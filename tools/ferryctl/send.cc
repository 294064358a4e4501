// SPDX-License-Identifier: Apache-2.0
// ferryctl send: a file goes to a device where `ferryctl recv` takes it. See file_protocol.h.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/failure.h"
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
    const absl::Status done = Send(globals);
    return done.ok() ? absl::StatusOr<int>(kExitOk) : InTermsOfFile(done, flags_.Key());
  }

 private:
  absl::Status Send(const Globals& globals) {
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(flags_.file));
    ASSIGN_OR_RETURN(FileHead head, ReadFileHead(file, flags_.file, raw_));
    absl::StatusOr<FilePlan> plan = PlanFile(head.preamble, head.header, flags_.Key());
    if (!plan.ok()) return Annotate(plan.status(), flags_.file);
    ASSIGN_OR_RETURN(FileSession session, OpenFileSession(flags_, globals, End::kSend));
    const absl::Time start = absl::Now();

    const uint64_t head_bytes = kPreambleBytes + head.header.size();
    ASSIGN_OR_RETURN(FileLayout layout, LayOutFile(*plan, session.session.get(), head_bytes));
    ASSIGN_OR_RETURN(ArenaPtr head_arena,
                     CreateArena(session.session.get(), session.target.device, head_bytes));
    ASSIGN_OR_RETURN(BatchPtr head_batch, PostHead(head, session, head_arena));

    first_post_ = absl::Now();
    Progress progress(absl::StrCat("send ", flags_.Key()), file.bytes(), !globals.json);
    uint64_t done = head_bytes;
    for (const FileWindow& window : layout.windows) {
      RETURN_IF_ERROR(SendWindow(file, *plan, layout, window, session, head_batch, progress, done));
    }
    RETURN_IF_ERROR(AwaitOtherEnd(flags_, session, head_batch, first_post_));

    FileSummary summary;
    summary.did = "sent";
    summary.kind = head.preamble.kind;
    summary.tensors = plan->pieces.size();
    summary.bytes = file.bytes();
    summary.elapsed = absl::Now() - start;
    summary.moving = absl::Now() - first_post_;
    if (flags_.checksum) {
      ASSIGN_OR_RETURN(summary.sha256, Sha256OfFile(flags_.file));
    }
    PrintSummary(flags_, globals, session, summary);
    return absl::OkStatus();
  }

  absl::StatusOr<BatchPtr> PostHead(const FileHead& head, const FileSession& session,
                                    const ArenaPtr& arena) {
    const std::string preamble = EncodePreamble(head.preamble);
    RETURN_IF_ERROR(FromFerry(ferry_arena_write(arena.get(), 0, preamble.data(), preamble.size())));
    RETURN_IF_ERROR(FromFerry(
        ferry_arena_write(arena.get(), kPreambleBytes, head.header.data(), head.header.size())));
    std::vector<Piece> pieces = {
        {PreambleKey(flags_.Key()), 0, kPreambleBytes, FERRY_UNSPECIFIED, {}}};
    if (!head.header.empty()) {
      pieces.push_back(
          {HeaderKey(flags_.Key()), kPreambleBytes, head.header.size(), FERRY_UNSPECIFIED, {}});
    }
    return Post(session.session.get(), session.target, arena.get(), pieces);
  }

  // Posts all batches of the window, then reads one after the other into one arena and says that it
  // is there: the daemon moves one while the next is read, and if we die, the receiver hears of it.
  // The arena's pages are first touched by the reads themselves.
  absl::Status SendWindow(const InputFile& file, const FilePlan& plan, const FileLayout& layout,
                          const FileWindow& window, FileSession& session,
                          const BatchPtr& head_batch, Progress& progress, uint64_t& done) {
    ASSIGN_OR_RETURN(ArenaPtr arena,
                     CreateArena(session.session.get(), session.target.device,
                                 std::max<uint64_t>(window.bytes, 1), FERRY_ARENA_NO_POPULATE));
    std::deque<Posted> posted;
    for (size_t i = window.first; i < window.last; ++i) {
      session.target.defined_at = i + 1;
      ASSIGN_OR_RETURN(BatchPtr batch, Post(session.session.get(), session.target, arena.get(),
                                            PiecesInWindow(plan, layout.batches[i], window)));
      session.last = ferry_batch_first_id(batch.get()) + ferry_batch_size(batch.get()) - 1;
      posted.push_back({std::move(batch), layout.batches[i].bytes});
    }
    const auto settle = [&](bool all) -> absl::Status {
      // The receiver asks for data only once it has the head: without that nothing here ends.
      if (all || ferry_batch_over(head_batch.get())) {
        RETURN_IF_ERROR(AwaitOtherEnd(flags_, session, head_batch, first_post_));
      }
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
      RETURN_IF_ERROR(ReadBatch(file, batch, window, arena));
      ferry_define(session.session.get(), 0, i + 1);
      RETURN_IF_ERROR(settle(false));
    }
    return settle(true);
  }

  FileFlags flags_;
  bool raw_ = false;
  absl::Time first_post_;
};

}  // namespace

void AddSendCommand(CommandList& commands) { commands.push_back(std::make_unique<SendCommand>()); }

}  // namespace ferry::tools
