"""Whether the service of this container answers on /livez: exit code 0, or 1 and why not. Asks past every proxy."""

import http.client
import os
import sys

SECONDS = 4.0


def main() -> int:
    """Asks once. Returns the exit code."""
    port = int(os.environ.get("FUSEPLAN_PORT", "8080"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"127.0.0.1:{port}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != http.client.OK:
        print(f"127.0.0.1:{port}: expected 200 of /livez, got {status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
