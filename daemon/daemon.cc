// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "daemon/daemon_impl.h"
#include "daemon/drainer.h"
#include "daemon/process_limits.h"
#include "daemon/runtime_dir.h"
#include "daemon/secret_file.h"
#include "daemon/socket_access.h"

namespace ferry {
namespace {

// How long to wait for peers to close their links. A peer that takes longer is silent, or has much
// to read.
constexpr absl::Duration kGoodbye = absl::Milliseconds(500);

}  // namespace

Incarnation NewIncarnation() {
  uint64_t value = 0;
  FERRY_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return Incarnation(value);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Config config, GivenSockets given,
                                                      std::function<void()> ask_reload) {
  RETURN_IF_ERROR(PrepareProcessLimits(config));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(given), std::move(ask_reload));
  absl::Status started = impl->Start();
  auto daemon = std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
  RETURN_IF_ERROR(started);
  return daemon;
}

absl::Status Daemon::Check(const Config& config) {
  std::vector<std::string> problems;
  const auto note = [&](const absl::Status& status) {
    if (!status.ok()) problems.emplace_back(status.message());
  };
  note(SocketAccess::From(config.sockets.client).status());
  note(SocketAccess::From(config.sockets.admin).status());
  if (!config.peer.secret_file.empty()) note(ReadSecretFile(config.peer.secret_file).status());
  if (!config.peer.listen.empty()) note(CheckListen("peer.listen", config.peer.listen));
  if (!config.metrics.listen.empty()) note(CheckListen("metrics.listen", config.metrics.listen));
  if (problems.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
               absl::StrJoin(problems, "\n"));
}

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() { impl_->Stop(); }
int Daemon::peer_port() const { return impl_->peer_port; }

Daemon::Vitals Daemon::Look(absl::Time now, absl::Duration patience) {
  Vitals vitals;
  vitals.devices = impl_->devices.list.size();
  vitals.sessions = impl_->sessions_seen;
  vitals.in_flight = impl_->in_flight_seen;
  vitals.silent = impl_->pulse.Beat(now, patience);
  return vitals;
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
  impl_->control.Post([&] { caller = impl_->drainer->Start(timeout, true, done); });
  bool cut_short = false;
  MutexLock lock(mutex);
  while (!cancelled.has_value()) {
    changed.wait_for(mutex, std::chrono::milliseconds(50));
    if (!cut_short && !cancelled.has_value() && interrupted()) {
      cut_short = true;
      impl_->control.Post([&] { impl_->drainer->Hurry(caller); });
    }
  }
  return *cancelled;
}

void Daemon::Impl::MakeDrainer() {
  drainer = std::make_unique<Drainer>(
      control, config.node.name,
      Drainer::Hooks{
          .in_flight = [this] { return in_flight(); },
          .failed = [this] { return driver->metrics().failed() + jobs->counts().failed; },
          .set_until = [this](std::optional<absl::Time> until) { driver->SetDraining(until); },
          .tell =
              [this](bool draining) {
                health.SetServing("", !draining);
                health.SetServing("readiness", !draining);
                jobs->SetDraining(draining);
                sessions->SetDraining(draining);
              },
          .idle_prepared = [this] { return sessions->all().IdlePrepared(); },
          .end_prepared = [this](TransferId first,
                                 const absl::Status& why) { EndPrepared(first, why); },
          .continued = [this] { return driver->continued(); },
          .cancel_unmatched =
              [this](const absl::Status& why, bool any_peer) {
                const auto found = driver->CancelUnmatched(why, [&](GlobalDeviceId device) {
                  if (devices.Find(device) != nullptr) return false;
                  return any_peer || peers->MayBringOffers(device, Drainer::kPartner);
                });
                return Drainer::Hooks::Unmatched{.asked = found.asked, .left = found.left};
              },
          .cancel_all =
              [this](const absl::Status& why) {
                driver->CancelAll(why);
                jobs->CancelAll(why);
              }});
}

void Daemon::Impl::StartPulse() {
  pulse.Add("control", control, [this] {
    sessions_seen = sessions->size();
    in_flight_seen = in_flight();
  });
  for (const auto& device : devices.list) {
    pulse.Add(absl::StrCat("lane ", device->id.value()), *device->lane);
  }
}

