// SPDX-License-Identifier: Apache-2.0
// Unicode's normalisation forms, as of Unicode 9: what Hugging Face's tokenizers go by. Time grows
// with the text, whatever marks it piles up.
#pragma once

#include <string>
#include <string_view>

namespace tinyloop {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// text: well-formed UTF-8.
std::string normalise(std::string_view text, NormalForm form);

}  // namespace tinyloop
