// SPDX-License-Identifier: Apache-2.0
#include "daemon/drainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {

Drain::Caller Drainer::Start(absl::Duration timeout, bool stops, Drain::Done done) {
  home_.Check();
  const bool waited_for = drain_.deadline() < absl::InfiniteFuture();
  const absl::Time now = control_.Now();
  const Drain::Caller caller = drain_.Join(now, timeout, stops, std::move(done));
  if (!waited_for) look_idle_ = look_unmatched_ = now;
  FERRY_LOG(info, "daemon.drain", LogFields("node", node_),
            "{} transfers and jobs in flight, at most {}", hooks_.in_flight(),
            DurationText(drain_.deadline() - now));
  FlightRecorder::Get().Record("daemon.drain", hooks_.in_flight());
  Tell();
  return caller;
}

void Drainer::Hurry(Drain::Caller caller) {
  home_.Check();
  drain_.Hurry(caller, control_.Now());
  Tell();
}

bool Drainer::Leave(Drain::Caller caller) {
  home_.Check();
  if (!drain_.Leave(caller)) return false;
  Tell();
  FERRY_LOG(
      info, "daemon.drain", LogFields("node", node_),
      "a caller is gone, and its deadline with it: {}; undrain takes it back",
      drain_.deadline() < absl::InfiniteFuture()
          ? absl::StrCat("at most ", DurationText(drain_.deadline() - control_.Now()), " more")
          : "what is in flight ends by itself");
  return true;
}

absl::Status Drainer::TakeBack() {
  home_.Check();
  RETURN_IF_ERROR(drain_.TakeBack());
  Tell();
  FERRY_LOG(info, "daemon.undrain", LogFields("node", node_), "serves again");
  return absl::OkStatus();
}

void Drainer::Tell() {
  const bool on = drain_.on();
  hooks_.set_until(on ? std::optional<absl::Time>(drain_.deadline()) : std::nullopt);
  if (on == std::exchange(told_, on)) return;
  hooks_.tell(on);
}

absl::Time Drainer::EndWhatCannotEnd(absl::Time now) {
  home_.Check();
  if (!drain_.on() || hooks_.in_flight() == 0) return absl::InfiniteFuture();
  return std::min(EndIdlePrepared(now), EndUnmatched(now));
}

absl::Time Drainer::EndIdlePrepared(absl::Time now) {
  if (now < look_idle_) return look_idle_;
  for (const TransferId first : hooks_.idle_prepared()) {
    hooks_.end_prepared(first, Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                                     absl::StrCat(node_, " drains, and ", first.ToString(),
                                                  " was not being fired")));
    drain_.Told(now);
  }
  return look_idle_ = now + kIdleLook;
}

absl::Time Drainer::EndUnmatched(absl::Time now) {
  const uint64_t continued = hooks_.continued();
  if (std::exchange(continued_, continued) != continued) {
    look_unmatched_ = std::min(look_unmatched_, now + kPartner);
  }
  if (now < look_unmatched_) return look_unmatched_;
  const absl::Status why = Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                                 absl::StrCat(node_, " drains, and the other half has not come"));
  const bool just_begun = now < drain_.began() + kPartner;
  const Hooks::Unmatched found = hooks_.cancel_unmatched(why, just_begun);
  if (found.asked > 0) drain_.Told(now);
  return look_unmatched_ = found.left > 0 ? now + kPartner : absl::InfiniteFuture();
}

absl::Time Drainer::OnTime(absl::Time now) {
  home_.Check();
  if (!drain_.OnTime(now, hooks_.in_flight(), hooks_.failed())) {
    return drain_.next(hooks_.in_flight());
  }
  hooks_.cancel_all(Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                          absl::StrCat(node_,
                                       " drained, and its deadline came before this was over; post "
                                       "again when it serves: after its next start, or `ferryctl "
                                       "undrain` there")));
  Tell();
  return now;
}

}  // namespace ferry