absl::Status Daemon::Impl::Start() {
  ASSIGN_OR_RETURN(const SocketAccess clients, SocketAccess::From(config.sockets.client));
  ASSIGN_OR_RETURN(const SocketAccess operators, SocketAccess::From(config.sockets.admin));
  ASSIGN_OR_RETURN(lock, TakeRuntimeDir(config.node.runtime_dir, clients, operators,
                                        {config.start.lock_wait, [this](const std::string& file) {
                                           FERRY_LOG(warn, "daemon.wait",
                                                     "another daemon still holds {}; waiting for "
                                                     "its end, at most {} (start.lock_wait)",
                                                     file, DurationText(config.start.lock_wait));
                                         }}));
  if (!config.peer.secret_file.empty()) {
    ASSIGN_OR_RETURN(peer_secret, ReadSecretFile(config.peer.secret_file));
  }
  RETURN_IF_ERROR(MakeGpus());
  RETURN_IF_ERROR(MakeDevices());
  MakeTables();
  MakeDrainer();
  RETURN_IF_ERROR(MakeServers());
  control.SetAfterTasks([this] { return AfterTasks(); });
  RETURN_IF_ERROR(OpenDoor());
  StartPulse();
  for (const char* service : {"", "startup", "readiness", "liveness", "ferry.v1.TransferService"}) {
    health.SetServing(service, true);
  }
  FlightRecorder::Get().Record("daemon.start", devices.list.size(), 0, 0,
                               absl::StrCat(config.node.name, " ", incarnation.ToString()));
  FERRY_LOG(info, "daemon.start", LogFields("node", config.node.name, "incarnation", incarnation),
            "version {} in {} with {} host devices, gpus {}, ucx {}, nccl {}", Version(),
            config.node.runtime_dir, devices.list.size() - devices.gpus.size(),
            devices.gpus.empty() ? absl::StrCat("none: ", gpus_missing)
                                 : absl::StrCat(devices.gpus.size()),
            ucx_version.empty() ? ucx_missing : ucx_version,
            nccl.api == nullptr ? nccl.missing : nccl.api->version_text());
  return absl::OkStatus();
}

absl::Time Daemon::Impl::AfterTasks() {
  const absl::Time now = control.Now();
  sessions->OnTime(now);
  absl::Time next = std::min(peers->OnTime(now), drainer->EndWhatCannotEnd(now));
  next = std::min(
      {next, jobs->OnTime(now), connections.CloseSilent(now), peer_connections.CloseSilent(now)});
  do {
    next = std::min(next, driver->AfterTasks());
  } while (jobs->Join());
  for (Task& task : std::exchange(later, {})) task();
  return std::min({next, sessions->NextTimer(), drainer->OnTime(now)});
}

void Daemon::Impl::SayGoodbye() {
  Mutex mutex;
  std::condition_variable_any changed;
  bool gone = false;
  control.Post([&] {
    peers->SayGoodbye([&] {
      MutexLock lock(mutex);
      gone = true;
      changed.notify_all();
    });
  });
  {
    MutexLock lock(mutex);
    const auto patience = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(kGoodbye);
    while (!gone && changed.wait_until(mutex, patience) == std::cv_status::no_timeout) {
    }
  }
  control.RunAndWait([this] { peers->Stop(); });  // no callback comes after this
}

void Daemon::Impl::Stop() {
  if (peers != nullptr) SayGoodbye();
  // In the reverse order of their start: no newcomers, no calls, no links, no decisions, no copies;
  // then the tables are destroyed.
  door.Stop();
  health.Shutdown();
  // Our calls to peers end before the servers: see Calls in daemon/rpc/peer_rpc.cc.
  if (dialer != nullptr) dialer->Stop();
  if (client_servers != nullptr) client_servers->Shutdown();
  for (auto* server : {&admin_server, &peer_server}) {
    if (*server != nullptr) (*server)->Shutdown();
  }
  control.Stop();
  compiler.Stop();
  host_compute.lane.Stop();
  for (const auto& [id, thread] : gpu_compute) {
    thread->lane.Stop();
    thread->lane.RunAndWait([&runner = thread->runner] { runner.Stop(); });
  }
  if (driver != nullptr) driver->StopComms();
  devices.list.clear();
  for (const std::string& socket : own_sockets) unlink(socket.c_str());
}

}  // namespace ferry
