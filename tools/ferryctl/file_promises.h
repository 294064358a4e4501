// SPDX-License-Identifier: Apache-2.0
// What the two ends of a file promise each other: each posts a send without bytes whose data is
// defined only once it has done its part ("F#sent@I": all was sent, "F#received@I": all was
// written), and receives the other's. So an end that cannot go on says why by poisoning its
// promise, and of one that dies its daemon tells, at once, whatever the other end waits for then. A
// send leaves a note, so the other end hears it also if it asks only later. "I" is this sending's,
// so that no promise of another one is taken for it.
//
// The receiver knows "I" only once the preamble has come. For the time until it has made its
// promise it is watched by another one, "F#received", which it posts before all else; once it has
// made it, it says so by "F#met@I".
// Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/ferryctl/client.h"

namespace ferry::tools {

// For as long as both ends live: as long as a deadline may be, but for what clocks differ.
inline constexpr absl::Duration kAsLongAsBothLive = absl::Hours(24 * 300);

// Until then it may well be that the other end is just being started.
inline constexpr absl::Duration kQuiet = absl::Seconds(2);

class FilePromises {
 public:
  // As the end that `target` is; the session outlives the object. `id`: of the sending, which the
  // receiver does not know yet (0).
  static absl::StatusOr<FilePromises> Make(ferry_session* session, const PostTarget& target,
                                           const std::string& file_key, uint64_t id);
  // Once the preamble of sending `id` has moved: promises, and asks for the other end's promise.
  // The sender waits until the receiver has met it, for `deadline` at most.
  absl::Status Meet(uint64_t id, absl::Duration deadline);
  // The receiver, before it posts anything more: until the sender knows that it has met it.
  absl::Status WaitUntilMet();
  // Makes `eventfd` readable once the other end's promise is over, however; it must outlive the
  // session. Once, after Meet.
  absl::Status SignalEnd(int eventfd);

  // Until `batch` is over. If the other end gives up or is gone first, that is the error, also
  // where it is why the batch failed. Before Meet nobody knows whether there is another end:
  // `quiet` is called once if it has not been heard of for kQuiet.
  absl::Status Wait(const BatchPtr& batch, const std::function<void()>& quiet = nullptr);
  // Until the other end has kept its promise.
  absl::Status WaitForOther();
  // We have done our part.
  void Keep();
  // Until the other end, which has kept its own, knows that, or is gone, which is no error any
  // more.
  void WaitUntilTold();
  // Why we cannot go on, if `status` says only that a daemon that drains took no more of the file:
  // it does so once our promise, which that would continue, is over, as when the other end died.
  absl::Status CauseOf(const absl::Status& status);
  // We cannot go on. Of a sending that has not been met the receiver tells whoever asks, such as
  // one of another version.
  void Break(const absl::Status& why);
  bool met() const { return asked_; }
  const std::string& file_key() const { return key_; }
  // Our promise, which is in flight for as long as the file is under way: what else is posted of it
  // continues that (PostTarget::continues), so that a drain lets the file come to its end.
  uint64_t id() const { return ferry_batch_first_id(ours_.get()); }

 private:
  FilePromises(ferry_session* session, const PostTarget& target, const std::string& file_key);
  bool sends() const { return target_.end == End::kSend; }
  absl::Status PostWatched();
  absl::Status MeetReceiver(uint64_t id, absl::Duration deadline);
  absl::Status MeetSender(uint64_t id);
  // How the other end's promise ended, if badly, for people.
  absl::Status Told(const absl::Status& status) const;

  ferry_session* session_;
  PostTarget target_;
  std::string key_;  // the file's
  BatchPtr ours_;    // of the receiver before Meet: by which it is watched
  BatchPtr theirs_;  // null before Meet, and once it was kept
  BatchPtr watch_;   // "F#received" after Meet
  BatchPtr met_;     // of the receiver, until the sender knows
  bool asked_ = false;
};

}  // namespace ferry::tools
