"""groups - the GPU suite's checks, group by group, in the order in which they run."""

import checks
import network_checks
import pytorch_checks
import strategy_checks

# The checks of the CPU in the GPU's place (--rehearse).
REHEARSED = {"like_cpu", "recorded", "plans", "ranks_2", "ranks_3", "killed", "tf32"}


def groups_of(driver):
    """{group: its checks}.  Several ranks come after one rank, since NCCL may hang where ranks
    share a GPU.  compute-sanitizer is slow, so last.  driver: the program whose strategies there is
    a check each of, or None."""
    return {
        "one": checks.ONE_RANK,
        "networks": network_checks.ONE_RANK,
        "several": checks.SEVERAL_RANKS,
        "networks_2": network_checks.TWO_RANKS,
        "strategies": strategy_checks.all_of(driver) if driver else [],
        "pytorch": pytorch_checks.ALL,
        "sanitizer": checks.SANITIZER}
