// SPDX-License-Identifier: Apache-2.0
#include "client/prepared.h"

#include <map>
#include <set>
#include <string_view>

#include "client/arena.h"
#include "client/batch.h"
#include "client/parked_streams.h"
#include "client/program.h"
#include "client/queued_stores.h"

namespace ferry::client {
namespace {

using Place = ferry_prepared::Place;

std::string NameOf(const ferry_prepared& prepared, const Place& place) {
  const PostBatch batch = prepared.copy.batch();
  return std::string(batch.direction == Direction::kRun ? "prepared jobs "
                                                        : "prepared transfers ") +
         std::to_string(place.first_id) + " to " + std::to_string(place.first_id + batch.count - 1);
}

StatusPtr Released() {
  return Error(kCancelled, kReasonCancelled, "the prepared batch was released");
}

// Posts the copy of a batch by `post`. If the daemon does not know a program of the batch any more,
// or is another daemon, compiles the programs by `compile` and posts once more. If the cause was
// not a program, the second refusal says so.
template <typename Post, typename Compile>
StatusPtr PostCopy(BatchCopy& copy, Post post, Compile compile) {
  FERRY_CLIENT_RETURN_IF_ERROR(copy.Join());
  StatusPtr error = post();
  if (error == nullptr || error->reason != kReasonIdStale || copy.programs().empty()) return error;
  for (const auto& program : copy.programs()) {
    FERRY_CLIENT_RETURN_IF_ERROR(compile(program->device, program->text));
  }
  return post();
}

// The prepared batches of the process, for EndsHere.
struct AllPrepared {
  std::mutex mutex;
  std::set<const ferry_prepared*> all;
};
AllPrepared& Living() {
  static AllPrepared* const all = new AllPrepared;  // handles may outlive every static
  return *all;
}

// With Living().mutex held.
std::vector<PreparedEnd> EndsOf(const ferry_prepared& prepared) {
  std::vector<PreparedEnd> ends{{prepared.session, PlaceOf(prepared), prepared.joined.load()}};
  for (const ferry_prepared* other : Living().all) {
    if (other != &prepared && prepared.copy.Meets(other->copy)) {
      ends.push_back({other->session, PlaceOf(*other), other->joined.load()});
    }
  }
  return ends;
}

// How many firings went well, if `line` was read while the place was good.
uint64_t WentWell(const CounterLine& line) {
  if (line.value != FERRY_PREPARED_ENDED) return line.value;
  return line.first_failed == 0 ? 0 : line.first_failed - 1;
}

// Why the batch has ended; asks the daemon.
StatusPtr Fetch(const ferry_prepared& prepared, const Place& place) {
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(prepared.session->Call(
      *place.life, Method::kGet, EncodeGetTransfers(place.first_id, prepared.copy.batch().count),
      &response));
  std::vector<TransferInfo> transfers;
  if (DecodeGetTransfers(response, &transfers)) {
    for (TransferInfo& transfer : transfers) {
      if (transfer.status != nullptr) return std::move(transfer.status);
    }
  }
  return Error(kInternal, kReasonProtocol,
               NameOf(prepared, place) + ": ended, but the daemon does not say why");
}

// Prepares the batch anew with a daemon that has come back; runs on the session's thread.
void PrepareAgain(ferry_prepared* prepared, Connection& connection) {
  std::lock_guard posting(prepared->posting);
  const PostBatch batch = prepared->copy.batch();
  PostAnswer answer;
  StatusPtr error = prepared->copy.CheckArenas();
  if (error == nullptr) {
    error = PostCopy(
        prepared->copy, [&] { return connection.Post(batch, &answer); },
        [&](uint64_t device, const std::string& text) {
          std::string response;
          return connection.Call(Method::kCompile, EncodeCompile(device, text), &response);
        });
  }
  if (error == nullptr) {
    prepared->session->timelines().PreparedBegan(answer.prepared_batch);
    connection.unheard().Posted({answer.first_transfer_id, batch.count, kPreparedTimeline, 1});
  } else {
    error->message = "the daemon came back and did not prepare the batch again: " + error->message;
  }
  std::lock_guard lock(prepared->mutex);
  prepared->place = {connection.life, answer.first_transfer_id, answer.prepared_batch, 0};
  prepared->status = std::move(error);
}

// Prepares the batch with the present daemon.
StatusPtr PrepareFirst(ferry_prepared& prepared) {
  std::lock_guard posting(prepared.posting);
  // The daemon was lost meanwhile, and prepared it when it came back.
  if (PlaceOf(prepared).life != nullptr) return nullptr;
  Session& session = *prepared.session;
  const PostBatch batch = prepared.copy.batch();
  PostAnswer answer;
  std::shared_ptr<const Life> life;
  FERRY_CLIENT_RETURN_IF_ERROR(PostCopy(
      prepared.copy, [&] { return session.Post(batch, &answer, &life); },
      [&](uint64_t device, const std::string& text) {
        ProgramInfo again;
        return session.Compile(device, text, &again);
      }));
  std::lock_guard lock(prepared.mutex);
  prepared.place = {std::move(life), answer.first_transfer_id, answer.prepared_batch, 0};
  return nullptr;
}

}  // namespace

BatchCopy::BatchCopy(const PostBatch& batch)
    : direction_(batch.direction),
      device_(batch.device),
      domain_(static_cast<const char*>(batch.options->domain), batch.options->domain_bytes),
      options_(*batch.options) {
  options_.domain = domain_.data();
  options_.request_id = nullptr;
  options_.request_id_bytes = 0;
  if (direction_ == Direction::kRun) {
    KeepRuns(batch.runs, batch.count);
    return;
  }
  memory_.resize(batch.count);
  transfers_.assign(batch.transfers, batch.transfers + batch.count);
  for (size_t i = 0; i < batch.count; ++i) {
    ferry_transfer& transfer = transfers_[i];
    Memory& memory = memory_[i];
    memory.key.assign(static_cast<const char*>(transfer.key), transfer.key_bytes);
    transfer.key = memory.key.data();
    memory.ranges.assign(transfer.ranges, transfer.ranges + transfer.range_count);
    transfer.ranges = memory.ranges.data();
    if (transfer.strided != nullptr) {
      memory.strided = *transfer.strided;
      transfer.strided = &memory.strided;
    }
    if (transfer.blocks != nullptr) {
      memory.blocks = *transfer.blocks;
      memory.indices.assign(memory.blocks.indices,
                            memory.blocks.indices + memory.blocks.index_count);
      memory.blocks.indices = memory.indices.data();
      transfer.blocks = &memory.blocks;
    }
    if (transfer.dims != nullptr) {
      memory.dims.assign(transfer.dims, transfer.dims + transfer.dim_count);
      memory.dims.push_back(0);  // the data of a scalar's empty list of dims must not be null
      transfer.dims = memory.dims.data();
    }
  }
}

void BatchCopy::KeepRuns(const ProgramRun* runs, size_t count) {
  std::map<const ferry_program*, const Program*> known;
  bound_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const ferry_run& given = *runs[i].given;
    const Program*& program = known[given.program];
    if (program == nullptr) {
      programs_.push_back(std::make_unique<const Program>(
          Program{given.program->device, given.program->text, given.program->fingerprint()}));
      program = programs_.back().get();
    }
    Bound& bound = bound_[i];
    bound.bindings.assign(given.bindings, given.bindings + given.binding_count);
    for (const ferry_binding& binding : bound.bindings) bound.names.emplace_back(binding.name);
    for (size_t j = 0; j < bound.names.size(); ++j) {
      bound.bindings[j].name = bound.names[j].c_str();
    }
    bound.run = given;
    bound.run.program = nullptr;  // the application may free the program
    bound.run.bindings = bound.bindings.data();
    runs_.push_back(runs[i]);
    runs_.back().given = &bound.run;
    runs_.back().fingerprint = program->fingerprint;
  }
}

