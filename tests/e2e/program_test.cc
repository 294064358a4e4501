// SPDX-License-Identifier: Apache-2.0
// Programs by a real daemon: compiled and run by libferry and by ferryctl, refused, ended.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/support/admin.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kElements = 1024;
constexpr uint64_t kBytes = kElements * sizeof(float);

float* Floats(const Arena& arena, uint64_t offset = 0) {
  return reinterpret_cast<float*>(static_cast<char*>(arena.data()) + offset);
}

class ProgramTest : public ClusterTest {
 protected:
  void Open(const std::string& limits = "") {
    ClusterOptions options;
    options.nodes = 1;
    options.limits = limits;
    Start(options);
    end_ = OpenEnd(0, 4 * kBytes);
    for (int i = 0; i < kElements; ++i) Floats(end_.arena)[i] = static_cast<float>(i);
  }
  // y = 3 x, from `x` bytes into the arena to `y`.
  static std::string Triple() {
    ProgramBuilder builder;
    const TensorType type{FERRY_F32, {kElements}};
    const auto x = builder.Input("x", type);
    builder.Store("y", builder.Multiply(x, builder.Splat(3, type)));
    return builder.Text();
  }
  Program Compile(const std::string& text) {
    return Must(Program::Compile(end_.session, end_.device, text));
  }
  ProgramRun RunAt(const Program& program, uint64_t x, uint64_t y) {
    return program.Run({{"x", end_.arena.Range(x, kBytes)}, {"y", end_.arena.Range(y, kBytes)}});
  }
  void ExpectTripled(uint64_t y) {
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(Floats(end_.arena, y)[i], 3.0f * static_cast<float>(i)) << i;
    }
  }
  // ferryctl's exit status; what it said in `output_`.
  int Ferryctl(std::vector<std::string> arguments) {
    SpawnOptions spawn;
    spawn.arguments = {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir()};
    spawn.arguments.insert(spawn.arguments.end(), arguments.begin(), arguments.end());
    spawn.output = directory_ / "ferryctl.out";
    const int status = Process(spawn).Wait().value_or(-1);
    output_ = ReadFile(directory_ / "ferryctl.out");
    return status;
  }
  void TearDown() override {
    end_ = End();
    ClusterTest::TearDown();
  }

  TemporaryDirectory directory_;
  End end_;
  std::string output_;
};

TEST_F(ProgramTest, IsCompiledOnceAndRunBySocketOrByCall) {
  Open();
  const Program program = Compile(Triple());
  EXPECT_EQ(program.fingerprint().size(), 32u);
  EXPECT_THAT(std::string(program.plan()), StartsWith("plan 1"));
  ASSERT_EQ(program.buffers().size(), 2u);
  EXPECT_EQ(program.buffers()[1].bytes, kBytes);
  EXPECT_EQ(program.buffers()[1].access, FERRY_WRITE);
  EXPECT_EQ(Compile(Triple()).fingerprint(), program.fingerprint());
  Batch batch = Must(RunPrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)}));
  ASSERT_THAT(batch.Wait(kSoon), IsOk());
  ExpectTripled(kBytes);

  // So many runs that they do not fit the socket.
  constexpr uint64_t kRuns = 2500, kSmall = 4 * sizeof(float);
  ProgramBuilder builder;
  const TensorType type{FERRY_F32, {4}};
  builder.Store("y", builder.Multiply(builder.Input("x", type), builder.Splat(3, type)));
  Session session = nodes().Open(0, "by-call");
  Arena arena = Must(session.CreateArena(end_.device, 2 * kRuns * kSmall));
  const Program small = Must(Program::Compile(session, end_.device, builder.Text()));
  std::vector<ProgramRun> runs;
  for (uint64_t i = 0; i < kRuns; ++i) {
    Floats(arena)[4 * i + 3] = static_cast<float>(i);
    runs.push_back(small.Run({{"x", arena.Range(i * kSmall, kSmall), FERRY_F32},
                              {"y", arena.Range((kRuns + i) * kSmall, kSmall)}}));
  }
  Batch by_call = Must(RunPrograms(session, end_.device, runs));
  ASSERT_THAT(by_call.Wait(kSoon), IsOk());
  for (uint64_t i = 0; i < kRuns; ++i) {
    ASSERT_EQ(Floats(arena, kRuns * kSmall)[4 * i + 3], 3 * static_cast<float>(i)) << i;
  }
}

