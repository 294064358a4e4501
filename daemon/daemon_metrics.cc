// SPDX-License-Identifier: Apache-2.0
// The daemon's page of /metrics: transfers, sessions, memory, limits, links, process.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/daemon_impl.h"
#include "daemon/fullest.h"
#include "daemon/metrics.h"

namespace ferry {

namespace {

double AsDouble(uint64_t value) { return static_cast<double>(value); }

// What users have taken of the GPUs' time; of each GPU those who have taken most.
void ExportGpuUse(const JobTable& jobs, std::vector<prometheus::MetricFamily>& families) {
  constexpr size_t kMostUsers = 64;
  prometheus::MetricFamily taken =
      Counters("ferry_gpu_run_seconds_total", "Time that a GPU has run the jobs of a user");
  prometheus::MetricFamily held =
      Gauges("ferry_gpu_jobs_held", "Posted jobs that wait for their users' share of a GPU's time");
  for (const JobTable::GpuUse& gpu : jobs.use().gpus) {
    const std::string device = absl::StrCat(gpu.device.value());
    std::vector<std::pair<absl::Duration, uint32_t>> users;
    for (const auto& [uid, quota] : gpu.users->all()) users.emplace_back(quota->taken(), uid);
    const size_t shown = std::min(kMostUsers, users.size());
    std::partial_sort(users.begin(), users.begin() + static_cast<ptrdiff_t>(shown), users.end(),
                      std::greater<>());
    users.resize(shown);
    // So that the counter is there from the start.
    if (users.empty()) users.emplace_back(absl::ZeroDuration(), geteuid());
    for (const auto& [time, uid] : users) {
      AddSample(taken, {{"device", device}, {"uid", absl::StrCat(uid)}},
                absl::ToDoubleSeconds(time));
    }
    AddSample(held, {{"device", device}}, AsDouble(gpu.held));
  }
  if (held.metric.empty()) return;
  families.push_back(std::move(held));
  if (!taken.metric.empty()) families.push_back(std::move(taken));
}

// Zeros where there are no GPUs.
void ExportKernels(const compute::KernelStore* kernels,
                   std::vector<prometheus::MetricFamily>& families) {
  const compute::KernelStore::Counts counts =
      kernels != nullptr ? kernels->counts() : compute::KernelStore::Counts();
  prometheus::MetricFamily compiled =
      Counters("ferry_kernels_compiled_total", "Kernels of GPUs that were compiled");
  AddSample(compiled, {{"tier", "first"}, {"result", "ok"}}, AsDouble(counts.compiled_first));
  AddSample(compiled, {{"tier", "first"}, {"result", "error"}}, AsDouble(counts.failed_first));
  AddSample(compiled, {{"tier", "full"}, {"result", "ok"}}, AsDouble(counts.compiled));
  AddSample(compiled, {{"tier", "full"}, {"result", "error"}}, AsDouble(counts.failed));
  families.push_back(std::move(compiled));
  prometheus::MetricFamily found =
      Counters("ferry_kernels_found_total", "Kernels of GPUs that were read, not compiled");
  AddSample(found, {{"where", "cache"}}, AsDouble(counts.found));
  AddSample(found, {{"where", "package"}}, AsDouble(counts.packaged));
  families.push_back(std::move(found));
  families.push_back(GaugeFamily("ferry_kernels_waiting",
                                 "Kernels that run by their first tier until they are compiled",
                                 AsDouble(counts.waiting)));
}

}  // namespace

void Daemon::Impl::ExportComms(std::vector<prometheus::MetricFamily>& families) {
  const CommCache& cache = driver->comms().cache();
  prometheus::MetricFamily comms = Gauges("ferry_comms", "NCCL communicators by state");
  prometheus::MetricFamily bytes =
      Gauges("ferry_comm_bytes", "GPU memory that went while communicators were opened");
  std::map<std::string, int> states = {
      {"waiting", 0}, {"opening", 0}, {"open", 0}, {"closing", 0}, {"aborting", 0}};
  for (const CommRow& row : cache.List()) {
    if (row.state != CommState::kFailed) ++states[CommStateName(row.state)];
  }
  for (const auto& [state, count] : states) AddSample(comms, {{"state", state}}, count);
  for (const auto& device : devices.list) {
    if (!device->Has(Route::kNccl)) continue;
    AddSample(bytes, {{"device", absl::StrCat(device->id.value())}},
              AsDouble(cache.BytesOf(device->id)));
  }
  families.push_back(std::move(comms));
  if (!bytes.metric.empty()) families.push_back(std::move(bytes));
  prometheus::MetricFamily total =
      Counters("ferry_comm_attempts_total", "Openings of communicators, and how they ended");
  const CommCache::Counts& counts = cache.counts();
  AddSample(total, {{"result", "opened"}}, AsDouble(counts.opened));
  AddSample(total, {{"result", "failed"}}, AsDouble(counts.failed));
  AddSample(total, {{"result", "aborted"}}, AsDouble(counts.aborted));
  AddSample(total, {{"result", "closed"}}, AsDouble(counts.closed));
  families.push_back(std::move(total));
  families.push_back(CounterFamily("ferry_groups_total", "Groups launched on communicators",
                                   AsDouble(counts.groups)));
  families.push_back(CounterFamily("ferry_group_bytes_total",
                                   "Bytes of groups, of both directions, when they were launched",
                                   AsDouble(counts.moved)));
}

void Daemon::Impl::ExportJobs(std::vector<prometheus::MetricFamily>& families) {
  const JobTable::Counts& counts = jobs->counts();
  prometheus::MetricFamily total = Counters("ferry_jobs_total", "Jobs that are over");
  AddSample(total, {{"result", "ok"}}, AsDouble(counts.ok));
  AddSample(total, {{"result", "error"}}, AsDouble(counts.failed));
  families.push_back(std::move(total));
  prometheus::MetricFamily inflight = Gauges("ferry_jobs_inflight", "Jobs posted and not over");
  std::map<std::string, uint64_t> by_state = {
      {"waiting", 0}, {"ready", 0}, {"running", 0}, {"armed", 0}, {"ending", 0}};
  for (const JobTable::Row& row : jobs->List(jobs->in_flight())) ++by_state[row.state];
  for (const auto& [state, count] : by_state)
    AddSample(inflight, {{"state", state}}, AsDouble(count));
  families.push_back(std::move(inflight));
  families.push_back(CounterFamily("ferry_job_run_seconds_total", "Time that jobs ran",
                                   absl::ToDoubleSeconds(jobs->use().run_time)));
  ExportGpuUse(*jobs, families);
  ExportKernels(kernels.get(), families);
  families.push_back(GaugeFamily("ferry_programs", "Compiled programs that are kept",
                                 AsDouble(jobs->programs().programs().size())));
  prometheus::MetricFamily compiled =
      Counters("ferry_programs_compiled_total", "Programs that were sent");
  AddSample(compiled, {{"result", "ok"}}, AsDouble(counts.compiled));
  AddSample(compiled, {{"result", "refused"}}, AsDouble(counts.refused_programs));
  families.push_back(std::move(compiled));
  families.push_back(GaugeFamily("ferry_programs_barred",
                                 "Programs that do not run on GPUs, since a GPU was lost at them",
                                 AsDouble(barred->size())));
  families.push_back(CounterFamily("ferry_barred_refusals_total",
                                   "Compiles and runs that were refused as barred",
                                   AsDouble(barred->refusals())));
}

void Daemon::Impl::ExportSessions(std::vector<prometheus::MetricFamily>& families) {
  families.push_back(GaugeFamily("ferry_sessions", "Open sessions", AsDouble(sessions->open())));
  prometheus::MetricFamily total =
      Counters("ferry_sessions_total", "Sessions by what became of them");
  const SessionTable::Counts& counts = sessions->counts();
  AddSample(total, {{"result", "opened"}}, AsDouble(counts.opened));
  AddSample(total, {{"result", "refused"}}, AsDouble(counts.refused));
  AddSample(total, {{"result", "lost"}}, AsDouble(counts.lost));
  AddSample(total, {{"result", "closed"}}, AsDouble(counts.closed));
  families.push_back(std::move(total));
  families.push_back(CounterFamily("ferry_connections_rejected_total",
                                   "Connections closed for want of descriptors",
                                   AsDouble(door.refused_for_fds())));
}

void Daemon::Impl::ExportTransfers(std::vector<prometheus::MetricFamily>& families) {
  driver->metrics().Export(families);
  const Traffic::View view = driver->LookAtTraffic();
  prometheus::MetricFamily inflight =
      Gauges("ferry_transfers_inflight", "Transfers posted and not over");
  prometheus::MetricFamily oldest =
      Gauges("ferry_transfer_oldest_age_seconds",
             "Age of the oldest transfer in flight at a state; 0: there is none");
  const absl::Time now = control.Now();
  for (size_t state = 0; state < view.states.size(); ++state) {
    const Traffic::Standing& standing = view.states[state];
    const char* const name = kShownStateNames[state];
    AddSample(inflight, {{"state", name}}, AsDouble(standing.count));
    AddSample(oldest, {{"state", name}},
              absl::ToDoubleSeconds(now - std::min(standing.oldest, now)));
  }
  families.push_back(std::move(inflight));
  families.push_back(std::move(oldest));
  families.push_back(GaugeFamily("ferry_prepared_batches", "Prepared batches that may be fired",
                                 AsDouble(sessions->all().prepared_armed())));
  families.push_back(CounterFamily("ferry_prepared_firings_total",
                                   "Firings of prepared batches, counted at each end",
                                   AsDouble(sessions->all().prepared_firings())));
  prometheus::MetricFamily fired =
      Counters("ferry_prepared_bytes_total", "Bytes of firings of prepared batches");
  for (int route = 1; route < kRoutes; ++route) {
    const Moved& moved = view.fired[static_cast<size_t>(route)];
    const std::string name(RouteName(static_cast<Route>(route)));
    AddSample(fired, {{"route", name}, {"direction", "send"}}, AsDouble(moved.sent_bytes));
    AddSample(fired, {{"route", name}, {"direction", "recv"}}, AsDouble(moved.received_bytes));
  }
  families.push_back(std::move(fired));
}

void Daemon::Impl::ExportDevices(std::vector<prometheus::MetricFamily>& families) {
  prometheus::MetricFamily arenas = Gauges("ferry_buffers", "Arenas");
  prometheus::MetricFamily bytes = Gauges("ferry_buffer_bytes", "Bytes of arenas");
  prometheus::MetricFamily contexts =
      Gauges("ferry_gpu_context", "1 while the daemon has a context on the GPU");
  prometheus::MetricFamily cpu =
      Counters("ferry_lane_cpu_seconds_total", "CPU time of the thread of a device");
  prometheus::MetricFamily silent =
      Gauges("ferry_lane_silent_seconds",
             "For how long the thread of a device has not gone on; 0: it does");
  for (const auto& device : devices.list) {
    const char* const kind = device->gpu == nullptr ? "host" : "gpu";
    const std::string id = absl::StrCat(device->id.value());
    AddSample(arenas, {{"kind", kind}, {"device", id}}, AsDouble(device->arenas));
    AddSample(bytes, {{"kind", kind}, {"device", id}}, AsDouble(device->arena_bytes));
    AddSample(cpu, {{"device", id}}, absl::ToDoubleSeconds(device->lane->CpuTime()));
    AddSample(silent, {{"device", id}},
              absl::ToDoubleSeconds(device->pulse.Silent(*device->lane, control.Now())));
    if (device->gpu == nullptr) continue;
    AddSample(contexts, {{"device", id}}, device->gpu->usage().context ? 1 : 0);
  }
  families.push_back(std::move(arenas));
  families.push_back(std::move(bytes));
  families.push_back(std::move(cpu));
  families.push_back(std::move(silent));
  if (!contexts.metric.empty()) families.push_back(std::move(contexts));
}

// Only limits whose use is known.
void Daemon::Impl::ExportLimits(std::vector<prometheus::MetricFamily>& families) {
  prometheus::MetricFamily most = Gauges(
      "ferry_limit", "Settings of limits.NAME; of a session, the one that it was opened with");
  prometheus::MetricFamily used =
      Gauges("ferry_limit_used", "Of a limit, the most that anybody has whom it bounds");
  const auto add = [&](const char* name, uint64_t limit, uint64_t use) {
    AddSample(most, {{"name", name}}, AsDouble(limit));
    AddSample(used, {{"name", name}}, AsDouble(use));
  };
  const Fullest fullest = FullestOf(*sessions);
  add("sessions", config.limits.sessions, sessions->open());
  add("sessions_per_uid", config.limits.sessions_per_uid, fullest.sessions_of_uid);
  const auto add_of_session = [&](const char* name, uint64_t limit, const LimitUse& use) {
    add(name, use.limit == 0 ? limit : use.limit, use.used);
  };
  add_of_session("session_bytes", config.limits.session_bytes, fullest.bytes);
  add_of_session("session_arenas", config.limits.session_arenas, fullest.arenas);
  add_of_session("transfers_in_flight", config.limits.transfers_in_flight,
                 fullest.transfers_in_flight);
  add_of_session("session_kept_bytes", config.limits.session_kept_bytes, fullest.record_bytes);
  add("uid_kept_bytes", config.limits.uid_kept_bytes, fullest.record_bytes_of_uid);
  uint64_t on_gpu = 0, of_comms = 0;
  for (const auto& device : devices.list) {
    if (device->gpu != nullptr) on_gpu = std::max(on_gpu, device->arena_bytes);
    if (device->Has(Route::kNccl)) {
      of_comms = std::max(of_comms, driver->comms().cache().BytesOf(device->id));
    }
  }
  if (!devices.gpus.empty()) {
    add("gpu_bytes", config.limits.gpu_bytes, on_gpu);
    add("comm_bytes_per_gpu", config.limits.comm_bytes_per_gpu, of_comms);
  }
  families.push_back(std::move(most));
  families.push_back(std::move(used));
}

void Daemon::Impl::ExportPeers(std::vector<prometheus::MetricFamily>& families) {
  prometheus::MetricFamily links = Gauges("ferry_peer_connections", "Peer links by state");
  prometheus::MetricFamily lost =
      Counters("ferry_peer_links_lost_total", "Links that were up and were lost");
  std::map<std::string, int> states = {{"idle", 0}, {"connecting", 0}, {"up", 0}, {"lost", 0}};
  for (const PeerTable::Row& row : peers->List()) {
    ++states[row.state];
    if (row.address.empty()) continue;  // a stranger
    AddSample(lost, {{"peer", row.node}}, AsDouble(driver->metrics().links_lost(row.node)));
  }
  for (const auto& [state, count] : states) AddSample(links, {{"state", state}}, count);
  families.push_back(std::move(links));
  if (!lost.metric.empty()) families.push_back(std::move(lost));
  prometheus::MetricFamily frames =
      Counters("ferry_peer_frames_total", "Frames said on peer links, by road");
  AddSample(frames, {{"road", "socket"}}, AsDouble(peers->frames().socket));
  AddSample(frames, {{"road", "stream"}}, AsDouble(peers->frames().stream));
  families.push_back(std::move(frames));
}

std::string Daemon::Impl::MetricsPage() {
  std::vector<prometheus::MetricFamily> families;
  ExportProcess(families);
  families.push_back(
      GaugeFamily("ferry_ready", "1 if new transfers are taken", drainer->on() ? 0 : 1));
  families.push_back(GaugeFamily("ferry_draining", "1 while draining", drainer->on() ? 1 : 0));
  families.push_back(GaugeFamily("ferry_config_generation",
                                 "1 at the start, one more after each reload that was taken over",
                                 AsDouble(reloads.generation())));
  families.push_back(
      GaugeFamily("ferry_config_last_reload_successful",
                  "0 if the last reload was refused, and the daemon goes on as it was",
                  reloads.last_ok() ? 1 : 0));
  ExportSessions(families);
  ExportTransfers(families);
  ExportDevices(families);
  ExportLimits(families);
  ExportJobs(families);
  ExportComms(families);
  ExportPeers(families);
  return MetricsText(families);
}

}  // namespace ferry
