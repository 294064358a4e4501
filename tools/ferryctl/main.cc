// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/cli.h"

int main(int argc, char** argv) { return ferry::tools::RunFerryctl(argc, argv); }
