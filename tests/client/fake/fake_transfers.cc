// SPDX-License-Identifier: Apache-2.0
// What the fake daemon does with arenas and transfers, and its gRPC service as far as it posts;
// the rest of that: fake_calls.cc.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "google/rpc/error_details.pb.h"
#include "tests/client/fake/fake_daemon.h"

namespace ferry::testing {
namespace {

void Wake(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

template <typename T>
std::atomic_ref<T> Word(T& word) {
  return std::atomic_ref<T>(word);
}

const auto& Remotes(const v1::CrossHostSendRequest& r) { return r.dst_global_device_ids(); }
const auto& Remotes(const v1::CrossHostReceiveRequest& r) { return r.src_global_device_ids(); }

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.rfind(prefix, 0) == 0;
}

void AddViolation(google::rpc::BadRequest* bad, const std::string& field, const std::string& why) {
  auto* violation = bad->add_field_violations();
  violation->set_field(field);
  violation->set_description(why);
}

uint64_t Length(const v1::Buffer& buffer) {
  uint64_t length = 0;
  for (const auto& range : buffer.ranges()) length += range.length();
  return length;
}

}  // namespace

google::rpc::Status MakeStatus(int code, const std::string& reason, const std::string& text) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(text);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("ferry.example.org");
  status.add_details()->PackFrom(info);
  return status;
}

grpc::Status ToGrpc(const google::rpc::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(),
                      status.SerializeAsString());
}

