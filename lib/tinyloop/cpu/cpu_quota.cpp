// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self/cgroup and the files of the groups that it names.
#include "tinyloop/cpu/cpu_quota.h"

#include <algorithm>
#include <fstream>

namespace tinyloop {
namespace {

void lower(std::optional<double>& least, double quota, double period) {
  if (quota <= 0.0 || period <= 0.0) return;
  least = std::min(least.value_or(quota / period), quota / period);
}

// One group's own limit.
void read_group(const std::string& folder, bool second_version, std::optional<double>& least) {
  double quota = 0.0, period = 0.0;
  if (second_version) {
    // "max 100000": no limit, and no number
    if (std::ifstream(folder + "/cpu.max") >> quota >> period) lower(least, quota, period);
    return;
  }
  // -1: no limit
  if (std::ifstream(folder + "/cpu.cfs_quota_us") >> quota &&
      std::ifstream(folder + "/cpu.cfs_period_us") >> period) {
    lower(least, quota, period);
  }
}

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  // Lines "0::/path" (version 2) or "4:cpu,cpuacct:/path".
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool second_version = controllers == ",,";
    if (!second_version && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mounted = root + "/sys/fs/cgroup" + (second_version ? "" : "/cpu");
    // Inside a container the path may not be there, but the mount's root is its group.
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      read_group(mounted + path, second_version, least);
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace tinyloop
