"""facts - facts about the machine, for the GPU suite's log: commands to run before the checks, and
others after a check that fails."""

import time

from process import PATIENCE, bounded

ONE_S, ALL_S = PATIENCE / 4, PATIENCE / 2  # nvidia-smi has been seen to take more than a minute

FACTS = ["date -u", "cat commit 2>/dev/null || git describe --always --dirty", "nvidia-smi",
         "uname -a", "cat /etc/os-release",
         "cat /proc/driver/nvidia/version", "ls -l /dev/nvidia* /dev/shm", "nvcc --version",
         "ldconfig -p | grep -E 'cuda|cudnn|nccl|cublas|nvrtc|nvJitLink'", "ip -brief address",
         "ulimit -a", "nproc", "free -m", "df -h /dev/shm /tmp", "which cuda-gdb gdb ncu",
         "env | grep -E '^(CUDA|NVIDIA|NCCL|CUDNN|CUBLAS|LD_|DPTRAIN)' | "
         "grep -viE '^[^=]*(key|token|secret|passw)'",
         "dmesg 2>/dev/null | grep -iE 'nvrm|xid' | tail -n 20", "nvidia-smi -q",
         "nvidia-smi topo -m", "python3 -m pip list 2>/dev/null | grep -iE 'nvidia|torch|nccl'"]

# Commands that show the driver's messages about a GPU that failed.
AFTERMATH = ["dmesg 2>/dev/null | grep -iE 'nvrm|xid' | tail -n 20",
             "nvidia-smi --query-gpu=name,pstate,memory.used,utilization.gpu,temperature.gpu,"
             "ecc.errors.uncorrected.volatile.total --format=csv"]


def note_answers(suite, commands, one_s, all_s):
    until = time.monotonic() + min(all_s, suite.left() / 2)
    for command in commands:
        left = until - time.monotonic()
        if left <= 0:
            suite.note(f"$ {command}\n(not asked: the answers before took their time)")
            continue
        status, text = bounded(["sh", "-c", command], min(one_s, left))
        suite.note(f"$ {command}\n{text}" + ("" if status is not None else "\n(took too long)"))


def note_facts(suite):
    note_answers(suite, FACTS, ONE_S, ALL_S)


def note_aftermath(suite):
    note_answers(suite, AFTERMATH, 5, 10)
