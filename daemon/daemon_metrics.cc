// SPDX-License-Identifier: Apache-2.0
// The daemon's page of /metrics: transfers, sessions, memory, links, process.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/daemon_impl.h"
#include "daemon/metrics.h"

namespace ferry {

void Daemon::Impl::ExportComms(std::vector<prometheus::MetricFamily>& families) {
  const CommCache& cache = driver->comms().cache();
  prometheus::MetricFamily comms = GaugeFamily("ferry_comms", "NCCL communicators by state", 0);
  prometheus::MetricFamily bytes =
      GaugeFamily("ferry_comm_bytes", "GPU memory that went while communicators were opened", 0);
  comms.metric.clear();
  bytes.metric.clear();
  std::map<std::string, int> states = {
      {"waiting", 0}, {"opening", 0}, {"open", 0}, {"closing", 0}, {"aborting", 0}};
  for (const CommRow& row : cache.List()) {
    if (row.state != CommState::kFailed) ++states[CommStateName(row.state)];
  }
  for (const auto& [state, count] : states) AddSample(comms, {{"state", state}}, count);
  for (const auto& device : devices.list) {
    if (device->nccl == nullptr) continue;
    AddSample(bytes, {{"device", absl::StrCat(device->id.value())}},
              static_cast<double>(cache.BytesOf(device->id)));
  }
  families.push_back(std::move(comms));
  if (!bytes.metric.empty()) families.push_back(std::move(bytes));
  prometheus::MetricFamily total = CounterFamily(
      "ferry_comm_attempts_total", "Openings of communicators, and how they ended", 0);
  total.metric.clear();
  const CommCache::Counts& counts = cache.counts();
  AddSample(total, {{"result", "opened"}}, static_cast<double>(counts.opened));
  AddSample(total, {{"result", "failed"}}, static_cast<double>(counts.failed));
  AddSample(total, {{"result", "aborted"}}, static_cast<double>(counts.aborted));
  AddSample(total, {{"result", "closed"}}, static_cast<double>(counts.closed));
  families.push_back(std::move(total));
  families.push_back(CounterFamily("ferry_groups_total", "Groups launched on communicators",
                                   static_cast<double>(counts.groups)));
  families.push_back(CounterFamily("ferry_group_bytes_total",
                                   "Bytes of groups, of both directions, when they were launched",
                                   static_cast<double>(counts.moved)));
}

void Daemon::Impl::ExportJobs(std::vector<prometheus::MetricFamily>& families) {
  const JobTable::Counts& counts = jobs->counts();
  prometheus::MetricFamily total = CounterFamily("ferry_jobs_total", "Jobs that are over", 0);
  total.metric.clear();
  AddSample(total, {{"result", "ok"}}, static_cast<double>(counts.ok));
  AddSample(total, {{"result", "error"}}, static_cast<double>(counts.failed));
  families.push_back(std::move(total));
  prometheus::MetricFamily inflight =
      GaugeFamily("ferry_jobs_inflight", "Jobs posted and not over", 0);
  inflight.metric.clear();
  std::map<std::string, uint64_t> by_state = {
      {"waiting", 0}, {"ready", 0}, {"running", 0}, {"armed", 0}, {"ending", 0}};
  for (const JobTable::Row& row : jobs->List(jobs->in_flight())) ++by_state[row.state];
  for (const auto& [state, count] : by_state)
    AddSample(inflight, {{"state", state}}, static_cast<double>(count));
  families.push_back(std::move(inflight));
  families.push_back(CounterFamily("ferry_job_run_seconds_total", "Time that jobs ran",
                                   absl::ToDoubleSeconds(jobs->run_time())));
  families.push_back(GaugeFamily("ferry_programs", "Compiled programs that are kept",
                                 static_cast<double>(jobs->programs().programs().size())));
  prometheus::MetricFamily compiled =
      CounterFamily("ferry_programs_compiled_total", "Programs that were sent", 0);
  compiled.metric.clear();
  AddSample(compiled, {{"result", "ok"}}, static_cast<double>(counts.compiled));
  AddSample(compiled, {{"result", "refused"}}, static_cast<double>(counts.refused_programs));
  families.push_back(std::move(compiled));
}

std::string Daemon::Impl::MetricsPage() {
  std::vector<prometheus::MetricFamily> families;
  ExportProcess(families);
  families.push_back(
      GaugeFamily("ferry_ready", "1 if new transfers are taken", drain.on() ? 0 : 1));
  families.push_back(GaugeFamily("ferry_draining", "1 while draining", drain.on() ? 1 : 0));
  families.push_back(GaugeFamily("ferry_config_generation",
                                 "1 at the start, one more after each reload that was taken over",
                                 static_cast<double>(reloads.generation())));
  families.push_back(
      GaugeFamily("ferry_config_last_reload_successful",
                  "0 if the last reload was refused, and the daemon goes on as it was",
                  reloads.last_ok() ? 1 : 0));
  families.push_back(
      GaugeFamily("ferry_sessions", "Open sessions", static_cast<double>(sessions->open())));
  prometheus::MetricFamily total =
      CounterFamily("ferry_sessions_total", "Sessions by what became of them", 0);
  total.metric.clear();
  const SessionTable::Counts& counts = sessions->counts();
  AddSample(total, {{"result", "opened"}}, static_cast<double>(counts.opened));
  AddSample(total, {{"result", "refused"}}, static_cast<double>(counts.refused));
  AddSample(total, {{"result", "lost"}}, static_cast<double>(counts.lost));
  AddSample(total, {{"result", "closed"}}, static_cast<double>(counts.closed));
  families.push_back(std::move(total));
  families.push_back(CounterFamily("ferry_connections_rejected_total",
                                   "Connections closed for want of descriptors",
                                   static_cast<double>(door.refused_for_fds())));
  driver->metrics().Export(families);

  prometheus::MetricFamily inflight =
      GaugeFamily("ferry_transfers_inflight", "Transfers posted and not over", 0);
  inflight.metric.clear();
  std::map<std::string, uint64_t> by_state = {
      {"waiting", 0}, {"offered", 0}, {"matched", 0}, {"launched", 0}, {"armed", 0}};
  absl::Time oldest = control.Now();
  for (const TransferEngine::Row& row : driver->engine().List(driver->engine().in_flight())) {
    ++by_state[row.state];
    oldest = std::min(oldest, row.posted);
  }
  for (const auto& [state, count] : by_state)
    AddSample(inflight, {{"state", state}}, static_cast<double>(count));
  families.push_back(std::move(inflight));
  families.push_back(GaugeFamily("ferry_transfer_oldest_age_seconds",
                                 "Age of the oldest transfer in flight",
                                 absl::ToDoubleSeconds(control.Now() - oldest)));

  families.push_back(GaugeFamily("ferry_prepared_batches", "Prepared batches that may be fired",
                                 static_cast<double>(sessions->prepared_armed())));
  families.push_back(CounterFamily("ferry_prepared_firings_total",
                                   "Firings of prepared batches, counted at each end",
                                   static_cast<double>(sessions->prepared_firings())));

  prometheus::MetricFamily arenas = GaugeFamily("ferry_buffers", "Arenas", 0);
  prometheus::MetricFamily bytes = GaugeFamily("ferry_buffer_bytes", "Bytes of arenas", 0);
  arenas.metric.clear();
  bytes.metric.clear();
  prometheus::MetricFamily contexts =
      GaugeFamily("ferry_gpu_context", "1 while the daemon has a context on the GPU", 0);
  contexts.metric.clear();
  for (const auto& device : devices.list) {
    const char* const kind = device->gpu == nullptr ? "host" : "gpu";
    const std::string id = absl::StrCat(device->id.value());
    AddSample(arenas, {{"kind", kind}, {"device", id}}, static_cast<double>(device->arenas));
    AddSample(bytes, {{"kind", kind}, {"device", id}}, static_cast<double>(device->arena_bytes));
    if (device->gpu == nullptr) continue;
    AddSample(contexts, {{"device", id}}, device->gpu->usage().context ? 1 : 0);
  }
  families.push_back(std::move(arenas));
  families.push_back(std::move(bytes));
  if (!contexts.metric.empty()) families.push_back(std::move(contexts));

  ExportJobs(families);
  ExportComms(families);
  prometheus::MetricFamily links = GaugeFamily("ferry_peer_connections", "Peer links by state", 0);
  links.metric.clear();
  std::map<std::string, int> states = {{"idle", 0}, {"connecting", 0}, {"up", 0}, {"lost", 0}};
  for (const PeerTable::Row& row : peers->List()) ++states[row.state];
  for (const auto& [state, count] : states) AddSample(links, {{"state", state}}, count);
  families.push_back(std::move(links));

  prometheus::MetricFamily frames =
      CounterFamily("ferry_peer_frames_total", "Frames said on peer links, by road", 0);
  frames.metric.clear();
  AddSample(frames, {{"road", "socket"}}, static_cast<double>(peers->frames().socket));
  AddSample(frames, {{"road", "stream"}}, static_cast<double>(peers->frames().stream));
  families.push_back(std::move(frames));
  return MetricsText(families);
}

}  // namespace ferry
