// SPDX-License-Identifier: Apache-2.0
// Jobs and transfers that are joined, of docs/first-program.md: device 0 quantises 1,024 numbers
// and sends them, device 2 adds them up.
//   joined_programs quantise docs/programs/quantise.program
//   joined_programs accumulate docs/programs/accumulate.program
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "ferry/program.hpp"
#include "need.h"

namespace {

void Quantise(ferry::Session& session, const std::string& text) {
  const uint64_t device = 0, there = 2;
  ferry::Program program = Need(ferry::Program::Compile(session, device, text));
  ferry::Arena arena = Need(session.CreateArena(device, 4096 + 1024 + 32));
  const ferry::Range g = arena.Range(0, 4096);
  const ferry::Range e = arena.Range(4096, 1024);
  const ferry::Range s = arena.Range(4096 + 1024, 32);
  std::fill_n(static_cast<float*>(arena.data()), 1024, 4.0f);

  // The sends wait until 'defined' counter 1 is 7; the job says so when it has made what they send.
  ferry::Transfer elements(there, "elements", {e});
  ferry::Transfer scales(there, "scales", {s});
  elements.defined_at = scales.defined_at = ferry::Transfer::DefinedAt{1, 7};
  ferry::Batch sends = Need(session.Send(device, {elements, scales}));
  ferry::ProgramRun quantise = program.Run({{"grad", g}, {"elements", e}, {"scales", s}});
  quantise.defines = ferry::Transfer::DefinedAt{1, 7};
  quantise.feeds = &sends;  // if it fails they are poisoned, at both ends
  ferry::Batch job = Need(ferry::RunPrograms(session, device, {quantise}));

  Need(job.Wait());
  Need(sends.Wait());
}

void Accumulate(ferry::Session& session, const std::string& text) {
  const uint64_t device = 2, there = 0;
  ferry::Program program = Need(ferry::Program::Compile(session, device, text));
  ferry::Arena arena = Need(session.CreateArena(device, 4096 + 1024 + 32));
  const ferry::Range sum = arena.Range(0, 4096);
  const ferry::Range e = arena.Range(4096, 1024);
  const ferry::Range s = arena.Range(4096 + 1024, 32);
  std::fill_n(static_cast<float*>(arena.data()), 1024, 1.0f);
  const ferry::Transfer elements(there, "elements", {e});
  const ferry::Transfer scales(there, "scales", {s});

  // On the other node the job begins when the receives are over, and fails if they do.
  ferry::Batch receives = Need(session.Receive(device, {elements, scales}));
  ferry::ProgramRun add = program.Run({{"elements", e}, {"scales", s}, {"sum", sum}});
  add.after = &receives;
  ferry::Batch job = Need(ferry::RunPrograms(session, device, {add}));

  Need(job.Wait());
  std::printf("1 and an eighth of 4 are %g\n", static_cast<float*>(arena.data())[1023]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 3 ? argv[1] : "";
  if (role != "quantise" && role != "accumulate") {
    std::fprintf(stderr, "usage: joined_programs quantise|accumulate PROGRAM\n");
    return 2;
  }
  ferry::Session session = Need(ferry::Session::Open());
  role == "quantise" ? Quantise(session, ReadFile(argv[2]))
                     : Accumulate(session, ReadFile(argv[2]));
  return 0;
}
