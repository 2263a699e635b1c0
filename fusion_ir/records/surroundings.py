"""The state of a machine while kernels were timed on it, which could explain a time besides the kernel."""

from fusion_ir.records.base import Record
from fusion_ir.records.device import Ceilings


class Moment(Record):
    """The state of the machine at one moment. None: the machine does not say.

    clock_mhz: of each CPU used, or of the multiprocessors. throttled: why clocks are held down at this moment. load:
    tasks that ran or wanted to, on average over the last minute. runnable: such tasks at this moment, the one that
    looks included. processes: number of those that compute on a CUDA device, ours among them.
    """

    clock_mhz: tuple[float, ...] | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] | None = None
    load: float | None = None
    runnable: int | None = None
    processes: int | None = None


class Surroundings(Record):
    """The machine before and after the rounds of one race, and what happened to us meanwhile. None: it does not say.

    system: release of the operating system (cpu), version of the driver (cuda). cpus: those that threads ran on.
    huge_pages: the system's policy; ours is to ask for them. steal_ms: time that a hypervisor took from these CPUs.
    quota_ms: time that our control group's CPU quota had us wait. switches: how often our threads had to make room for
    others. faults: pages that had to be read from disk. ceilings: of the device, as far as they were known then.

    others_ms: CPU time that other processes used on these CPUs. waited_ms: time in which our threads were ready to run
    while others were running (cuda: the thread that queues kernels). Where that time, or the hypervisor's, was much of
    a visit to a candidate, its samples were taken again. repeated: how many times. disturbed: the share of visits of
    which every try was like that. On a CUDA device, CPU times are those of the host's CPUs that we may use.
    """

    start: Moment
    end: Moment
    seconds: float
    system: str = ""
    cpus: tuple[int, ...] = ()
    base_clock_mhz: float | None = None
    governor: str | None = None
    huge_pages: str | None = None
    power_limit_w: float | None = None
    steal_ms: float | None = None
    others_ms: float | None = None
    waited_ms: float | None = None
    repeated: int | None = None
    disturbed: float | None = None
    quota_ms: float | None = None
    throttles: float | None = None  # times that heat slowed a CPU down
    switches: int | None = None
    faults: int | None = None
    ceilings: Ceilings | None = None
