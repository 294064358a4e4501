// SPDX-License-Identifier: Apache-2.0
// client_trap FAKE_DAEMON: a program whose dynamic symbols are all functions of gRPC,
// Protobuf, Abseil, c-ares and zlib, each one a trap, plays a whole session. Every call that the
// library made through the program would end here.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ferry/ferry.hpp"

extern "C" [[noreturn]] void ferry_trap_hit() {
  static const char kText[] =
      "FAIL: libferry called a function of the program's gRPC, Abseil or Protobuf\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(99);
}

namespace {

void Require(bool ok, const std::string& what) {
  if (ok) return;
  std::fprintf(stderr, "FAIL: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T Take(ferry::Result<T> result) {
  Require(result.ok(), result.status().ToString());
  return std::move(*result);
}

// With `by_calls` what is posted is too long for the session's socket.
void PlaySession(const std::string& dir, bool by_calls) {
  ferry::SessionOptions options;
  options.client_dir = dir;
  ferry::Session session = Take(ferry::Session::Open(options));
  int endings = 0;
  auto watcher = [&](uint64_t, const ferry_status*) { ++endings; };
  Require(session.Watch(&watcher).ok(), "watch");
  ferry::Arena source = Take(session.CreateArena(0, 1 << 20));
  ferry::Arena target = Take(session.CreateArena(1, 1 << 20));
  ferry::PostOptions other;
  other.over_timeline = 1;
  static_cast<char*>(source.data())[5] = 'x';
  std::vector<ferry::Range> from = {source.All()}, to = {target.All()};
  if (by_calls) {  // a range without bytes takes four
    from.resize(40'000, source.Range(0, 0));
    to.resize(40'000, target.Range(0, 0));
  }
  ferry::Batch receive = Take(session.Receive(1, {{0, "k", to}}, other));
  ferry::Batch send = Take(session.Send(0, {{1, "k", from}, {1, "fail", {}}}));
  Require(receive.Wait().ok(), "receive");
  Require(send.Wait().reason() == "TRANSFER_MISMATCH", "the failure's reason");
  Require(static_cast<char*>(target.data())[5] == 'x', "the bytes");
  ferry::Batch cancelled = Take(session.Receive(1, {{0, "never", {}}}, other));
  auto future = std::move(cancelled).Future();
  session.Close();
  Require(future.get().reason() == "CANCELLED", "the end of what was pending");
}

}  // namespace

int main(int argc, char** argv) {
  Require(argc == 2, "usage: client_trap FAKE_DAEMON");
  // The traps are where a library would find them.
  for (const char* name :
       {"grpc_init", "grpc_call_start_batch", "gpr_malloc", "inflate", "ares_init",
        "_ZN6google8protobuf11MessageLite15ParseFromStringERKNSt7__cxx1112basic_"
        "stringIcSt11char_traitsIcESaIcEEE"}) {
    Require(dlsym(RTLD_DEFAULT, name) != nullptr, std::string(name) + " is not exported");
    Dl_info info;
    Require(dladdr(dlsym(RTLD_DEFAULT, name), &info) != 0 &&
                std::filesystem::equivalent(info.dli_fname, "/proc/self/exe"),
            std::string(name) + " is not the program's");
  }
  char pattern[] = "/tmp/ferry-trap-XXXXXX";
  const std::string dir = mkdtemp(pattern);
  int in[2];
  int out[2];
  Require(pipe(in) == 0 && pipe(out) == 0, "pipe");
  const pid_t daemon = fork();
  if (daemon == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    execl(argv[1], argv[1], dir.c_str(), nullptr);
    _exit(127);
  }
  char ready;
  Require(read(out[0], &ready, 1) == 1, "the fake daemon did not start");
  for (const bool by_calls : {false, true}) PlaySession(dir, by_calls);
  close(in[1]);
  waitpid(daemon, nullptr, 0);
  std::filesystem::remove_all(dir);
  std::puts("two sessions, nothing captured");
  return 0;
}