TEST_F(ProgramTest, IsRunByAsManyThreadsAsTheDaemonHasForAllJobs) {
  Open("job_threads: 3");
  const Program program = Compile(Triple());
  EXPECT_THAT(std::string(program.plan()), ::testing::EndsWith("\nthreads 3\n"));
  Batch batch = Must(RunPrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)}));
  ASSERT_THAT(batch.Wait(kSoon), IsOk());
  ExpectTripled(kBytes);
}

TEST_F(ProgramTest, EveryProblemIsTold) {
  Open("job_flops: 10000");
  const auto bad =
      Program::Compile(end_.session, end_.device, "program 1\n%a = wrong\n%b = add %c\n");
  EXPECT_THAT(bad, Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("2 problems: text:2:")));
  ASSERT_EQ(bad.status().violations().size(), 2u);
  EXPECT_THAT(std::string(bad.status().violations()[1].field), StartsWith("text:3:"));
  EXPECT_THAT(Program::Compile(end_.session, end_.device,
                               "program 1\n%x = recv peer=\"p\" device=1 key=\"k\" : "
                               "f32[4]\nkeep %x\n"),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("either of them")));
  EXPECT_THAT(Program::Compile(end_.session, 77, Triple()), Is("INVALID_ARGUMENT/DEVICE_UNKNOWN"));
  EXPECT_THAT(RunPrograms(end_.session, 0, {}), Is("INVALID_ARGUMENT/FIELD_INVALID"));
  ProgramBuilder costly;
  const TensorType type{FERRY_F32, {kElements}};
  const auto x = costly.Input("x", type);
  costly.Store("y", costly.Add(costly.Multiply(x, x), x));
  EXPECT_THAT(Program::Compile(end_.session, end_.device, costly.Text()),
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                 HasSubstr("2048 flops (a function such as tanh counts as 8) and 8192 bytes")));

  const Program program = Compile(Triple());
  const auto refused = RunPrograms(end_.session, end_.device,
                                   {RunAt(program, 0, kBytes), RunAt(program, kBytes, 0),
                                    program.Run({{"z", end_.arena.Range(0, kBytes)}})});
  EXPECT_THAT(refused, Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_EQ(refused.status().violations().size(), 5u);
  EXPECT_THAT(HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics"),
              HasSubstr("\nferry_requests_rejected_total{reason=\"FIELD_INVALID\"} "));
  Session other = nodes().Open(0, "other");
  EXPECT_THAT(RunPrograms(other, end_.device, {RunAt(program, 0, kBytes)}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("another session")));
}

