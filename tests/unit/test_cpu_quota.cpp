// SPDX-License-Identifier: Apache-2.0
// Quotas of control groups, read from made-up /proc and /sys.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temporary_folder.h"
#include "tinyloop/cpu/cpu_quota.h"

namespace tinyloop {
namespace {

void put(const TemporaryFolder& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = root.file(path);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST_CASE("without control groups or limits there is no quota") {
  const TemporaryFolder root;
  CHECK(!cpu_quota(root.path()));
  put(root, "proc/self/cgroup", "0::/\n");
  CHECK(!cpu_quota(root.path()));
  put(root, "sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(!cpu_quota(root.path()));
  put(root, "proc/self/cgroup", "no line of a group\n:\n");
  CHECK(!cpu_quota(root.path()));
}

TEST_CASE("version 2: the least of the group's quota and those around it") {
  const TemporaryFolder root;
  put(root, "proc/self/cgroup", "0::/a/b\n");
  put(root, "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  CHECK(cpu_quota(root.path()) == 1.5);
  put(root, "sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  CHECK(cpu_quota(root.path()) == 1.5);
  put(root, "sys/fs/cgroup/a/b/cpu.max", "25000 50000\n");
  CHECK(cpu_quota(root.path()) == 0.5);
}

TEST_CASE("in a container the mount's root is the group, wherever the path leads") {
  const TemporaryFolder root;
  put(root, "proc/self/cgroup", "0::/../../outside\n");
  put(root, "sys/fs/cgroup/cpu.max", "300000 100000\n");
  CHECK(cpu_quota(root.path()) == 3.0);
}

TEST_CASE("version 1: the quota over the period of the cpu controller") {
  const TemporaryFolder root;
  put(root, "proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n3:cpuset:/s\n");
  put(root, "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
  put(root, "sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  CHECK(!cpu_quota(root.path()));
  put(root, "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "250000\n");
  CHECK(cpu_quota(root.path()) == 2.5);
}

}  // namespace
}  // namespace tinyloop
