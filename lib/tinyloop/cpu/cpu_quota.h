// SPDX-License-Identifier: Apache-2.0
// How many CPUs' worth of time the control groups of this process allow, as containers set it. The
// affinity mask, which says which CPUs, is worker_threads' business.
#pragma once

#include <optional>
#include <string>

namespace tinyloop {

// The least quota of the process's group and the groups around it, in CPUs: cpu.max of version 2,
// cpu.cfs_quota_us over cpu.cfs_period_us of version 1 (Linux, Documentation/admin-guide). No value
// without any. `root` is where /proc and /sys are; another one is for tests.
std::optional<double> cpu_quota(const std::string& root = "/");

}  // namespace tinyloop
