// SPDX-License-Identifier: Apache-2.0
// fake_daemon DIR: serves until its standard input ends; says "ready" once it serves.
#include <unistd.h>

#include <cstdio>

#include "tests/client/fake/fake_daemon.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fake_daemon DIR\n");
    return 2;
  }
  ferry::testing::FakeDaemon daemon(argv[1]);
  std::puts("ready");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