StatusPtr BatchCopy::Join() {
  for (size_t i = 0; i < runs_.size(); ++i) {
    runs_[i].joined.clear();
    for (const ferry_binding& binding : bound_[i].bindings) {
      uint32_t number = ProgramRun::kNotJoined;
      if (binding.transfers != nullptr) {
        const bool there = Usable(binding.transfers) && !binding.transfers->released.load();
        const Place place = there ? PlaceOf(*binding.transfers) : Place();
        if (place.first_id == 0) {
          return BadField(
              "preparing jobs",
              "runs[" + std::to_string(i) + "].bindings[" + std::to_string(runs_[i].joined.size()) +
                  "].transfers",
              "is not prepared, and @" + std::string(binding.name) + " is transferred by it",
              kFailedPrecondition);
        }
        number = place.number;
      }
      runs_[i].joined.push_back(number);
    }
  }
  return nullptr;
}

void BatchCopy::SetJoined(bool joined) const {
  for (const Bound& bound : bound_) {
    for (const ferry_binding& binding : bound.bindings) {
      if (Usable(binding.transfers)) binding.transfers->joined.store(joined);
    }
  }
}

StatusPtr BatchCopy::CheckArenas() const {
  const auto check = [](const ferry_arena* arena) {
    if (Usable(arena)) return CheckArena(*arena);
    return Error(kNotFound, kReasonIdStale, "an arena of the batch was freed");
  };
  for (const ferry_transfer& transfer : transfers_) {
    for (size_t i = 0; i < transfer.range_count; ++i) {
      FERRY_CLIENT_RETURN_IF_ERROR(check(transfer.ranges[i].arena));
    }
    if (transfer.strided != nullptr) {
      FERRY_CLIENT_RETURN_IF_ERROR(check(transfer.strided->arena));
    }
    if (transfer.blocks != nullptr) FERRY_CLIENT_RETURN_IF_ERROR(check(transfer.blocks->arena));
  }
  for (const Bound& bound : bound_) {
    for (const ferry_binding& binding : bound.bindings) {
      FERRY_CLIENT_RETURN_IF_ERROR(check(binding.range.arena));
    }
  }
  return nullptr;
}

