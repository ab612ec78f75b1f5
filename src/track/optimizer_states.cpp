// SPDX-License-Identifier: BSD-3-Clause
#include "track/optimizer_states.h"

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace tidegauge {
namespace {

using Visit = c10::function_ref<void(const at::Tensor&)>;

void visit_one(const at::Tensor& tensor, Visit visit) {
  if (tensor.defined()) visit(tensor);
}

template <typename Adam>
void visit_moments(const Adam& state, Visit visit) {
  visit_one(state.exp_avg(), visit);
  visit_one(state.exp_avg_sq(), visit);
  visit_one(state.max_exp_avg_sq(), visit);
}

void visit_history(const torch::optim::LBFGSParamState& state, Visit visit) {
  visit_one(state.d(), visit);
  visit_one(state.H_diag(), visit);
  visit_one(state.prev_flat_grad(), visit);
  for (const at::Tensor& direction : state.old_dirs()) visit_one(direction, visit);
  for (const at::Tensor& step : state.old_stps()) visit_one(step, visit);
  for (const at::Tensor& scale : state.ro()) visit_one(scale, visit);
  if (!state.al()) return;
  for (const at::Tensor& alpha : *state.al()) visit_one(alpha, visit);
}

}  // namespace

void visit_states(const torch::optim::Optimizer& optimizer, VisitState visit_state) {
  using namespace torch::optim;
  for (const auto& [parameter, state] : optimizer.state()) {
    const auto visit = [&, of = parameter](const at::Tensor& tensor) { visit_state(of, tensor); };
    const OptimizerParamState* any = state.get();
    if (const auto* adam = dynamic_cast<const AdamParamState*>(any)) {
      visit_moments(*adam, visit);
    } else if (const auto* adamw = dynamic_cast<const AdamWParamState*>(any)) {
      visit_moments(*adamw, visit);
    } else if (const auto* sgd = dynamic_cast<const SGDParamState*>(any)) {
      visit_one(sgd->momentum_buffer(), visit);
    } else if (const auto* rmsprop = dynamic_cast<const RMSpropParamState*>(any)) {
      visit_one(rmsprop->square_avg(), visit);
      visit_one(rmsprop->momentum_buffer(), visit);
      visit_one(rmsprop->grad_avg(), visit);
    } else if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(any)) {
      visit_one(adagrad->sum(), visit);
    } else if (const auto* lbfgs = dynamic_cast<const LBFGSParamState*>(any)) {
      visit_history(*lbfgs, visit);
    }
  }
}

std::string class_name(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

}  // namespace tidegauge
