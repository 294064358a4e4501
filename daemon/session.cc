// SPDX-License-Identifier: Apache-2.0
#include "daemon/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/domain_tag.h"

namespace ferry {
namespace {

// Each arena that the layout has bytes of, once.
template <typename Function>
void ForEachArena(const Layout& layout, Function function) {
  absl::flat_hash_set<ArenaId> others;  // than the last one
  ArenaId last;
  for (const Range& extent : layout.extents()) {
    if (extent.arena == last) continue;
    if (last != ArenaId()) others.insert(last);
    last = extent.arena;
    if (!others.contains(last)) function(last);
  }
}

}  // namespace

Session::Session(SessionId id, std::string name, std::string token, Credentials credentials,
                 std::unique_ptr<TimelinePages> timelines, Limits limits, KeptBytes& of_uid,
                 absl::Time opened, uint64_t first_transfer)
    : id_(id),
      name_(std::move(name)),
      token_(std::move(token)),
      credentials_(credentials),
      limits_(std::move(limits)),
      opened_(opened),
      timelines_(std::move(timelines)),
      first_sequence_(first_transfer),
      next_sequence_(first_transfer),
      kept_(limits_.kept_bytes),
      of_uid_(of_uid) {}

absl::Status Session::ReserveArena(uint64_t bytes, size_t slots) {
  const SessionUse& quota = limits_.quota;
  if (use_.arenas >= quota.arenas || slots > quota.arenas - use_.arenas) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQuotaArenas,
                 absl::StrCat("register an arena: ", id_.ToString(), " has ", use_.arenas, " of ",
                              quota.arenas, " arenas",
                              slots > 1 ? absl::StrCat(", and one of ", slots,
                                                       " allocations counts for as many")
                                        : "",
                              "; release some or use larger ones"));
  }
  if (bytes > quota.bytes - use_.bytes) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kQuotaBytes,
                 absl::StrCat("register an arena of ", bytes, " bytes: ", id_.ToString(), " holds ",
                              use_.bytes, " of ", quota.bytes, " bytes (limits.session_bytes), ",
                              quota.bytes - use_.bytes, " are left"));
  }
  use_.arenas += slots;
  use_.bytes += bytes;
  return absl::OkStatus();
}

void Session::UnreserveArena(uint64_t bytes, size_t slots) {
  use_.arenas -= slots;
  use_.bytes -= bytes;
}

Arena& Session::AddArena(std::unique_ptr<Arena> arena) {
  Arena& added = *arena;
  arenas_[added.id] = std::move(arena);
  return added;
}

absl::StatusOr<Arena*> Session::FindArena(ArenaId id) {
  auto it = arenas_.find(id);
  if (it != arenas_.end() && !it->second->of_job && !it->second->freed) return it->second.get();
  if (released_arenas_.contains(id)) {
    return Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                 absl::StrCat(id.ToString(), " was released"));
  }
  return Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound,
               absl::StrCat(id.ToString(), " is not known to this session"));
}

absl::StatusOr<std::unique_ptr<Arena>> Session::TakeArena(ArenaId id) {
  ASSIGN_OR_RETURN(Arena * arena, FindArena(id));
  if (arena->transfers > 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kFieldInvalid,
                 absl::StrCat("release ", id.ToString(), ": ", arena->transfers,
                              " transfers use it; wait for them or cancel them"));
  }
  auto it = arenas_.find(id);
  std::unique_ptr<Arena> taken = std::move(it->second);
  arenas_.erase(it);
  ForgetArena(id);
  UnreserveArena(taken->held, taken->slots);
  return taken;
}

absl::StatusOr<std::unique_ptr<Arena>> Session::FreeArena(ArenaId id) {
  ASSIGN_OR_RETURN(Arena * arena, FindArena(id));
  if (arena->transfers == 0) return TakeArena(id);
  arena->freed = true;
  ForgetArena(id);
  return nullptr;
}

void Session::ForgetArena(ArenaId id) {
  if (release_order_.size() == kReleasedKept) {
    released_arenas_.erase(release_order_.front());
    release_order_.pop_front();
  }
  released_arenas_.insert(id);
  release_order_.push_back(id);
}

std::vector<std::unique_ptr<Arena>> Session::TakeUnusedArenas() {
  std::vector<std::unique_ptr<Arena>> all;
  for (const ArenaId id : std::exchange(unused_, {})) {
    all.push_back(std::move(arenas_.extract(id).mapped()));
    UnreserveArena(all.back()->held, all.back()->slots);
  }
  return all;
}

