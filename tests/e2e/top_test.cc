// SPDX-License-Identifier: Apache-2.0
// ferryctl top on real daemons: in a pipe, and in a terminal with keys, signals and stops.
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/fixtures.h"
#include "tests/support/pty.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOtherScreen[] = "\x1b[?1049h";
constexpr char kBackAgain[] = "\x1b[?1049l";

// What a program writes into a pipe, line by line.
class Lines {
 public:
  explicit Lines(const std::vector<std::string>& arguments) {
    SpawnOptions options;
    options.arguments = arguments;
    options.pipes = true;
    process_.emplace(options);
  }
  // Whether a line comes that satisfies `condition`; all before it are forgotten.
  template <typename Condition>
  bool Await(Condition condition) {
    const auto deadline = Clock::now() + kSoon;
    while (Clock::now() < deadline) {
      const size_t end = text_.find('\n');
      if (end != text_.npos) {
        const std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        if (condition(line)) return true;
        continue;
      }
      char buffer[4096];
      const ssize_t got = read(process_->output(), buffer, sizeof(buffer));
      if (got <= 0) return false;
      text_.append(buffer, static_cast<size_t>(got));
    }
    return false;
  }
  Process& process() { return *process_; }

 private:
  std::optional<Process> process_;
  std::string text_;
};

class TopTest : public ClusterTest {
 protected:
  std::vector<std::string> Top(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {FerryctlProgram(), "top", node(0).runtime_dir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // The last whole screen, without what only terminals see.
  static std::string Screen(const std::string& output) {
    const size_t last = output.rfind("\x1b[H");
    const size_t begin =
        last == 0 || last == output.npos ? output.npos : output.rfind("\x1b[H", last - 1);
    if (begin == output.npos) return "";
    std::string screen = output.substr(begin, last - begin);
    // The terminal itself makes "\r\n" of each "\n".
    for (const char* code : {"\r", "\x1b[H", "\x1b[K", "\x1b[7m", "\x1b[1;7m", "\x1b[0m"}) {
      for (size_t at; (at = screen.find(code)) != screen.npos;) screen.erase(at, strlen(code));
    }
    return screen;
  }
  static bool AwaitScreen(Pty& terminal, const std::string& part) {
    return terminal.AwaitOutput(
        [&](const std::string& output) { return Screen(output).find(part) != std::string::npos; });
  }
  // In a shell, which says how it ends and then waits for a line.
  Pty& Begin(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--interval", "100ms"});
    terminal_.emplace(
        std::vector<std::string>{"/bin/sh", "-c",
                                 absl::StrCat("trap : INT; ", absl::StrJoin(Top(more), " "),
                                              "; echo \"ended $?\"; read -r line")},
        40, 160);
    EXPECT_TRUE(AwaitScreen(*terminal_, "q quit")) << terminal_->output();
    return *terminal_;
  }
  void Signal(int signal) { ASSERT_EQ(kill(terminal_->Child(), signal), 0); }
  // It has ended so, and the shell has its terminal as it was.
  void ExpectEnded(int status) {
    EXPECT_TRUE(terminal_->AwaitText(absl::StrCat("ended ", status, "\r\n")))
        << terminal_->output();
    ExpectLeft(*terminal_);
    terminal_->Type("\n");
    EXPECT_TRUE(terminal_->Wait().has_value());
  }
  static void ExpectLeft(Pty& terminal) {
    EXPECT_THAT(terminal.output(), HasSubstr(kBackAgain));
    EXPECT_THAT(terminal.output(), HasSubstr("\x1b[?25h")) << "the cursor";
    EXPECT_THAT(terminal.output(), HasSubstr("\x1b[?7h")) << "long lines";
    EXPECT_TRUE(terminal.IsOrdinary());
  }
  void TearDown() override {
    terminal_.reset();
    ClusterTest::TearDown();
  }
  std::optional<Pty> terminal_;
};

TEST_F(TopTest, APipeGetsScreensOfAllDaemons) {
  Start();
  End source = OpenEnd(0, 4096, 0, "source"), destination = OpenEnd(1, 4096, 0, "destination");
  ExpectTransfer(source, destination, "k");
  Batch waiting = Must(source.session.Send(0, {Transfer(2, "lonely", {})}));
  const Finished done =
      RunProgram(Top({node(1).runtime_dir(), "--iterations", "2", "--interval", "100ms"}));
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(done.output, "ferryctl top  ")).size(), 3u);
  EXPECT_THAT(done.output, ContainsRegex("node-a .* serving\n"));
  EXPECT_THAT(done.output, ContainsRegex("node-b .* serving\n"));
  EXPECT_THAT(done.output, ContainsRegex("node-b +2  host  .* goes on\n")) << "a device";
  EXPECT_THAT(done.output, ContainsRegex("node-a  mapped ")) << "a route";
  EXPECT_THAT(done.output, ContainsRegex("node-a  node-b  .* up")) << "a peer";
  EXPECT_THAT(done.output, ContainsRegex("node-a +[0-9]+  source "));
  EXPECT_THAT(done.output, ContainsRegex("'lonely' .* the receive at node-b"));
  EXPECT_THAT(done.output, Not(HasSubstr("\x1b")));
}

