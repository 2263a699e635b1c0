"""The garbage collector while modules are imported: it would go through all of them over and over, and free nothing."""

import gc


class Resting:
    """Within the block nothing is collected; what was made there is left out of later collections. For imports: who
    makes garbage in cycles there keeps it."""

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.freeze()
            gc.enable()
