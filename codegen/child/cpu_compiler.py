"""Child process that runs the system's C++ compiler, and any other command that must not outlive its time."""

import os
import subprocess
from typing import Any

from codegen.child.serve import Channel, limit_cpu, serve


def run(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Runs `argv` in `cwd`, and with `environment` beside our own. What it prints goes where our own output goes, which
    the parent reads, up to a limit."""
    # Inherited; a compiler driver may run several threads.
    limit_cpu(message.get("cpu_seconds", 4 * message["seconds"]))
    try:
        environment = os.environ | message.get("environment", {})
        done = subprocess.run(
            message["argv"], cwd=message["cwd"], env=environment, stdin=subprocess.DEVNULL, check=False
        )
    except OSError as e:
        return {"returncode": 127, "problem": f"{message['argv'][0]}: {e.strerror}"}
    return {"returncode": done.returncode, "problem": ""}


if __name__ == "__main__":
    serve({"run": run})
