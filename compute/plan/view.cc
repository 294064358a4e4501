// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/view.h"

#include <algorithm>
#include <utility>

namespace ferry::compute {

bool Reshape(View& view, const std::vector<int64_t>& dims) {
  struct Run {  // of dimensions that are as one
    int64_t length = 1;
    int64_t stride = 1;
  };
  std::vector<Run> runs;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    const Run run = {view.dims[d], view.strides[d]};
    if (run.length == 1) continue;
    if (!runs.empty() && runs.back().stride == run.stride * run.length) {
      runs.back() = {runs.back().length * run.length, run.stride};
    } else {
      runs.push_back(run);
    }
  }
  std::vector<int64_t> strides(dims.size());
  Run run;
  for (size_t d = dims.size(); d-- > 0;) {
    if (dims[d] == 1) continue;
    if (run.length == 1) {
      if (runs.empty()) return false;  // no elements
      run = runs.back();
      runs.pop_back();
    }
    if (dims[d] == 0 || run.length % dims[d] != 0) return false;
    strides[d] = run.stride;
    run = {run.length / dims[d], run.stride * dims[d]};
  }
  view.dims = dims;
  view.strides = std::move(strides);
  return true;
}

bool IsDense(const View& view) {
  int64_t stride = 1;
  for (size_t d = view.dims.size(); d-- > 0;) {
    if (view.dims[d] == 1) continue;
    if (view.strides[d] != stride) return false;
    stride *= view.dims[d];
  }
  return true;
}

void Permute(absl::Span<const size_t> order, const TensorType& type, Views& views) {
  View& last = views.back();
  View view{last.offset, {}, {}};
  for (const size_t d : order) {
    view.dims.push_back(type.dims[d]);
    view.strides.push_back(last.strides[d]);
  }
  last = std::move(view);
}

void Move(const Node& node, const TensorType& from, const TensorType& to, Views& views) {
  const auto ints = [&](Attribute attribute) { return node.attributes.Ints(attribute); };
  View& last = views.back();
  View view{last.offset, to.dims, std::vector<int64_t>(to.dims.size(), 0)};
  if (node.op == Op::kReshape) {
    if (!Reshape(last, to.dims)) views.push_back(LinearView(to.dims));
    return;
  }
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const int64_t stride = last.strides[d];
    switch (node.op) {
      case Op::kBroadcastInDim:
        if (from.dims[d] != 1) {
          view.strides[static_cast<size_t>(ints(Attribute::kDimensions)[d])] = stride;
        }
        break;
      case Op::kTranspose:
        view.strides[d] = last.strides[static_cast<size_t>(ints(Attribute::kPermutation)[d])];
        break;
      case Op::kSlice:
        view.offset += ints(Attribute::kStart)[d] * stride;
        view.strides[d] = stride * (ints(Attribute::kStep).empty() ? 1 : ints(Attribute::kStep)[d]);
        break;
      default: {  // kReverse
        const auto reversed = ints(Attribute::kDimensions);
        const bool is =
            std::find(reversed.begin(), reversed.end(), static_cast<int64_t>(d)) != reversed.end();
        if (is) view.offset += (from.dims[d] - 1) * stride;
        view.strides[d] = is ? -stride : stride;
      }
    }
  }
  last = std::move(view);
}

View LinearView(const std::vector<int64_t>& dims) {
  View view{0, dims, std::vector<int64_t>(dims.size(), 1)};
  for (size_t d = dims.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * dims[d];
  return view;
}

uint64_t ElementsOf(const View& view) {
  uint64_t elements = 1;
  for (const int64_t dim : view.dims) elements *= static_cast<uint64_t>(dim);
  return elements;
}

}  // namespace ferry::compute
