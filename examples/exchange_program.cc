// SPDX-License-Identifier: Apache-2.0
// A program that sends and receives by itself, run twice at each of two ends (docs/programs.md):
// each adds up an eighth of the other's 1,024 numbers.
//   exchange_program DEVICE THEIR-DEVICE docs/programs/exchange.program
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ferry/program.hpp"
#include "need.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: exchange_program DEVICE THEIR-DEVICE PROGRAM\n");
    return 2;
  }
  const uint64_t device = std::strtoull(argv[1], nullptr, 10);
  const uint64_t their_device = std::strtoull(argv[2], nullptr, 10);
  ferry::Session session = Need(ferry::Session::Open());
  ferry::Program program = Need(ferry::Program::Compile(session, device, ReadFile(argv[3])));
  ferry::Arena arena = Need(session.CreateArena(device, 2 * 4096));
  const ferry::Range g = arena.Range(0, 4096);
  const ferry::Range s = arena.Range(4096, 4096);
  std::fill_n(static_cast<float*>(arena.data()), 1024, 4.0f);

  for (int step = 0; step < 2; ++step) {
    ferry::ProgramRun run = program.Run({{"grad", g}, {"sum", s}});
    run.peers = {{"other", their_device}};
    run.key_suffix = "/" + std::to_string(step);
    ferry::Batch job = Need(ferry::RunPrograms(session, device, {run}));
    Need(job.Wait());
  }
  std::printf("two eighths of 4 are %g\n", static_cast<float*>(arena.data())[2047]);
  return 0;
}
