// SPDX-License-Identifier: Apache-2.0
#include "tests/client/fake/fake_daemon.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "google/rpc/error_details.pb.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace ferry::testing {
namespace {

void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

void Wake(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

template <typename T>
std::atomic_ref<T> Word(T& word) {
  return std::atomic_ref<T>(word);
}

grpc::Status ToGrpc(const google::rpc::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(),
                      status.SerializeAsString());
}

const auto& Remotes(const v1::CrossHostSendRequest& r) { return r.dst_global_device_ids(); }
const auto& Remotes(const v1::CrossHostReceiveRequest& r) { return r.src_global_device_ids(); }

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

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

FakeDaemon::FakeDaemon(std::string dir) : dir_(std::move(dir)) {
  const std::string path = dir_ + "/attach.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  unlink(path.c_str());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  Require(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "bind");
  Require(listen(listener_, 64) == 0, "listen");
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + dir_ + "/client.sock", grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(8 << 20);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  Require(server_ != nullptr, "grpc server");
  std::lock_guard lock(mutex_);
  threads_.emplace_back([this] { Accept(); });
}

FakeDaemon::~FakeDaemon() {
  Kill();
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& session : all_) {
    munmap(session->pages, FERRY_TIMELINE_BYTES);
    for (auto& [id, arena] : session->arenas) munmap(arena.data, arena.bytes);
  }
  close(listener_);
}

void FakeDaemon::CloseAttach() {
  std::lock_guard lock(mutex_);
  for (const auto& session : all_) {
    if (session->open) shutdown(session->fd, SHUT_RDWR);
  }
}

void FakeDaemon::CloseRpc() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeDaemon::Kill() {
  {
    std::lock_guard lock(mutex_);
    if (killed_) return;
    killed_ = true;
    changed_.notify_all();
  }
  shutdown(listener_, SHUT_RDWR);
  CloseAttach();
  CloseRpc();
}

void FakeDaemon::WaitForSessions(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return static_cast<size_t>(std::count_if(all_.begin(), all_.end(),
                                             [](const auto& s) { return s->open; })) == count;
  });
}

size_t FakeDaemon::sessions() {
  std::lock_guard lock(mutex_);
  return std::count_if(all_.begin(), all_.end(), [](const auto& s) { return s->open; });
}

v1::Hello FakeDaemon::last_hello() {
  std::lock_guard lock(mutex_);
  return last_hello_;
}

size_t FakeDaemon::arenas() {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& session : all_) {
    if (session->open) count += session->arenas.size();
  }
  return count;
}

void FakeDaemon::WaitForHanging(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return hanging_ >= count; });
}

size_t FakeDaemon::hanging() {
  std::lock_guard lock(mutex_);
  return hanging_;
}

void FakeDaemon::set_forget(bool forget) {
  std::lock_guard lock(mutex_);
  forget_ = forget;
}

void FakeDaemon::set_memfd_short(bool on) {
  std::lock_guard lock(mutex_);
  memfd_short_ = on;
}

void FakeDaemon::set_features(uint64_t features) {
  std::lock_guard lock(mutex_);
  features_ = features;
}

void FakeDaemon::Say(const std::string& packet) {
  std::lock_guard lock(mutex_);
  for (const auto& session : all_) {
    if (session->open) send(session->fd, packet.data(), packet.size(), MSG_NOSIGNAL);
  }
}

