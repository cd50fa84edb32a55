// SPDX-License-Identifier: Apache-2.0
// Tells the small text that Git LFS leaves in place of a large file
// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md), so that a message can say so.
// Reads nothing.
#pragma once

#include <string_view>

#include "tinyloop/error.h"

namespace tinyloop {

// Throws Error(data) naming `where` if the content is such a pointer.
inline void refuse_lfs_pointer(std::string_view content, std::string_view where) {
  if (!content.starts_with("version https://git-lfs.github.com/spec/")) return;
  throw Error(ErrorKind::data, "{}: is a Git LFS pointer, not the file itself; run 'git lfs pull'",
              where);
}

}  // namespace tinyloop
