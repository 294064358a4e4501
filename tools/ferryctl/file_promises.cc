// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_promises.h"

#include <sys/eventfd.h>

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_protocol.h"

namespace ferry::tools {
namespace {

// 'Over' counters. Transfers that may wait for different times need different ones, because a
// counter advances in the order of posting. The data has 0.
constexpr uint32_t kOurs = 1;
constexpr uint32_t kTheirs = 2;
constexpr uint32_t kWatch = 3;
constexpr uint32_t kMet = 4;
// 'Defined' counters.
constexpr uint32_t kDone = 1;
constexpr uint32_t kWatchDone = 2;

constexpr char kGaveUp[] = " gave up: ";

const char* Name(End end) { return end == End::kSend ? "sender" : "receiver"; }
End Other(End end) { return end == End::kSend ? End::kReceive : End::kSend; }

// Posts a transfer without bytes. `defined`: the 'defined' counter that says when the transfer's
// data is defined; 0: the data is defined already.
absl::StatusOr<BatchPtr> PostWord(ferry_session* session, PostTarget target, std::string key,
                                  uint32_t over, uint32_t defined = 0) {
  target.route = FERRY_ROUTE_ANY;
  target.over_timeline = over;
  target.defined_timeline = defined;
  target.defined_at = defined == 0 ? 0 : 1;
  return Post(session, target, nullptr, {{std::move(key), 0, 0, FERRY_UNSPECIFIED, {}}});
}

}  // namespace

FilePromises::FilePromises(ferry_session* session, const PostTarget& target,
                           const std::string& file_key)
    : session_(session), target_(target), key_(file_key) {
  target_.deadline = kAsLongAsBothLive;
}

absl::StatusOr<FilePromises> FilePromises::Make(ferry_session* session, const PostTarget& target,
                                                const std::string& file_key, uint64_t id) {
  FilePromises made(session, target, file_key);
  if (made.sends()) {
    ASSIGN_OR_RETURN(made.ours_,
                     PostWord(session, made.target_, SentKey(file_key, id), kOurs, kDone));
  } else {
    RETURN_IF_ERROR(made.PostWatched());
  }
  return made;
}

absl::Status FilePromises::PostWatched() {
  PostTarget send = target_;
  send.end = End::kSend;
  ASSIGN_OR_RETURN(ours_, PostWord(session_, send, WatchedKey(key_), kWatch, kWatchDone));
  return absl::OkStatus();
}

absl::Status FilePromises::Meet(uint64_t id, absl::Duration deadline) {
  asked_ = true;
  target_.continues = this->id();
  return sends() ? MeetReceiver(id, deadline) : MeetSender(id);
}

absl::Status FilePromises::MeetReceiver(uint64_t id, absl::Duration deadline) {
  PostTarget ask = target_;
  ask.end = End::kReceive;
  // Posted in this order: a receiver that is gone has ended both, and the end of its promise says
  // more.
  ASSIGN_OR_RETURN(theirs_, PostWord(session_, ask, ReceivedKey(key_, id), kTheirs));
  ASSIGN_OR_RETURN(watch_, PostWord(session_, ask, WatchedKey(key_), kWatch));
  // If the receiver was killed and another took its place before we asked, we watch the new one;
  // then this wait ends by its deadline.
  ask.deadline = deadline;
  ASSIGN_OR_RETURN(const BatchPtr met, PostWord(session_, ask, MetKey(key_, id), kMet));
  RETURN_IF_ERROR(Wait(met));
  watch_ = nullptr;  // even if it is not over: the next to ask for it belongs to another sending
  return absl::OkStatus();
}

absl::Status FilePromises::MeetSender(uint64_t id) {
  PostTarget send = target_;
  send.end = End::kSend;
  ASSIGN_OR_RETURN(BatchPtr ours, PostWord(session_, send, ReceivedKey(key_, id), kOurs, kDone));
  const BatchPtr watched = std::exchange(ours_, std::move(ours));
  ASSIGN_OR_RETURN(met_, PostWord(session_, send, MetKey(key_, id), kMet));
  RETURN_IF_ERROR(FromFerry(ferry_define(session_, kWatchDone, 1)));
  ASSIGN_OR_RETURN(theirs_, PostWord(session_, target_, SentKey(key_, id), kTheirs));
  // If the link was lost after the preamble came, the sender has lost its file with it. What was
  // posted here after the loss waits for the next link, where it has no other halves.
  if (ferry_batch_over(watched.get()) == 0) return absl::OkStatus();
  const absl::Status status = tools::Wait(watched);
  return HasReason(status, Reason::kPeerUnreachable) ? status : absl::OkStatus();
}

absl::Status FilePromises::WaitUntilMet() {
  if (met_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(Wait(met_));
  met_ = nullptr;
  return absl::OkStatus();
}

absl::Status FilePromises::SignalEnd(int eventfd) {
  const auto signal = [](void* fd) {
    eventfd_write(static_cast<int>(reinterpret_cast<intptr_t>(fd)), 1);
  };
  return FromFerry(ferry_batch_on_over(theirs_.get(), signal,
                                       reinterpret_cast<void*>(static_cast<intptr_t>(eventfd))));
}

absl::Status FilePromises::Wait(const BatchPtr& batch, const std::function<void()>& quiet) {
  bool may_say = !asked_ && quiet != nullptr;
  while (true) {
    enum : size_t { kTheirPromise, kBatch, kWatched, kOurPromise, kNone };
    ferry_batch* const batches[] = {theirs_.get(), batch.get(), watch_.get(), ours_.get()};
    size_t index = kNone;
    const uint64_t timeout =
        may_say ? static_cast<uint64_t>(absl::ToInt64Nanoseconds(kQuiet)) : UINT64_MAX;
    const absl::Status status =
        FromFerry(ferry_wait_any(batches, std::size(batches), timeout, &index));
    if (index == kNone && std::exchange(may_say, false)) {
      quiet();
      continue;
    }
    if (index == kTheirPromise) {
      if (!status.ok()) return Told(status);
      theirs_ = nullptr;
      continue;
    }
    if (index == kWatched) {
      if (!status.ok() && theirs_ != nullptr && ferry_batch_over(theirs_.get()))
        RETURN_IF_ERROR(WaitForOther());
      if (!status.ok()) return Told(status);
      watch_ = nullptr;
      continue;
    }
    if (status.ok()) return status;
    // The batch may have ended first, and the daemon may have told both between two looks of ours.
    // Before Meet the ending of our promise is of the batch: the sender asks for it only after the
    // batch.
    if (index == kOurPromise && ferry_batch_over(batch.get())) continue;
    const bool gone = index == kOurPromise && HasReason(status, Reason::kPeerClientGone);
    // Our promise was watched by a sender of another sending, which is gone.
    if (gone && !asked_ && !sends()) {
      RETURN_IF_ERROR(PostWatched());
      continue;
    }
    // The other end had asked for our promise, so its own was posted. That has ended too, and says
    // why.
    if (theirs_ != nullptr && (gone || ferry_batch_over(theirs_.get()))) {
      RETURN_IF_ERROR(WaitForOther());
    }
    return index == kOurPromise ? Told(status) : status;
  }
}

absl::Status FilePromises::WaitForOther() {
  if (theirs_ == nullptr) return absl::OkStatus();
  const absl::Status status = tools::Wait(theirs_);
  if (!status.ok()) return Told(status);
  theirs_ = nullptr;
  return absl::OkStatus();
}

absl::Status FilePromises::CauseOf(const absl::Status& status) {
  // Nanoseconds; what the daemon knows is known here within this time.
  constexpr uint64_t kNews = 1'000'000'000;
  if (!asked_ || !HasReason(status, Reason::kDraining)) return status;
  FromFerry(ferry_batch_wait(ours_.get(), kNews)).IgnoreError();
  if (ferry_batch_over(ours_.get()) == 0) return status;
  const absl::Status other = WaitForOther();
  return other.ok() ? status : other;
}

void FilePromises::Keep() { FromFerry(ferry_define(session_, kDone, 1)).IgnoreError(); }

void FilePromises::WaitUntilTold() { tools::Wait(ours_).IgnoreError(); }

void FilePromises::Break(const absl::Status& why) {
  const std::string text = absl::StrCat("the ", Name(target_.end), kGaveUp, why.message());
  FromFerry(ferry_batch_poison(ours_.get(), text.c_str())).IgnoreError();
}

absl::Status FilePromises::Told(const absl::Status& status) const {
  const bool poisoned = HasReason(status, Reason::kPoisoned);
  if ((!poisoned && !HasReason(status, Reason::kPeerClientGone)) ||
      absl::StrContains(status.message(), kGaveUp)) {
    return status;
  }
  const char* const other = Name(Other(target_.end));
  return Error(absl::StatusCode::kAborted, Reason::kPeerClientGone,
               absl::StrCat("file '", key_, "': the ", other, " ended before it had ",
                            target_.end == End::kSend ? "taken" : "sent", " all of it"));
}

}  // namespace ferry::tools