std::unique_ptr<Arena> Session::TakeJobArena(ArenaId id) {
  const auto it = arenas_.find(id);
  std::unique_ptr<Arena> taken = std::move(it->second);
  FERRY_CHECK(taken->of_job && taken->transfers == 0);
  arenas_.erase(it);
  if (taken->awaited) return taken;
  UnreserveArena(taken->held, taken->slots);
  --use_of_jobs_.arenas;
  use_of_jobs_.bytes -= taken->held;
  return taken;
}

void Session::CountJobArena(Arena& arena, uint64_t bytes) {
  arena.awaited = false;
  arena.bytes = arena.held = bytes;
  ++use_of_jobs_.arenas;
  use_of_jobs_.bytes += bytes;
}

std::vector<std::unique_ptr<Arena>> Session::TakeAllArenas() {
  std::vector<std::unique_ptr<Arena>> all;
  for (auto& [id, arena] : arenas_) all.push_back(std::move(arena));
  arenas_.clear();
  spare_.clear();
  unused_.clear();
  use_.arenas = use_of_jobs_.arenas = 0;
  use_.bytes = use_of_jobs_.bytes = 0;
  return all;
}

std::vector<const Arena*> Session::ListArenas() const {
  std::vector<const Arena*> all;
  for (const auto& [id, arena] : arenas_) {
    if (!arena->awaited) all.push_back(arena.get());
  }
  std::sort(all.begin(), all.end(), [](const Arena* a, const Arena* b) { return a->id < b->id; });
  return all;
}

std::optional<PostReply> Session::FindRequest(const PostBatch& batch) const {
  if (batch.request_id.empty()) return std::nullopt;
  auto it = requests_.find(batch.request_id);
  if (it == requests_.end()) return std::nullopt;
  if (it->second.hash == batch.request_hash) return it->second.reply;
  PostReply refused;
  refused.status = Error(absl::StatusCode::kAlreadyExists, Reason::kRequestIdReused,
                         absl::StrCat("request id ", PrintableKey(batch.request_id),
                                      " was used before with another batch"));
  return refused;
}

void Session::RememberRequest(const PostBatch& batch, const PostReply& reply) {
  if (batch.request_id.empty()) return;
  if (request_order_.size() == kRequestsKept) {
    requests_.erase(request_order_.front());
    request_order_.pop_front();
  }
  requests_[batch.request_id] = {batch.request_hash, reply};
  request_order_.push_back(batch.request_id);
}

const std::string& Session::TagOf(const std::string& domain) {
  if (auto known = domain_tags_.find(domain); known != domain_tags_.end()) return known->second;
  if (domain_tags_.size() == kDomainsKept) domain_tags_.clear();
  return domain_tags_[domain] = domain.empty() ? TagOfUid(limits_.domain_key, credentials_.uid)
                                               : TagOfName(limits_.domain_key, domain);
}

PostReply Session::Admit(PostBatch& batch) {
  PostReply reply;
  reply.first_transfer_id = next_sequence_;
  if (batch.prepare) {
    reply.prepared_batch = Prepare(batch);
  } else {
    over_devices_[batch.over_timeline] = batch.device;
    reply.first_over_value = timelines_->Reserve(batch.over_timeline, batch.specs.size());
  }
  next_sequence_ += batch.specs.size();
  use_.transfers_in_flight += batch.specs.size();
  uint64_t value = reply.first_over_value;
  for (TransferSpec& spec : batch.specs) {
    if (batch.prepare) {
      spec.over_timeline = reply.prepared_batch;
    } else {
      spec.over_value = value++;
    }
    Keep(spec.kept);
    ForEachArena(spec.layout, [&](ArenaId arena) { ++arenas_.find(arena)->second->transfers; });
  }
  return reply;
}

TransferId Session::AdmitOfJobs(const std::vector<TransferSpec>& specs) {
  const TransferId first = MakeTransferId(id_, next_sequence_);
  next_sequence_ += specs.size();
  use_.transfers_in_flight += specs.size();
  for (const TransferSpec& spec : specs) {
    Keep(spec.kept);
    ForEachArena(spec.layout, [&](ArenaId arena) { ++arenas_.find(arena)->second->transfers; });
  }
  return first;
}

uint32_t Session::Prepare(PostBatch& batch) {
  uint32_t number = 0;  // the lowest free one, so that few pages are touched
  for (const auto& [taken, record] : prepared_) {
    if (taken != number) break;
    ++number;
  }
  const auto count = static_cast<uint32_t>(batch.specs.size());
  PreparedRecord& record = prepared_[number];
  record.batch = timelines_->Prepare(number, count);
  record.first = MakeTransferId(id_, next_sequence_);
  record.left = count;
  record.of_jobs = batch.runs_programs;
  record.side = batch.side;
  record.extents = std::move(batch.extents);
  record.kept = record.extents.size() * sizeof(Range);
  Keep(record.kept);
  return number;
}