void FakeDaemon::Register(Session* session, const v1::RegisterArena& wanted,
                          const std::vector<int>& passed, std::vector<int>* sent,
                          v1::AttachResponse* response) {
  const uint64_t device = wanted.device_id();
  const bool gpu = device >= behaviour_.devices;
  const bool allocate = wanted.memory() == v1::ARENA_MEMORY_CUDA_ALLOCATE;
  last_arena_ = wanted;
  if (device >= behaviour_.devices + behaviour_.gpus) {
    *response->mutable_error() = MakeStatus(5, "DEVICE_UNKNOWN", "no such device");
    return;
  }
  if (gpu != (wanted.memory() > v1::ARENA_MEMORY_MEMFD)) {
    *response->mutable_error() = MakeStatus(3, "FIELD_INVALID", "memory of another kind of device");
    google::rpc::BadRequest bad;
    AddViolation(&bad, "memory", "another kind of device");
    response->mutable_error()->add_details()->PackFrom(bad);
    return;
  }
  std::vector<int> fds = passed;
  std::vector<uint64_t> lengths(wanted.segment_bytes().begin(), wanted.segment_bytes().end());
  if (!gpu) {
    const int seals = passed.empty() ? -1 : fcntl(passed[0], F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      *response->mutable_error() = MakeStatus(3, "MEMFD_UNSEALED", "not sealed");
      return;
    }
    lengths = {wanted.bytes()};
  } else if (allocate) {
    // As the fake CUDA names its memory, so that it takes this for an allocation of the GPU.
    constexpr uint64_t kGranularity = 2 << 20;
    const std::string name = "ferry-fake-gpu-memory-" + std::to_string(device - behaviour_.devices);
    lengths = {(wanted.bytes() + kGranularity - 1) / kGranularity * kGranularity};
    fds = {memfd_create(name.c_str(), MFD_CLOEXEC)};
    Require(ftruncate(fds[0], static_cast<off_t>(lengths[0])) == 0, "ftruncate");
    sent->push_back(fds[0]);
    response->mutable_arena_registered()->set_mapped_bytes(lengths[0]);
  }
  Require(fds.size() == lengths.size(), "as many descriptors as lengths");
  uint64_t total = 0;
  for (const uint64_t length : lengths) total += length;
  Arena arena{nullptr, total};
  if (total != 0) {  // an IPC handle is taken at its word
    void* data = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Require(data != MAP_FAILED, "mmap");
    arena.data = static_cast<char*>(data);
    char* at = arena.data;
    for (size_t i = 0; i < fds.size(); ++i) {
      data = mmap(at, lengths[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fds[i], 0);
      Require(data != MAP_FAILED, "mmap");
      at += lengths[i];
    }
  }
  const uint64_t id = session->id * 1000 + ++session->registered;
  session->arenas[id] = arena;
  response->mutable_arena_registered()->set_arena_id(id);
}

v1::AttachResponse FakeDaemon::Answer(Session* session, const v1::AttachRequest& request,
                                      const std::vector<int>& passed, std::vector<int>* sent) {
  v1::AttachResponse response;
  response.set_sequence(request.sequence());
  if (request.has_register_arena()) {
    Register(session, request.register_arena(), passed, sent, &response);
  } else if (request.has_release_arena()) {
    const auto found = session->arenas.find(request.release_arena().arena_id());
    if (found == session->arenas.end()) {
      *response.mutable_error() = MakeStatus(5, "ARENA_NOT_FOUND", "no such arena");
    } else {
      if (found->second.data != nullptr) munmap(found->second.data, found->second.bytes);
      session->arenas.erase(found);
      response.mutable_arena_released();
    }
  } else if (request.has_reset_timeline()) {
    auto& line = session->pages->over[request.reset_timeline().timeline()];
    Word(line.first_failed).store(0);
    Word(line.failures).store(0);
    response.mutable_timeline_reset();
  } else if (request.has_send()) {
    AnswerPost(session, request.send(), true, response.mutable_send(), &response);
  } else if (request.has_receive()) {
    AnswerPost(session, request.receive(), false, response.mutable_receive(), &response);
  } else if (request.has_run()) {
    Run(session, request.run(), response.mutable_run());
  } else if (request.has_ping()) {
    response.mutable_pong();
  } else if (request.has_release_prepared()) {
    session->echoes[request.release_prepared().prepared_batch()] = false;
    response.mutable_prepared_released();
  } else {
    *response.mutable_error() = MakeStatus(3, "PROTOCOL_ERROR", "what?");
  }
  return response;
}

template <typename Request, typename Response>
void FakeDaemon::AnswerPost(Session* session, const Request& request, bool send, Response* posted,
                            v1::AttachResponse* response) {
  ++socket_posts_;
  const Posted made = Post(session, request, send);
  posted->set_first_transfer_id(made.first_id);
  posted->set_first_over_value(made.first_value);
  posted->set_prepared_batch(made.prepared);
  if (made.error.code() != 0) {
    response->clear_response();
    *response->mutable_error() = made.error;
  } else if (made.hang) {
    response->Clear();
    ++hanging_;
    changed_.notify_all();
  }
}

void FakeDaemon::Run(Session* session, const v1::RunRequest& request, v1::RunResponse* response) {
  response->set_first_transfer_id(session->before + session->transfers.size() + 1);
  const uint32_t timeline = request.options().over_timeline();
  if (request.prepare()) {
    response->set_prepared_batch(Prepare(session, true));
  } else {
    response->set_first_over_value(session->posted[timeline] + 1);
  }
  for (int i = 0; i < request.runs_size(); ++i) {
    auto job = std::make_unique<Transfer>();
    job->id = session->before + session->transfers.size() + 1;
    job->timeline = timeline;
    if (!request.prepare()) {
      job->value = ++session->posted[timeline];
      Finish(session, job.get(), {});
    }
    session->transfers.push_back(std::move(job));
  }
}

FakeDaemon::Session* FakeDaemon::Find(grpc::ServerContext* context) {
  const auto& metadata = context->client_metadata();
  const auto found = metadata.find("ferry-session-bin");
  if (found == metadata.end()) return nullptr;
  const std::string token(found->second.data(), found->second.size());
  for (const auto& session : all_) {
    if (session->token == token) return session.get();
  }
  return nullptr;
}

template <typename Request>
FakeDaemon::Posted FakeDaemon::Post(Session* session, const Request& request, bool send) {
  Posted posted;
  google::rpc::BadRequest bad;
  for (int i = 0; i < request.transfer_keys_size(); ++i) {
    if (StartsWith(request.transfer_keys(i), behaviour_.hangs)) posted.hang = true;
    if (!StartsWith(request.transfer_keys(i), "bad")) continue;
    AddViolation(&bad, "buffers[" + std::to_string(i) + "]", "its key says so");
  }
  if (bad.field_violations_size() != 0 && !refused_.empty()) {
    bad.Clear();
    for (const auto& [field, text] : refused_) AddViolation(&bad, field, text);
  }
  if (posted.hang) return posted;
  if (request.buffers_size() != request.transfer_keys_size() ||
      request.buffers_size() != Remotes(request).size() || bad.field_violations_size() != 0) {
    posted.error = MakeStatus(3, "FIELD_INVALID", refusal_);
    posted.error.add_details()->PackFrom(bad);
    return posted;
  }
  posted.first_id = session->before + session->transfers.size() + 1;
  if (request.prepare()) {
    const bool echoes =
        request.transfer_keys_size() != 0 && StartsWith(request.transfer_keys(0), "echo");
    posted.prepared = Prepare(session, echoes);
    for (int i = 0; i < request.buffers_size(); ++i) {
      session->transfers.push_back(std::make_unique<Transfer>());
    }
    return posted;
  }
  const uint32_t timeline = request.options().over_timeline();
  posted.first_value = session->posted[timeline] + 1;
  for (int i = 0; i < request.buffers_size(); ++i) {
    auto transfer = std::make_unique<Transfer>();
    transfer->id = session->before + session->transfers.size() + 1;
    transfer->send = send;
    const uint64_t remote = Remotes(request)[i];
    const uint64_t source = send ? request.device_id() : remote;
    const uint64_t destination = send ? remote : request.device_id();
    transfer->match = request.domain() + "/" + std::to_string(source) + ">" +
                      std::to_string(destination) + "/" + request.transfer_keys(i);
    transfer->far = StartsWith(request.transfer_keys(i), "far");
    transfer->buffer = request.buffers(i);
    transfer->buffer.clear_dims();  // nobody looks at them, and By() makes them many
    transfer->timeline = timeline;
    transfer->value = ++session->posted[timeline];
    Transfer* raw = transfer.get();
    session->waiting[raw->id] = raw;
    session->open_values[timeline].insert(raw->value);
    session->transfers.push_back(std::move(transfer));
    const std::string& key = request.transfer_keys(i);
    if (StartsWith(key, "echo")) Finish(session, raw, {});
    if (StartsWith(key, "fail")) {
      Finish(session, raw, MakeStatus(9, "TRANSFER_MISMATCH", "failed as asked: " + key));
    }
  }
  Progress();
  return posted;
}

bool FakeDaemon::Defined(const Session& session, const Transfer& transfer) const {
  if (!transfer.buffer.has_defined_at()) return true;
  const auto& at = transfer.buffer.defined_at();
  return Word(session.pages->defined[at.timeline()].value).load() >= at.value();
}

bool FakeDaemon::Matched(const Transfer& transfer) const {
  if (transfer.far && !met_) return false;
  for (const auto& session : all_) {
    for (const auto& [id, other] : session->waiting) {
      if (session->open && other->send != transfer.send && other->match == transfer.match) {
        return true;
      }
    }
  }
  return false;
}

uint32_t FakeDaemon::Prepare(Session* session, bool echoes) {
  const size_t number = session->echoes.size();
  session->echoes.push_back(echoes);
  ferry_timeline_line& over = session->pages->prepared_over[number];
  Word(over.first_failed).store(0);
  Word(over.failures).store(0);
  Word(over.value).store(session->prepared_from);
  Word(session->pages->prepared_defined[number].value).store(session->prepared_from);
  return static_cast<uint32_t>(number);
}

void FakeDaemon::Fire(Session* session) {
  for (size_t i = 0; i < session->echoes.size(); ++i) {
    if (!session->echoes[i]) continue;
    auto over = Word(session->pages->prepared_over[i].value);
    const uint64_t fired = Word(session->pages->prepared_defined[i].value).load();
    if (over.load() >= fired) continue;
    over.store(fired);
    Wake(&session->pages->prepared_over[i].value);
  }
}

void FakeDaemon::Progress() {
  for (const auto& from : all_) {
    if (from->open) Fire(from.get());
    const auto sends = from->waiting;  // Finish() changes it
    for (const auto& [send_id, send] : sends) {
      if (!send->send || !from->open || (send->far && !met_)) continue;
      for (const auto& to : all_) {
        const auto found = std::find_if(
            to->waiting.begin(), to->waiting.end(), [&, send = send](const auto& entry) {
              const Transfer& receive = *entry.second;
              return to->open && !receive.send && receive.match == send->match &&
                     Defined(*from, *send) && Defined(*to, receive);
            });
        if (found == to->waiting.end()) continue;
        Transfer* receive = found->second;
        google::rpc::Status status = Copy(*from, *send, *to, *receive);
        Finish(from.get(), send, status);
        Finish(to.get(), receive, status);
        break;
      }
    }
  }
}

google::rpc::Status FakeDaemon::Copy(const Session& from, const Transfer& send, const Session& to,
                                     const Transfer& receive) {
  if (Length(send.buffer) != Length(receive.buffer)) {
    return MakeStatus(9, "TRANSFER_MISMATCH", "bytes differ");
  }
  std::string bytes;
  for (const auto& range : send.buffer.ranges()) {
    bytes.append(from.arenas.at(range.arena_id()).data + range.offset(), range.length());
  }
  size_t at = 0;
  for (const auto& range : receive.buffer.ranges()) {
    std::memcpy(to.arenas.at(range.arena_id()).data + range.offset(), bytes.data() + at,
                range.length());
    at += range.length();
  }
  return {};
}

void FakeDaemon::Finish(Session* session, Transfer* transfer, google::rpc::Status status) {
  transfer->over = true;
  session->waiting.erase(transfer->id);
  auto& open_values = session->open_values[transfer->timeline];
  open_values.erase(transfer->value);
  transfer->status = std::move(status);
  v1::Transfer ending;
  ending.set_transfer_id(transfer->id);
  ending.set_state(v1::TRANSFER_STATE_OVER);
  *ending.mutable_status() = transfer->status;
  session->endings.push_back(std::move(ending));
  changed_.notify_all();
  auto& line = session->pages->over[transfer->timeline];
  if (transfer->status.code() != 0) {
    const uint64_t first = Word(line.first_failed).load();
    if (first == 0 || first > transfer->value) Word(line.first_failed).store(transfer->value);
    Word(line.failures).fetch_add(1);
  }
  const uint64_t value =
      open_values.empty() ? session->posted[transfer->timeline] : *open_values.begin() - 1;
  Word(line.value).store(value);
  auto& signals = session->pages->signals;
  Word(signals.events).fetch_add(1);
  if (Word(line.waiters).load() != 0) Wake(&line.value);
  if (Word(signals.event_waiters).load() != 0) Wake(&signals.events);
}

grpc::Status FakeDaemon::Hang(grpc::ServerContext* context) {
  std::unique_lock lock(mutex_);
  ++hanging_;
  changed_.notify_all();
  while (!context->IsCancelled()) changed_.wait_for(lock, std::chrono::milliseconds(20));
  return grpc::Status::CANCELLED;
}

grpc::Status FakeDaemon::CrossHostSend(grpc::ServerContext* context,
                                       const v1::CrossHostSendRequest* request,
                                       v1::CrossHostSendResponse* response) {
  ++unary_posts_;
  Posted posted;
  {
    std::lock_guard lock(mutex_);
    Session* session = Find(context);
    if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
    posted = Post(session, *request, true);
  }
  if (posted.hang) return Hang(context);
  response->set_first_transfer_id(posted.first_id);
  response->set_first_over_value(posted.first_value);
  return ToGrpc(posted.error);
}

grpc::Status FakeDaemon::CrossHostReceive(grpc::ServerContext* context,
                                          const v1::CrossHostReceiveRequest* request,
                                          v1::CrossHostReceiveResponse* response) {
  ++unary_posts_;
  Posted posted;
  {
    std::lock_guard lock(mutex_);
    Session* session = Find(context);
    if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
    posted = Post(session, *request, false);
  }
  if (posted.hang) return Hang(context);
  response->set_first_transfer_id(posted.first_id);
  response->set_first_over_value(posted.first_value);
  return ToGrpc(posted.error);
}

}  // namespace ferry::testing
