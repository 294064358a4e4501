// SPDX-License-Identifier: Apache-2.0
#include "tests/client/fake/fake_daemon.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace ferry::testing {

void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

FakeDaemon::FakeDaemon(std::string dir, Behaviour behaviour)
    : dir_(std::move(dir)), behaviour_(behaviour) {
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
  builder.RegisterService(&compiler_);
  builder.RegisterService(&cluster_);
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
    for (auto& [id, arena] : session->arenas) {
      if (arena.data != nullptr) munmap(arena.data, arena.bytes);
    }
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

void FakeDaemon::WaitForHellos(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return hellos_ >= count; });
}

size_t FakeDaemon::sessions() {
  std::lock_guard lock(mutex_);
  return std::count_if(all_.begin(), all_.end(), [](const auto& s) { return s->open; });
}

size_t FakeDaemon::hellos() {
  std::lock_guard lock(mutex_);
  return hellos_;
}

v1::Hello FakeDaemon::last_hello() {
  std::lock_guard lock(mutex_);
  return last_hello_;
}

v1::RegisterArena FakeDaemon::last_arena() {
  std::lock_guard lock(mutex_);
  return last_arena_;
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

void FakeDaemon::WaitForEventWaiter() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      for (const auto& session : all_) {
        if (std::atomic_ref(session->pages->signals.event_waiters).load() != 0) return;
      }
    }
    std::this_thread::yield();
  }
}

size_t FakeDaemon::prepared_waiters() {
  std::lock_guard lock(mutex_);
  size_t waiters = 0;
  for (const auto& session : all_) {
    for (ferry_timeline_line& over : session->pages->prepared_over) {
      waiters += std::atomic_ref(over.waiters).load();
    }
  }
  return waiters;
}

void FakeDaemon::Meet() {
  std::lock_guard lock(mutex_);
  met_ = true;
  Progress();
}

void FakeDaemon::set_forget(bool forget) {
  std::lock_guard lock(mutex_);
  forget_ = forget;
}

void FakeDaemon::set_memfd_short(bool on) {
  std::lock_guard lock(mutex_);
  memfd_short_ = on;
}

void FakeDaemon::set_refusal(std::string message,
                             std::vector<std::pair<std::string, std::string>> violations) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(message);
  refused_ = std::move(violations);
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
    alignas(cmsghdr) char control[CMSG_SPACE(250 * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (size <= 0) break;
    std::vector<int> passed;
    if (cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      passed.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(passed.data(), CMSG_DATA(header), passed.size() * sizeof(int));
    }
    v1::AttachRequest request;
    Require(request.ParseFromArray(bytes.data(), static_cast<int>(size)), "parse");
    std::vector<int> sent;
    v1::AttachResponse response;
    std::unique_lock lock(mutex_);
    if (request.has_hello()) {
      session = Welcome(request, fd, passed.empty() ? -1 : passed[0], &response, &sent);
      if (session != nullptr) ringer = std::thread([this, session] { Ring(session); });
    } else if (session != nullptr) {
      response = Answer(session, request, passed, &sent);
    }
    lock.unlock();
    const std::string packet = response.SerializeAsString();
    if (packet.empty()) continue;  // never answered
    iovec answer{const_cast<char*>(packet.data()), packet.size()};
    msghdr out{};
    out.msg_iov = &answer;
    out.msg_iovlen = 1;
    alignas(cmsghdr) char out_control[CMSG_SPACE(2 * sizeof(int))] = {};
    if (!sent.empty()) {
      out.msg_control = out_control;
      out.msg_controllen = CMSG_SPACE(sent.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&out);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sent.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), sent.data(), sent.size() * sizeof(int));
    }
    sendmsg(fd, &out, MSG_NOSIGNAL);
    for (int f : passed) close(f);
    for (int f : sent) close(f);
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

FakeDaemon::Session* FakeDaemon::Welcome(const v1::AttachRequest& request, int fd, int passed,
                                         v1::AttachResponse* response, std::vector<int>* sent) {
  const v1::Hello& hello = request.hello();
  last_hello_ = hello;
  ++hellos_;
  changed_.notify_all();
  response->set_sequence(request.sequence());
  if (hello.name() == "refused") {
    *response->mutable_error() = MakeStatus(8, "TOO_MANY_SESSIONS", "too many");
    return nullptr;
  }
  if (behaviour_.draining_hellos > 0) {
    --behaviour_.draining_hellos;
    *response->mutable_error() = MakeStatus(14, "DRAINING", "about to stop");
    return nullptr;
  }
  const bool resumes = hello.has_resume();
  auto made = std::make_unique<Session>();
  int memfd = passed;
  if (!resumes) {
    memfd = memfd_create("timelines", MFD_CLOEXEC);
    Require(ftruncate(memfd, memfd_short_ ? 4096 : FERRY_TIMELINE_BYTES) == 0, "ftruncate");
    sent->push_back(memfd);
  }
  sent->push_back(eventfd(0, EFD_CLOEXEC));
  made->id = all_.size() + 1;
  made->fd = fd;
  made->doorbell = fcntl(sent->back(), F_DUPFD_CLOEXEC, 0);
  made->token = std::string(31, 't') + static_cast<char>(made->id);
  made->pages = static_cast<ferry_timeline_pages*>(
      mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  Require(made->pages != MAP_FAILED, "mmap");
  if (resumes) {
    made->before = hello.resume().next_transfer_id() - 1;
    made->prepared_from = hello.resume().prepared_from();
    for (int i = 0; i < hello.resume().over_size(); ++i) {
      made->posted[i] = hello.resume().over(i).value();
    }
  }
  Session* session = made.get();
  all_.push_back(std::move(made));
  if (!memfd_short_) session->pages->signals.lane_parked = 1;
  auto* welcome = response->mutable_welcome();
  welcome->set_protocol(behaviour_.protocol);
  welcome->set_session_id(session->id);
  welcome->set_token(session->token);
  welcome->set_incarnation(7);
  welcome->set_node("node-a");
  for (uint64_t i = 0; i < behaviour_.devices; ++i) {
    auto* device = welcome->add_devices();
    device->set_global_device_id(i);
    device->set_kind(v1::Device::KIND_HOST);
    device->set_name("host" + std::to_string(i));
  }
  for (uint64_t i = 0; i < behaviour_.gpus; ++i) {
    auto* device = welcome->add_devices();
    device->set_global_device_id(behaviour_.devices + i);
    device->set_kind(v1::Device::KIND_GPU);
    device->set_name("gpu" + std::to_string(i));
    device->set_uuid("ferry-fake-" + std::string(4, '\0') + static_cast<char>(i));
  }
  welcome->mutable_limits()->set_bytes(1ull << 36);
  welcome->mutable_limits()->set_arenas(100);
  welcome->mutable_limits()->set_transfers_in_flight(100000);
  welcome->mutable_limits()->set_batch_transfers(4096);
  return session;
}

void FakeDaemon::Ring(Session* session) {
  uint64_t count;
  while (read(session->doorbell, &count, sizeof(count)) == sizeof(count)) {
    std::lock_guard lock(mutex_);
    if (!session->open) return;
    Progress();
  }
}

}  // namespace ferry::testing