void FakeDaemon::Accept() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    std::lock_guard lock(mutex_);
    if (killed_) {
      close(fd);
      return;
    }
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void FakeDaemon::Serve(int fd) {
  Session* session = nullptr;
  std::thread ringer;
  std::vector<char> bytes(131072);
  while (true) {
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (size <= 0) break;
    int passed = -1;
    if (cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      std::memcpy(&passed, CMSG_DATA(header), sizeof(int));
    }
    v1::AttachRequest request;
    Require(request.ParseFromArray(bytes.data(), static_cast<int>(size)), "parse");
    int sent[2] = {-1, -1};
    v1::AttachResponse response;
    std::unique_lock lock(mutex_);
    if (request.has_hello()) {
      last_hello_ = request.hello();
      if (request.hello().name() == "refused") {
        *response.mutable_error() = MakeStatus(8, "TOO_MANY_SESSIONS", "too many");
        response.set_sequence(request.sequence());
      } else {
        auto made = std::make_unique<Session>();
        sent[0] = memfd_create("timelines", MFD_CLOEXEC);
        Require(ftruncate(sent[0], memfd_short_ ? 4096 : FERRY_TIMELINE_BYTES) == 0, "ftruncate");
        sent[1] = eventfd(0, EFD_CLOEXEC);
        made->id = all_.size() + 1;
        made->fd = fd;
        made->doorbell = fcntl(sent[1], F_DUPFD_CLOEXEC, 0);
        made->token = std::string(31, 't') + static_cast<char>(made->id);
        made->pages = static_cast<ferry_timeline_pages*>(
            mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, sent[0], 0));
        session = made.get();
        all_.push_back(std::move(made));
        if (!memfd_short_) session->pages->signals.lane_parked = 1;
        ringer = std::thread([this, session] { Ring(session); });
        response.set_sequence(request.sequence());
        auto* welcome = response.mutable_welcome();
        welcome->set_protocol(1);
        welcome->set_features(features_ & request.hello().features());
        welcome->set_session_id(session->id);
        welcome->set_token(session->token);
        welcome->set_incarnation(7);
        welcome->set_node("node-a");
        for (uint64_t i = 0; i < 2; ++i) {
          auto* device = welcome->add_devices();
          device->set_global_device_id(i);
          device->set_kind(v1::Device::KIND_HOST);
          device->set_name("host" + std::to_string(i));
        }
        welcome->mutable_limits()->set_bytes(1ull << 36);
        welcome->mutable_limits()->set_arenas(100);
        welcome->mutable_limits()->set_transfers_in_flight(100000);
        welcome->mutable_limits()->set_batch_transfers(4096);
        changed_.notify_all();
      }
    } else if (session != nullptr) {
      response = Answer(session, request, passed);
    }
    lock.unlock();
    const std::string packet = response.SerializeAsString();
    if (packet.empty()) continue;  // never answered
    iovec answer{const_cast<char*>(packet.data()), packet.size()};
    msghdr out{};
    out.msg_iov = &answer;
    out.msg_iovlen = 1;
    alignas(cmsghdr) char out_control[CMSG_SPACE(sizeof(sent))] = {};
    if (sent[0] >= 0) {
      out.msg_control = out_control;
      out.msg_controllen = sizeof(out_control);
      cmsghdr* header = CMSG_FIRSTHDR(&out);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(sent));
      std::memcpy(CMSG_DATA(header), sent, sizeof(sent));
    }
    sendmsg(fd, &out, MSG_NOSIGNAL);
    if (passed >= 0) close(passed);
    for (int f : sent) {
      if (f >= 0) close(f);
    }
  }
  {
    std::lock_guard lock(mutex_);
    close(fd);
    if (session != nullptr) {
      session->open = false;
      const uint64_t one = 1;
      Require(write(session->doorbell, &one, sizeof(one)) == sizeof(one), "doorbell");
    }
    changed_.notify_all();
  }
  if (ringer.joinable()) {
    ringer.join();
    close(session->doorbell);
  }
}

void FakeDaemon::Ring(Session* session) {
  uint64_t count;
  while (read(session->doorbell, &count, sizeof(count)) == sizeof(count)) {
    std::lock_guard lock(mutex_);
    if (!session->open) return;
    Progress();
  }
}

