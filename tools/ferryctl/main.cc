// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdlib.h>

#include "base/version.h"
#include "tools/ferryctl/cli.h"

namespace ferry {
extern const char kCommit[];  // made by cmake/commit.cmake
}

int main(int argc, char** argv) {
  ferry::SetCommit(ferry::kCommit);
  signal(SIGXFSZ, SIG_IGN);  // instead the write fails, and says why
  // What goes wrong is told in words of ours; gRPC's own lines, such as that it waits for its
  // threads to end, only who asked for them wants to see. Also of the gRPC in libferry.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  return ferry::tools::RunFerryctl(argc, argv);
}
