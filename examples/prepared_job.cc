// SPDX-License-Identifier: Apache-2.0
// 'Receive, compute, send' as one word a step (docs/programs.md): device 2 halves what device 0
// sends it, and sends it back. One end is `prepared_job ask`, the other `prepared_job answer`.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "ferry/program.hpp"
#include "need.h"

namespace {

const int steps = 3;

void Ask(ferry::Session& session) {
  ferry::Arena arena = Need(session.CreateArena(0, 2 * 4096));
  auto* numbers = static_cast<float*>(arena.data());
  ferry::Prepared send =
      Need(session.PrepareSend(0, {ferry::Transfer(2, "in", {arena.Range(0, 4096)})}));
  ferry::Prepared receive =
      Need(session.PrepareReceive(0, {ferry::Transfer(2, "out", {arena.Range(4096, 4096)})}));
  for (int step = 0; step < steps; ++step) {
    std::fill_n(numbers, 1024, static_cast<float>(step));
    Need(receive.Fire());
    Need(send.Fire());
    Need(send.Wait());
    Need(receive.Wait());
    std::printf("half of %d is %g\n", step, numbers[2047]);
  }
}

void Answer(ferry::Session& session) {
  const uint64_t device = 2, left = 0, right = 0;
  ferry::ProgramBuilder builder;
  const ferry::TensorType type{FERRY_F32, {1024}};
  builder.Store("y", builder.Multiply(builder.Input("x", type), builder.Splat(0.5, type)));
  ferry::Program program = Need(ferry::Program::Compile(session, device, builder.Text()));
  ferry::Arena arena = Need(session.CreateArena(device, 2 * 4096));
  const ferry::Range x = arena.Range(0, 4096);
  const ferry::Range y = arena.Range(4096, 4096);

  ferry::Prepared in = Need(session.PrepareReceive(device, {ferry::Transfer(left, "in", {x})}));
  ferry::Prepared out = Need(session.PrepareSend(device, {ferry::Transfer(right, "out", {y})}));
  ferry::ProgramRun run = program.Run({{"x", x, FERRY_F32, &in}, {"y", y, FERRY_F32, &out}});
  ferry::Prepared job = Need(ferry::PreparePrograms(session, device, {run}));
  for (int step = 0; step < steps; ++step) {
    Need(job.Fire());
    Need(job.Wait());
  }
  Need(out.Wait(steps));  // the last send, for which the next firing would have waited
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 2 ? argv[1] : "";
  if (role != "ask" && role != "answer") {
    std::fprintf(stderr, "usage: prepared_job ask|answer\n");
    return 2;
  }
  ferry::Session session = Need(ferry::Session::Open());
  role == "ask" ? Ask(session) : Answer(session);
  return 0;
}
