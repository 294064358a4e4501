// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include "base/version.h"
#include "tools/ferryctl/cli.h"

namespace ferry {
extern const char kCommit[];  // made by cmake/commit.cmake
}

int main(int argc, char** argv) {
  ferry::SetCommit(ferry::kCommit);
  signal(SIGXFSZ, SIG_IGN);  // instead the write fails, and says why
  return ferry::tools::RunFerryctl(argc, argv);
}
