// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/product_plan.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

// The calls of a library, those in repeats too.
std::vector<const GpuCommand*> CallsOfLibrary(const std::vector<GpuCommand>& commands) {
  std::vector<const GpuCommand*> calls;
  for (const GpuCommand& command : commands) {
    if (command.kind == GpuCommand::Kind::kProduct) calls.push_back(&command);
    const std::vector<const GpuCommand*> body = CallsOfLibrary(command.body);
    calls.insert(calls.end(), body.begin(), body.end());
  }
  return calls;
}

// Steps of a plan, by number, of which something is refused, and why it is of the first one.
struct Refused {
  std::set<uint32_t> steps;
  std::string why;

  void Add(uint32_t step, const absl::Status& status) {
    if (steps.empty()) why = std::string(status.message());
    steps.insert(step);
  }
  std::string Text() const {
    return absl::StrCat(steps.size() == 1 ? "step " : "steps ", absl::StrJoin(steps, ", "));
  }
};

class Planner {
 public:
  Planner(const Program& program, const GpuArch& arch, GpuOptions options,
          GpuMultiplier& multiplier)
      : program_(program), arch_(arch), options_(std::move(options)), multiplier_(multiplier) {
    options_.library_products = true;
    options_.native_blocks = false;
  }

  absl::StatusOr<ProductPlan> Make(const std::string& library) {
    RETURN_IF_ERROR(TryBlocks());
    ASSIGN_OR_RETURN(made_.plan, MakeGpuPlan(program_, arch_, options_));
    // Each time around at least one step more is planned with less.
    while (true) {
      ASSIGN_OR_RETURN(const bool refused, Refuse());
      if (!refused) break;
      ASSIGN_OR_RETURN(made_.plan, MakeGpuPlan(program_, arch_, options_));
    }
    Tell(library);
    return std::move(made_);
  }

 private:
  // Whether tensor cores may take block scales.
  absl::Status TryBlocks() {
    const bool scaled =
        std::any_of(program_.nodes.begin(), program_.nodes.end(),
                    [](const Node& node) { return node.op == Op::kBlockScaledDot; });
    wants_blocks_ = scaled && program_.numerics.accumulation == Accumulation::kNativeBlock;
    if (!wants_blocks_) return absl::OkStatus();
    if (!arch_.block_scales) {
      no_blocks_ = absl::StrCat("the tensor cores of ", arch_.name, " take none");
      return absl::OkStatus();
    }
    const absl::Status tried = multiplier_.CheckBlocks();
    if (!tried.ok() && tried.code() != absl::StatusCode::kUnimplemented) return tried;
    options_.native_blocks = tried.ok();
    no_blocks_ = tried.ok() ? "of none the types, the sizes and the scales are those that they take"
                            : std::string(tried.message());
    return absl::OkStatus();
  }

  // Looks for what the library refuses, and leaves it out of the options. False: there is nothing.
  absl::StatusOr<bool> Refuse() {
    const std::vector<const GpuCommand*> calls = CallsOfLibrary(made_.plan.commands);
    std::vector<const GpuProduct*> products;
    for (const GpuCommand* call : calls) products.push_back(&call->product);
    ASSIGN_OR_RETURN(const std::vector<absl::Status> answers, multiplier_.Ask(products));
    bool refused = false;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (answers[i].ok()) continue;
      refused = true;
      const bool native = calls[i]->product.block > 0;
      (native ? dequantized_ : own_).Add(calls[i]->step, answers[i]);
      (native ? options_.dequantized : options_.own_products).insert(calls[i]->step);
    }
    return refused;
  }

  void Tell(const std::string& library) {
    const std::vector<const GpuCommand*> calls = CallsOfLibrary(made_.plan.commands);
    std::string& text = made_.multiplier;
    if (calls.empty()) {
      text = absl::StrCat("our own kernels (",
                          own_.steps.empty() ? "it has no such products" : own_.why, ")");
      return;
    }
    text = library;
    if (!own_.steps.empty()) {
      absl::StrAppend(&text, ", but in ", own_.Text(), " our own kernels (", own_.why, ")");
    }
    made_.native_blocks = std::any_of(
        calls.begin(), calls.end(), [](const GpuCommand* call) { return call->product.block > 0; });
    const std::string& why = dequantized_.steps.empty() ? no_blocks_ : dequantized_.why;
    if (!made_.native_blocks) {
      if (wants_blocks_) absl::StrAppend(&text, ", block scales dequantised (", why, ")");
      return;
    }
    text += ", block scales by tensor cores";
    if (dequantized_.steps.empty()) return;
    absl::StrAppend(&text, ", but not in ", dequantized_.Text(), " (", why, ")");
  }

  const Program& program_;
  const GpuArch& arch_;
  GpuOptions options_;
  GpuMultiplier& multiplier_;
  ProductPlan made_;
  bool wants_blocks_ = false;
  std::string no_blocks_;  // why no tensor cores take block scales, if none do
  Refused own_;            // steps that our own kernels multiply in
  Refused dequantized_;    // steps with block scales that the library refuses
};

}  // namespace

absl::StatusOr<ProductPlan> PlanProducts(const Program& program, const GpuArch& arch,
                                         GpuOptions options, GpuMultiplier& multiplier) {
  const absl::StatusOr<std::string> library = multiplier.Name();
  if (library.ok()) {
    return Planner(program, arch, std::move(options), multiplier).Make(*library);
  }
  ASSIGN_OR_RETURN(ProductPlan made, PlanWithoutLibrary(program, arch, std::move(options)));
  made.multiplier = absl::StrCat("our own kernels (", library.status().message(), ")");
  return made;
}

absl::StatusOr<ProductPlan> PlanWithoutLibrary(const Program& program, const GpuArch& arch,
                                               GpuOptions options) {
  options.library_products = false;
  ProductPlan made;
  ASSIGN_OR_RETURN(made.plan, MakeGpuPlan(program, arch, options));
  return made;
}

}  // namespace ferry::compute
