// SPDX-License-Identifier: Apache-2.0
// ferry_test_client CLIENT_DIR NAME [UID]: a client that does what it reads on its standard input;
// the commands are listed in tests/support/client_process.h. Single-threaded but for libferry.
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ferry/ferry.hpp"
#include "proto/ferry/v1/timeline_layout.h"
#include "tests/support/fork.h"
#include "tests/support/pattern.h"

namespace ferry::testing {
namespace {

std::string Name(const Status& status) {
  if (status.ok()) return "OK";
  std::string text(status.code_name());
  text.append("/").append(status.reason()).append(" ").append(status.message());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

class Client {
 public:
  explicit Client(Session session) : session_(std::move(session)) {}

  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    auto it = commands_.find(command);
    return it == commands_.end() ? "unknown command " + command : it->second(words);
  }

 private:
  struct MadeArena {
    Arena arena;
    int memfd = -1;
  };

  template <typename T>
  static T Next(std::istream& words) {
    T value{};
    words >> value;
    return value;
  }
  MadeArena& NextArena(std::istream& words) { return arenas_.at(Next<size_t>(words)); }
  Prepared& NextPrepared(std::istream& words) { return prepared_.at(Next<size_t>(words)); }
  Batch& NextBatch(std::istream& words) { return batches_.at(Next<size_t>(words)); }

  std::string Keep(Result<Arena> arena, int memfd) {
    if (!arena.ok()) return Name(arena.status());
    arenas_.push_back({std::move(*arena), memfd});
    return "OK " + std::to_string(arenas_.size() - 1);
  }

  std::string Post(std::istream& words, bool send, bool prepare = false) {
    const uint64_t device = Next<uint64_t>(words);
    const uint64_t remote = Next<uint64_t>(words);
    const std::string key = Next<std::string>(words);
    const Arena& arena = NextArena(words).arena;
    const uint64_t offset = Next<uint64_t>(words);
    const uint64_t bytes = Next<uint64_t>(words);
    size_t count = 0;
    PostOptions options;
    std::optional<Transfer::DefinedAt> defined;
    for (std::string word; words >> word;) {
      const std::string value = word.substr(word.find('=') + 1);
      if (word.rfind("count=", 0) == 0) count = strtoull(value.c_str(), nullptr, 10);
      if (word.rfind("domain=", 0) == 0) options.domain = value;
      if (word.rfind("route=", 0) == 0) options.route = atoi(value.c_str());
      if (word.rfind("deadline_ms=", 0) == 0)
        options.deadline = std::chrono::milliseconds(atol(value.c_str()));
      if (word.rfind("defined=", 0) == 0) {
        defined = Transfer::DefinedAt{static_cast<uint32_t>(atoi(value.c_str())),
                                      strtoull(value.c_str() + value.find(':') + 1, nullptr, 10)};
      }
    }
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
      transfers.emplace_back(remote, count == 0 ? key : key + "." + std::to_string(i),
                             std::vector<Range>{arena.Range(offset + i * bytes, bytes)});
      transfers.back().defined_at = defined;
    }
    if (prepare) {
      Result<Prepared> prepared = send ? session_.PrepareSend(device, transfers, options)
                                       : session_.PrepareReceive(device, transfers, options);
      if (!prepared.ok()) return Name(prepared.status());
      prepared_.push_back(std::move(*prepared));
      return "OK " + std::to_string(prepared_.size() - 1);
    }
    Result<Batch> batch = send ? session_.Send(device, transfers, options)
                               : session_.Receive(device, transfers, options);
    if (!batch.ok()) return Name(batch.status());
    batches_.push_back(std::move(*batch));
    return "OK " + std::to_string(batches_.size() - 1);
  }