TEST_F(ProgramTest, WaitsForItsDataAndIsCancelledPoisonedAndWatchedLikeATransfer) {
  Open();
  const Program program = Compile(Triple());
  ProgramRun run = RunAt(program, 0, kBytes);
  run.defined_at = Transfer::DefinedAt{3, 1};
  Batch waits = Must(RunPrograms(end_.session, end_.device, {run}));
  EXPECT_FALSE(waits.over());
  EXPECT_THAT(end_.arena.Release(), Is("FAILED_PRECONDITION/FIELD_INVALID"));
  ASSERT_EQ(Ferryctl({"program", "list"}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("its data: 'defined' counter 3"));
  EXPECT_THAT(output_, ::testing::AllOf(StartsWith("1 program\n"), HasSubstr("\n1 job\n")));
  ASSERT_EQ(Ferryctl({"program", "list", "--json"}), 0) << output_;
  EXPECT_THAT(output_,
              HasSubstr(absl::StrCat("\"fingerprint\":\"",
                                     absl::BytesToHexString(std::string(program.fingerprint())))));
  EXPECT_THAT(end_.session.Define(3, 1), IsOk());
  ASSERT_THAT(waits.Wait(kSoon), IsOk());
  ExpectTripled(kBytes);
  ASSERT_EQ(Ferryctl({"flight", "dump", "--trace"}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("\"name\":\"jobs of device 0\""));

  run.defined_at = Transfer::DefinedAt{3, 2};
  Batch cancelled = Must(RunPrograms(end_.session, end_.device, {run}));
  ASSERT_THAT(cancelled.Cancel(), IsOk());
  EXPECT_THAT(cancelled.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  Batch poisoned = Must(RunPrograms(end_.session, end_.device, {run}));
  ASSERT_THAT(poisoned.Poison("no data"), IsOk());
  EXPECT_THAT(poisoned.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("no data")));
  run.deadline = std::chrono::milliseconds(1);
  Batch late = Must(RunPrograms(end_.session, end_.device, {run}));
  EXPECT_THAT(late.Wait(kSoon), Is("DEADLINE_EXCEEDED/NOT_READY", HasSubstr("its data")));
  run.deadline = std::chrono::nanoseconds(1);
  Batch too_late = Must(RunPrograms(end_.session, end_.device, {run}));
  EXPECT_THAT(too_late.Wait(kSoon),
              Is("DEADLINE_EXCEEDED/NOT_READY", HasSubstr("not begun within 1 ns; it waited")));
}

// Nothing of the session is left but what waits: both go in one turn of the daemon's.
TEST_F(ProgramTest, ASessionThatGoesTakesItsWaitingJobsAlong) {
  Open();
  for (int i = 0; i < 3; ++i) {
    Session session = nodes().Open(0, "short");
    const Arena arena = Must(session.CreateArena(end_.device, 2 * kBytes));
    const Program program = Must(Program::Compile(session, end_.device, Triple()));
    ProgramRun run =
        program.Run({{"x", arena.Range(0, kBytes)}, {"y", arena.Range(kBytes, kBytes)}});
    run.defined_at = Transfer::DefinedAt{3, 1};
    Must(RunPrograms(session, end_.device, {run}));
  }
  ASSERT_TRUE(Await([&] { return node(0).admin().Sessions().sessions_size() == 1; }));
  Batch batch = Must(RunPrograms(end_.session, end_.device, {RunAt(Compile(Triple()), 0, kBytes)}));
  EXPECT_THAT(batch.Wait(kSoon), IsOk());
}

TEST_F(ProgramTest, AManyJobBatchIsAllOrNothingAndEndsInOrder) {
  Open();
  const Program program = Compile(
      "program 1\nbuffer @n read_write 4\n%one = constant splat=1 : i32[]\naccumulate @n, %one\n");
  const uint64_t base = 2 * kBytes;
  auto* counts = reinterpret_cast<int32_t*>(Floats(end_.arena, base));
  std::vector<ProgramRun> runs;
  for (uint64_t i = 0; i < 1000; ++i) {
    runs.push_back(program.Run({{"n", end_.arena.Range(base + 4 * i, 4)}}));
  }
  PostOptions options;
  options.over_timeline = 9;
  options.request_id = "all of them";
  Batch batch = Must(RunPrograms(end_.session, end_.device, runs, options));
  Batch again = Must(RunPrograms(end_.session, end_.device, runs, options));
  EXPECT_EQ(again.first_id(), batch.first_id());
  ASSERT_THAT(batch.Wait(kSoon), IsOk());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(counts[i], 1) << i;
  EXPECT_EQ(end_.session.OverValue(9), batch.first_value() + 999);
}

TEST_F(ProgramTest, ADaemonThatComesBackIsToldTheProgramAgain) {
  Open();
  const Program program = Compile(Triple());
  node(0).Kill();
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(end_.session.WaitAttached(kSoon), IsOk());
  Batch batch = Must(RunPrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)}));
  ASSERT_THAT(batch.Wait(kSoon), IsOk());
  ExpectTripled(kBytes);
}

