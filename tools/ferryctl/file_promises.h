// SPDX-License-Identifier: Apache-2.0
// The promises that the two ends of a file make each other. A promise is a send without bytes whose
// data is defined once its end has done its part: "F#sent@I" when all was sent, "F#received@I" when
// all was written. Each end posts its promise, and a receive for the other end's. An end that
// cannot go on poisons its promise and says why. If an end dies, its daemon ends the promise at
// once, whatever the other end waits for then. A send leaves a note, so the other end hears of it
// even if it asks later. "F" is the file's key; "I" is the id of this sending, so that no promise
// of another sending is taken for it.
//
// The receiver learns "I" only with the preamble. Until then it is watched by another send without
// bytes, "F#received", which it posts before all else. When it has made its promise, it says so
// with "F#met@I".
//
// Example: the sender posts "F#sent@I" and "F#file" and the receiver posts "F#received" and a
// receive of "F#file". The preamble with I moves. The receiver posts "F#received@I", a receive of
// "F#sent@I", and "F#met@I"; the sender receives "F#received@I" and "F#met@I". Now the data moves.
// The sender keeps "F#sent@I" when all was sent, the receiver "F#received@I" when all is written.
//
// Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/ferryctl/client.h"

namespace ferry::tools {

// The deadline of a promise: as far away as a deadline may be, less what clocks may differ.
inline constexpr absl::Duration kAsLongAsBothLive = absl::Hours(24 * 300);

// How long an end waits for the other before it says that it waits: the other end may be starting.
inline constexpr absl::Duration kQuiet = absl::Seconds(2);

class FilePromises {
 public:
  // Makes the promises of the end that `target` describes. The session outlives the object. `id`:
  // of the sending; 0 at the receiver, which does not know it yet.
  static absl::StatusOr<FilePromises> Make(ferry_session* session, const PostTarget& target,
                                           const std::string& file_key, uint64_t id);
  // Called once the preamble of sending `id` has moved: makes the promise, and asks for the other
  // end's. The sender then waits, at most for `deadline`, until the receiver has met it.
  absl::Status Meet(uint64_t id, absl::Duration deadline);
  // At the receiver, before it posts anything more: waits until the sender knows that it was met.
  absl::Status WaitUntilMet();
  // Makes `eventfd` readable when the other end's promise is over, well or not. `eventfd` must
  // outlive the session. Call it once, after Meet.
  absl::Status SignalEnd(int eventfd);

  // Waits until `batch` is over. If the other end gives up or is gone first, that is the error;
  // also if that is why the batch failed. Before Meet it is not known whether there is another end;
  // then `quiet` is called once if nothing was heard of it for kQuiet.
  absl::Status Wait(const BatchPtr& batch, const std::function<void()>& quiet = nullptr);
  // Waits until the other end has kept its promise.
  absl::Status WaitForOther();
  // Keeps our promise: we have done our part.
  void Keep();
  // Waits until the other end, which has kept its promise, knows that ours is kept, or is gone.
  // That it is gone is no error any more.
  void WaitUntilTold();
  // The cause behind `status`. A daemon that drains takes no more of the file once our promise,
  // which that would continue, is over, for example because the other end died. Then `status` says
  // only that the daemon drains.
  absl::Status CauseOf(const absl::Status& status);
  // Breaks our promise: we cannot go on, because of `why`. A receiver that has not been met tells
  // it to any sender that asks, also one of another version.
  void Break(const absl::Status& why);
  bool met() const { return asked_; }
  const std::string& file_key() const { return key_; }
  // The transfer id of our promise. It is in flight as long as the file is under way. Everything
  // else that is posted for the file continues it (PostTarget::continues), so that a draining
  // daemon lets the file finish.
  uint64_t id() const { return ferry_batch_first_id(ours_.get()); }

 private:
  FilePromises(ferry_session* session, const PostTarget& target, const std::string& file_key);
  bool sends() const { return target_.end == End::kSend; }
  absl::Status PostWatched();
  absl::Status MeetReceiver(uint64_t id, absl::Duration deadline);
  absl::Status MeetSender(uint64_t id);
  // The status that people are told when the other end's promise has ended badly.
  absl::Status Told(const absl::Status& status) const;

  ferry_session* session_;
  PostTarget target_;
  std::string key_;     // the key of the file
  BatchPtr ours_;       // our promise; at the receiver before Meet "F#received"
  BatchPtr theirs_;     // the other end's promise; null before Meet, and once it was kept
  BatchPtr watch_;      // at the sender, during Meet: the receive of "F#received"
  BatchPtr met_;        // at the receiver: "F#met@I", until the sender knows
  bool asked_ = false;  // Meet has asked for the other end's promise
};

}  // namespace ferry::tools