  // Finds the timelines as anybody in this process could: the memfd mapping of their size.
  static std::string Scribble(uint64_t seed) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin = 0, end = 0;
      if (line.find("memfd:") == std::string::npos ||
          sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 ||
          end - begin != FERRY_TIMELINE_BYTES) {
        continue;
      }
      std::mt19937_64 random(seed);
      auto* words = reinterpret_cast<volatile uint64_t*>(begin);
      for (size_t i = 0; i < FERRY_TIMELINE_BYTES / 8; ++i) words[i] = random();
      return "OK";
    }
    return "no timelines found";
  }

  std::string Fork() {
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) return "no pipe";
    const pid_t child = ForkToAllocate();
    if (child == 0) {
      const std::string name = Name(session_.CreateArena(0, 4096).status());
      [[maybe_unused]] const ssize_t written = write(pipe_fds[1], name.data(), name.size());
      _exit(0);
    }
    close(pipe_fds[1]);
    std::string answer;
    char buffer[512];
    for (ssize_t size; (size = read(pipe_fds[0], buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(size));
    }
    close(pipe_fds[0]);
    waitpid(child, nullptr, 0);
    return answer;
  }

  std::string ForkHold() {
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) return "no pipe";
    if (fork() == 0) {
      close(STDIN_FILENO);
      close(STDOUT_FILENO);
      close(pipe_fds[1]);  // the parent's end stays open as long as the parent lives
      prctl(PR_SET_PDEATHSIG, 0);
      char byte;
      [[maybe_unused]] const ssize_t ended = read(pipe_fds[0], &byte, 1);
      // The parent is gone: long enough for the daemon to be seen to notice it, though this child
      // lives.
      alarm(20);
      pause();
      _exit(0);
    }
    close(pipe_fds[0]);
    return "OK";
  }

  Session session_;
  std::vector<MadeArena> arenas_;
  std::vector<Batch> batches_;
  std::vector<Prepared> prepared_;
  const std::map<std::string, std::function<std::string(std::istream&)>> commands_ = {
      {"arena",
       [this](std::istream& words) {
         const uint64_t device = Next<uint64_t>(words);
         const uint64_t bytes = Next<uint64_t>(words);
         const bool bare = Next<std::string>(words) == "nopopulate";
         return Keep(session_.CreateArena(device, bytes, bare ? FERRY_ARENA_NO_POPULATE : 0), -1);
       }},
      {"import",
       [this](std::istream& words) {
         const uint64_t device = Next<uint64_t>(words);
         const uint64_t bytes = Next<uint64_t>(words);
         const int memfd = memfd_create("ferry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
         if (memfd < 0 || ftruncate(memfd, static_cast<off_t>(bytes)) != 0 ||
             fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
           return std::string("no memfd");
         }
         return Keep(session_.ImportArena(device, memfd, bytes), memfd);
       }},
      {"release", [this](std::istream& words) { return Name(NextArena(words).arena.Release()); }},
      {"fill",
       [this](std::istream& words) {
         Arena& arena = NextArena(words).arena;
         const uint64_t offset = Next<uint64_t>(words);
         std::string bytes(Next<uint64_t>(words), '\0');
         FillPattern(bytes.data(), bytes.size(), Next<uint64_t>(words));
         return Name(arena.Write(offset, bytes.data(), bytes.size()));
       }},
      {"check",
       [this](std::istream& words) {
         const Arena& arena = NextArena(words).arena;
         const uint64_t offset = Next<uint64_t>(words);
         std::string bytes(Next<uint64_t>(words), '\0');
         if (Status read = arena.Read(offset, bytes.data(), bytes.size()); !read.ok()) {
           return Name(read);
         }
         const uint64_t at = FirstDifference(bytes.data(), bytes.size(), Next<uint64_t>(words));
         return at == bytes.size() ? "OK" : "DIFFERS " + std::to_string(at);
       }},
      {"punch",
       [this](std::istream& words) {
         const int memfd = NextArena(words).memfd;
         const uint64_t offset = Next<uint64_t>(words);
         const uint64_t bytes = Next<uint64_t>(words);
         const int result = fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                      static_cast<off_t>(offset), static_cast<off_t>(bytes));
         return result == 0 ? std::string("OK") : std::string(strerror(errno));
       }},
      {"send", [this](std::istream& words) { return Post(words, true); }},
      {"receive", [this](std::istream& words) { return Post(words, false); }},
      {"prepare_send", [this](std::istream& words) { return Post(words, true, true); }},
      {"prepare_receive", [this](std::istream& words) { return Post(words, false, true); }},
      {"fire",
       [this](std::istream& words) {
         Prepared& prepared = NextPrepared(words);
         const uint64_t times = Next<uint64_t>(words);
         for (uint64_t i = 0; i < times; ++i) {
           if (Status fired = prepared.Fire(); !fired.ok()) return Name(fired);
           if (Status over = prepared.Wait(); !over.ok()) return Name(over);
         }
         return "OK " + std::to_string(prepared.over());
       }},
      {"wait",
       [this](std::istream& words) {
         Batch& batch = NextBatch(words);
         return Name(batch.Wait(std::chrono::milliseconds(Next<int64_t>(words))));
       }},
      {"over",
       [this](std::istream& words) {
         return "OK " + std::to_string(NextBatch(words).over() ? 1 : 0);
       }},
      {"define",
       [this](std::istream& words) {
         const uint32_t timeline = Next<uint32_t>(words);
         return Name(session_.Define(timeline, Next<uint64_t>(words)));
       }},
      {"cancel", [this](std::istream& words) { return Name(NextBatch(words).Cancel()); }},
      {"poison",
       [this](std::istream& words) {
         Batch& batch = NextBatch(words);
         return Name(batch.Poison(Next<std::string>(words)));
       }},
      {"join",
       [this](std::istream& words) {
         const std::string domain = Next<std::string>(words);
         const uint64_t device = Next<uint64_t>(words);
         return Name(session_.JoinDomain(domain, device, Next<std::string>(words)));
       }},
      {"health", [this](std::istream&) { return Name(session_.Health()); }},
      {"scribble", [](std::istream& words) { return Scribble(Next<uint64_t>(words)); }},
      {"fork", [this](std::istream&) { return Fork(); }},
      {"forkhold", [this](std::istream&) { return ForkHold(); }},
  };
};

int Main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (argc > 3) {
    const auto uid = static_cast<uid_t>(atoi(argv[3]));
    if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) return 3;
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user forgets it
  }
  SessionOptions options;
  options.client_dir = argv[1];
  options.name = argv[2];
  Result<Session> session = Session::Open(options);
  if (!session.ok()) {
    std::cout << Name(session.status()) << std::endl;
    return 1;
  }
  std::cout << "OK" << std::endl;
  Client client(std::move(*session));
  for (std::string line; std::getline(std::cin, line) && line != "exit";) {
    std::cout << client.Do(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace ferry::testing

int main(int argc, char** argv) { return ferry::testing::Main(argc, argv); }
