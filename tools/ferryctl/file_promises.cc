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

// 'Over' counters, since they are low-water marks, and a 'defined' one; the data has 0.
constexpr uint32_t kOurs = 1;
constexpr uint32_t kTheirs = 2;
constexpr uint32_t kDone = 1;

constexpr char kGaveUp[] = " gave up: ";

const char* Name(End end) { return end == End::kSend ? "sender" : "receiver"; }
End Other(End end) { return end == End::kSend ? End::kReceive : End::kSend; }

std::string PromiseKey(End end, absl::string_view file_key) {
  return end == End::kSend ? SentKey(file_key) : ReceivedKey(file_key);
}

absl::StatusOr<BatchPtr> PostPromise(ferry_session* session, const PostTarget& target,
                                     std::string key) {
  return Post(session, target, nullptr, {{std::move(key), 0, 0, FERRY_UNSPECIFIED, {}}});
}

}  // namespace

FilePromises::FilePromises(ferry_session* session, const PostTarget& target,
                           const std::string& file_key)
    : session_(session), target_(target), key_(file_key) {}

absl::StatusOr<FilePromises> FilePromises::Make(ferry_session* session, const PostTarget& target,
                                                const std::string& file_key) {
  FilePromises made(session, target, file_key);
  PostTarget promise = target;
  promise.end = End::kSend;
  promise.route = FERRY_ROUTE_ANY;
  promise.deadline = kAsLongAsBothLive;
  promise.over_timeline = kOurs;
  promise.defined_timeline = kDone;
  promise.defined_at = 1;
  ASSIGN_OR_RETURN(made.ours_, PostPromise(session, promise, PromiseKey(target.end, file_key)));
  return made;
}

absl::Status FilePromises::Ask() {
  asked_ = true;
  PostTarget promise = target_;
  promise.end = End::kReceive;
  promise.route = FERRY_ROUTE_ANY;
  promise.deadline = kAsLongAsBothLive;
  promise.over_timeline = kTheirs;
  promise.continues = id();
  ASSIGN_OR_RETURN(theirs_, PostPromise(session_, promise, PromiseKey(Other(target_.end), key_)));
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
    enum : size_t { kTheirPromise, kBatch, kOurPromise, kNone };
    ferry_batch* const batches[] = {theirs_.get(), batch.get(), ours_.get()};
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
    if (status.ok()) return status;
    // What the daemon told of before that, it may have told between two looks of ours. Before Ask
    // it is the batch: they ask only after it.
    if (index == kOurPromise && ferry_batch_over(batch.get())) continue;
    // They had asked for our promise, so theirs was posted: it has ended too, and says why.
    const bool gone = index == kOurPromise && HasReason(status, Reason::kPeerClientGone);
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
  constexpr uint64_t kNews = 1'000'000'000;  // ns: what the daemon knows is soon known here
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
