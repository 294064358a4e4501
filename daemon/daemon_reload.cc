// SPDX-License-Identifier: Apache-2.0
// Takes a running daemon over to another configuration: all of it, or nothing.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/configured.h"
#include "daemon/daemon_impl.h"
#include "daemon/process_limits.h"

namespace ferry {

absl::StatusOr<Reloaded> Daemon::Impl::GoOverTo(const Config& loaded) {
  std::vector<ConfigChange> changes = CompareConfigs(config, loaded, devices.gpus.size());
  RETURN_IF_ERROR(CheckReload(changes));
  const MembershipChange members = CompareMembership(config, loaded);
  if (!members.come.empty()) {
    if (const absl::Status room = CheckDescriptors(loaded); !room.ok()) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                   absl::StrCat(room.message(), "; only a restart takes more"));
    }
  }
  // Nothing is refused from here on.
  TakeOver(loaded, config);
  sessions->SetLimits(SessionLimitsOf(config));
  driver->SetBounds(EngineBoundsOf(config));
  driver->comms().SetBounds(config.limits.comm_bytes_per_gpu, config.transfer.nccl.idle);
  jobs->SetLimits(JobLimitsOf(config));
  socket_bounds.Configure(config);
  GoOverTo(members);
  FERRY_CHECK(SetLogLevel(config.log.level).ok());  // the table of settings has checked the level
  return Reloaded{reloads.generation() + 1, std::move(changes)};
}

void Daemon::Impl::GoOverTo(const MembershipChange& change) {
  const auto id_of = [this](const std::string& name) {
    const std::vector<std::string>& names = driver->engine().devices().node_names;
    return PeerId(
        static_cast<uint32_t>(std::find(names.begin(), names.end(), name) - names.begin()));
  };
  // First, because the devices of these nodes may belong to others now.
  for (const std::string& name : change.gone) {
    const bool comes_again =
        std::any_of(change.come.begin(), change.come.end(),
                    [&](const Config::Node& node) { return node.name == name; });
    const absl::Status why = peers->Remove(id_of(name), comes_again);
    driver->RemovePeer(id_of(name), why);
  }
  for (const Config::Node& node : change.come) {
    peers->Add(driver->AddPeer(node.name, node.ids), {node.name, node.address, node.ids});
  }
  for (const Config::Node& node : change.moved) peers->Move(id_of(node.name), node.address);
}

void Daemon::Reload(const std::function<absl::StatusOr<Config>()>& load) {
  ReloadQueue& reloads = impl_->reloads;
  // Operators who ask from now on are answered by a later reload: they may have changed the file
  // after it was read.
  const std::vector<ReloadQueue::Done> asked = reloads.Take();
  const absl::StatusOr<Config> loaded = load();
  absl::StatusOr<Reloaded> outcome = Reloaded();
  if (loaded.ok()) {
    impl_->control.RunAndWait([&] { outcome = impl_->GoOverTo(*loaded); });
  } else {
    outcome = loaded.status();
  }
  FlightRecorder::Get().Record("daemon.reload", outcome.ok() ? outcome->generation : 0);
  if (!outcome.ok()) {
    FERRY_LOG(warn, "daemon.reload", "refused, the daemon goes on as it was: {}",
              std::string(outcome.status().message()));
  } else {
    FERRY_LOG(info, "daemon.reload", "generation {}: {}", outcome->generation,
              outcome->changes.empty()
                  ? "nothing has changed"
                  : absl::StrJoin(outcome->changes, "; ",
                                  [](std::string* out, const ConfigChange& change) {
                                    out->append(change.ToString());
                                  }));
  }
  reloads.Answer(asked, outcome);
}

void Daemon::RefuseReloads() {
  impl_->reloads.RefuseAll(
      Error(absl::StatusCode::kUnavailable, Reason::kDraining,
            absl::StrCat("reload: ", impl_->config.node.name, " was told to stop")));
}

absl::Duration Daemon::drain_timeout() const { return impl_->config.drain.timeout; }

}  // namespace ferry