TEST_F(TopTest, RatesAreOfWhatMovesMeanwhile) {
  Start();
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  ExpectTransfer(source, destination, "before");
  Lines lines({FerryctlProgram(), "--json", "top", node(0).runtime_dir(), node(1).runtime_dir(),
               "--interval", "100ms"});
  int n = 0;
  nlohmann::json seen;
  EXPECT_TRUE(lines.Await([&](const std::string& line) {
    ExpectTransfer(source, destination, absl::StrCat("k", n++));
    seen = nlohmann::json::parse(line);
    const auto& devices = seen["devices"];
    return devices.size() == 4 && devices[0].value("sent_bytes_per_second", 0.0) > 0 &&
           devices[2].value("received_bytes_per_second", 0.0) > 0;
  })) << seen.dump(1);
  // Nothing moves any more.
  EXPECT_TRUE(lines.Await([&](const std::string& line) {
    seen = nlohmann::json::parse(line);
    return seen["devices"][0].value("sent_bytes_per_second", 1.0) == 0 &&
           seen["devices"][2].value("received_bytes_per_second", 1.0) == 0;
  })) << seen.dump(1);
}

TEST_F(TopTest, ADaemonThatGoesIsSaidToBeGoneAndIsShownAgain) {
  Start();
  Lines lines({FerryctlProgram(), "--json", "top", node(0).runtime_dir(), node(1).runtime_dir(),
               "--interval", "100ms"});
  std::string last;
  const auto state = [&](const std::string& line) {
    last = line;
    const nlohmann::json screen = nlohmann::json::parse(line);
    for (const auto& daemon : screen["daemons"]) {
      if (daemon["node"] == "node-b") return daemon["state"].get<std::string>();
    }
    return std::string();
  };
  ASSERT_TRUE(lines.Await([&](const std::string& line) { return state(line) == "serving"; }));
  node(1).Kill();
  EXPECT_TRUE(lines.Await([&](const std::string& line) {
    return state(line).find("no daemon listens there") != std::string::npos;
  })) << last;
  EXPECT_EQ(nlohmann::json::parse(last)["devices"].size(), 2u) << "of the other one";
  ASSERT_TRUE(node(1).Start());
  EXPECT_TRUE(lines.Await([&](const std::string& line) {
    return state(line).find("serving, began anew") == 0;
  })) << last;
  EXPECT_EQ(nlohmann::json::parse(last)["devices"].size(), 4u);
}

TEST_F(TopTest, AStoppedDaemonHoldsUpNobody) {
  Start();
  Lines lines({FerryctlProgram(), "--json", "top", node(0).runtime_dir(), node(1).runtime_dir(),
               "--interval", "100ms"});
  const auto await = [&](const std::string& words) {
    return lines.Await([&](const std::string& line) { return line.find(words) != line.npos; });
  };
  ASSERT_TRUE(await("\"node\":\"node-b\""));
  node(1).Signal(SIGSTOP);
  EXPECT_TRUE(await("no answer for "));
  node(1).Signal(SIGCONT);
  EXPECT_TRUE(lines.Await([&](const std::string& line) {
    return nlohmann::json::parse(line)["devices"].size() == 4u;
  }));
}

TEST_F(TopTest, WithoutAnyDaemonItSaysSoAndEnds) {
  Start({.nodes = 1});
  TemporaryDirectory empty;
  Finished done = RunProgram({FerryctlProgram(), "top", empty.path()});
  EXPECT_EQ(done.status, 4);
  EXPECT_THAT(done.output, HasSubstr("no daemon listens there"));
  // With another one there is something to see.
  done = RunProgram(Top({empty.path(), "-n", "1", "--interval", "100ms"}));
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.output, AllOf(HasSubstr("node-a"), HasSubstr("gone for ")));
  EXPECT_THAT(Ferryctl("top --interval 0", 2), HasSubstr("interval"));
  EXPECT_THAT(Ferryctl("top --iterations 0", 2), HasSubstr("iterations"));
}

TEST_F(TopTest, WhatClientsSayDoesNotReachTheTerminal) {
  Start({.nodes = 1});
  Session session = nodes().Open(0);
  Batch waiting = Must(session.Send(0, {Transfer(1, "\x1b[2J\x1b]0;mine\x07", {})}));
  Pty& terminal = Begin();
  EXPECT_TRUE(AwaitScreen(terminal, "1b5b324a1b5d303b6d696e6507")) << terminal.output();
  EXPECT_THAT(terminal.output(), Not(HasSubstr("\x1b]")));
  EXPECT_THAT(terminal.output(), Not(HasSubstr("\x07")));
}