bool BatchCopy::Meets(const BatchCopy& other) const {
  if (direction_ == Direction::kRun || other.direction_ == Direction::kRun) return false;
  if (direction_ == other.direction_ || domain_ != other.domain_) return false;
  std::set<std::string_view> keys;
  for (size_t i = 0; i < transfers_.size(); ++i) {
    if (transfers_[i].remote_device == other.device_) keys.insert(memory_[i].key);
  }
  for (size_t i = 0; i < other.transfers_.size() && !keys.empty(); ++i) {
    if (other.transfers_[i].remote_device == device_ && keys.count(other.memory_[i].key) != 0) {
      return true;
    }
  }
  return false;
}

Place PlaceOf(const ferry_prepared& prepared) {
  std::lock_guard lock(prepared.mutex);
  return prepared.place;
}

StatusPtr PrepareTransfers(const std::shared_ptr<Session>& session, const PostBatch& batch,
                           std::unique_ptr<ferry_prepared>* made) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckPointers(session.get(), batch));
  return PrepareChecked(session, batch, made);
}

StatusPtr PrepareChecked(const std::shared_ptr<Session>& session, const PostBatch& batch,
                         std::unique_ptr<ferry_prepared>* made) {
  auto prepared = std::make_unique<ferry_prepared>(session, batch);
  if (session->reattaches()) {
    prepared->told_as = session->TellAgain(
        [again = prepared.get()](Connection& next) { PrepareAgain(again, next); });
  }
  if (StatusPtr error = PrepareFirst(*prepared); error != nullptr) {
    FreePrepared(prepared.release());
    return error;
  }
  prepared->copy.SetJoined(true);
  {
    std::lock_guard lock(Living().mutex);
    Living().all.insert(prepared.get());
  }
  *made = std::move(prepared);
  return nullptr;
}

StatusPtr FirePreparedBy(ferry_prepared* prepared, uint64_t* firing, const Fire& fire) {
  FERRY_CLIENT_RETURN_IF_ERROR(prepared->session->CheckMine());
  if (prepared->released.load()) return Released();
  if (prepared->joined.load()) {
    return BadField("firing " + NameOf(*prepared, PlaceOf(*prepared)), "prepared",
                    "is bound to a prepared job, which fires it", kFailedPrecondition);
  }
  {
    std::lock_guard lock(prepared->mutex);
    if (prepared->status != nullptr) return Copy(prepared->status);
    Place& place = prepared->place;
    const uint64_t over = prepared->session->timelines().Prepared(*place.life, place.number).value;
    if (place.life->ended()) return prepared->session->LastLoss();
    if (over != FERRY_PREPARED_ENDED) {
      FERRY_CLIENT_RETURN_IF_ERROR(fire(place, over));
      ++place.fired;
      if (firing != nullptr) *firing = place.fired;
      return nullptr;
    }
  }
  return PreparedStatus(prepared);
}

StatusPtr FirePrepared(ferry_prepared* prepared, uint64_t* firing) {
  return FirePreparedBy(prepared, firing, [prepared](const Place& place, uint64_t over) {
    if (over < place.fired) {
      return BadField("firing " + NameOf(*prepared, place), "prepared",
                      "cannot be fired: firing " + std::to_string(place.fired) + " is not over",
                      kFailedPrecondition);
    }
    Session& session = *prepared->session;
    const bool fired = session.timelines().Fire(*place.life, place.number, place.fired + 1);
    return fired ? nullptr : session.LastLoss();
  });
}

std::vector<PreparedEnd> EndsHere(const ferry_prepared& prepared) {
  std::lock_guard lock(Living().mutex);
  return EndsOf(prepared);
}

