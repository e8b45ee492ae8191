// Limits that control groups set for this process (Linux, versions 1 and 2).
#pragma once

#include <cstdint>
#include <string>

namespace deepgemm::base {

// CPUs' worth of time that the process may use: the smallest quota on the way from its group up to
// the root; 0 when there is none. `proc` and `cgroup` are the mounted file systems, normally /proc
// and /sys/fs/cgroup.
double cpu_quota(const std::string& proc, const std::string& cgroup);

// Bytes of memory, likewise; 0 when there is no limit.
int64_t memory_limit(const std::string& proc, const std::string& cgroup);

// Bytes of memory that the process can still take: the least that a group on that way leaves, where
// file cache that can be had counts as free; -1 when there is no limit.
int64_t memory_left(const std::string& proc, const std::string& cgroup);

// First word of a file; empty when it cannot be read.
std::string read_word(const std::string& path);

}  // namespace deepgemm::base