v1::AttachResponse FakeDaemon::Answer(Session* session, const v1::AttachRequest& request, int fd) {
  v1::AttachResponse response;
  response.set_sequence(request.sequence());
  if (request.has_register_arena()) {
    const uint64_t bytes = request.register_arena().bytes();
    const int seals = fcntl(fd, F_GET_SEALS);
    if (request.register_arena().device_id() > 1) {
      *response.mutable_error() = MakeStatus(5, "DEVICE_UNKNOWN", "no such device");
    } else if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      *response.mutable_error() = MakeStatus(3, "MEMFD_UNSEALED", "not sealed");
    } else {
      void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      Require(data != MAP_FAILED, "mmap");
      const uint64_t id = session->id * 1000 + ++session->registered;
      session->arenas[id] = {static_cast<char*>(data), bytes};
      response.mutable_arena_registered()->set_arena_id(id);
    }
  } else if (request.has_release_arena()) {
    const auto found = session->arenas.find(request.release_arena().arena_id());
    if (found == session->arenas.end()) {
      *response.mutable_error() = MakeStatus(5, "ARENA_NOT_FOUND", "no such arena");
    } else {
      munmap(found->second.data, found->second.bytes);
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
  if (made.error.code() != 0) {
    response->clear_response();
    *response->mutable_error() = made.error;
  } else if (made.hang) {
    response->Clear();
    ++hanging_;
    changed_.notify_all();
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
    if (StartsWith(request.transfer_keys(i), "hang")) posted.hang = true;
    if (!StartsWith(request.transfer_keys(i), "bad")) continue;
    auto* violation = bad.add_field_violations();
    violation->set_field("buffers[" + std::to_string(i) + "]");
    violation->set_description("its key says so");
  }
  if (posted.hang) return posted;
  if (request.buffers_size() != request.transfer_keys_size() ||
      request.buffers_size() != Remotes(request).size() || bad.field_violations_size() != 0) {
    posted.error = MakeStatus(3, "FIELD_INVALID", "bad batch");
    posted.error.add_details()->PackFrom(bad);
    return posted;
  }
  const uint32_t timeline = request.options().over_timeline();
  posted.first_id = session->transfers.size() + 1;
  posted.first_value = session->posted[timeline] + 1;
  for (int i = 0; i < request.buffers_size(); ++i) {
    auto transfer = std::make_unique<Transfer>();
    transfer->id = session->transfers.size() + 1;
    transfer->send = send;
    const uint64_t remote = Remotes(request)[i];
    const uint64_t source = send ? request.device_id() : remote;
    const uint64_t destination = send ? remote : request.device_id();
    transfer->match = request.domain() + "/" + std::to_string(source) + ">" +
                      std::to_string(destination) + "/" + request.transfer_keys(i);
    transfer->buffer = request.buffers(i);
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

void FakeDaemon::Progress() {
  for (const auto& from : all_) {
    const auto sends = from->waiting;  // Finish() changes it
    for (const auto& [send_id, send] : sends) {
      if (!send->send || !from->open) continue;
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

grpc::Status FakeDaemon::PostTransfers(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::PostTransfersResponse, v1::PostTransfersRequest>* stream) {
  v1::PostTransfersRequest request;
  while (stream->Read(&request)) {
    ++stream_posts_;
    Posted posted;
    {
      std::lock_guard lock(mutex_);
      Session* session = Find(context);
      if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
      posted = request.has_send() ? Post(session, request.send(), true)
                                  : Post(session, request.receive(), false);
    }
    if (posted.hang) return Hang(context);
    v1::PostTransfersResponse response;
    response.set_sequence(request.sequence());
    if (posted.error.code() != 0) {
      *response.mutable_error() = posted.error;
    } else {
      response.set_first_transfer_id(posted.first_id);
      response.set_first_over_value(posted.first_value);
    }
    stream->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::CancelTransfers(grpc::ServerContext* context,
                                         const v1::CancelTransfersRequest* request,
                                         v1::CancelTransfersResponse* response) {
  std::lock_guard lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  for (uint64_t id : request->transfer_ids()) {
    Transfer* transfer = session->transfers.at(id - 1).get();
    if (transfer->over) {
      response->set_over(response->over() + 1);
      continue;
    }
    response->set_requested(response->requested() + 1);
    Finish(session, transfer,
           request->has_poison() ? MakeStatus(10, "POISONED", request->poison().message())
                                 : MakeStatus(1, "CANCELLED", "cancelled"));
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetTransfers(grpc::ServerContext* context,
                                      const v1::GetTransfersRequest* request,
                                      v1::GetTransfersResponse* response) {
  std::lock_guard lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  for (uint64_t id : request->transfer_ids()) {
    if (id == 0 || id > session->transfers.size() ||
        (forget_ && session->transfers[id - 1]->status.code() != 0)) {
      return ToGrpc(MakeStatus(5, "TRANSFER_NOT_FOUND", "no such transfer"));
    }
    const Transfer& transfer = *session->transfers[id - 1];
    auto* out = response->add_transfers();
    out->set_transfer_id(id);
    out->set_state(transfer.over ? v1::TRANSFER_STATE_OVER : v1::TRANSFER_STATE_WAITING);
    if (transfer.over) *out->mutable_status() = transfer.status;
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::WatchTransfers(grpc::ServerContext* context,
                                        const v1::WatchTransfersRequest* request,
                                        grpc::ServerWriter<v1::WatchTransfersResponse>* writer) {
  uint64_t next = request->after_event();
  std::unique_lock lock(mutex_);
  Session* session = Find(context);
  if (session == nullptr) return ToGrpc(MakeStatus(16, "SESSION_INVALID", "no session"));
  while (!killed_ && session->open && !context->IsCancelled()) {
    if (next == session->endings.size()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      continue;
    }
    v1::WatchTransfersResponse response;
    response.set_first_event(next + 1);
    for (; next < session->endings.size(); ++next) *response.add_ended() = session->endings[next];
    lock.unlock();
    writer->Write(response);
    lock.lock();
  }
  return grpc::Status::OK;
}

}  // namespace ferry::testing
