// SPDX-License-Identifier: Apache-2.0
#include "transfer/rules/half_ends.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/status.h"

namespace ferry {
namespace {

// To the flight recorder; of a convoy that failed, of each member.
void RecordEnd(const Posted& half, const absl::Status& status) {
  const char* const what = half.spec.side == Side::kSend ? "end.send" : "end.receive";
  const absl::string_view reason = status.ok() ? "" : ReasonName(ReasonOf(status));
  const size_t members = status.ok() || half.convoy == nullptr ? 0 : half.count();
  for (size_t place = 0; place < std::max<size_t>(members, 1); ++place) {
    const MatchKey& key = members == 0 ? half.spec.key : half.convoy->members[place].key;
    FlightRecorder::Get().Record(what, TransferId(half.id.value() + place), half.peer.value(),
                                 static_cast<uint64_t>(status.code()), reason,
                                 MatchFingerprint(key));
  }
}

}  // namespace

void HalfEnds::End(Posted& half, absl::Status status) {
  home_.Check();
  books_.tables.LeaveMatcher(half);
  books_.tables.StopWatching(half);
  books_.tables.StopTimer(half);
  books_.long_waits.StopLook(half);
  if (half.load != nullptr) books_.cliques.Forget(*half.load);
  launches_.EndEstimate(half, false);
  if (half.bundle != 0) books_.cliques.bundles().Leave(std::exchange(half.bundle, 0));
  if (half.slot != 0) {
    half.slot = 0;
    context_.PeerOf(half.peer).slots.Return(half.batch);
  }
  RecordEnd(half, status);
  const std::unique_ptr<Posted> taken = books_.halves.Take(half);
  Ended& ended = context_.out.ended.emplace_back();
  ended.transfer = half.id;
  ended.count = half.count();
  ended.side = half.spec.side;
  ended.source = half.spec.key.source;
  ended.destination = half.spec.key.destination;
  ended.over_timeline = half.spec.over_timeline;
  ended.over_value = half.spec.over_value;
  ended.prepared = half.spec.prepared;
  if (half.spec.prepared && half.batch_size > 1 && !ended_batches_.contains(half.batch)) {
    absl::Status why = Error(
        status.code(), ReasonOf(status),
        absl::StrCat("its prepared batch has ended with ", NameOf(half), ": ", status.message()));
    ended_batches_.try_emplace(half.batch, EndedBatch{half.batch, half.batch_size, std::move(why)});
  }
  ended.status = std::move(status);
  ended.route = half.route;
  ended.bytes = half.spec.bytes / half.count();
  ended.posted = half.posted;
  ended.layout = std::move(half.spec.layout);
  ended.record_bytes = half.spec.record_bytes;
}

void HalfEnds::EndPair(Posted& receive, absl::Status ours, absl::Status theirs) {
  home_.Check();
  if (receive.state.matched()) {
    if (context_.Ours(receive)) {
      Posted& send = *books_.halves.Find(receive.partner);
      End(send, std::move(theirs));
    } else {
      books_.tables.Erase(*std::exchange(receive.offered, nullptr));
      context_.Send(receive.peer, Done{receive.partner, std::move(theirs), receive.route});
    }
  }
  End(receive, std::move(ours));
}

absl::Status HalfEnds::ForOther(const Posted& half, const absl::Status& why) const {
  home_.Check();
  return context_.Ours(half) ? Annotate(why, context_.PlaceOf(half.spec.side, half.spec.key)) : why;
}

bool HalfEnds::EndIfLeaving(Posted& half) {
  home_.Check();
  HalfState::Leaving* const leaving = half.state.As<HalfState::Leaving>();
  if (leaving == nullptr) return false;
  End(half, std::move(leaving->outcome));
  return true;
}

std::optional<HalfEnds::EndedBatch> HalfEnds::TakeEndedBatch() {
  home_.Check();
  if (ended_batches_.empty()) return std::nullopt;
  EndedBatch batch = std::move(ended_batches_.begin()->second);
  ended_batches_.erase(ended_batches_.begin());
  return batch;
}

}  // namespace ferry
