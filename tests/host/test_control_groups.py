"""The limits of containers, from files as the kernel writes them."""

import os

import pytest

from runner.host import machine
from runner.host.machine import cpu_limit, memory_left, memory_limit


def system(root, groups):
    """A root whose process has these control groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    return root


def write(root, name, text):
    path = root / "sys/fs/cgroup" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_container_of_version_2_sees_its_group_at_the_root(tmp_path):
    root = system(tmp_path, "0::/docker/abc\n")
    write(root, "cpu.max", "150000 100000\n")
    write(root, "memory.max", "1048576\n")
    assert (cpu_limit(root), memory_limit(root)) == (1.5, 2**20)


def test_the_tightest_group_around_the_process_counts(tmp_path):
    root = system(tmp_path, "0::/user/job\n")
    write(root, "cpu.max", "max 100000\n")
    write(root, "user/cpu.max", "200000 100000\n")
    write(root, "user/job/cpu.max", "max 100000\n")
    write(root, "user/job/memory.max", "4096\n")
    write(root, "other/cpu.max", "1000 100000\n")
    assert (cpu_limit(root), memory_limit(root)) == (2.0, 4096)


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path):
    root = system(tmp_path, "4:memory:/job\n3:cpuset:/\n1:cpu,cpuacct:/docker/abc\n0::/\n")
    write(root, "cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
    write(root, "cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(root, "memory/job/memory.limit_in_bytes", "8192\n")
    write(root, "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert (cpu_limit(root), memory_limit(root)) == (0.5, 8192)


def test_memory_that_is_left_includes_the_cache_of_files(tmp_path):
    root = system(tmp_path, "4:memory:/job\n0::/user/job\n")
    assert memory_left(root) is None
    write(root, "user/job/memory.max", "10000\n")
    write(root, "user/job/memory.current", "9000\n")
    assert memory_left(root) == 1000
    write(root, "user/job/memory.stat", "anon 1000\nfile 8000\nactive_file 3000\ninactive_file 4000\nbroken\n")
    assert memory_left(root) == 8000
    write(root, "memory/job/memory.limit_in_bytes", "5000\n")
    write(root, "memory/job/memory.usage_in_bytes", "6000\n")
    write(root, "memory/job/memory.stat", "inactive_file 4000\ntotal_inactive_file 3000\n")
    assert memory_left(root) == 2000


@pytest.mark.parametrize("text", ["max 100000", "-1 100000", "0 100000", "100000 0", "", "1", "a b", "1 2 3"])
def test_no_limit(tmp_path, text):
    root = system(tmp_path, "0::/\n")
    write(root, "cpu.max", text)
    assert cpu_limit(root) is None


def test_a_machine_without_control_groups(tmp_path):
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (None, None)
    assert cpu_limit(system(tmp_path, "not a line of the kernel\n")) is None


def test_the_cores_of_a_container_are_those_of_its_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64))
    found = []
    for limit in (None, 0.2, 1.0, 2.5, 100.0):
        monkeypatch.setattr(machine, "cpu_limit", lambda limit=limit: limit)
        found.append(machine.usable_cores())
    assert found == [64, 1, 1, 3, 64]


def test_a_control_group_limits_the_memory(monkeypatch):
    monkeypatch.setattr(machine, "memory_limit", lambda: 2**20)
    assert machine.memory_bytes() == 2**20