std::vector<PreparedEnd> EndsHere(Session& session, const uint64_t* over) {
  std::lock_guard lock(Living().mutex);
  for (const ferry_prepared* prepared : Living().all) {
    if (prepared->session.get() != &session) continue;
    const Place place = PlaceOf(*prepared);
    if (place.first_id == 0 || place.life->ended()) continue;
    if (&session.timelines().pages().prepared_over[place.number].value == over) {
      return EndsOf(*prepared);
    }
  }
  return {};
}

StatusPtr WaitPrepared(ferry_prepared* prepared, uint64_t firing, uint64_t timeout_ns) {
  FERRY_CLIENT_RETURN_IF_ERROR(prepared->session->CheckMine());
  if (prepared->released.load()) return Released();
  return WaitPrepared(prepared, PlaceOf(*prepared), firing, timeout_ns);
}

StatusPtr WaitPrepared(ferry_prepared* prepared, const Place& place, uint64_t firing,
                       uint64_t timeout_ns) {
  if (place.first_id == 0) return PreparedStatus(prepared);
  Timelines& timelines = prepared->session->timelines();
  const Timelines::Wait wait = timelines.WaitPrepared(
      *place.life, place.number, firing, DeadlineAfter(timeout_ns), prepared->released);
  const uint64_t well = WentWell(timelines.Prepared(*place.life, place.number));
  if (prepared->released.load()) return Released();
  // Also if the batch was over just before: the words may be another batch's by now.
  if (place.life->ended()) return prepared->session->LastLoss();
  if (wait == Timelines::Wait::kTimeout) {
    return Error(kDeadlineExceeded, "",
                 "waiting for firing " + std::to_string(firing) + " of " +
                     NameOf(*prepared, place) + ": not over yet");
  }
  return firing <= well ? nullptr : PreparedStatus(prepared);
}

uint64_t PreparedOver(const ferry_prepared& prepared) {
  const Place place = PlaceOf(prepared);
  const uint64_t well = WentWell(prepared.session->timelines().Prepared(*place.life, place.number));
  return place.first_id == 0 || place.life->ended() ? 0 : well;
}

StatusPtr PreparedStatus(ferry_prepared* prepared) {
  FERRY_CLIENT_RETURN_IF_ERROR(prepared->session->CheckMine());
  if (prepared->released.load()) return Released();
  Place place;
  {
    std::lock_guard lock(prepared->mutex);
    const Place& now = prepared->place;
    const uint64_t over = prepared->session->timelines().Prepared(*now.life, now.number).value;
    if (now.life->ended()) return prepared->session->LastLoss();
    if (prepared->status != nullptr || over != FERRY_PREPARED_ENDED) return Copy(prepared->status);
    place = now;
  }
  // Without the lock: a daemon that stands still must not hold up who asks nothing of it.
  StatusPtr why = Fetch(*prepared, place);
  std::lock_guard lock(prepared->mutex);
  if (prepared->place.life == place.life) prepared->status = Copy(why);
  return why;
}

bool PreparedEnded(const ferry_prepared& prepared) {
  if (prepared.released.load()) return true;
  std::lock_guard lock(prepared.mutex);
  const Place& place = prepared.place;
  if (prepared.status != nullptr || place.life == nullptr || place.life->ended()) return true;
  return prepared.session->timelines().Prepared(*place.life, place.number).value ==
         FERRY_PREPARED_ENDED;
}

StatusPtr ReleasePrepared(ferry_prepared* prepared) {
  FERRY_CLIENT_RETURN_IF_ERROR(prepared->session->CheckMine());
  if (prepared->released.exchange(true)) return Released();
  if (prepared->told_as != 0) prepared->session->Forget(prepared->told_as);
  const Place place = PlaceOf(*prepared);
  if (place.life == nullptr) return nullptr;  // the batch was never prepared
  prepared->copy.SetJoined(false);
  if (place.first_id == 0) return nullptr;  // the daemon that came back has not prepared it again
  // Every wait ends with the batch, and its word may soon be another batch's.
  ferry_timeline_pages& pages = prepared->session->timelines().pages();
  const ferry_timeline_line& over = pages.prepared_over[place.number];
  const ferry_timeline_line& defined = pages.prepared_defined[place.number];
  ParkedStreams::Get().Forget(&over, sizeof(over));
  QueuedStores::Get().Forget(&defined, sizeof(defined));
  return prepared->session->ReleasePrepared(*place.life, place.number, place.first_id,
                                            prepared->copy.batch().count);
}

void FreePrepared(ferry_prepared* prepared) {
  if (!prepared->session->Mine()) return;
  {
    std::lock_guard lock(Living().mutex);
    Living().all.erase(prepared);
  }
  if (!prepared->released.load()) ReleasePrepared(prepared);
  delete prepared;
}

}  // namespace ferry::client