TEST_F(TopTest, KeysChooseAndSortAndEnd) {
  Start();
  Pty& terminal = Begin({node(1).runtime_dir()});
  EXPECT_THAT(terminal.output(), HasSubstr(kOtherScreen));
  EXPECT_FALSE(terminal.IsOrdinary());
  EXPECT_TRUE(AwaitScreen(terminal, "NODE*")) << terminal.output();
  terminal.Type("d>");
  EXPECT_TRUE(AwaitScreen(terminal, "KIND*")) << terminal.output();
  terminal.Type("\x1b[D\x1b[D");
  EXPECT_TRUE(AwaitScreen(terminal, "NODE*   DEVICE")) << terminal.output();
  terminal.Type("R");
  EXPECT_TRUE(terminal.AwaitOutput([](const std::string& output) {
    const std::string screen = Screen(output);
    const size_t devices = screen.find("NODE*   DEVICE");
    return devices != screen.npos &&
           screen.find("node-b", devices) < screen.find("node-a", devices);
  })) << terminal.output();
  terminal.Type("\r");
  EXPECT_TRUE(terminal.AwaitOutput([](const std::string& output) {
    const std::string screen = Screen(output);
    return screen.find("KIND") != screen.npos && screen.find("ROUTE") == screen.npos;
  })) << terminal.output();
  terminal.Type("q");
  ExpectEnded(0);
}

TEST_F(TopTest, TheScreenHasTheSizeOfTheTerminal) {
  Start({.nodes = 1});
  Pty& terminal = Begin();
  const auto lines = [](const std::string& output) {
    return std::vector<std::string>(absl::StrSplit(Screen(output), '\n'));
  };
  ASSERT_EQ(lines(terminal.output()).size(), 40u);
  terminal.Resize(10, 50);
  EXPECT_TRUE(
      terminal.AwaitOutput([&](const std::string& output) { return lines(output).size() == 10u; }));
  for (const std::string& line : lines(terminal.output())) EXPECT_LE(line.size(), 50u) << line;
}

TEST_F(TopTest, EveryEndLeavesTheTerminalAsItWas) {
  Start({.nodes = 1});
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_FALSE(Begin().IsOrdinary());
    Signal(signal);
    ExpectEnded(128 + signal);
  }
  Begin().Type("\x03");
  ExpectEnded(128 + SIGINT);
  Begin({"--iterations", "3"});
  ExpectEnded(0);
}

TEST_F(TopTest, AHeldTerminalKeepsNobodyFromEndingIt) {
  Start({.nodes = 1});
  Pty& terminal = Begin();
  terminal.Type("\x13");  // Ctrl-S: it takes nothing any more
  Signal(SIGTERM);
  EXPECT_TRUE(Await([&] { return terminal.IsOrdinary(); }));
  terminal.Type("\x11");
  EXPECT_TRUE(terminal.AwaitText(absl::StrCat("ended ", 128 + SIGTERM)));
}

TEST_F(TopTest, ALostTerminalEndsIt) {
  Start({.nodes = 1});
  Pty terminal(Top({"--interval", "100ms"}), 40, 160);
  ASSERT_TRUE(AwaitScreen(terminal, "q quit")) << terminal.output();
  terminal.HangUp();
  const std::optional<int> status = terminal.Wait();
  EXPECT_TRUE(status == 0 || status == 128 + SIGHUP) << status.value_or(-1);
}

TEST_F(TopTest, AStopLeavesTheTerminalToTheShellAndComesBack) {
  Start({.nodes = 1});
  terminal_.emplace(
      std::vector<std::string>{
          "/bin/bash", "--norc", "-mc",
          absl::StrCat(absl::StrJoin(Top({"--interval", "100ms"}), " "),
                       "\nread -r line; echo \"read $line\"; fg; echo \"ended $?\"")},
      40, 160);
  Pty& terminal = *terminal_;
  ASSERT_TRUE(AwaitScreen(terminal, "q quit")) << terminal.output();
  terminal.Type("\x1a");
  ASSERT_TRUE(terminal.AwaitText(kBackAgain)) << terminal.output();
  EXPECT_TRUE(Await([&] { return terminal.IsOrdinary(); }));
  terminal.Forget();
  terminal.Type("hello\n");
  ASSERT_TRUE(terminal.AwaitText("read hello")) << terminal.output();
  ASSERT_TRUE(terminal.AwaitText(kOtherScreen)) << terminal.output();
  ASSERT_TRUE(AwaitScreen(terminal, "q quit")) << terminal.output();
  EXPECT_FALSE(terminal.IsOrdinary());
  terminal.Type("q");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_THAT(terminal.output(), HasSubstr("ended 0"));
  ExpectLeft(terminal);
}

}  // namespace
}  // namespace ferry::testing
