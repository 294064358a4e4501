// SPDX-License-Identifier: Apache-2.0
#include "daemon/reports.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/duration.h"
#include "base/log.h"

namespace ferry {
namespace {

constexpr absl::Duration kSeldom = absl::Seconds(5);
// How many looks there are within the time after which the supervisor ends the daemon, so that one
// late look does no harm.
constexpr int kLooks = 4;
// The time that each look asks the supervisor for while the daemon stops; far more than the time to
// the next look.
constexpr absl::Duration kMore = absl::Seconds(60);

std::string Count(size_t count, const char* one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

}  // namespace

std::string Reports::Line(const Daemon::Vitals& vitals, bool stopping) {
  return absl::StrCat(
      vitals.silent.empty() ? ""
                            : absl::StrCat(absl::StrJoin(vitals.silent, ", "), " stands still; "),
      stopping ? "draining: " : "serving ", Count(vitals.devices, "device"), ", ",
      Count(vitals.sessions, "session"), ", ", vitals.in_flight, " transfers and jobs");
}

absl::Duration Reports::period() const {
  return std::min(kSeldom, supervisor_.watchdog() / kLooks);
}

Daemon::Vitals Reports::Look(absl::Time now) {
  // At a reload, or when the daemon stops, a look may come soon after the one before.
  return daemon_.Look(now, period() / 2);
}

void Reports::Ready(absl::Time now) {
  home_.Check();
  supervisor_.Ready(Line(Look(now), false));
}

void Reports::Reloading() {
  home_.Check();
  supervisor_.Reloading("reads its configuration again");
}

void Reports::Tell(absl::Time now) {
  home_.Check();
  if (!supervisor_.present() || now < next_) return;
  next_ = now + period();
  const Daemon::Vitals vitals = Look(now);
  const std::string silent = absl::StrJoin(vitals.silent, ", ");
  if (silent != std::exchange(silent_, silent)) {
    if (silent.empty()) {
      FERRY_LOG(info, "daemon.alive", "everything goes on again");
    } else {
      FERRY_LOG(warn, "daemon.silent",
                "{} has not gone on for {}; the supervisor is not told that the daemon lives, and "
                "ends it after {}",
                silent, DurationText(period()), DurationText(supervisor_.watchdog()));
    }
  }
  const std::string line = Line(vitals, stopping_);
  if (!silent.empty()) {
    supervisor_.Silent(line);
  } else if (stopping_) {
    supervisor_.Stopping(line, kMore);
  } else {
    supervisor_.Alive(line);
  }
}

void Reports::Stopping(absl::Time now) {
  home_.Check();
  stopping_ = true;
  next_ = absl::InfinitePast();
  Tell(now);
}

}  // namespace ferry
