// SPDX-License-Identifier: Apache-2.0
// The daemon's drain: tells its parts, and ends what cannot end by itself.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/daemon_impl.h"

namespace ferry {
namespace {

// Within this time after a link is up a peer has said its offers. A transfer without a partner then
// has none there.
constexpr absl::Duration kPartner = absl::Milliseconds(250);
// How often a drain looks for prepared batches that nobody fires: control does not hear when a
// firing ends.
constexpr absl::Duration kDrainLook = absl::Milliseconds(20);

}  // namespace

ferry::Drain::Caller Daemon::Impl::StartDrain(absl::Duration timeout, bool stops,
                                              ferry::Drain::Done done) {
  const bool waited_for = drain.deadline() < absl::InfiniteFuture();
  const absl::Time now = control.Now();
  const ferry::Drain::Caller caller = drain.Join(now, timeout, stops, std::move(done));
  if (!waited_for) drain_look = drain_alone = now;
  FERRY_LOG(info, "daemon.drain", LogFields("node", config.node.name),
            "{} transfers and jobs in flight, at most {}", in_flight(),
            DurationText(drain.deadline() - now));
  FlightRecorder::Get().Record("daemon.drain", in_flight());
  TellOfDrain();
  return caller;
}

bool Daemon::Impl::LeaveDrain(ferry::Drain::Caller caller) {
  if (!drain.Leave(caller)) return false;
  TellOfDrain();
  FERRY_LOG(info, "daemon.drain", LogFields("node", config.node.name),
            "a caller is gone, and its deadline with it: {}; undrain takes it back",
            drain.deadline() < absl::InfiniteFuture()
                ? absl::StrCat("at most ", DurationText(drain.deadline() - control.Now()), " more")
                : "what is in flight ends by itself");
  return true;
}

absl::Status Daemon::Impl::Undrain() {
  RETURN_IF_ERROR(drain.TakeBack());
  TellOfDrain();
  FERRY_LOG(info, "daemon.undrain", LogFields("node", config.node.name), "serves again");
  return absl::OkStatus();
}

void Daemon::Impl::TellOfDrain() {
  const bool on = drain.on();
  driver->SetDraining(on ? std::optional<absl::Time>(drain.deadline()) : std::nullopt);
  if (on == std::exchange(drain_told, on)) return;
  health.SetServing("", !on);
  health.SetServing("readiness", !on);
  jobs->SetDraining(on);
  sessions->SetDraining(on);
}

absl::Time Daemon::Impl::EndWhatCannotEnd(absl::Time now) {
  if (!drain.on() || in_flight() == 0) return absl::InfiniteFuture();
  return std::min(EndIdlePrepared(now), EndUnmatched(now));
}

absl::Time Daemon::Impl::EndIdlePrepared(absl::Time now) {
  if (now < drain_look) return drain_look;
  for (const TransferId first : sessions->all().IdlePrepared()) {
    EndPrepared(first, Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                             absl::StrCat(config.node.name, " drains, and ", first.ToString(),
                                          " was not being fired")));
    drain.Told(now);
  }
  return drain_look = now + kDrainLook;
}

absl::Time Daemon::Impl::EndUnmatched(absl::Time now) {
  if (std::exchange(drain_continued, driver->continued()) != driver->continued()) {
    drain_alone = std::min(drain_alone, now + kPartner);
  }
  if (now < drain_alone) return drain_alone;
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, Reason::kDraining,
            absl::StrCat(config.node.name, " drains, and the other half has not come"));
  const bool just_begun = now < drain.began() + kPartner;
  const auto found = driver->CancelUnmatched(why, [&](GlobalDeviceId device) {
    if (devices.Find(device) != nullptr) return false;
    return just_begun || peers->MayBringOffers(device, kPartner);
  });
  if (found.asked > 0) drain.Told(now);
  return drain_alone = found.left > 0 ? now + kPartner : absl::InfiniteFuture();
}

absl::Time Daemon::Impl::LookAtDrain(absl::Time now) {
  if (drain.OnTime(now, in_flight(), driver->metrics().failed() + jobs->counts().failed)) {
    const absl::Status why = Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                                   absl::StrCat(config.node.name,
                                                " drained, and its deadline came before this was "
                                                "over; post again when it serves: after its next "
                                                "start, or `ferryctl undrain` there"));
    driver->CancelAll(why);
    jobs->CancelAll(why);
    TellOfDrain();
    return now;
  }
  return drain.next(in_flight());
}

uint64_t Daemon::Drain(absl::Duration timeout, const std::function<bool()>& interrupted) {
  Mutex mutex;
  std::condition_variable_any changed;
  std::optional<uint64_t> cancelled;
  auto done = [&](const absl::StatusOr<uint64_t>& count) {
    MutexLock lock(mutex);
    cancelled = count.value_or(0);  // nobody can take this drain back
    changed.notify_all();
  };
  ferry::Drain::Caller caller = 0;  // touched on control
  impl_->control.Post([&] { caller = impl_->StartDrain(timeout, true, done); });
  bool cut_short = false;
  MutexLock lock(mutex);
  while (!cancelled.has_value()) {
    changed.wait_for(mutex, std::chrono::milliseconds(50));
    if (!cut_short && !cancelled.has_value() && interrupted()) {
      cut_short = true;
      impl_->control.Post([&] {
        impl_->drain.Hurry(caller, impl_->control.Now());
        impl_->TellOfDrain();
      });
    }
  }
  return *cancelled;
}

}  // namespace ferry
