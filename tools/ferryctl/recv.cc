// SPDX-License-Identifier: Apache-2.0
// ferryctl recv: takes what `ferryctl send` sends into a file of its own. See file_protocol.h.
#include <CLI/CLI.hpp>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_transfer.h"
#include "tools/ferryctl/progress.h"

namespace ferry::tools {
namespace {

constexpr absl::Duration kRefusing = absl::Seconds(5);

// When a batch was over, told by the library's thread while ours still writes the one before.
void NoteTime(void* nanoseconds) {
  static_cast<std::atomic<int64_t>*>(nanoseconds)->store(absl::GetCurrentTimeNanos());
}

class RecvCommand : public Command {
 public:
  RecvCommand() : Command("recv", "Receive what `ferryctl send` sends into a file") {}
  void Define(CLI::App& app) override { flags_.Define(app, "--to", "--from"); }

  absl::StatusOr<int> Run(const Globals& globals) override {
    const absl::Status done = Receive(globals);
    return done.ok() ? absl::StatusOr<int>(kExitOk) : InTermsOfFile(done, flags_.Key());
  }

 private:
  absl::Status Receive(const Globals& globals) {
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(flags_.file));
    ASSIGN_OR_RETURN(FileSession session, OpenFileSession(flags_, globals, End::kReceive));
    ASSIGN_OR_RETURN(std::string preamble_bytes,
                     ReceiveBytes(session, PreambleKey(flags_.Key()), kPreambleBytes));
    // Before this the sender may not have existed; from here on the clock runs.
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(Preamble preamble, DecodePreamble(preamble_bytes));
    std::string header;
    if (preamble.header_bytes > 0) {
      ASSIGN_OR_RETURN(header,
                       ReceiveBytes(session, HeaderKey(flags_.Key()), preamble.header_bytes));
    }
    ASSIGN_OR_RETURN(FilePlan plan, PlanFile(preamble, header, flags_.Key()));
    ASSIGN_OR_RETURN(FileLayout layout, LayOutFile(plan, session.session.get(), 0));
    absl::Status ready = file.Reserve(preamble.file_bytes);
    if (ready.ok()) ready = file.Write(0, header.data(), header.size());
    if (!ready.ok()) {
      Refuse(plan, layout, 0, session, ready);
      return ready;
    }

    Progress progress(absl::StrCat("recv ", flags_.Key()), preamble.file_bytes, !globals.json);
    uint64_t done = header.size();
    FileSummary summary;
    for (size_t i = 0; i < layout.windows.size(); ++i) {
      absl::StatusOr<absl::Duration> moving =
          ReceiveWindow(plan, layout, layout.windows[i], session, file, progress, done);
      if (!moving.ok()) {
        if (i + 1 < layout.windows.size()) Refuse(plan, layout, i + 1, session, moving.status());
        return moving.status();
      }
      summary.moving += *moving;
    }
    RETURN_IF_ERROR(file.Commit());

    summary.did = "received";
    summary.kind = preamble.kind;
    summary.tensors = plan.pieces.size();
    summary.bytes = preamble.file_bytes;
    summary.elapsed = absl::Now() - start;
    if (flags_.checksum) {
      ASSIGN_OR_RETURN(summary.sha256, Sha256OfFile(flags_.file));
    }
    PrintSummary(flags_, globals, session, summary);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReceiveBytes(const FileSession& session, std::string key,
                                           uint64_t bytes) {
    ASSIGN_OR_RETURN(ArenaPtr arena,
                     CreateArena(session.session.get(), session.target.device, bytes));
    const std::vector<Piece> pieces = {{std::move(key), 0, bytes, FERRY_UNSPECIFIED, {}}};
    ASSIGN_OR_RETURN(BatchPtr batch,
                     Post(session.session.get(), session.target, arena.get(), pieces));
    RETURN_IF_ERROR(AwaitOtherEnd(flags_, session, batch, absl::Now()));
    std::string received(bytes, '\0');
    RETURN_IF_ERROR(FromFerry(ferry_arena_read(arena.get(), 0, received.data(), bytes)));
    return received;
  }

  // Posts all receives of the window, then writes each batch out while the later ones still come.
  // Returns the time from the first post to the last ending.
  absl::StatusOr<absl::Duration> ReceiveWindow(const FilePlan& plan, const FileLayout& layout,
                                               const FileWindow& window, FileSession& session,
                                               const OutputFile& file, Progress& progress,
                                               uint64_t& done) {
    ASSIGN_OR_RETURN(ArenaPtr arena, CreateArena(session.session.get(), session.target.device,
                                                 std::max<uint64_t>(window.bytes, 1)));
    const size_t count = window.last - window.first;
    // Declared before the batches: a callback may come until they are freed and over.
    std::vector<std::atomic<int64_t>> over(count);
    std::vector<BatchPtr> batches;
    const absl::Time start = absl::Now();
    absl::Status status;
    for (size_t i = window.first; i < window.last && status.ok(); ++i) {
      auto batch = Post(session.session.get(), session.target, arena.get(),
                        PiecesInWindow(plan, layout.batches[i], window));
      status = batch.status();
      if (!status.ok()) break;
      session.last = ferry_batch_first_id(batch->get()) + ferry_batch_size(batch->get()) - 1;
      batches.push_back(*std::move(batch));
      status =
          FromFerry(ferry_batch_on_over(batches.back().get(), NoteTime, &over[i - window.first]));
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      // After a failure the rest is only waited for, since the callbacks point into this frame.
      if (!status.ok()) {
        FromFerry(ferry_batch_cancel(batches[i].get())).IgnoreError();
        Wait(batches[i]).IgnoreError();
        continue;
      }
      const FileBatch& batch = layout.batches[window.first + i];
      status = Wait(batches[i]);
      if (!status.ok()) continue;
      status = WriteBatch(file, batch, window, arena);
      done += batch.bytes;
      progress.Show(done);
    }
    absl::Time last = start;
    for (const auto& stamp : over) {
      // The callback follows the waiter's own wake-up by a moment; it always comes.
      while (stamp.load() == 0 && &stamp - over.data() < static_cast<ptrdiff_t>(batches.size())) {
        std::this_thread::yield();
      }
      last = std::max(last, absl::FromUnixNanos(stamp.load()));
    }
    if (!status.ok()) return status;
    return last - start;
  }

  // We cannot take what is left, and the sender, which waits for us to ask, is to hear why: what it
  // would send next is asked for and poisoned. Best effort: who has gone is not waited for.
  void Refuse(const FilePlan& plan, const FileLayout& layout, size_t window, FileSession& session,
              const absl::Status& why) {
    if (layout.windows.empty()) return;
    const FileWindow& next = layout.windows[window];
    const FileBatch& batch = layout.batches[next.first];
    auto arena = CreateArena(session.session.get(), session.target.device,
                             std::max<uint64_t>(batch.bytes, 1), FERRY_ARENA_NO_POPULATE);
    if (!arena.ok()) return;
    session.target.defined_at = 1;  // never said
    auto posted = Post(session.session.get(), session.target, arena->get(),
                       PiecesInWindow(plan, batch, next));
    if (!posted.ok()) return;
    const std::string text = absl::StrCat("the receiver gave up: ", why.message());
    FromFerry(ferry_batch_poison(posted->get(), text.c_str())).IgnoreError();
    Wait(*posted, kRefusing).IgnoreError();
  }

  FileFlags flags_;
};

}  // namespace

void AddRecvCommand(CommandList& commands) { commands.push_back(std::make_unique<RecvCommand>()); }

}  // namespace ferry::tools