PreparedRecord* Session::FindPrepared(uint32_t number) {
  const auto entry = prepared_.find(number);
  return entry == prepared_.end() ? nullptr : &entry->second;
}

const PreparedRecord* Session::FindPrepared(uint32_t number) const {
  const auto entry = prepared_.find(number);
  return entry == prepared_.end() ? nullptr : &entry->second;
}

std::vector<PreparedRecord::Asker> Session::TakeReleased() {
  std::vector<PreparedRecord::Asker> askers;
  for (auto entry = prepared_.begin(); entry != prepared_.end();) {
    const PreparedRecord& record = entry->second;
    if (record.left > 0 || record.joined || !record.released.has_value()) {
      ++entry;
      continue;
    }
    askers.push_back(*record.released);
    LetGo(record.kept);
    past_firings_ += record.batch->firings();
    entry = prepared_.erase(entry);
  }
  return askers;
}

size_t Session::prepared_armed() const {
  return static_cast<size_t>(std::count_if(
      prepared_.begin(), prepared_.end(),
      [](const auto& entry) { return entry.second.left > 0 && entry.second.batch->armed(); }));
}

void Session::ListIdlePrepared(std::vector<TransferId>& batches) const {
  for (const auto& [number, record] : prepared_) {
    if (record.left == 0 || record.joined || record.batch->Firing()) continue;
    std::vector<TransferId> idle;
    bool sending = false;
    for (const uint32_t fired : record.fires) {
      const PreparedRecord& joined = prepared_.find(fired)->second;
      sending = sending || (joined.side == Side::kSend && joined.batch->Firing());
      // Receives were told before to overwrite what was used.
      idle.push_back(joined.first);
    }
    if (sending) continue;
    batches.insert(batches.end(), idle.begin(), idle.end());
    batches.push_back(record.first);
  }
}

uint64_t Session::prepared_firings() const {
  uint64_t firings = past_firings_;
  for (const auto& [number, record] : prepared_) firings += record.batch->firings();
  return firings;
}

void Session::OnEnded(const Ended& ended) {
  const uint64_t sequence = SequenceOf(ended.transfer);
  const bool ok = ended.status.ok();
  ForEachArena(ended.layout, [&](ArenaId id) {
    Arena& arena = *arenas_.find(id)->second;
    arena.transfers -= ended.count;
    if (arena.transfers == 0 && arena.freed) unused_.push_back(id);
  });
  use_.transfers_in_flight -= ended.count;
  LetGo(ended.kept);
  (ok ? transfers_ok_ : transfers_failed_) += ended.count;
  if (!ended.prepared && ended.over_value == 0) return;  // a job's: that says how it ended
  for (uint32_t place = 0; place < ended.count && !ok; ++place) {
    failure_bytes_ += ended.status.message().size();
    while (!failure_order_.empty() &&
           (failure_order_.size() >= limits_.failures_kept || failure_bytes_ > kFailureBytesKept)) {
      const auto oldest = failures_.find(failure_order_.front());
      forgotten_failures_ = std::max(forgotten_failures_, oldest->first);
      failure_bytes_ -= oldest->second.message().size();
      failures_.erase(oldest);
      failure_order_.pop_front();
    }
    failures_[sequence + place] = ended.status;
    failure_order_.push_back(sequence + place);
  }
  if (ended.prepared) {
    PreparedRecord& record = prepared_.find(ended.over_timeline)->second;
    if (--record.left == 0) record.batch->End();
  }
  if (closing) return;
  for (uint32_t place = 0; place < ended.count; ++place) {
    if (!ended.prepared) timelines_->End(ended.over_timeline, ended.over_value + place, ok);
    if (events_.size() == kEventsKept) events_.pop_front();
    events_.push_back({sequence + place, ended.route, ok});
    ++next_event_;
  }
}

void Session::AfterEndings(absl::Time now) {
  const uint64_t freed = transfers_ok_ + transfers_failed_;
  if (freed == places_freed_) return;
  kept_.Settle(now);
  of_uid_.Settle(now);
  places_.OnFreed(now, freed - places_freed_);
  places_freed_ = freed;
}

std::optional<absl::Status> Session::FindFailure(uint64_t sequence) const {
  auto it = failures_.find(sequence);
  if (it == failures_.end()) return std::nullopt;
  return it->second;
}

void Session::NotifyWatchers() {
  for (const auto& [id, notify] : watchers_) notify();
}

}  // namespace ferry
