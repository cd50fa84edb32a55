// SPDX-License-Identifier: Apache-2.0
// Divergence of two runs over the prefill schedule of the one to compare with.
#include "tinyloop/measure/divergence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "tinyloop/error.h"
#include "tinyloop/prompt/prefill.h"
#include "tinyloop/random.h"

namespace tinyloop {
namespace {

double greatest_of(std::span<const float> logits) {
  return *std::max_element(logits.begin(), logits.end());
}

std::ptrdiff_t best_of(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

double share(double part, std::int64_t of) {
  return of == 0 ? std::numeric_limits<double>::quiet_NaN() : part / static_cast<double>(of);
}

}  // namespace

double divergence(std::span<const float> reference, std::span<const float> logits) {
  assert(reference.size() == logits.size());
  const double most_p = greatest_of(reference), most_q = greatest_of(logits);
  double sum_p = 0.0, sum_q = 0.0, weighted = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = static_cast<double>(reference[i]) - most_p;
    const double q = static_cast<double>(logits[i]) - most_q;
    const double weight = exact_exp(p);
    sum_p += weight;
    sum_q += exact_exp(q);
    weighted += weight * (p - q);
  }
  return std::max(0.0, weighted / sum_p + exact_log(sum_q) - exact_log(sum_p));
}

double Agreement::mean_divergence() const { return share(divergence_sum, positions); }

double Agreement::same_best_share() const {
  return share(static_cast<double>(same_best), positions);
}

ReferenceLogits::ReferenceLogits(Forward& reference, KvCache& cache, std::span<const TokenId> ids,
                                 std::int64_t chunk)
    : reference_(reference), cache_(cache), ids_(ids), chunk_(chunk) {}

void ReferenceLogits::compare(std::span<const float> logits, Agreement& agreement) {
  const std::size_t vocab = logits.size();
  if (position_ == cache_.length()) {
    first_ = position_;
    logits_.clear();
    const std::int64_t end = std::min(position_ + chunk_, std::ssize(ids_));
    PrefillHooks hooks;
    hooks.all_logits = [&](std::int64_t, std::span<const float> rows) {
      logits_.insert(logits_.end(), rows.begin(), rows.end());
    };
    prefill(reference_, cache_, ids_.first(static_cast<std::size_t>(end)), chunk_, hooks);
  }
  const std::span<const float> wanted =
      std::span(logits_).subspan(static_cast<std::size_t>(position_ - first_) * vocab, vocab);
  ++position_;
  for (const float logit : wanted) {
    if (!std::isfinite(logit)) {
      throw Error(ErrorKind::device, "the reference's logits are not finite at position {}",
                  position_);
    }
  }
  ++agreement.positions;
  agreement.divergence_sum += divergence(wanted, logits);
  agreement.same_best += best_of(wanted) == best_of(logits);
}

}  // namespace tinyloop