TEST_F(ProgramTest, FerryctlRunsTheFilesOfTheDocumentation) {
  Open();
  const std::string docs = FERRY_SOURCE "/docs/programs/";
  std::string x(kBytes, '\0');
  for (int i = 0; i < kElements; ++i) {
    const float value = std::sin(static_cast<float>(i));
    std::memcpy(&x[sizeof(float) * i], &value, sizeof(value));
  }
  WriteFile(directory_ / "x", x);
  WriteFile(directory_ / "sum", std::string(kBytes, '\0'));
  const auto bind = [&](const std::string& name, const std::string& file) {
    return absl::StrCat(name, "=", directory_ / file);
  };
  for (const std::string by : {"here", "daemon"}) {
    const auto run = [&](const std::string& program, std::vector<std::string> bindings) {
      std::vector<std::string> arguments = {"program", "run", docs + program};
      for (std::string& binding : bindings) {
        arguments.push_back("--bind");
        arguments.push_back(std::move(binding));
      }
      if (by == "daemon") arguments.push_back("--daemon");
      EXPECT_EQ(Ferryctl(arguments), 0) << program << " " << by << ": " << output_;
    };
    run("scale.program", {bind("x", "x"), bind("y", "y." + by)});
    run("quantise.program",
        {bind("grad", "x"), bind("elements", "e." + by), bind("scales", "s." + by)});
    WriteFile(directory_ / ("sum." + by), std::string(kBytes, '\0'));
    run("accumulate.program",
        {bind("elements", "e." + by), bind("scales", "s." + by), bind("sum", "sum." + by)});
  }
  for (const char* file : {"y.", "e.", "s.", "sum."}) {
    const std::string here = ReadFile(directory_ / (std::string(file) + "here"));
    EXPECT_FALSE(here.empty());
    EXPECT_EQ(here, ReadFile(directory_ / (std::string(file) + "daemon"))) << file;
  }
  const std::string sum = ReadFile(directory_ / "sum.daemon");
  for (int i = 0; i < kElements; ++i) {
    float got, sent;
    std::memcpy(&got, &sum[sizeof(float) * i], sizeof(got));
    std::memcpy(&sent, &x[sizeof(float) * i], sizeof(sent));
    ASSERT_NEAR(got, sent / 8, 1.0 / 8 / 16) << i;  // 3 bits behind the point
  }
  ASSERT_EQ(Ferryctl({"program", "list"}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("3 programs"));
  EXPECT_NE(Ferryctl({"program", "run", docs + "scale.program", "--daemon"}), 0);
  EXPECT_THAT(output_, HasSubstr("@x of 4096 bytes is not bound"));
  EXPECT_NE(Ferryctl({"program", "run", docs + "scale.program", "--daemon", "--device", "77"}), 0);
  EXPECT_THAT(output_, HasSubstr("INVALID_ARGUMENT DEVICE_UNKNOWN"));
}

TEST_F(ProgramTest, FerryctlRefusesFlagsThatContradictEachOther) {
  Open();
  const std::string docs = FERRY_SOURCE "/docs/programs/";
  const auto refuses = [&](std::vector<std::string> arguments, const std::string& said) {
    arguments.insert(arguments.begin(), "program");
    EXPECT_EQ(Ferryctl(arguments), 1) << output_;
    EXPECT_THAT(output_, HasSubstr(said));
  };
  const std::string scale = docs + "scale.program";
  refuses({"plan", scale, "--dot", "--json"}, "without --kernels or --json");
  refuses({"plan", scale, "--compile"}, "--source, --compile and --device are for --gpu");
  refuses({"plan", scale, "--device", "0"}, "--source, --compile and --device are for --gpu");
  refuses({"plan", scale, "--gpu", "sm_90a", "--device", "0", "--compile"}, "either --compile");
  refuses({"plan", scale, "--gpu", "sm_90a", "--device", "0"}, "device 0 is no GPU of sm_90a");
  refuses({"bench", scale, "--device", "0", "--threads", "2"}, "limits.job_threads");
  refuses({"plan", scale, "--gpu", "sm_90a", "--source", "--compile"}, "either");
  refuses({"plan", scale, "--gpu", "sm_90a", "--cache", "x"}, "--cache and --nvrtc are for");
  EXPECT_EQ(Ferryctl({"program", "plan", scale, "--gpu", "sm_90a", "--compile", "--nvrtc",
                      "/nowhere/libnvrtc.so"}),
            4);
  EXPECT_THAT(output_, HasSubstr("UNAVAILABLE NOT_READY"));
  EXPECT_THAT(output_, HasSubstr("open /nowhere/libnvrtc.so: "));
  refuses({"print", scale, "--json"}, "no --json of it");
  refuses({"run", scale, "--daemon", "--threads", "2"}, "limits.job_threads");
  refuses({"run", scale, "--daemon", "--poison"}, "in this process");
  refuses({"run", scale, "--deadline", "3s"}, "for --daemon");
  refuses({"run", scale, "--daemon", "--send", "x=0:k"}, "the program only reads @x");
  refuses({"run", scale, "--daemon", "--recv", "y=0:k"}, "the program only writes @y");
  EXPECT_EQ(Ferryctl({"program", "bogus", scale}), 2);
  EXPECT_THAT(output_, HasSubstr("there is no command 'program bogus'"));
  refuses({"bench", docs + "exchange.program"}, "time a program: it has a send");
  refuses({"bench", docs + "exchange.program", "--device", "0"}, "time a program: it has a send");
  EXPECT_EQ(Ferryctl({"program", "bench", scale, "--device", "77"}), 3);
  EXPECT_THAT(output_, HasSubstr("device 77 is not of node"));
  ASSERT_EQ(Ferryctl({"program", "plan", docs + "exchange.program"}), 0);
  EXPECT_THAT(output_, HasSubstr(" peer=\"other\" key=\"elements\" read=1024 sent=1024"));
  // What is wrong with the text is said of the file, whoever is to run it.
  WriteFile(directory_ / "bad",
            "program 1\n%a = wrong\n%x = constant splat=1 : f32[2]\n"
            "%y = constant splat=1 : f32[3]\n%z = add %x, %y \"sum\"\n");
  refuses({"run", directory_ / "bad", "--daemon"},
          "2 problems: " + (directory_ / "bad") + ":2:6: op 0");
  EXPECT_THAT(output_, HasSubstr("bad:5:1: op 3 add 'sum': same type: "));
}

// Without a GPU, and the daemon has no part in it; what is compiled once is read from then on.
TEST_F(ProgramTest, FerryctlCompilesKernelsAndKeepsThem) {
  Open();
  std::vector<std::string> compile = {"program",
                                      "plan",
                                      FERRY_SOURCE "/docs/programs/scale.program",
                                      "--gpu",
                                      "sm_90a",
                                      "--compile",
                                      "--cache",
                                      directory_ / "kernels"};
#ifdef UNPACKED_NVRTC
  compile.insert(compile.end(), {"--nvrtc", UNPACKED_NVRTC});
#endif
  const int status = Ferryctl(compile);
  if (status == 4 && output_.find("open libnvrtc.so") != std::string::npos) {
    GTEST_SKIP() << "NO NVRTC: " << output_;
  }
  ASSERT_EQ(status, 0) << output_;
  EXPECT_THAT(output_, HasSubstr("kernels 1 sm_90a\n"));
  EXPECT_THAT(output_, HasSubstr(" spilled=0 "));
  EXPECT_THAT(output_, HasSubstr(" compiled, "));
  ASSERT_EQ(Ferryctl(compile), 0) << output_;
  EXPECT_THAT(output_, HasSubstr(" read, "));
  // Others could have put anything there.
  ASSERT_EQ(chmod((directory_ / "kernels").c_str(), 0777), 0);
  ASSERT_EQ(Ferryctl(compile), 0) << output_;
  EXPECT_THAT(output_, HasSubstr(" compiled, "));
  EXPECT_THAT(output_, HasSubstr("warning: use "));
  EXPECT_THAT(output_, HasSubstr("chmod go-w"));
}

// Nobody sends what it receives: it ends when it is told to, not after the daemon's default.
TEST_F(ProgramTest, FerryctlGivesADeadline) {
  Open();
  WriteFile(directory_ / "waits",
            "program 1\n%r = recv peer=\"p\" key=\"never\" : f32[4]\nkeep %r\n");
  EXPECT_EQ(Ferryctl({"program", "run", directory_ / "waits", "--daemon", "--peer",
                      absl::StrCat("p=", end_.device), "--deadline", "200ms"}),
            7);
  EXPECT_THAT(output_, HasSubstr("DEADLINE_EXCEEDED WAITING_FOR_PEER"));
}

}  // namespace
}  // namespace ferry::testing
