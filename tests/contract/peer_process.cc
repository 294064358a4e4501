// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/peer_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/contract/rig.h"

extern char** environ;

namespace ferry {
namespace {

constexpr int kPeerSocket = 3;

void WriteAll(int fd, const void* data, size_t size) {
  FERRY_CHECK(send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

bool ReadAll(int fd, void* data, size_t size) {
  return size == 0 || recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

void WriteString(int fd, const std::string& text) {
  const uint32_t size = static_cast<uint32_t>(text.size());
  WriteAll(fd, &size, sizeof(size));
  WriteAll(fd, text.data(), size);
}

std::string ReadString(int fd) {
  uint32_t size = 0;
  FERRY_CHECK(ReadAll(fd, &size, sizeof(size)));
  std::string text(size, '\0');
  FERRY_CHECK(ReadAll(fd, text.data(), size));
  return text;
}

struct CommandMessage {
  char what = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;
};

}  // namespace

PeerProcess::PeerProcess(const std::string& kind, const UcxAddressBlob& ours) {
  int ends[2];
  FERRY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  socket_.Reset(ends[0]);
  UniqueFd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kPeerSocket);
  std::string role = "--peer=" + kind;
  std::string program = "ferry-contract-peer";
  char* arguments[] = {program.data(), role.data(), nullptr};
  FERRY_CHECK(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  theirs.Reset();
  WriteString(socket_.get(), ours.kind);
  WriteString(socket_.get(), ours.address);
  address_.kind = ReadString(socket_.get());
  address_.address = ReadString(socket_.get());
}

PeerProcess::~PeerProcess() { Kill(); }

void PeerProcess::Command(char what, uint64_t tag, uint64_t bytes) {
  const CommandMessage command = {what, tag, bytes};
  WriteAll(socket_.get(), &command, sizeof(command));
  char done = 0;
  FERRY_CHECK(ReadAll(socket_.get(), &done, 1));
}

void PeerProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void PeerProcess::Stop() {
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
  FERRY_CHECK(WIFSTOPPED(status));
}

void PeerProcess::Continue() { kill(pid_, SIGCONT); }

int RunPeer(const std::string& kind, int socket) {
  constexpr uint64_t kArena = uint64_t{256} << 20;
  void* const arena = mmap(nullptr, kArena, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  FERRY_CHECK(arena != MAP_FAILED);
  const auto api = LoadUcx();
  FERRY_CHECK(api.ok());
  Lane lane("peer-lane", Lane::DefaultSpin());
  auto transport = UcxTransport::Create(**api, OnlyKind(kind), lane, [](std::vector<OpResult>) {});
  FERRY_CHECK(transport.ok());
  UcxAddressBlob theirs;
  theirs.kind = ReadString(socket);
  theirs.address = ReadString(socket);
  lane.RunAndWait([&] { (*transport)->AddPeer(PeerId(0), GlobalDeviceId(0), theirs, 0); });
  WriteString(socket, (*transport)->addresses(PeerId(0))[0].kind);
  WriteString(socket, (*transport)->addresses(PeerId(0))[0].address);
  CommandMessage command;
  while (ReadAll(socket, &command, sizeof(command))) {
    lane.RunAndWait([&] {
      TransportOp op;
      op.transfer = TransferId(command.tag);
      op.role = command.what == 's' ? LaunchRole::kSend : LaunchRole::kReceive;
      op.peer = PeerId(0);
      op.remote_device = GlobalDeviceId(0);
      op.tag = command.tag;
      op.segments.push_back({static_cast<std::byte*>(arena), command.bytes});
      std::vector<TransportOp> ops;
      ops.push_back(std::move(op));
      (*transport)->Launch(std::move(ops));
    });
    WriteAll(socket, "x", 1);
  }
  return 0;
}

}  // namespace ferry

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role.rfind("--peer=", 0) == 0) return ferry::RunPeer(role.substr(7), 3);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
