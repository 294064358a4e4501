// SPDX-License-Identifier: Apache-2.0
// What torch.compile makes of the programs that are measured on GPUs: another program, which runs
// to its end within two minutes, before Ferry's turn. One thread.
#pragma once

#include <map>
#include <string>

namespace ferry::bench {

// Seconds of one run on GPU 0, by the program: "chain", "softmax" and "norm". Empty, with the
// reason on stderr, where there is no PyTorch with CUDA or it cannot compile.
std::map<std::string, double> MeasureTorchCompile();

}  // namespace ferry::bench
